//! A world made of one function that answers every request: the simulated network for users' own tests.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Answer, ConnId, Net, World};
use crate::base::rng::Rng;
use crate::base::time::Instant;
use crate::io::Close;

/// All origins: one function answers each request, and the requests are kept.
///
/// Each host name has its own address, and all ports but that of https listen. A clone is the same web.
#[derive(Clone)]
pub struct Web {
    answers: Arc<Mutex<Answers>>,
    seen: Arc<Mutex<Vec<Asked>>>,
    round_trip: Option<Duration>,
}

type Answers = dyn FnMut(&Asked) -> Reply + Send;

/// A request as its origin saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Asked {
    /// When it arrived, on the crawl's clock: half a round trip after it left.
    pub at: Instant,
    /// When its reply left; `None` without a reply, and while it is being answered.
    pub answered: Option<Instant>,
    /// The address connected to.
    pub address: SocketAddr,
    /// Its Host field: the name, and the port if it is not 80.
    pub host: String,
    /// The method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Its fields, in order.
    pub fields: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
}

/// A reply, and how long the origin takes for it.
#[derive(Clone, Debug)]
pub struct Reply {
    kind: Kind,
    after: Duration,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Status(u16),
    Reset,
    Silence,
}

impl Reply {
    /// An HTML page with status 200.
    pub fn page(html: impl Into<Vec<u8>>) -> Self {
        Reply::status(200)
            .field("Content-Type", "text/html; charset=utf-8")
            .body(html)
    }

    /// A text with status 200, such as a robots.txt.
    pub fn text(text: impl Into<Vec<u8>>) -> Self {
        Reply::status(200)
            .field("Content-Type", "text/plain; charset=utf-8")
            .body(text)
    }

    /// A status without a body. A number that is not a final status is answered as 500.
    pub fn status(status: u16) -> Self {
        let is_final = (200..1000).contains(&status);
        Reply::of(Kind::Status(if is_final { status } else { 500 }))
    }

    /// Resets the connection instead of replying.
    pub fn reset() -> Self {
        Reply::of(Kind::Reset)
    }

    /// Never replies.
    pub fn silence() -> Self {
        Reply::of(Kind::Silence)
    }

    /// Adds a header field. `Content-Length` is added automatically.
    pub fn field(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.fields.push((name.into(), value.to_string()));
        self
    }

    /// Sets the body, sent as it is: applying a `Content-Encoding` is up to the caller.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets how long the origin takes; no time by default.
    pub fn after(mut self, after: Duration) -> Self {
        self.after = after;
        self
    }

    fn of(kind: Kind) -> Self {
        Reply {
            kind,
            after: Duration::ZERO,
            fields: Vec::new(),
            body: Vec::new(),
        }
    }

    /// The reply as sent.
    fn bytes(&self, status: u16, to_head: bool) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {status} So\r\n");
        for (name, value) in &self.fields {
            head += &format!("{name}: {value}\r\n");
        }
        let bodiless = matches!(status, 204 | 304);
        if !bodiless {
            head += &format!("Content-Length: {}\r\n", self.body.len());
        }
        let mut bytes = (head + "\r\n").into_bytes();
        if !bodiless && !to_head {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

impl Web {
    /// A web that answers by this function, called for each request when its origin has it, in order.
    pub fn new(answers: impl FnMut(&Asked) -> Reply + Send + 'static) -> Self {
        Web {
            answers: Arc::new(Mutex::new(answers)),
            seen: Arc::default(),
            round_trip: None,
        }
    }

    /// Sets the round trip to all origins. By default it is drawn from the seed for each connection,
    /// between 5 and 50 ms.
    pub fn round_trip(mut self, round_trip: Duration) -> Self {
        self.round_trip = Some(round_trip);
        self
    }

    /// All requests so far, in order of arrival.
    pub fn asked(&self) -> Vec<Asked> {
        lock(&self.seen).clone()
    }

    /// The other side of a simulated network.
    pub(crate) fn world(&self) -> Box<dyn World> {
        Box::new(WebWorld {
            web: self.clone(),
            names: BTreeMap::new(),
            connections: BTreeMap::new(),
        })
    }

    /// The address of this web's only name server.
    pub(crate) fn name_server() -> SocketAddr {
        SocketAddr::from((NAME_SERVER, 53))
    }
}

impl std::fmt::Debug for Web {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Web")
            .field("asked", &lock(&self.seen).len())
            .finish_non_exhaustive()
    }
}

/// A web as one network sees it.
struct WebWorld {
    web: Web,
    /// The number of each name, which determines its address.
    names: BTreeMap<String, u32>,
    connections: BTreeMap<ConnId, Connection>,
}

/// One connection.
struct Connection {
    to: SocketAddr,
    unread: Vec<u8>,
}

impl World for WebWorld {
    fn distance(&mut self, _to: SocketAddr, rng: &mut Rng) -> Duration {
        let drawn = Duration::from_micros(5_000 + rng.below(45_000));
        self.web.round_trip.unwrap_or(drawn)
    }

