//! The sockets: one thread, one poll, and a timer that keeps each step's exact time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use slab::Slab;

use super::http::{Act, Reply, Request, Steps};
use super::origin::{Entry, Now, World};

/// Connections beyond this are closed at once: the open-file limit is not ours to meet.
const CONNECTIONS_MAX: usize = 8192;

/// A client that sends on while it has no reply is no crawler.
const INPUT_MAX: usize = 128 * 1024;

const TIMER: Token = Token(0);
const STOP: Token = Token(1);
/// Listeners follow, then connections.
const LISTENERS: usize = 2;

pub struct Server {
    world: World,
    poll: Poll,
    timer: OwnedFd,
    /// When the timer goes off, if it does.
    armed: Option<Duration>,
    /// Becomes readable when the server has to end.
    stop: UnixStream,
    listeners: Vec<Listener>,
    connections: Slab<Connection>,
    /// When a connection's next step is due. One that has gone leaves its entry, whose serial
    /// number then belongs to nobody.
    due: BinaryHeap<Reverse<(Duration, usize, u64)>>,
    serial: u64,
    started: Duration,
    lag: Lag,
}

struct Listener {
    socket: TcpListener,
    /// Whose port it is; the common one asks the Host field.
    origin: Option<usize>,
}

struct Connection {
    serial: u64,
    stream: TcpStream,
    origin: Option<usize>,
    input: Vec<u8>,
    output: Vec<u8>,
    reply: Option<Underway>,
    /// It ends when its output is written.
    last: bool,
}

/// A reply that has steps to go, or bytes to write.
struct Underway {
    entry: Option<Entry>,
    steps: Steps,
    /// When the next step is due.
    due: Duration,
}

/// How late steps were. A judge that is late itself must say so.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lag {
    pub steps: u64,
    pub sum: Duration,
    pub max: Duration,
    /// Steps that were more than a millisecond late.
    pub over: u64,
}

impl Server {
    /// Listens for all origins on `common`, and on a port for each origin that wants one.
    ///
    /// # Errors
    /// The system refuses a socket.
    pub fn new(world: World, common: SocketAddr, stop: UnixStream) -> io::Result<Self> {
        let poll = Poll::new()?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        stop.set_nonblocking(true)?;
        let registry = poll.registry();
        let readable = Interest::READABLE;
        registry.register(&mut SourceFd(&timer.as_raw_fd()), TIMER, readable)?;
        registry.register(&mut SourceFd(&stop.as_raw_fd()), STOP, readable)?;
        let ports = world.origins().iter().enumerate();
        let own = ports.filter_map(|(index, origin)| {
            let port = origin.spec.port?;
            Some((SocketAddr::new(common.ip(), port), Some(index)))
        });
        let mut listeners = Vec::new();
        for (address, origin) in [(common, None)].into_iter().chain(own) {
            let mut socket = TcpListener::bind(address)?;
            let token = Token(LISTENERS + listeners.len());
            registry.register(&mut socket, token, readable)?;
            listeners.push(Listener { socket, origin });
        }
        Ok(Server {
            world,
            poll,
            timer,
            armed: None,
            stop,
            listeners,
            connections: Slab::new(),
            due: BinaryHeap::new(),
            serial: 0,
            started: monotonic(),
            lag: Lag::default(),
        })
    }

    pub fn world(&self) -> &World {
        &self.world
    }

    pub fn lag(&self) -> Lag {
        self.lag
    }

