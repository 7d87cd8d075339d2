//! A server of thousands of connections on one thread: one epoll, and one timer that keeps each step's
//! exact time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use crate::base::slab::{Key, Slab};
use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use self::connection::{Connection, Life, Progress, Underway};
use super::http::{Request, Step};
use super::stamp::{Clock, ask_for_stamps};
use super::stream::{self, ServerConnection, TlsConfig};

mod connection;

/// What the servers of an [`Engine`] do. Times are on the steady clock, as [`Clock`] reads it.
pub trait Service {
    /// State of a request under way.
    type Exchange;

    /// Answers a request that came to the listener of this number.
    fn answer(
        &mut self,
        listener: usize,
        request: &Request,
        arrived: Duration,
    ) -> Answer<Self::Exchange>;

    /// Answers a malformed request; `None` closes the connection.
    fn answer_malformed(&mut self, _arrived: Duration) -> Option<Answer<Self::Exchange>> {
        None
    }

    /// A reply was sent, or the client has gone before.
    fn ended(&mut self, exchange: Self::Exchange, end: End);

    /// A client has connected.
    fn connected(&mut self) {}

    /// Answers a datagram.
    fn answer_datagram(&mut self, _message: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// Answer to a request.
pub struct Answer<E> {
    /// Given back when it ends.
    pub exchange: E,
    /// The moment from which the steps' waits are counted.
    pub from: Duration,
    /// The steps of the reply.
    pub steps: Vec<Step>,
    /// Whether the connection ends with it.
    pub is_last: bool,
}

/// End of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All steps were taken and all bytes are with the kernel, or the connection was closed or reset
    /// as a step wanted it.
    Done {
        /// How many bytes were sent.
        bytes: usize,
        /// When the write began that took the last of them: a client that acts on the reply acts
        /// after that.
        left: Duration,
    },
    /// The client closed the connection before.
    Gone {
        /// When that was noticed.
        at: Duration,
    },
}

/// How late steps were that had to wait. A judge that is late itself must report it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lag {
    /// How many waited.
    pub steps: u64,
    /// By how much all of them were late.
    pub sum: Duration,
    /// By how much the latest was.
    pub max: Duration,
    /// How many were late by more than a millisecond.
    pub over: u64,
}

/// All servers on one thread.
pub struct Engine<S: Service> {
    service: S,
    epoll: OwnedFd,
    timer: OwnedFd,
    /// When the timer goes off, if it does.
    armed: Option<Duration>,
    listeners: Vec<TcpListener>,
    datagrams: Option<UdpSocket>,
    /// The clients speak TLS.
    tls: Option<TlsConfig>,
    /// Keeps the descriptor open that ends the engine.
    stop: OwnedFd,
    connections: Slab<Connection<S::Exchange>>,
    connections_max: usize,
    /// When which connection's next step is due.
    due: BinaryHeap<Reverse<(Duration, Key)>>,
    lag: Lag,
    clock: Clock,
    /// Accepting waits for a descriptor to become free, until then at the latest: it may be freed by
    /// another part of the process.
    full_until: Option<Duration>,
}

