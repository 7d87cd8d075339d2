//! The thread that plays every server of the demo web: one epoll, one heap of delayed replies.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use argiope::base::slab::{Key, Slab};
use rustix::event::{Timespec, epoll};
use socket2::SockRef;

use super::answer::{Answer, Content};
use super::dns;
use super::http::{self, Parsed, Reply, Request};
use super::ledger::{Ledger, VisitId};
use super::site::World;
use super::stamp::{Clock, ask_for_stamps, receive};

/// Everything the thread owns.
pub struct Server {
    world: Arc<World>,
    ledger: Ledger,
    epoll: OwnedFd,
    listeners: Vec<TcpListener>,
    names: UdpSocket,
    /// Readable when the thread is to end.
    stop: Arc<OwnedFd>,
    connections: Slab<Connection>,
    /// When which connection's reply begins.
    due: BinaryHeap<Reverse<(Duration, Key)>>,
    clock: Clock,
    /// Whether accepting waits for a descriptor to become free.
    is_full: bool,
}

/// A client's connection.
struct Connection {
    stream: TcpStream,
    /// What has arrived and has not been taken for a request.
    input: Vec<u8>,
    arrived: Duration,
    state: State,
}

/// ```text
/// Reading ─ request ─► Waiting ─ due ─► Writing ─ written ─► Reading
/// ```
enum State {
    Reading,
    Waiting(Exchange),
    Writing(Exchange),
}

/// A reply on its way.
struct Exchange {
    /// `None` for a request to a host that is not there.
    visit: Option<VisitId>,
    status: u16,
    content: Content,
    /// The reply's octets; `None` resets the connection.
    output: Option<Vec<u8>>,
    written: usize,
    close: bool,
}

/// Whether a connection lives on.
#[derive(PartialEq, Eq)]
enum Life {
    On,
    Over,
}

impl Server {
    /// A server on these sockets, which are made non-blocking.
    pub fn new(
        world: Arc<World>,
        listeners: Vec<TcpListener>,
        names: UdpSocket,
        stop: Arc<OwnedFd>,
    ) -> io::Result<Server> {
        let server = Server {
            ledger: Ledger::new(world.sites().len()),
            world,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            listeners,
            names,
            stop,
            connections: Slab::new(),
            due: BinaryHeap::new(),
            clock: Clock::read(),
            is_full: false,
        };
        server.names.set_nonblocking(true)?;
        server.watch(&server.names, NAMES)?;
        server.watch(&*server.stop, STOP)?;
        for listener in &server.listeners {
            listener.set_nonblocking(true)?;
            ask_for_stamps(listener)?;
        }
        server.watch_listeners()?;
        Ok(server)
    }