    fn connect(&mut self, conn: ConnId, to: SocketAddr, _net: &mut Net) -> Answer {
        if to.port() == 443 {
            return Answer::Refuse;
        }
        let unread = Vec::new();
        self.connections.insert(conn, Connection { to, unread });
        Answer::Accept
    }

    fn bytes(&mut self, conn: ConnId, bytes: &[u8], net: &mut Net) {
        let Some(connection) = self.connections.get_mut(&conn) else {
            return;
        };
        connection.unread.extend_from_slice(bytes);
        while let Some(asked) = read(connection, net.now()) {
            self.web.answer(conn, asked, net);
        }
    }

    fn closed(&mut self, conn: ConnId, _how: Close, _net: &mut Net) {
        self.connections.remove(&conn);
    }

    /// The name server: every name has an IPv4 address.
    fn datagram(&mut self, socket: ConnId, to: SocketAddr, query: &[u8], net: &mut Net) {
        let question = (to == Web::name_server()).then(|| question(query));
        let Some((name, kind, end)) = question.flatten() else {
            return net.reset(socket, Duration::ZERO);
        };
        let number = self.names.len() as u32 + 1;
        let number = *self.names.entry(name).or_insert(number);
        let wants_address = kind == 1;
        let mut reply = vec![query[0], query[1], 0x81, 0x80, 0, 1];
        reply.extend_from_slice(&[0, u8::from(wants_address), 0, 0, 0, 0]);
        reply.extend_from_slice(&query[12..end]);
        if wants_address {
            let an_hour = 3600_u32.to_be_bytes();
            reply.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1]);
            reply.extend_from_slice(&an_hour);
            reply.extend_from_slice(&[0, 4]);
            let address = Ipv4Addr::from(u32::from(FIRST_ADDRESS) + number);
            reply.extend_from_slice(&address.octets());
        }
        net.reply(socket, Duration::ZERO, &reply);
    }
}

impl Web {
    fn answer(&self, conn: ConnId, mut asked: Asked, net: &mut Net) {
        let reply = (lock(&self.answers))(&asked);
        let after = reply.after;
        match reply.kind {
            Kind::Status(status) => {
                let bytes = reply.bytes(status, asked.method == "HEAD");
                net.reply(conn, after, &bytes);
                asked.answered = Some(asked.at + after);
            }
            Kind::Reset => net.reset(conn, after),
            Kind::Silence => {}
        }
        lock(&self.seen).push(asked);
    }
}

/// The next request of a connection, once it is complete.
fn read(connection: &mut Connection, at: Instant) -> Option<Asked> {
    let unread = &connection.unread;
    let end = unread.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&unread[..end]).into_owned();
    let mut lines = head.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let fields: Vec<_> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    let value = |wanted: &str| {
        let mut named = fields.iter();
        let field = named.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        field.map_or("", |(_, value)| value)
    };
    let length = value("Content-Length").parse().unwrap_or(0);
    if unread.len() < end + length {
        return None;
    }
    let asked = Asked {
        at,
        answered: None,
        address: connection.to,
        host: value("Host").to_owned(),
        method: words.next().unwrap_or_default().to_owned(),
        target: words.next().unwrap_or_default().to_owned(),
        body: unread[end..end + length].to_vec(),
        fields,
    };
    connection.unread.drain(..end + length);
    Some(asked)
}

/// The lower-case name and the type of a query, and where the question ends.
fn question(query: &[u8]) -> Option<(String, u8, usize)> {
    let mut labels = Vec::new();
    let mut at = 12;
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        let label = query.get(at..at + length)?;
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        at += length;
    }
    let kind = *query.get(at + 1)?;
    (query.len() >= at + 4).then(|| (labels.join("."), kind, at + 4))
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names get the addresses after this one. In the simulation these are unassigned, and a crawl may
/// request them without permission for private networks.
const FIRST_ADDRESS: Ipv4Addr = Ipv4Addr::new(11, 0, 0, 0);

/// The address of the name server; no name gets it before 16 million others.
const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(11, 255, 255, 53);