impl<S: Service> Engine<S> {
    /// Servers on these sockets, until `stop` is readable. The kernel stamps what arrives.
    ///
    /// # Errors
    /// The system refuses a descriptor or an option.
    pub fn new(
        service: S,
        listeners: Vec<TcpListener>,
        datagrams: Option<UdpSocket>,
        stop: OwnedFd,
    ) -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let engine = Engine {
            service,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            timer: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            armed: None,
            listeners,
            datagrams,
            tls: None,
            stop,
            connections: Slab::new(),
            connections_max: usize::MAX,
            due: BinaryHeap::new(),
            lag: Lag::default(),
            clock: Clock::read(),
            full_until: None,
        };
        engine.watch(&engine.timer, TIMER)?;
        engine.watch(&engine.stop, STOP)?;
        if let Some(socket) = &engine.datagrams {
            socket.set_nonblocking(true)?;
            engine.watch(socket, DATAGRAMS)?;
        }
        for listener in &engine.listeners {
            listener.set_nonblocking(true)?;
            ask_for_stamps(listener)?;
        }
        engine.watch_listeners()?;
        Ok(engine)
    }

    /// The same, which closes what connects beside so many.
    #[must_use]
    pub fn with_connections_max(mut self, max: usize) -> Self {
        self.connections_max = max;
        self
    }

    /// The same, whose clients speak TLS.
    #[must_use]
    pub fn with_tls(mut self, config: TlsConfig) -> Self {
        self.tls = Some(config);
        self
    }

    /// The service.
    pub fn service(&self) -> &S {
        &self.service
    }

    /// The service, at the end.
    pub fn into_service(self) -> S {
        self.service
    }

    /// The listeners by their numbers.
    pub fn listeners(&self) -> &[TcpListener] {
        &self.listeners
    }

    /// Lateness of the steps so far.
    pub fn lag(&self) -> Lag {
        self.lag
    }

    /// Serves until it is stopped or this moment has come.
    ///
    /// # Errors
    /// The system refuses to wait or to set the timer.
    pub fn run(&mut self, until: Option<Duration>) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            let next = self.due.peek().map(|Reverse((due, _))| *due);
            let next = next.into_iter().chain(self.full_until).chain(until);
            self.arm(next.min())?;
            events.clear();
            let spare = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, spare, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.clock = Clock::read();
            for event in &events {
                match event.data.u64() {
                    STOP => return Ok(()),
                    TIMER => {
                        let _ = rustix::io::read(&self.timer, &mut [0; 8]);
                        self.armed = None;
                    }
                    DATAGRAMS => self.answer_datagrams(),
                    token @ LISTENERS..DATAGRAMS => self.accept((token - LISTENERS) as usize)?,
                    token => self.on_event(Key::from_u64(token), event.flags)?,
                }
            }
            if self.full_until.is_some_and(|until| until <= self.clock.now) {
                self.resume_accepting()?;
            }
            self.take_due_steps()?;
            if until.is_some_and(|until| Clock::read().now >= until) {
                return Ok(());
            }
        }
    }

    fn arm(&mut self, next: Option<Duration>) -> io::Result<()> {
        if next == self.armed {
            return Ok(());
        }
        // All zeroes disarm; no moment since the machine's start is that.
        let at = next.unwrap_or_default();
        let setting = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: i64::try_from(at.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: at.subsec_nanos().into(),
            },
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &setting)?;
        self.armed = next;
        Ok(())
    }

    fn watch(&self, source: impl AsFd, token: u64) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        let flags = epoll::EventFlags::IN;
        Ok(epoll::add(&self.epoll, source, data, flags)?)
    }

    fn watch_listeners(&self) -> io::Result<()> {
        let mut tokens = LISTENERS..DATAGRAMS;
        let mut listeners = self.listeners.iter().zip(&mut tokens);
        listeners.try_for_each(|(listener, token)| self.watch(listener, token))
    }

    fn answer_datagrams(&mut self) {
        let Some(socket) = &self.datagrams else {
            return;
        };
        let mut message = [0; 1500];
        while let Ok((length, client)) = socket.recv_from(&mut message) {
            if let Some(reply) = self.service.answer_datagram(&message[..length]) {
                // A full buffer drops the reply, as a network would.
                let _ = socket.send_to(&reply, client);
            }
        }
    }

    fn accept(&mut self, listener: usize) -> io::Result<()> {
        while self.full_until.is_none() {
            let stream = match self.listeners[listener].accept() {
                Ok((stream, _)) => stream,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EMFILE | libc::ENFILE) => return self.pause_accepting(),
                    // No connection waits, or the next one was closed again.
                    _ => return Ok(()),
                },
            };
            if self.connections.len() >= self.connections_max {
                continue;
            }
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let session = self.tls.clone().map(session_of).transpose()?;
            let key = self.connections.vacant_key();
            self.watch(&stream, key.to_u64())?;
            self.service.connected();
            self.connections
                .insert(Connection::new(stream, session, listener));
        }
        Ok(())
    }

    /// There is no descriptor left: the listeners would make the loop spin.
    fn pause_accepting(&mut self) -> io::Result<()> {
        self.full_until = Some(self.clock.now + FULL_PAUSE);
        let mut listeners = self.listeners.iter();
        listeners.try_for_each(|listener| Ok(epoll::delete(&self.epoll, listener)?))
    }

    fn resume_accepting(&mut self) -> io::Result<()> {
        match self.full_until.take() {
            Some(_) => self.watch_listeners(),
            None => Ok(()),
        }
    }

    fn on_event(&mut self, key: Key, flags: epoll::EventFlags) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(key) else {
            return Ok(());
        };
        // The end of the stream ends the connection, whatever is on its way: who has gone does not
        // come back for it.
        if flags.intersects(!epoll::EventFlags::OUT)
            && connection.receive(&self.clock) == Life::Over
        {
            return self.drop_connection(key);
        }
        self.advance(key)
    }

    /// Takes everything that is due as this begins, in its order. What becomes due meanwhile waits for
    /// the next turn.
    fn take_due_steps(&mut self) -> io::Result<()> {
        let began = Clock::read().now;
        while let Some(&Reverse((due, key))) = self.due.peek() {
            if due > began {
                break;
            }
            let now = Clock::read().now;
            self.due.pop();
            let connection = self.connections.get_mut(key);
            let underway = connection.and_then(|connection| connection.underway.as_mut());
            // Another is the connection's, or its reply's, that has ended since.
            if let Some(underway) = underway.filter(|underway| underway.wakes == Some(due)) {
                underway.wakes = None;
                self.lag.note(now - due);
                self.advance(key)?;
            }
        }
        Ok(())
    }

    /// Does all that can be done on a connection now.
    fn advance(&mut self, key: Key) -> io::Result<()> {
        loop {
            let Some(connection) = self.connections.get_mut(key) else {
                return Ok(());
            };
            if connection.underway.is_none() {
                if connection.flush() == Life::Over {
                    return self.drop_connection(key);
                }
                if connection.is_last {
                    connection.end_session();
                    return self.drop_connection(key);
                }
                let answer = match Request::take(&mut connection.input) {
                    Ok(None) => return self.watch_writing(key),
                    Ok(Some(request)) => {
                        let (listener, arrived) = (connection.listener, connection.arrived);
                        Some(self.service.answer(listener, &request, arrived))
                    }
                    Err(_) => self.service.answer_malformed(connection.arrived),
                };
                let Some(answer) = answer else {
                    return self.drop_connection(key);
                };
                connection.is_last = answer.is_last;
                connection.underway = Some(Underway {
                    exchange: answer.exchange,
                    steps: answer.steps.into(),
                    due: answer.from,
                    wakes: None,
                    bytes: 0,
                    left: answer.from,
                });
            }
            match connection.take_steps() {
                Progress::Waits => {
                    if let Some(underway) = &mut connection.underway
                        && underway.wakes != Some(underway.due)
                    {
                        underway.wakes = Some(underway.due);
                        self.due.push(Reverse((underway.due, key)));
                    }
                    return self.watch_writing(key);
                }
                Progress::Blocked => return self.watch_writing(key),
                Progress::Done => {
                    self.watch_writing(key)?;
                    self.end_exchange(key, None);
                }
                Progress::Closed => {
                    self.end_exchange(key, None);
                    return self.drop_connection(key);
                }
                Progress::Gone => return self.drop_connection(key),
            }
        }
    }

    /// Registers interest in writability, if that is waited for and not registered yet.
    fn watch_writing(&mut self, key: Key) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(key) else {
            return Ok(());
        };
        let is_blocked = connection.has_output();
        if is_blocked == connection.is_blocked {
            return Ok(());
        }
        connection.is_blocked = is_blocked;
        let flags = match is_blocked {
            true => epoll::EventFlags::IN | epoll::EventFlags::OUT,
            false => epoll::EventFlags::IN,
        };
        let data = epoll::EventData::new_u64(key.to_u64());
        Ok(epoll::modify(&self.epoll, &connection.stream, data, flags)?)
    }

    /// Reports the end of the reply under way: done, or the client's going at that moment.
    fn end_exchange(&mut self, key: Key, gone: Option<Duration>) {
        let connection = self.connections.get_mut(key);
        let Some(underway) = connection.and_then(|connection| connection.underway.take()) else {
            return;
        };
        let end = match gone {
            Some(at) => End::Gone { at },
            None => End::Done {
                bytes: underway.bytes,
                left: underway.left,
            },
        };
        self.service.ended(underway.exchange, end);
    }

    /// Forgets a connection, which closes it, and the reply under way.
    fn drop_connection(&mut self, key: Key) -> io::Result<()> {
        self.end_exchange(key, Some(self.clock.now));
        match self.connections.remove(key) {
            Some(_) => self.resume_accepting(),
            None => Ok(()),
        }
    }
}

/// The session of a new client.
fn session_of(config: TlsConfig) -> io::Result<ServerConnection> {
    let mut session = stream::session(config)?;
    // The steps of a reply bound what it holds.
    session.set_buffer_limit(None);
    Ok(session)
}

impl Lag {
    fn note(&mut self, late: Duration) {
        self.steps += 1;
        self.sum += late;
        self.max = self.max.max(late);
        self.over += u64::from(late > Duration::from_millis(1));
    }
}

/// Tokens that no connection's key has: its slot would be out of reach.
const STOP: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;
const DATAGRAMS: u64 = u64::MAX - 2;
const LISTENERS: u64 = u64::MAX - 1000;
/// Accepting without a free descriptor is tried so often.
const FULL_PAUSE: Duration = Duration::from_millis(100);
/// How many events a turn takes.
const EVENTS: usize = 256;

#[cfg(test)]
mod tests;
