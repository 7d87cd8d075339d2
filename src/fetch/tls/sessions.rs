//! TLS sessions kept for resumption, by server, within a bound of memory.
//!
//! Where they do not fit, those of servers for which nothing is queued go first. If there are none of these, the
//! sessions of a new server are not kept: in a rotation over more servers than fit, each that replaced another would
//! be replaced before its use.

use std::collections::VecDeque;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;

use super::{
    ClientSessionStore, CrawlTime, NamedGroup, ServerName, TimeProvider, Tls12ClientSessionValue,
    Tls13ClientSessionValue,
};
use crate::base::secret::Secret;
use crate::base::slab::{Key, Slab};
use crate::base::time::Wall;

/// The sessions of all connections of a crawl.
pub(super) struct Sessions {
    time: Arc<CrawlTime>,
    chain_age_max: Option<Duration>,
    table: Mutex<Table<Tls12ClientSessionValue, Tls13ClientSessionValue>>,
}

impl Sessions {
    /// Keeps none yet, and at most about so many bytes.
    pub(super) fn new(
        bytes_max: u64,
        chain_age_max: Option<Duration>,
        time: Arc<CrawlTime>,
    ) -> Self {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        Sessions {
            time,
            chain_age_max,
            table: Mutex::new(Table::new(bytes_max)),
        }
    }

    /// Whether sessions are of no more use once their certificates were seen long ago.
    pub(super) fn limits_chains(&self) -> bool {
        self.chain_age_max.is_some()
    }

    /// A full handshake showed the certificates of a server, of which the first expires then.
    pub(super) fn note_chain(&self, server: &ServerName<'static>, expires: Option<Wall>) {
        let now = self.now();
        let expires = expires.map(|expires| Duration::from_nanos(expires.0));
        let chain = Chain { seen: now, expires };
        self.table()
            .store(server.clone(), now, |kept| kept.chain = Some(chain));
    }

    /// Checks one server, and evicts its sessions if they are too old. Called once per turn, so that all are
    /// checked in turn.
    pub(super) fn evict_old(&self) {
        let now = self.now();
        self.table().check_age(now);
    }

    /// Nothing is queued for a server: its sessions are the first to be evicted, until it has others.
    pub(super) fn release(&self, server: &ServerName<'static>) {
        self.table().release(server);
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
        let mut table = self.table();
        if let Some(age_max) = self.chain_age_max {
            table.drop_stale(server, age_max, self.now());
        }
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
        let mut table = self.table();
        if let Some(age_max) = self.chain_age_max {
            table.drop_stale(server, age_max, self.now());
        }
        table.take(server, |kept| kept.tickets.pop_back())
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
    keys: HashMap<ServerName<'static>, Key, Secret>,
    servers: Slab<Kept<S, T>>,
    /// Servers for which nothing is queued, in the order in which they are evicted, with a number. Void if the server
    /// has another number, or none.
    spare: VecDeque<(Key, u64)>,
    /// The next number.
    next_spare: u64,
    /// Slot of the server whose age was checked last.
    next: u32,
    sessions: usize,
    bytes_max: usize,
}

/// What is kept of a server.
struct Kept<S, T> {
    name: ServerName<'static>,
    /// The key exchange that it chose.
    group: Option<NamedGroup>,
    tls12: Option<S>,
    /// Oldest first.
    tickets: VecDeque<T>,
    /// The certificates that it showed last.
    chain: Option<Chain>,
    /// When the last of it was stored, since the epoch.
    stored: Duration,
    /// Its number among the spare ones.
    spare: Option<u64>,
}

/// When a server showed its certificates, and when the first of them expires, since the epoch.
#[derive(Clone, Copy)]
struct Chain {
    seen: Duration,
    expires: Option<Duration>,
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
    fn new(bytes_max: usize) -> Self {
        Table {
            keys: HashMap::with_hasher(Secret::random()),
            servers: Slab::new(),
            spare: VecDeque::new(),
            next_spare: 0,
            next: 0,
            sessions: 0,
            bytes_max,
        }
    }

    fn bytes(&self) -> usize {
        self.sessions * SESSION_BYTES + self.servers.len() * SERVER_BYTES
    }

