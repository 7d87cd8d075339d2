//! A server of thousands of connections on one thread: one epoll, and one timer that keeps each step's
//! exact time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use socket2::SockRef;

use crate::base::slab::{Key, Slab};

use super::http::{Request, Step};
use super::stamp::{Clock, ask_for_stamps, receive};

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

struct Connection<E> {
    stream: TcpStream,
    listener: usize,
    /// Bytes received and not yet parsed as a request.
    input: Vec<u8>,
    /// When the last of it arrived.
    arrived: Duration,
    output: Vec<u8>,
    written: usize,
    /// Whether the client has to read before more can be written.
    is_blocked: bool,
    underway: Option<Underway<E>>,
    /// It ends with the reply under way.
    is_last: bool,
}

/// A reply that has steps to take, or bytes to write.
struct Underway<E> {
    exchange: E,
    steps: VecDeque<Step>,
    /// When the next step is due.
    due: Duration,
    /// When the engine looks at it again.
    wakes: Option<Duration>,
    bytes: usize,
    left: Duration,
}

/// Whether a connection stays open.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    On,
    Over,
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
            let key = self.connections.vacant_key();
            self.watch(&stream, key.to_u64())?;
            self.service.connected();
            self.connections.insert(Connection {
                stream,
                listener,
                input: Vec::new(),
                arrived: Duration::ZERO,
                output: Vec::new(),
                written: 0,
                is_blocked: false,
                underway: None,
                is_last: false,
            });
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
                if connection.is_last {
                    return self.drop_connection(key);
                }
                let answer = match Request::take(&mut connection.input) {
                    Ok(None) => return Ok(()),
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
        let is_blocked = connection.written < connection.output.len();
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

/// How far a connection's reply has come.
enum Progress {
    /// The next step is not due yet.
    Waits,
    /// The client has to read, or to go.
    Blocked,
    Done,
    /// A step closed the connection.
    Closed,
    /// The client has closed it.
    Gone,
}

impl<E> Connection<E> {
    /// Reads what has come.
    fn receive(&mut self, clock: &Clock) -> Life {
        let mut buffer = [0; 16 * 1024];
        match receive(&self.stream, &mut buffer, clock) {
            Ok((0, _)) => Life::Over,
            Ok((count, arrived)) => {
                self.input.extend_from_slice(&buffer[..count]);
                self.arrived = arrived;
                match self.input.len() > INPUT_MAX {
                    true => Life::Over,
                    false => Life::On,
                }
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Life::On,
                _ => Life::Over,
            },
        }
    }

    /// Takes the steps that are due.
    fn take_steps(&mut self) -> Progress {
        let Some(underway) = &mut self.underway else {
            return Progress::Blocked;
        };
        // Whatever the next step waits for, the client may have made room.
        if underway.write(&self.stream, &mut self.output, &mut self.written) == Life::Over {
            return Progress::Gone;
        }
        let mut is_repeating = false;
        while let Some(step) = underway.steps.front_mut() {
            if let Step::Wait(span) = step {
                underway.due += *span;
                underway.steps.pop_front();
                continue;
            }
            if *step == Step::Hang {
                return Progress::Blocked;
            }
            let now = Clock::read().now;
            if underway.due > now {
                return Progress::Waits;
            }
            match step {
                Step::Reset => {
                    underway.left = now;
                    let socket = SockRef::from(&self.stream);
                    let _ = socket.set_linger(Some(Duration::ZERO));
                    return Progress::Closed;
                }
                // What is not written by now stays unwritten.
                Step::Close => {
                    underway.left = now;
                    return Progress::Closed;
                }
                Step::End if !self.output.is_empty() => return Progress::Blocked,
                Step::End => {
                    let _ = self.stream.shutdown(std::net::Shutdown::Write);
                    underway.steps.pop_front();
                }
                Step::Send(bytes) => {
                    self.output.append(bytes);
                    underway.steps.pop_front();
                }
                // No more than one of them waits for the client.
                Step::Repeat(..) if !self.output.is_empty() => return Progress::Blocked,
                Step::Repeat(bytes, pause) => {
                    self.output.extend_from_slice(bytes);
                    underway.due = now + *pause;
                    is_repeating = true;
                }
                Step::Wait(_) | Step::Hang => unreachable!("they were taken above"),
            }
            if underway.write(&self.stream, &mut self.output, &mut self.written) == Life::Over {
                return Progress::Gone;
            }
            if is_repeating {
                // However short the pause is, other connections have their turns in between.
                return Progress::Waits;
            }
        }
        match self.output.is_empty() {
            true => Progress::Done,
            false => Progress::Blocked,
        }
    }
}

impl<E> Underway<E> {
    /// Writes as much of the output as fits.
    fn write(&mut self, mut stream: &TcpStream, output: &mut Vec<u8>, written: &mut usize) -> Life {
        while *written < output.len() {
            // A client may act on the last byte before this thread runs on: it left before that.
            self.left = Clock::read().now;
            match stream.write(&output[*written..]) {
                Ok(0) => return Life::Over,
                Ok(count) => {
                    *written += count;
                    self.bytes += count;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Life::On,
                Err(_) => return Life::Over,
            }
        }
        output.clear();
        *written = 0;
        Life::On
    }
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
/// A client that sends more than this ahead is not a crawler, and is disconnected.
const INPUT_MAX: usize = 128 * 1024;

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::SocketAddr;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::thread::{self, JoinHandle};

    use super::*;
    use crate::testkit::server::loopback;

    /// Longer than this thread is kept from the processor: a step that is due already has no lag.
    const PAUSE: Duration = Duration::from_millis(200);
    /// How long a client waits for bytes.
    const PATIENCE: Duration = Duration::from_secs(5);

    /// Answers by path, and reports how each exchange ended.
    struct Paths(Sender<(String, End)>);

    impl Service for Paths {
        type Exchange = String;

        fn answer(&mut self, _: usize, request: &Request, arrived: Duration) -> Answer<String> {
            let send = |bytes: &[u8]| Step::Send(bytes.to_vec());
            let steps = match request.path() {
                "/slow" => vec![Step::Wait(PAUSE), send(b"a"), Step::Wait(PAUSE), send(b"b")],
                // The client has taken it all before the pause is over.
                "/large" => vec![send(&[b'x'; LARGE]), Step::Wait(5 * PAUSE), send(b"x")],
                "/flood" => vec![Step::Repeat(b"x".to_vec(), Duration::ZERO)],
                "/repeat" => vec![Step::Repeat(b"x".to_vec(), Duration::from_millis(1))],
                "/hang" => vec![send(b"half"), Step::Hang],
                "/end" => vec![send(b"half"), Step::End],
                "/large-end" => vec![send(&[b'x'; LARGE]), Step::End],
                "/close" => vec![send(b"half"), Step::Wait(PAUSE), Step::Close],
                _ => vec![Step::Reset],
            };
            Answer {
                exchange: request.target.clone(),
                from: arrived,
                steps,
                is_last: request.is_last,
            }
        }

        fn ended(&mut self, exchange: String, end: End) {
            // After a test there is no receiver.
            let _ = self.0.send((exchange, end));
        }
    }

    /// More than the kernel takes at once.
    const LARGE: usize = 16 << 20;

    struct Running {
        at: SocketAddr,
        ends: Receiver<(String, End)>,
        stop: UnixStream,
        thread: JoinHandle<Engine<Paths>>,
    }

    fn start(connections_max: usize) -> Running {
        start_with(|engine| engine.with_connections_max(connections_max))
    }

    fn start_with(set_up: impl FnOnce(Engine<Paths>) -> Engine<Paths>) -> Running {
        let (stop, other) = UnixStream::pair().expect("a pair");
        let (sender, ends) = mpsc::channel();
        let engine = Engine::new(Paths(sender), vec![loopback()], None, other.into());
        let mut engine = set_up(engine.expect("sockets"));
        let at = engine.listeners()[0].local_addr().expect("it is bound");
        let thread = thread::spawn(move || {
            engine.run(None).expect("it serves");
            engine
        });
        Running {
            at,
            ends,
            stop,
            thread,
        }
    }

    impl Running {
        fn ask(&self, path: &str) -> TcpStream {
            let mut stream = TcpStream::connect(self.at).expect("it listens");
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            write!(stream, "GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n").expect("sent");
            stream
        }

        fn get(&self, path: &str) -> io::Result<Vec<u8>> {
            let mut reply = Vec::new();
            self.ask(path).read_to_end(&mut reply)?;
            Ok(reply)
        }

        /// Waits until so many exchanges have ended.
        fn ends(&self, count: usize) -> Vec<(String, End)> {
            let next = |_| self.ends.recv_timeout(PATIENCE).expect("an exchange ends");
            (0..count).map(next).collect()
        }

        fn stop(self) -> Lag {
            drop(self.stop);
            let engine = self.thread.join().expect("no panic");
            engine.lag()
        }
    }

    #[test]
    fn steps_are_taken_when_they_are_due_and_their_lag_is_counted() {
        let running = start(usize::MAX);
        let began = Clock::read().now;
        assert_eq!(running.get("/slow").expect("a reply"), b"ab");
        let ends = running.ends(1);
        let lag = running.stop();
        let [(path, End::Done { bytes: 2, left })] = &ends[..] else {
            panic!("{ends:?}");
        };
        assert_eq!((&path[..], lag.steps), ("/slow", 2));
        assert!(*left >= began + 2 * PAUSE, "{left:?} since {began:?}");
    }

    #[test]
    fn a_reply_that_is_larger_than_the_kernels_buffers_arrives_whole() {
        let running = start(usize::MAX);
        const ALL: usize = LARGE + 1;
        assert_eq!(running.get("/large").expect("a reply").len(), ALL);
        assert_eq!(running.get("/large-end").expect("a reply").len(), LARGE);
        let ends = running.ends(2);
        running.stop();
        assert!(matches!(ends[0].1, End::Done { bytes: ALL, .. }));
    }

    #[test]
    fn a_connection_ends_as_its_steps_want_it() {
        let running = start(usize::MAX);
        for path in ["/end", "/close"] {
            assert_eq!(running.get(path).expect("a reply"), b"half");
        }
        let error = running.get("/reset").expect_err("no reply");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        let ends = running.ends(3);
        running.stop();
        let is_done = |(_, end): &(String, End)| matches!(end, End::Done { .. });
        assert!(ends.iter().all(is_done), "{ends:?}");
    }

    #[test]
    fn a_disconnected_client_ends_an_endless_reply() {
        let running = start(usize::MAX);
        for path in ["/hang", "/repeat"] {
            let mut stream = running.ask(path);
            stream.read_exact(&mut [0; 4]).expect("the first bytes");
        }
        let ends = running.ends(2);
        running.stop();
        let is_gone = |(_, end): &(String, End)| matches!(end, End::Gone { .. });
        assert!(ends.iter().all(is_gone), "{ends:?}");
    }

    #[test]
    fn a_repeat_without_a_pause_leaves_others_their_turns() {
        let running = start(usize::MAX);
        let mut flooded = running.ask("/flood");
        flooded.read_exact(&mut [0; 4]).expect("the first bytes");
        assert_eq!(running.get("/end").expect("a reply"), b"half");
        // Both while the client reads, so that each write is taken at once, and while it does not.
        flooded.read_exact(&mut [0; 4]).expect("more bytes");
        drop(flooded);
        running.stop();
    }

    #[test]
    fn connections_are_accepted_again_though_none_is_left_to_end() {
        let running = start_with(|mut engine| {
            engine.pause_accepting().expect("they were watched");
            engine
        });
        assert_eq!(running.get("/end").expect("a reply"), b"half");
        running.stop();
    }

    #[test]
    fn connections_beyond_the_most_are_closed_at_once() {
        let running = start(1);
        let mut first = running.ask("/hang");
        first.read_exact(&mut [0; 4]).expect("it is served");
        // It asks for nothing: a request sent to a connection that is closed
        // already would be refused by the kernel.
        let mut second = TcpStream::connect(running.at).expect("it listens");
        second.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        assert_eq!(second.read(&mut [0; 4]).expect("an end"), 0);
        drop(first);
        running.stop();
    }
}
