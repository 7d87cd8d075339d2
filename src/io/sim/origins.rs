//! A small world: HTTP/1.1 servers with prepared replies and a log of requests.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::{Answer, ConnId, Net, World};
use crate::base::time::Instant;
use crate::io::Close;

/// Servers by address. An address without replies refuses connections.
///
/// A reply is sent byte for byte; one with `connection: close` in its head ends the connection. A path
/// without a reply gets a 404.
#[derive(Debug, Default)]
pub struct Origins {
    origins: BTreeMap<SocketAddr, BTreeMap<String, (Duration, Vec<u8>)>>,
    connections: BTreeMap<ConnId, Connection>,
    hits: Vec<Hit>,
}

/// A request as its server saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// When its head was complete.
    pub at: Instant,
    /// The address connected to.
    pub to: SocketAddr,
    /// Its connection.
    pub conn: ConnId,
    /// Request line and header lines.
    pub head: String,
}

#[derive(Debug)]
struct Connection {
    to: SocketAddr,
    unread: Vec<u8>,
}

impl Origins {
    /// Prepares the reply for a path, and how long the server takes for it.
    pub fn reply(
        &mut self,
        at: SocketAddr,
        path: &str,
        think: Duration,
        reply: impl Into<Vec<u8>>,
    ) -> &mut Self {
        let origin = self.origins.entry(at).or_default();
        origin.insert(path.to_owned(), (think, reply.into()));
        self
    }

    /// Prepares an HTML page that keeps the connection.
    pub fn page(&mut self, at: SocketAddr, path: &str, html: &str) -> &mut Self {
        let reply = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n{html}",
            html.len()
        );
        self.reply(at, path, Duration::from_millis(10), reply)
    }

    /// All requests so far, in order.
    pub fn hits(&self) -> &[Hit] {
        &self.hits
    }

    /// Number of open connections.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }
}

impl World for Origins {
    fn connect(&mut self, conn: ConnId, to: SocketAddr, _net: &mut Net) -> Answer {
        if !self.origins.contains_key(&to) {
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
        while let Some(end) = find(&connection.unread, b"\r\n\r\n") {
            let head: Vec<u8> = connection.unread.drain(..end + 4).collect();
            let head = String::from_utf8_lossy(&head[..end]).into_owned();
            let path = head.split(' ').nth(1).unwrap_or("");
            let (think, reply) = self.origins[&connection.to]
                .get(path)
                .map_or((Duration::ZERO, NOT_FOUND), |(think, reply)| {
                    (*think, &reply[..])
                });
            net.reply(conn, think, reply);
            if closes(reply) {
                net.end(conn, think);
            }
            self.hits.push(Hit {
                at: net.now(),
                to: connection.to,
                conn,
                head,
            });
        }
    }

    fn closed(&mut self, conn: ConnId, _how: Close, _net: &mut Net) {
        self.connections.remove(&conn);
    }
}

fn closes(reply: &[u8]) -> bool {
    let head = &reply[..find(reply, b"\r\n\r\n").unwrap_or(reply.len())];
    find(&head.to_ascii_lowercase(), b"connection: close").is_some()
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

const NOT_FOUND: &[u8] = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
