//! Proxies that record their requests, and that can misbehave.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use argiope::testkit::server::{Acceptor, loopback};

/// A proxy on the loopback device. Every host behind it is one origin.
pub struct Proxy {
    pub at: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    /// Accepts until it is dropped.
    _acceptor: Acceptor,
}

/// How a proxy answers requests for a tunnel or a page.
#[derive(Clone, Copy)]
pub enum Manner {
    /// As it should.
    Good,
    /// As it should, but a byte at a time.
    Slow,
    /// Correctly, for the user `Aladdin` with the password `open sesame`.
    Guarded,
    /// With these bytes, and then it closes.
    Says(&'static [u8]),
    /// Not at all.
    Silent,
    /// As it should, but that it cannot reach this host.
    Without(&'static str),
}

impl Proxy {
    /// An HTTP proxy. It keeps the heads that it was asked with.
    pub fn http(manner: Manner, origin: SocketAddr) -> Self {
        Proxy::http_on(loopback(), manner, origin)
    }

    /// An HTTP proxy that listens here.
    pub fn http_on(listener: TcpListener, manner: Manner, origin: SocketAddr) -> Self {
        Proxy::start(listener, move |stream, asked| {
            forward(stream, manner, origin, asked)
        })
    }

    /// A SOCKS5 proxy. It keeps `KIND host:port` of each tunnel, and `user:password` before it.
    pub fn socks(manner: Manner, origin: SocketAddr) -> Self {
        Proxy::start(loopback(), move |stream, asked| {
            tunnel(stream, manner, origin, asked)
        })
    }

    fn start<F>(listener: TcpListener, serve: F) -> Self
    where
        F: Fn(TcpStream, &Mutex<Vec<String>>) -> io::Result<()> + Send + Sync + 'static,
    {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let record = Arc::clone(&asked);
        let acceptor = Acceptor::start(listener, move |stream, _| serve(stream, &record));
        Proxy {
            at: acceptor.address(),
            asked,
            _acceptor: acceptor,
        }
    }

    /// Requests so far.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no proxy panics").clone()
    }

    /// The URL by which it is named.
    pub fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.at)
    }
}

impl Manner {
    /// Whether it cannot reach a host that is asked for so.
    fn lacks(self, asked: &str) -> bool {
        matches!(self, Manner::Without(host) if asked.contains(host))
    }

    fn say(self, stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
        match self {
            Manner::Slow => bytes.iter().try_for_each(|byte| stream.write_all(&[*byte])),
            _ => stream.write_all(bytes),
        }
    }
}

fn keep(asked: &Mutex<Vec<String>>, what: String) {
    asked.lock().expect("no proxy panics").push(what);
}