    fn get<'a>(&'a self, server: &'a ServerName<'_>) -> Option<&'a Kept<S, T>> {
        let keys: &HashMap<ServerName<'_>, Key, Secret> = &self.keys;
        self.servers.get(*keys.get(server)?)
    }

    /// Stores something of a server, and makes room for it.
    fn store(
        &mut self,
        server: ServerName<'static>,
        now: Duration,
        edit: impl FnOnce(&mut Kept<S, T>),
    ) {
        let servers = &mut self.servers;
        let key = *self.keys.entry(server).or_insert_with_key(|name| {
            servers.insert(Kept {
                name: name.clone(),
                group: None,
                tls12: None,
                tickets: VecDeque::new(),
                chain: None,
                stored: now,
                spare: None,
            })
        });
        let kept = servers.get_mut(key).expect("each key has its server");
        let before = kept.sessions();
        edit(kept);
        kept.stored = now;
        kept.spare = None;
        self.sessions = self.sessions + kept.sessions() - before;
        if self.bytes() > self.bytes_max / 2 {
            self.trim(key, TICKETS_OF_MANY);
        }
        self.make_room(key);
    }

    /// Drops the oldest tickets of a server beyond so many.
    fn trim(&mut self, key: Key, most: usize) {
        let kept = self.servers.get_mut(key).expect("it was just stored");
        let dropped = kept.tickets.len().saturating_sub(most);
        kept.tickets.drain(..dropped);
        self.sessions -= dropped;
    }

    /// Evicts spare servers while there is too much, and then what was just stored of this one.
    fn make_room(&mut self, new: Key) {
        while self.bytes() > self.bytes_max {
            let Some((key, number)) = self.spare.pop_front() else {
                return self.evict(new);
            };
            if is_spare(&self.servers, key, number) {
                self.evict(key);
            }
        }
    }

    /// Drops the sessions of a server whose certificates were seen too long ago, or have expired: a session is resumed
    /// without them.
    fn drop_stale(&mut self, server: &ServerName<'_>, age_max: Duration, now: Duration) {
        let keys: &HashMap<ServerName<'_>, Key, Secret> = &self.keys;
        let Some(key) = keys.get(server).copied() else {
            return;
        };
        // Servers that were first seen at the same time are not all due at the same time.
        let spread = age_max / 2;
        let share = self.keys.hasher().hash_one(server) % 1024;
        let age_max = spread + spread * (share as u32) / 1023;
        let kept = self.servers.get_mut(key).expect("each key has its server");
        let is_fresh = kept.chain.is_some_and(|chain| {
            let is_valid = chain.expires.is_none_or(|expires| now < expires);
            is_valid && now.saturating_sub(chain.seen) < age_max
        });
        if !is_fresh {
            self.sessions -= kept.sessions();
            kept.tls12 = None;
            kept.tickets.clear();
        }
    }

    /// Takes a session of a server.
    fn take<R>(
        &mut self,
        server: &ServerName<'static>,
        take: impl FnOnce(&mut Kept<S, T>) -> Option<R>,
    ) -> Option<R> {
        let key = *self.keys.get(server)?;
        let taken = take(self.servers.get_mut(key)?);
        self.sessions -= usize::from(taken.is_some());
        taken
    }

    /// Makes a server a spare one.
    fn release(&mut self, server: &ServerName<'static>) {
        if let Some(key) = self.keys.get(server) {
            self.spare_one(*key);
        }
    }

    fn spare_one(&mut self, key: Key) {
        let number = self.next_spare;
        if let Some(kept) = self.servers.get_mut(key)
            && kept.spare.is_none()
        {
            kept.spare = Some(number);
            self.next_spare += 1;
            self.spare.push_back((key, number));
        }
        if self.spare.len() > 2 * self.servers.len() + SPARE_SLACK {
            let servers = &self.servers;
            self.spare
                .retain(|(key, number)| is_spare(servers, *key, *number));
        }
    }

    fn evict(&mut self, key: Key) {
        let kept = self.servers.remove(key);
        let kept = kept.expect("a server is evicted once");
        self.keys.remove(&kept.name);
        self.sessions -= kept.sessions();
    }

    /// Checks the age of the next server.
    fn check_age(&mut self, now: Duration) {
        self.next = match self.next + 1 < self.servers.slots() {
            true => self.next + 1,
            false => 0,
        };
        let Some(key) = self.servers.key_of(self.next) else {
            return;
        };
        let age = self
            .servers
            .get(key)
            .map(|kept| now.saturating_sub(kept.stored));
        match age {
            Some(age) if age >= AGE_MAX => self.evict(key),
            Some(age) if age >= SPARE_AFTER => self.spare_one(key),
            _ => {}
        }
    }
}

/// Whether a server has this number among the spare ones.
fn is_spare<S, T>(servers: &Slab<Kept<S, T>>, key: Key, number: u64) -> bool {
    servers
        .get(key)
        .is_some_and(|kept| kept.spare == Some(number))
}

/// Tickets of one server: as many as connections that begin before one of them brings more.
const TICKETS_PER_SERVER: usize = 8;

/// The same once half of the memory is taken. Most servers send two tickets.
const TICKETS_OF_MANY: usize = 2;

/// About what a session takes, which rustls does not tell: keys, ticket and the server's certificates.
const SESSION_BYTES: usize = 4 * 1024;

/// About what a server takes beside its sessions.
const SERVER_BYTES: usize = 256;

/// Void entries among the spare servers beyond as many as there are servers.
const SPARE_SLACK: usize = 64;

