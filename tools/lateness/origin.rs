//! The origin: answers at once, and records when the kernel received each request.

use std::io;
use std::mem;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use argiope::Spread;
use argiope::testkit::engine::{Answer, End, Engine, Service};
use argiope::testkit::http::{Request, Step};
use argiope::testkit::server::listener;

/// What the origin recorded: for each request after a scope's first, by how much the gap before it
/// exceeds the delay.
pub struct Seen {
    /// Requests received.
    pub requests: u64,
    /// The excess: lateness, plus the difference of two transit times.
    pub excess: Spread,
    /// Number of gaps that were shorter than the delay, and by how much the shortest.
    pub short: u64,
    pub shortest_by: Duration,
}

/// A running origin. It serves until it is dropped.
pub struct Origin {
    pub port: u16,
    arrivals: Arc<Mutex<Arrivals>>,
    /// Its end stops the server.
    _stop: UnixStream,
}

impl Origin {
    /// Starts the origin on a thread pinned to the last processor.
    pub fn start(delay: Duration) -> io::Result<Origin> {
        let listener = listener("0.0.0.0:0")?;
        let port = listener.local_addr()?.port();
        let arrivals = Arc::new(Mutex::new(Arrivals::new(delay)));
        let service = Pages(Arc::clone(&arrivals));
        let (stop, stopped) = UnixStream::pair()?;
        let mut engine = Engine::new(service, vec![listener], None, stopped.into())?;
        thread::spawn(move || {
            crate::pin(crate::processors() - 1);
            if let Err(error) = engine.run(None) {
                eprintln!("the origin failed: {error}");
                std::process::exit(1);
            }
        });
        Ok(Origin {
            port,
            arrivals,
            _stop: stop,
        })
    }

    /// The record so far.
    pub fn seen(&self) -> Seen {
        locked(&self.arrivals).counts()
    }
}

/// Answers every request with the same page.
struct Pages(Arc<Mutex<Arrivals>>);

impl Service for Pages {
    type Exchange = ();

    fn answer(&mut self, _: usize, request: &Request, arrived: Duration) -> Answer<()> {
        locked(&self.0).take(scope_of(request.path()), arrived);
        Answer {
            exchange: (),
            from: arrived,
            steps: vec![Step::Send(REPLY.to_vec())],
            is_last: request.is_last,
        }
    }

    fn ended(&mut self, (): (), _: End) {}
}

/// The number of the scope, which the path begins with: `/123/1`.
fn scope_of(path: &str) -> usize {
    let number = path[1..]
        .split('/')
        .next()
        .and_then(|text| text.parse().ok());
    number.expect("a path of ours")
}

fn locked(arrivals: &Mutex<Arrivals>) -> std::sync::MutexGuard<'_, Arrivals> {
    arrivals.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Arrival of the last request of each scope.
struct Arrivals {
    delay: Duration,
    last: Vec<Duration>,
    seen: Seen,
}

impl Arrivals {
    fn new(delay: Duration) -> Self {
        Arrivals {
            delay,
            last: Vec::new(),
            seen: Seen {
                requests: 0,
                excess: Spread::new(),
                short: 0,
                shortest_by: Duration::ZERO,
            },
        }
    }

    fn take(&mut self, scope: usize, at: Duration) {
        if self.last.len() <= scope {
            self.last.resize(scope + 1, Duration::ZERO);
        }
        let before = mem::replace(&mut self.last[scope], at);
        let seen = &mut self.seen;
        seen.requests += 1;
        if before.is_zero() {
            return;
        }
        let due = before + self.delay;
        seen.excess.record(at.saturating_sub(due));
        if at < due {
            seen.short += 1;
            seen.shortest_by = seen.shortest_by.max(due - at);
        }
    }

    fn counts(&self) -> Seen {
        Seen {
            excess: self.seen.excess.clone(),
            ..self.seen
        }
    }
}

const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok";
