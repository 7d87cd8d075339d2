//! TLS sessions kept for resumption, by server: bounded by number of servers, bytes and age.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;

use super::{
    ClientSessionStore, CrawlTime, NamedGroup, ServerName, TimeProvider, Tls12ClientSessionValue,
    Tls13ClientSessionValue,
};
use crate::base::secret::Secret;

/// The sessions of all connections of a crawl.
pub(super) struct Sessions {
    time: Arc<CrawlTime>,
    table: Mutex<Table<Tls12ClientSessionValue, Tls13ClientSessionValue>>,
}

impl Sessions {
    /// Keeps none yet, and those of `servers_max` servers at most.
    pub(super) fn new(servers_max: usize, time: Arc<CrawlTime>) -> Self {
        Sessions {
            time,
            table: Mutex::new(Table::new(servers_max)),
        }
    }

    /// Checks one server, and evicts its sessions if they are too old. Called once per turn, so that all are
    /// checked in turn.
    pub(super) fn evict_old(&self) {
        let now = self.now();
        self.table().evict_old(now);
    }

    fn now(&self) -> Duration {
        let time = self.time.current_time();
        time.map_or(Duration::ZERO, |time| Duration::from_secs(time.as_secs()))
    }

    fn table(&self) -> MutexGuard<'_, Table<Tls12ClientSessionValue, Tls13ClientSessionValue>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, server: ServerName<'static>, group: NamedGroup) {
        let now = self.now();
        self.table()
            .store(server, now, |kept| kept.group = Some(group));
    }

    fn kx_hint(&self, server: &ServerName<'_>) -> Option<NamedGroup> {
        let table = self.table();
        table.get(server)?.group
    }

    fn set_tls12_session(&self, server: ServerName<'static>, session: Tls12ClientSessionValue) {
        let now = self.now();
        self.table()
            .store(server, now, |kept| kept.tls12 = Some(session));
    }

    fn tls12_session(&self, server: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        let table = self.table();
        table.get(server)?.tls12.clone()
    }

    fn remove_tls12_session(&self, server: &ServerName<'static>) {
        self.table().take(server, |kept| kept.tls12.take());
    }

    fn insert_tls13_ticket(&self, server: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let now = self.now();
        self.table()
            .store(server, now, |kept| kept.add_ticket(ticket));
    }

    fn take_tls13_ticket(&self, server: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.table().take(server, |kept| kept.tickets.pop_back())
    }
}

/// Sessions are secrets, and not printed.
impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sessions")
    }
}

/// Servers and their sessions, of TLS 1.2 and 1.3.
struct Table<S, T> {
    servers: HashMap<ServerName<'static>, Kept<S, T>, Secret>,
    /// The servers in the order in which they came: the first is evicted first.
    order: VecDeque<ServerName<'static>>,
    /// Index in `order` of the next server whose age is checked.
    next: usize,
    sessions: usize,
    servers_max: usize,
}

/// What is kept of a server.
struct Kept<S, T> {
    /// The key exchange that it chose.
    group: Option<NamedGroup>,
    tls12: Option<S>,
    /// Oldest first.
    tickets: VecDeque<T>,
    /// When the last of it was stored, since the epoch.
    stored: Duration,
}

impl<S, T> Kept<S, T> {
    fn add_ticket(&mut self, ticket: T) {
        if self.tickets.len() == TICKETS_PER_SERVER {
            self.tickets.pop_front();
        }
        self.tickets.push_back(ticket);
    }

    fn sessions(&self) -> usize {
        usize::from(self.tls12.is_some()) + self.tickets.len()
    }
}

impl<S, T> Table<S, T> {
    fn new(servers_max: usize) -> Self {
        Table {
            servers: HashMap::with_hasher(Secret::random()),
            order: VecDeque::new(),
            next: 0,
            sessions: 0,
            servers_max,
        }
    }

    fn bytes(&self) -> usize {
        self.sessions * SESSION_BYTES
    }