/// Age from which sessions are evicted. RFC 8446, section 4.6.1 permits seven days; few servers accept a
/// ticket after one.
const AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// Age from which they are evicted before others, if their memory is needed.
const SPARE_AFTER: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    fn server(number: usize) -> ServerName<'static> {
        let name = format!("{number}.test");
        ServerName::try_from(name).expect("a name")
    }

    /// A table for so many servers with one session each.
    fn table(servers: usize) -> Table<(), usize> {
        Table::new(servers * (SESSION_BYTES + SERVER_BYTES))
    }

    fn kept(table: &Table<(), usize>) -> Vec<usize> {
        let is_kept = |number: &usize| table.get(&server(*number)).is_some();
        let kept: Vec<usize> = (0..100).filter(is_kept).collect();
        assert_eq!(
            (table.keys.len(), table.servers.len()),
            (kept.len(), kept.len())
        );
        kept
    }

    fn add(table: &mut Table<(), usize>, number: usize, now: Duration) {
        table.store(server(number), now, |kept| kept.add_ticket(number));
    }

    #[test]
    fn new_servers_replace_those_for_which_nothing_is_queued_and_no_others() {
        let mut table = table(3);
        for number in 0..5 {
            add(&mut table, number, Duration::ZERO);
        }
        assert_eq!(kept(&table), [0, 1, 2]);
        assert_eq!(table.sessions, 3);
        for number in [1, 0, 1] {
            table.release(&server(number));
        }
        add(&mut table, 5, Duration::ZERO);
        assert_eq!(
            kept(&table),
            [0, 2, 5],
            "the first that was released goes first"
        );
        // It has more sessions, so something was queued again.
        table.take(&server(0), |kept| kept.tickets.pop_back());
        add(&mut table, 0, Duration::ZERO);
        add(&mut table, 6, Duration::ZERO);
        assert_eq!(kept(&table), [0, 2, 5]);
        let mut none = self::table(0);
        add(&mut none, 1, Duration::ZERO);
        none.release(&server(1));
        assert_eq!((kept(&none).len(), none.sessions), (0, 0));
    }

    #[test]
    fn in_a_rotation_over_more_servers_than_fit_those_that_fit_resume() {
        let mut table = table(50);
        let mut resumed = 0;
        for step in 0..1000 {
            let number = step % 100;
            let ticket = table.take(&server(number), |kept| kept.tickets.pop_back());
            resumed += usize::from(ticket.is_some());
            add(&mut table, number, Duration::ZERO);
        }
        assert!(resumed >= 49 * 9, "{resumed}");
    }

    #[test]
    fn bytes_are_bounded_though_every_server_sends_many_tickets() {
        let mut table = table(16);
        for number in 0..8 {
            for _ in 0..20 {
                add(&mut table, number, Duration::ZERO);
                assert!(table.bytes() <= table.bytes_max);
            }
        }
        assert_eq!(kept(&table), [0, 1, 2, 3, 4]);
        let tickets = |number: usize| table.get(&server(number)).map(Kept::sessions);
        assert_eq!(
            [0, 4].map(tickets),
            [Some(TICKETS_PER_SERVER), Some(TICKETS_OF_MANY)]
        );
        let all: usize = (0..8).filter_map(tickets).sum();
        assert_eq!(table.sessions, all);
        for left in (0..TICKETS_PER_SERVER).rev() {
            let ticket = table.take(&server(0), |kept| kept.tickets.pop_back());
            assert_eq!(
                (ticket, table.sessions),
                (Some(0), all - TICKETS_PER_SERVER + left)
            );
        }
        let none = table.take(&server(0), |kept| kept.tickets.pop_back());
        assert_eq!(none, None);
    }

    #[test]
    fn servers_that_are_released_again_and_again_leave_no_void_entries() {
        let mut table = table(10);
        for step in 0..10_000 {
            add(&mut table, step % 5, Duration::ZERO);
            table.release(&server(step % 5));
        }
        assert!(
            table.spare.len() <= 2 * 5 + SPARE_SLACK + 1,
            "{}",
            table.spare.len()
        );
    }

    #[test]
    fn old_sessions_are_evicted_and_older_ones_make_room() {
        let mut table = table(4);
        for number in 0..4 {
            add(&mut table, number, Duration::ZERO);
        }
        let check = |table: &mut Table<(), usize>, now: Duration| {
            for _ in 0..20 {
                table.check_age(now);
            }
        };
        let later = SPARE_AFTER - Duration::from_secs(1);
        table.take(&server(0), |kept| kept.tickets.pop_back());
        add(&mut table, 0, later);
        check(&mut table, later);
        add(&mut table, 4, later);
        assert_eq!(kept(&table), [0, 1, 2, 3]);
        check(&mut table, SPARE_AFTER);
        add(&mut table, 5, SPARE_AFTER);
        assert_eq!(kept(&table), [0, 2, 3, 5]);
        check(&mut table, AGE_MAX);
        assert_eq!(kept(&table), [0, 5]);
        assert_eq!(table.sessions, 2);
    }
}
