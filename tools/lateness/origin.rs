//! The origin that judges: it answers at once, and the kernel stamps when each request came to it.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Write};
use std::mem;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use argiope::Spread;
use argiope::testkit::server::listener;
use argiope::testkit::stamp::{ask_for_stamps, receive_stamped};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

/// What the origin saw: for each wave after a scope's first, by how much the gap since the one
/// before exceeds the delay that was promised.
pub struct Seen {
    /// Requests that came.
    pub requests: u64,
    /// The excess, which is the lateness and what two transits differ by.
    pub excess: Spread,
    /// Gaps that were shorter than promised, and the worst of them.
    pub short: u64,
    pub shortest_by: Duration,
}

/// A running origin. It serves until the process ends; [`Origin::seen`] says what it saw until then.
pub struct Origin {
    pub port: u16,
    asked: Sender<Sender<Seen>>,
}

impl Origin {
    /// Starts it on a thread of its own, on the last processor there is.
    pub fn start(delay: Duration) -> io::Result<Origin> {
        let listener = listener("0.0.0.0:0")?;
        listener.set_nonblocking(true)?;
        ask_for_stamps(&listener)?;
        let port = listener.local_addr()?.port();
        let (asked, asks) = channel();
        thread::spawn(move || {
            crate::pin(crate::processors() - 1);
            if let Err(error) = serve(&listener, delay, &asks) {
                eprintln!("the origin failed: {error}");
                std::process::exit(1);
            }
        });
        Ok(Origin { port, asked })
    }

    /// What came until now.
    pub fn seen(&self) -> Seen {
        let (sender, receiver) = channel();
        self.asked.send(sender).expect("the origin serves");
        receiver.recv().expect("the origin serves")
    }
}

fn serve(listener: &TcpListener, delay: Duration, asks: &Receiver<Sender<Seen>>) -> io::Result<()> {
    let poll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(
        &poll,
        listener,
        EventData::new_u64(LISTENER),
        EventFlags::IN,
    )?;
    let mut streams: HashMap<u64, TcpStream> = HashMap::new();
    let mut named = 0;
    let mut arrivals = Arrivals::new(delay);
    let mut events = Vec::with_capacity(256);
    let patience = rustix::time::Timespec {
        tv_sec: 0,
        tv_nsec: 100_000_000,
    };
    loop {
        events.clear();
        epoll::wait(
            &poll,
            rustix::buffer::spare_capacity(&mut events),
            Some(&patience),
        )?;
        for event in &events {
            match event.data.u64() {
                LISTENER => {
                    while let Ok((stream, _)) = listener.accept() {
                        stream.set_nonblocking(true)?;
                        stream.set_nodelay(true)?;
                        epoll::add(&poll, &stream, EventData::new_u64(named), EventFlags::IN)?;
                        streams.insert(named, stream);
                        named += 1;
                    }
                }
                name => {
                    let stream = streams.get_mut(&name).expect("a stream that is open");
                    if !answer(stream, &mut arrivals) {
                        streams.remove(&name);
                    }
                }
            }
        }
        while let Ok(sender) = asks.try_recv() {
            let _ = sender.send(arrivals.counts());
        }
    }
}

/// Answers the request that has come, in one piece as it left. `false` once the peer is gone.
fn answer(stream: &mut TcpStream, arrivals: &mut Arrivals) -> bool {
    let mut buffer = [0; 4096];
    match receive(stream, &mut buffer) {
        Ok((0, _)) => false,
        Ok((length, at)) => {
            arrivals.take(scope_of(&buffer[..length]), at);
            stream.write_all(REPLY).is_ok()
        }
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

/// The number of the scope, which the path begins with: `GET /123/1 HTTP/1.1`.
fn scope_of(request: &[u8]) -> usize {
    let path = request.strip_prefix(b"GET /").expect("a GET of ours");
    let digits = path.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
}

/// When the last request of each scope came.
struct Arrivals {
    delay: u64,
    last: Vec<u64>,
    seen: Seen,
}

impl Arrivals {
    fn new(delay: Duration) -> Self {
        Arrivals {
            delay: delay.as_nanos() as u64,
            last: Vec::new(),
            seen: Seen {
                requests: 0,
                excess: Spread::new(),
                short: 0,
                shortest_by: Duration::ZERO,
            },
        }
    }

    fn take(&mut self, scope: usize, at: u64) {
        if self.last.len() <= scope {
            self.last.resize(scope + 1, 0);
        }
        let before = mem::replace(&mut self.last[scope], at);
        let seen = &mut self.seen;
        seen.requests += 1;
        if before == 0 {
            return;
        }
        let due = before + self.delay;
        seen.excess
            .record(Duration::from_nanos(at.saturating_sub(due)));
        if at < due {
            seen.short += 1;
            seen.shortest_by = seen.shortest_by.max(Duration::from_nanos(due - at));
        }
    }

    fn counts(&self) -> Seen {
        Seen {
            excess: self.seen.excess.clone(),
            ..self.seen
        }
    }
}

/// Reads what has come, and when the kernel got it, in nanoseconds of wall time.
fn receive(stream: &TcpStream, buffer: &mut [u8]) -> io::Result<(usize, u64)> {
    let (length, stamp) = receive_stamped(stream, buffer)?;
    // An end has no stamp; and now and then the first packet of a connection has none.
    Ok((length, stamp.map_or_else(now, |at| at.as_nanos() as u64)))
}

fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

const LISTENER: u64 = u64::MAX;
const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok";