    fn get<'a>(&'a self, server: &'a ServerName<'_>) -> Option<&'a Kept<S, T>> {
        let servers: &HashMap<ServerName<'_>, Kept<S, T>, Secret> = &self.servers;
        servers.get(server)
    }

    /// Stores something of a server, and evicts the servers that came first while there is too much.
    fn store(
        &mut self,
        server: ServerName<'static>,
        now: Duration,
        edit: impl FnOnce(&mut Kept<S, T>),
    ) {
        if !self.servers.contains_key(&server) {
            self.order.push_back(server.clone());
        }
        let kept = self.servers.entry(server).or_insert_with(|| Kept {
            group: None,
            tls12: None,
            tickets: VecDeque::new(),
            stored: now,
        });
        let before = kept.sessions();
        edit(kept);
        kept.stored = now;
        self.sessions = self.sessions + kept.sessions() - before;
        let bytes_max = self.servers_max * BYTES_PER_SERVER;
        while self.servers.len() > self.servers_max || self.bytes() > bytes_max {
            self.evict(0);
        }
    }

    /// Takes a session of a server.
    fn take<R>(
        &mut self,
        server: &ServerName<'static>,
        take: impl FnOnce(&mut Kept<S, T>) -> Option<R>,
    ) -> Option<R> {
        let taken = take(self.servers.get_mut(server)?);
        self.sessions -= usize::from(taken.is_some());
        taken
    }

    /// Evicts the server at this index of the order.
    fn evict(&mut self, index: usize) {
        let server = self.order.remove(index).expect("an index of the order");
        let kept = self.servers.remove(&server);
        let kept = kept.expect("a server of the order is kept");
        self.sessions -= kept.sessions();
    }

    fn evict_old(&mut self, now: Duration) {
        self.next = if self.next < self.order.len() {
            self.next
        } else {
            0
        };
        let Some(server) = self.order.get(self.next) else {
            return;
        };
        if now.saturating_sub(self.servers[server].stored) < AGE_MAX {
            self.next += 1;
        } else {
            self.evict(self.next);
        }
    }
}

/// Tickets of one server: as many as connections that begin before one of them brings more.
const TICKETS_PER_SERVER: usize = 8;

/// About what a session takes, which rustls does not tell: keys, ticket and the server's certificates.
const SESSION_BYTES: usize = 4 * 1024;

/// Bound of the bytes of all sessions, by the number of servers: most servers send two tickets.
const BYTES_PER_SERVER: usize = 2 * SESSION_BYTES;

/// Age from which sessions are evicted. RFC 8446, section 4.6.1 permits seven days; few servers accept a
/// ticket after one.
const AGE_MAX: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    fn server(number: usize) -> ServerName<'static> {
        let name = format!("{number}.test");
        ServerName::try_from(name).expect("a name")
    }

    fn kept(table: &Table<(), usize>) -> Vec<usize> {
        let is_kept = |number: &usize| table.get(&server(*number)).is_some();
        (0..100).filter(is_kept).collect()
    }

    fn add(table: &mut Table<(), usize>, number: usize, now: Duration) {
        table.store(server(number), now, |kept| kept.add_ticket(number));
    }

    #[test]
    fn the_servers_that_came_first_are_evicted_when_there_are_too_many() {
        let mut table = Table::new(3);
        for number in 0..5 {
            add(&mut table, number, Duration::ZERO);
        }
        assert_eq!(kept(&table), [2, 3, 4]);
        assert_eq!(table.sessions, 3);
        let mut none = Table::new(0);
        add(&mut none, 1, Duration::ZERO);
        assert_eq!((kept(&none).len(), none.sessions), (0, 0));
    }

    #[test]
    fn bytes_are_bounded_though_every_server_sends_many_tickets() {
        let mut table = Table::new(8);
        for number in 0..8 {
            for _ in 0..20 {
                add(&mut table, number, Duration::ZERO);
                assert!(table.bytes() <= 8 * BYTES_PER_SERVER);
            }
        }
        assert_eq!(kept(&table), [6, 7]);
        assert_eq!(table.sessions, 16);
        for left in (0..TICKETS_PER_SERVER).rev() {
            let ticket = table.take(&server(7), |kept| kept.tickets.pop_back());
            assert_eq!((ticket, table.sessions), (Some(7), 8 + left));
        }
        let none = table.take(&server(7), |kept| kept.tickets.pop_back());
        assert_eq!((none, table.sessions), (None, 8));
    }

    #[test]
    fn old_sessions_are_evicted_wherever_they_stand_in_the_order() {
        let mut table = Table::new(10);
        for number in 0..4 {
            add(&mut table, number, Duration::ZERO);
        }
        let later = AGE_MAX - Duration::from_secs(1);
        add(&mut table, 0, later);
        add(&mut table, 4, later);
        for _ in 0..10 {
            table.evict_old(later);
        }
        assert_eq!(kept(&table), [0, 1, 2, 3, 4]);
        for _ in 0..10 {
            table.evict_old(AGE_MAX);
        }
        assert_eq!(kept(&table), [0, 4]);
        assert_eq!(table.sessions, 3);
    }
}