    /// Serves until told to stop; gives back what was seen.
    pub fn run(mut self) -> io::Result<Ledger> {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            events.clear();
            let timeout = self.due.peek().map(|Reverse((at, _))| {
                let left = at.saturating_sub(Clock::read().now);
                Timespec {
                    tv_sec: left.as_secs() as _,
                    tv_nsec: left.subsec_nanos().into(),
                }
            });
            let spare = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, spare, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.clock = Clock::read();
            for event in &events {
                match event.data.u64() {
                    STOP => return Ok(self.ledger),
                    NAMES => self.answer_names(),
                    token @ LISTENERS..NAMES => self.accept((token - LISTENERS) as usize)?,
                    token => self.on_event(Key::from_u64(token), event.flags)?,
                }
            }
            self.begin_replies()?;
        }
    }

    fn watch(&self, source: impl AsFd, token: u64) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        Ok(epoll::add(
            &self.epoll,
            source,
            data,
            epoll::EventFlags::IN,
        )?)
    }

    fn watch_listeners(&self) -> io::Result<()> {
        let mut tokens = LISTENERS..NAMES;
        let mut listeners = self.listeners.iter().zip(&mut tokens);
        listeners.try_for_each(|(listener, token)| self.watch(listener, token))
    }

    fn answer_names(&mut self) {
        let mut query = [0; 1500];
        while let Ok((length, client)) = self.names.recv_from(&mut query) {
            let find = |name: &str| Some(self.world.find(name)?.address());
            if let Some(reply) = dns::reply(&query[..length], find) {
                self.ledger.queries += 1;
                // A full buffer drops the reply, as a network would; the resolver asks again.
                let _ = self.names.send_to(&reply, client);
            }
        }
    }

    fn accept(&mut self, listener: usize) -> io::Result<()> {
        while !self.is_full {
            let stream = match self.listeners[listener].accept() {
                Ok((stream, _)) => stream,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EMFILE | libc::ENFILE) => {
                        self.is_full = true;
                        for listener in &self.listeners {
                            epoll::delete(&self.epoll, listener)?;
                        }
                        return Ok(());
                    }
                    // Nobody is left, or the next one has gone away again.
                    _ => return Ok(()),
                },
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let key = self.connections.vacant_key();
            self.watch(&stream, key.to_u64())?;
            self.ledger.connections += 1;
            self.connections.insert(Connection {
                stream,
                input: Vec::new(),
                arrived: Duration::ZERO,
                state: State::Reading,
            });
        }
        Ok(())
    }

    fn on_event(&mut self, key: Key, flags: epoll::EventFlags) -> io::Result<()> {
        let mut life = Life::On;
        if flags.contains(epoll::EventFlags::OUT) {
            life = self.write(key)?;
        }
        if life == Life::On && flags.intersects(!epoll::EventFlags::OUT) {
            life = self.read(key)?;
        }
        self.end_if_over(key, life)
    }

    /// Takes what arrived. The end of the stream ends the connection, whatever is on its way:
    /// a client of the demo that has gone does not come back for it.
    fn read(&mut self, key: Key) -> io::Result<Life> {
        let Some(connection) = self.connections.get_mut(key) else {
            return Ok(Life::On);
        };
        let mut buffer = [0; 4096];
        match receive(&connection.stream, &mut buffer, &self.clock) {
            Ok((0, _)) => Ok(Life::Over),
            Ok((count, arrived)) => {
                connection.input.extend(&buffer[..count]);
                connection.arrived = arrived;
                if connection.input.len() > INPUT_MAX {
                    return Ok(Life::Over);
                }
                self.take_request(key);
                Ok(Life::On)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Life::On),
            Err(_) => Ok(Life::Over),
        }
    }

    /// Takes the next request, if it has arrived whole and no reply is on its way.
    fn take_request(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if !matches!(connection.state, State::Reading) {
            return;
        }
        let mut request = match http::parse(&connection.input) {
            Parsed::Partial => return,
            Parsed::Request(request, length) => {
                connection.input.drain(..length);
                request
            }
            Parsed::Bad => Request::unreadable(),
        };
        let (answer, visit) = if let Some(site) = self.world.find(&request.host) {
            let came = connection.arrived;
            let (visit, before) = self.ledger.arrive(site, &request.path, came);
            (site.answer(&self.world, &request, before), Some(visit))
        } else {
            self.ledger.strange += 1;
            request.close = true;
            (strange(&request), None)
        };
        connection.state = State::Waiting(Exchange {
            visit,
            status: answer.reply.as_ref().map_or(0, |reply| reply.status),
            content: answer.content,
            output: answer.reply.map(|reply| reply.to_bytes(&request)),
            written: 0,
            close: request.close,
        });
        self.due
            .push(Reverse((connection.arrived + answer.after, key)));
    }

    fn begin_replies(&mut self) -> io::Result<()> {
        while let Some(&Reverse((at, key))) = self.due.peek()
            && at <= Clock::read().now
        {
            self.due.pop();
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            let state = std::mem::replace(&mut connection.state, State::Reading);
            let State::Waiting(exchange) = state else {
                unreachable!("a connection that is due waits");
            };
            connection.state = State::Writing(exchange);
            let life = self.write(key)?;
            self.end_if_over(key, life)?;
        }
        Ok(())
    }

    /// Writes as much of the reply as fits.
    fn write(&mut self, key: Key) -> io::Result<Life> {
        let Some(connection) = self.connections.get_mut(key) else {
            return Ok(Life::On);
        };
        let State::Writing(exchange) = &mut connection.state else {
            return Ok(Life::On);
        };
        // A client may act on the last byte before this thread runs on: it left before that.
        let left = Clock::read().now;
        let length = match &exchange.output {
            None => {
                SockRef::from(&connection.stream).set_linger(Some(Duration::ZERO))?;
                0
            }
            Some(output) => {
                let had_to_wait = exchange.written > 0;
                while exchange.written < output.len() {
                    match connection.stream.write(&output[exchange.written..]) {
                        Ok(count) => exchange.written += count,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            let both = epoll::EventFlags::IN | epoll::EventFlags::OUT;
                            self.rewatch(key, both)?;
                            return Ok(Life::On);
                        }
                        Err(_) => return Ok(Life::Over),
                    }
                }
                let length = output.len();
                if had_to_wait {
                    self.rewatch(key, epoll::EventFlags::IN)?;
                }
                length
            }
        };
        let Some(connection) = self.connections.get_mut(key) else {
            return Ok(Life::On);
        };
        let State::Writing(exchange) = std::mem::replace(&mut connection.state, State::Reading)
        else {
            unreachable!("what was written was being written");
        };
        if let Some(visit) = exchange.visit {
            let (content, status) = (exchange.content, exchange.status);
            self.ledger.reply(visit, content, status, length, left);
        }
        if exchange.close || exchange.output.is_none() {
            return Ok(Life::Over);
        }
        self.take_request(key);
        Ok(Life::On)
    }

    fn rewatch(&self, key: Key, flags: epoll::EventFlags) -> io::Result<()> {
        let Some(connection) = self.connections.get(key) else {
            return Ok(());
        };
        let data = epoll::EventData::new_u64(key.to_u64());
        Ok(epoll::modify(&self.epoll, &connection.stream, data, flags)?)
    }

    /// Forgets a connection, which closes it, and a visit that had not ended.
    fn end_if_over(&mut self, key: Key, life: Life) -> io::Result<()> {
        if life == Life::On {
            return Ok(());
        }
        let Some(connection) = self.connections.remove(key) else {
            return Ok(());
        };
        if let State::Waiting(exchange) | State::Writing(exchange) = connection.state
            && let Some(visit) = exchange.visit
        {
            self.ledger.leave(visit, self.clock.now);
        }
        if self.is_full {
            self.is_full = false;
            self.watch_listeners()?;
        }
        Ok(())
    }
}

/// The answer to whom nobody here knows, and to what cannot be read.
fn strange(request: &Request) -> Answer {
    Answer {
        after: Duration::ZERO,
        reply: Some(Reply {
            status: if request.path.is_empty() { 400 } else { 404 },
            ..Reply::default()
        }),
        content: Content::Other,
    }
}

/// Tokens that no connection's key has: its slot would be out of reach.
const STOP: u64 = u64::MAX;
const NAMES: u64 = u64::MAX - 1;
const LISTENERS: u64 = u64::MAX - 1000;
/// How many events a turn takes.
const EVENTS: usize = 256;
/// What a client may send ahead before it is cut off.
const INPUT_MAX: usize = 64 * 1024;
