//! A server for tests: it answers as a function says, and keeps what it was asked and when.
//!
//! Arrivals are stamped by the kernel and ends before the reply is written, so neither a busy
//! machine nor the server's own threads make a gap look shorter or more look to be in flight than
//! the client had.

#[path = "../crawling/mod.rs"]
pub mod crawling;
#[path = "../../src/cli/demo/stamp.rs"]
mod stamp;

use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use argiope::Config;

use stamp::Clock;

/// A request as the server read it.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    pub target: String,
    pub host: String,
    pub fields: String,
    pub body: String,
    /// Which of the server's connections it came on, in order of their coming.
    pub conn: usize,
    /// When it arrived, on the steady clock.
    pub at: Duration,
    /// When its reply began to be written; `Duration::MAX` until then.
    pub done: Duration,
}

/// What it answers.
pub struct Reply {
    status: &'static str,
    fields: String,
    body: String,
    after: Duration,
}

pub struct Server {
    port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    pub fn start(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        stamp::ask_for_stamps(&listener).expect("the kernel stamps what arrives");
        // It takes the kernel some milliseconds to begin.
        thread::sleep(Duration::from_millis(20));
        let port = listener.local_addr().expect("it is bound").port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&asked);
        let answer = Arc::new(answer);
        thread::spawn(move || {
            for (conn, stream) in listener.incoming().flatten().enumerate() {
                let (told, answer) = (Arc::clone(&told), Arc::clone(&answer));
                thread::spawn(move || serve(stream, conn, &told, &*answer));
            }
        });
        Server { port, asked }
    }

    /// What it was asked so far, in order of arrival.
    pub fn asked(&self) -> Vec<Asked> {
        let mut asked = self.asked.lock().expect("no server panics").clone();
        asked.sort_by_key(|asked| asked.at);
        asked
    }

    /// Of what it was asked so far, that which this function picks.
    pub fn asked_of(&self, picks: impl Fn(&Asked) -> bool) -> Vec<Asked> {
        self.asked().into_iter().filter(picks).collect()
    }

    /// Every host's port 80 is this server.
    pub fn here(&self) -> String {
        format!("*:80:127.0.0.1:{}", self.port)
    }

    /// Every host's port 80 is this server; no delay, no robots.txt, no second tries.
    pub fn config(&self) -> Config {
        let here = self.here();
        crawling::config(&[("ALLOW_NET", "loopback"), ("RESOLVE", &here)])
    }
}

impl Reply {
    pub fn page(body: &str) -> Self {
        Reply {
            status: "200 OK",
            fields: "Content-Type: text/html\r\n".to_owned(),
            body: body.to_owned(),
            after: Duration::ZERO,
        }
    }

    /// Nothing but a status: `429 Too Many Requests`.
    pub fn status(status: &'static str) -> Self {
        Reply {
            status,
            ..Reply::page("")
        }
    }

    pub fn redirect(status: &'static str, to: &str) -> Self {
        Reply::status(status).field("Location", to)
    }

    pub fn field(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        self.fields.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    pub fn after(mut self, after: Duration) -> Self {
        self.after = after;
        self
    }
}

/// The steady clock that all is told in.
pub fn now() -> Duration {
    Clock::read().now
}

/// The gaps between arrivals.
pub fn gaps(asked: &[Asked]) -> Vec<Duration> {
    let pairs = asked.windows(2);
    pairs.map(|pair| pair[1].at - pair[0].at).collect()
}

/// The most that were being answered at a time.
pub fn peak(asked: &[Asked]) -> usize {
    let at_once = |one: &Asked| {
        let during = |other: &&Asked| other.at <= one.at && one.at < other.done;
        asked.iter().filter(during).count()
    };
    asked.iter().map(at_once).max().unwrap_or(0)
}

fn serve(
    mut stream: TcpStream,
    conn: usize,
    told: &Mutex<Vec<Asked>>,
    answer: &dyn Fn(&Asked) -> Reply,
) {
    use std::io::Write;
    let mut unread = Vec::new();
    while let Some(asked) = read(&stream, conn, &mut unread) {
        let reply = answer(&asked);
        let number = {
            let mut told = told.lock().expect("no server panics");
            told.push(asked);
            told.len() - 1
        };
        thread::sleep(reply.after);
        let whole = format!(
            "HTTP/1.1 {}\r\n{}Content-Length: {}\r\n\r\n{}",
            reply.status,
            reply.fields,
            reply.body.len(),
            reply.body
        );
        told.lock().expect("no server panics")[number].done = now();
        if stream.write_all(whole.as_bytes()).is_err() {
            return;
        }
    }
}

/// The next request of a connection, stamped when its first bytes arrived.
fn read(stream: &TcpStream, conn: usize, unread: &mut Vec<u8>) -> Option<Asked> {
    let mut at = receive(stream, unread);
    let end = loop {
        if let Some(end) = unread.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        let more = receive(stream, unread)?;
        at = at.or(Some(more));
    };
    let head = String::from_utf8(unread.drain(..end).collect()).expect("tests send text");
    let (line, fields) = head.split_once("\r\n")?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let value = |name: &str| {
        let fields = fields.lines().filter_map(|line| line.split_once(':'));
        fields
            .filter(|(own, _)| own.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim().to_owned())
            .next()
    };
    let length = value("Content-Length").map_or(0, |text| text.parse().expect("a length"));
    while unread.len() < length {
        receive(stream, unread)?;
    }
    let body = unread.drain(..length).collect();
    Some(Asked {
        method,
        target,
        host: value("Host").unwrap_or_default(),
        fields: fields.to_ascii_lowercase(),
        body: String::from_utf8(body).expect("tests send text"),
        conn,
        at: at?,
        done: Duration::MAX,
    })
}

/// Waits for more bytes; says when they arrived, or `None` at the end.
fn receive(stream: &TcpStream, unread: &mut Vec<u8>) -> Option<Duration> {
    stream.peek(&mut [0]).ok().filter(|count| *count > 0)?;
    let mut buffer = [0; 4096];
    let (count, at) = stamp::receive(stream, &mut buffer, &Clock::read()).ok()?;
    unread.extend_from_slice(&buffer[..count]);
    Some(at)
}