    /// The common address, and each origin's own.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn addresses(&self) -> io::Result<Vec<(Option<usize>, SocketAddr)>> {
        let listeners = self.listeners.iter();
        listeners
            .map(|listener| Ok((listener.origin, listener.socket.local_addr()?)))
            .collect()
    }

    /// Since the server was made.
    pub fn now(&self) -> Duration {
        monotonic() - self.started
    }

    /// Serves until it is told to stop or the time is over.
    ///
    /// # Errors
    /// The system refuses to wait, or to set the timer.
    pub fn run(&mut self, until: Option<Duration>) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        loop {
            let mut next = self.due.peek().map(|Reverse((due, ..))| *due);
            if let Some(until) = until {
                next = Some(next.map_or(until, |next| next.min(until)));
            }
            self.arm(next)?;
            if let Err(error) = self.poll.poll(&mut events, None)
                && error.kind() != ErrorKind::Interrupted
            {
                return Err(error);
            }
            for event in &events {
                match event.token() {
                    TIMER => self.armed = None,
                    STOP => {
                        let _ = (&self.stop).read(&mut [0; 16]);
                        return Ok(());
                    }
                    Token(number) if number < LISTENERS + self.listeners.len() => {
                        self.accept(number - LISTENERS)?;
                    }
                    Token(number) => self.on_socket(number - LISTENERS - self.listeners.len()),
                }
            }
            self.take_steps();
            if until.is_some_and(|until| self.now() >= until) {
                return Ok(());
            }
        }
    }

    fn arm(&mut self, next: Option<Duration>) -> io::Result<()> {
        if next == self.armed {
            return Ok(());
        }
        // All zeroes disarm; no moment after the start is that.
        let at = next.map_or(Duration::ZERO, |next| self.started + next);
        let zero = Timespec::default();
        let setting = Itimerspec {
            it_interval: zero,
            it_value: Timespec {
                tv_sec: i64::try_from(at.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: at.subsec_nanos().into(),
            },
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &setting)?;
        self.armed = next;
        Ok(())
    }

    fn accept(&mut self, listener: usize) -> io::Result<()> {
        loop {
            let mut stream = match self.listeners[listener].socket.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // It went away before it was taken, or files have run out for now.
                Err(_) => return Ok(()),
            };
            if self.connections.len() >= CONNECTIONS_MAX {
                continue;
            }
            let _ = stream.set_nodelay(true);
            let entry = self.connections.vacant_entry();
            let token = Token(entry.key() + LISTENERS + self.listeners.len());
            let both = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut stream, token, both)?;
            self.serial += 1;
            entry.insert(Connection {
                serial: self.serial,
                stream,
                origin: self.listeners[listener].origin,
                input: Vec::new(),
                output: Vec::new(),
                reply: None,
                last: false,
            });
        }
    }

    fn on_socket(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let alive = connection.receive();
        if alive {
            self.go_on(key);
        } else {
            self.drop_connection(key);
        }
    }

    /// Everything that is due, in its order.
    fn take_steps(&mut self) {
        let now = self.now();
        while let Some(Reverse((due, key, serial))) = self.due.peek().copied()
            && due <= now
        {
            self.due.pop();
            let same = self.connections.get(key).map(|c| c.serial) == Some(serial);
            if same {
                self.lag.note(self.now() - due);
                self.go_on(key);
            }
        }
    }

    /// Does all that can be done on a connection now.
    fn go_on(&mut self, key: usize) {
        loop {
            let Some(connection) = self.connections.get_mut(key) else {
                return;
            };
            if connection.reply.is_none() {
                if connection.last && connection.output.is_empty() {
                    return self.drop_connection(key);
                }
                if connection.last {
                    return;
                }
                match Request::take(&mut connection.input) {
                    Ok(Some(request)) => self.on_request(key, &request),
                    Ok(None) => return,
                    Err(()) => return self.drop_connection(key),
                }
            }
            if !self.advance(key) {
                return;
            }
        }
    }

    fn on_request(&mut self, key: usize, request: &Request) {
        let now = Now {
            at: self.now(),
            wall: clock(ClockId::Realtime),
        };
        let connection = &mut self.connections[key];
        connection.last = request.last;
        let origin = connection
            .origin
            .or_else(|| self.world.named(request.host()));
        let (entry, steps) = match origin {
            Some(origin) => {
                let (entry, steps) = self.world.answer(origin, request, now);
                (Some(entry), steps)
            }
            None => (None, misdirected()),
        };
        connection.reply = Some(Underway {
            entry,
            due: now.at + steps[0].after,
            steps,
        });
        // Instant ones are not worth a timer, nor would its lag say anything.
        if connection
            .reply
            .as_ref()
            .is_some_and(|reply| reply.due > now.at)
        {
            self.wake_at_due(key);
        }
    }

    fn wake_at_due(&mut self, key: usize) {
        let connection = &self.connections[key];
        if let Some(reply) = &connection.reply
            && let Some(step) = reply.steps.front()
            && step.act != Act::Hang
        {
            let entry = (reply.due, key, connection.serial);
            self.due.push(Reverse(entry));
        }
    }

    /// Takes the steps that are due. Whether the reply has ended well, so that another may begin.
    fn advance(&mut self, key: usize) -> bool {
        let now = self.now();
        let connection = &mut self.connections[key];
        let Some(reply) = &mut connection.reply else {
            return false;
        };
        while reply.due <= now
            && let Some(step) = reply.steps.front()
        {
            match &step.act {
                Act::Hang => return false,
                Act::Reset => {
                    let socket = socket2::SockRef::from(&connection.stream);
                    let _ = socket.set_linger(Some(Duration::ZERO));
                    self.drop_connection(key);
                    return false;
                }
                // What is not written by now stays unwritten.
                Act::Close => {
                    self.drop_connection(key);
                    return false;
                }
                Act::Send(bytes) => connection.output.extend_from_slice(bytes),
            }
            reply.steps.pop_front();
            let waits = reply.steps.front().map(|next| next.after);
            reply.due += waits.unwrap_or_default();
            if !send(&connection.stream, &mut connection.output) {
                self.drop_connection(key);
                return false;
            }
            if waits.is_some_and(|wait| !wait.is_zero()) {
                self.wake_at_due(key);
                return false;
            }
        }
        if !send(&connection.stream, &mut connection.output) {
            self.drop_connection(key);
            return false;
        }
        if !reply.steps.is_empty() || !connection.output.is_empty() {
            return false;
        }
        let entry = reply.entry;
        connection.reply = None;
        if let Some(entry) = entry {
            let now = self.now();
            self.world.end(entry, now);
        }
        true
    }

    fn drop_connection(&mut self, key: usize) {
        let connection = self.connections.remove(key);
        if let Some(Underway {
            entry: Some(entry), ..
        }) = connection.reply
        {
            let now = self.now();
            self.world.end(entry, now);
        }
    }
}

impl Connection {
    /// Reads what has come. Whether the client is still there.
    fn receive(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(_) if self.input.len() > INPUT_MAX => return false,
                Ok(length) => self.input.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }
}

/// Writes what can be written. Whether the client is still there.
fn send(mut stream: &TcpStream, output: &mut Vec<u8>) -> bool {
    while !output.is_empty() {
        match stream.write(output) {
            Ok(0) => return false,
            Ok(length) => drop(output.drain(..length)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    true
}

impl Lag {
    fn note(&mut self, late: Duration) {
        self.steps += 1;
        self.sum += late;
        self.max = self.max.max(late);
        self.over += u64::from(late > Duration::from_millis(1));
    }
}

/// The host is none of ours.
fn misdirected() -> Steps {
    let reply = Reply {
        status: 421,
        fields: Vec::new(),
        body: Vec::new(),
    };
    let step = super::http::Step {
        after: Duration::ZERO,
        act: Act::Send(reply.whole()),
    };
    Steps::from([step])
}

fn monotonic() -> Duration {
    clock(ClockId::Monotonic)
}

fn clock(id: ClockId) -> Duration {
    let time = clock_gettime(id);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