fn forward(
    mut client: TcpStream,
    manner: Manner,
    origin: SocketAddr,
    asked: &Mutex<Vec<String>>,
) -> io::Result<()> {
    while let Some(head) = read_head(&mut client) {
        keep(asked, head.clone());
        let is_aladdin = head.contains("Proxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        match manner {
            Manner::Silent => return wait_for_end(&mut client),
            Manner::Says(bytes) => {
                client.write_all(bytes)?;
                return client.shutdown(Shutdown::Write);
            }
            Manner::Guarded if !is_aladdin => {
                let reply =
                    "HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n";
                client.write_all(reply.as_bytes())?;
                continue;
            }
            _ => {}
        }
        if manner.lacks(&head) {
            client.write_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")?;
            return client.shutdown(Shutdown::Write);
        }
        if head.starts_with("CONNECT ") {
            let behind = TcpStream::connect(origin)?;
            manner.say(&mut client, b"HTTP/1.1 200 Connection established\r\n\r\n")?;
            return splice(client, behind);
        }
        let mut behind = TcpStream::connect(origin)?;
        let (_, rest) = head.split_once("://").unwrap_or_default();
        let method = head.split(' ').next().unwrap_or_default();
        let path = rest.find('/').map_or("/", |at| &rest[at..]);
        let lines = path.lines().filter(|line| !line.starts_with("Proxy-"));
        let lines: Vec<&str> = lines.collect();
        behind
            .write_all(format!("{method} {}\r\n\r\n", lines.join("\r\n").trim_end()).as_bytes())?;
        let reply = read_head(&mut behind).unwrap_or_default();
        let length = reply.split("Content-Length: ").nth(1);
        let length = length.and_then(|rest| rest.lines().next()?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        behind.read_exact(&mut body)?;
        manner.say(&mut client, &[reply.as_bytes(), &body].concat())?;
    }
    Ok(())
}

fn tunnel(
    mut client: TcpStream,
    manner: Manner,
    origin: SocketAddr,
    asked: &Mutex<Vec<String>>,
) -> io::Result<()> {
    let mut two = [0; 2];
    client.read_exact(&mut two)?;
    let mut methods = vec![0; usize::from(two[1])];
    client.read_exact(&mut methods)?;
    match manner {
        Manner::Silent => return wait_for_end(&mut client),
        Manner::Says(bytes) => {
            // Its second word comes when it was asked for the tunnel.
            let first = bytes.strip_prefix(&[5, 0]).map_or(bytes.len(), |_| 2);
            client.write_all(&bytes[..first])?;
            if first < bytes.len() {
                place(&mut client)?;
            }
            client.write_all(&bytes[first..])?;
            return client.shutdown(Shutdown::Write);
        }
        Manner::Guarded if !methods.contains(&2) => return client.write_all(&[5, 0xff]),
        Manner::Guarded => {
            client.write_all(&[5, 2])?;
            client.read_exact(&mut [0])?;
            let user = format!("{}:{}", counted(&mut client)?, counted(&mut client)?);
            let refused = u8::from(user != "Aladdin:open sesame");
            keep(asked, user);
            client.write_all(&[1, refused])?;
            if refused != 0 {
                return Ok(());
            }
        }
        _ => manner.say(&mut client, &[5, 0])?,
    }
    let place = place(&mut client)?;
    keep(asked, place.clone());
    if manner.lacks(&place) {
        client.write_all(&[5, 5, 0, 1, 0, 0, 0, 0, 0, 0])?;
        return client.shutdown(Shutdown::Write);
    }
    let behind = TcpStream::connect(origin)?;
    manner.say(&mut client, &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])?;
    splice(client, behind)
}

/// Where a client wants to: `KIND host:port`.
fn place(client: &mut TcpStream) -> io::Result<String> {
    let mut four = [0; 4];
    client.read_exact(&mut four)?;
    let host = match four[3] {
        1 => {
            let mut address = [0; 4];
            client.read_exact(&mut address)?;
            format!("ADDRESS {}", std::net::Ipv4Addr::from(address))
        }
        3 => format!("NAME {}", counted(client)?),
        kind => format!("KIND {kind}"),
    };
    let mut port = [0; 2];
    client.read_exact(&mut port)?;
    Ok(format!("{host}:{}", u16::from_be_bytes(port)))
}

/// A text behind its length.
fn counted(stream: &mut TcpStream) -> io::Result<String> {
    let mut length = [0];
    stream.read_exact(&mut length)?;
    let mut text = vec![0; usize::from(length[0])];
    stream.read_exact(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Carries bytes both ways until either side ends.
fn splice(client: TcpStream, origin: TcpStream) -> io::Result<()> {
    let (mut from, mut to) = (client.try_clone()?, origin.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let (mut from, mut to) = (origin, client);
    let copied = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
    copied.map(|_| ())
}

fn wait_for_end(client: &mut TcpStream) -> io::Result<()> {
    while client.read(&mut [0; 1024])? > 0 {}
    Ok(())
}

/// A head, blank line included, read byte by byte: what follows it stays where it is.
fn read_head(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}
