//! A web server on loopback that does as its script says, well or badly.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A server until it is dropped.
pub struct Server {
    at: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    over: Arc<AtomicBool>,
    /// Connections that the client ended in good order.
    parted: Arc<AtomicUsize>,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Asked {
    /// The value of a header; it comes once, or the test fails.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self
            .headers
            .iter()
            .filter(|(key, _)| key.eq_ignore_ascii_case(name));
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} came twice: {self:?}");
        value
    }
}

/// What a server does next.
#[derive(Clone, Debug)]
pub enum Step {
    Send(Vec<u8>),
    Wait(Duration),
    /// The same bytes again and again, with a pause between, until the client leaves.
    Forever(Vec<u8>, Duration),
    /// Nothing, until the client leaves.
    Silence,
    Close,
}

type Script = dyn Fn(&Asked) -> Vec<Step> + Send + Sync;

impl Server {
    /// A server on 127.0.0.1 with this script.
    pub fn new(script: impl Fn(&Asked) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let address = Ipv4Addr::LOCALHOST.into();
        Server::on(address, script).expect("loopback has IPv4")
    }

    /// A server on another address; `None` where the machine has no such address.
    pub fn on(
        address: IpAddr,
        script: impl Fn(&Asked) -> Vec<Step> + Send + Sync + 'static,
    ) -> Option<Self> {
        Server::start(address, None, Arc::new(script))
    }

    /// A server that speaks TLS.
    pub fn tls(
        config: Arc<ServerConfig>,
        script: impl Fn(&Asked) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        let address = Ipv4Addr::LOCALHOST.into();
        Server::start(address, Some(config), Arc::new(script)).expect("loopback has IPv4")
    }

    /// A server that accepts and then does nothing but these steps, whatever it is sent.
    pub fn deaf(steps: Vec<Step>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        Server::accepting(listener, move |mut stream, _| {
            let _ = play(&mut stream, steps.clone());
        })
    }

    fn start(address: IpAddr, tls: Option<Arc<ServerConfig>>, script: Arc<Script>) -> Option<Self> {
        let listener = TcpListener::bind((address, 0)).ok()?;
        let parted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&parted);
        let mut server = Server::accepting(listener, move |stream, asked| {
            let in_order = match &tls {
                None => serve(stream, &*script, &asked),
                Some(config) => {
                    let connection =
                        ServerConnection::new(config.clone()).expect("the TLS settings are sound");
                    serve(StreamOwned::new(connection, stream), &*script, &asked)
                }
            };
            count.fetch_add(usize::from(in_order), Ordering::Relaxed);
        });
        server.parted = parted;
        Some(server)
    }

    fn accepting(
        listener: TcpListener,
        serve: impl Fn(TcpStream, Arc<Mutex<Vec<Asked>>>) + Clone + Send + 'static,
    ) -> Self {
        let server = Server {
            at: listener.local_addr().expect("it is bound"),
            asked: Arc::default(),
            over: Arc::default(),
            parted: Arc::default(),
        };
        let (asked, over) = (server.asked.clone(), server.over.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let _ = stream.set_read_timeout(Some(PATIENCE));
                let _ = stream.set_write_timeout(Some(PATIENCE));
                let _ = stream.set_nodelay(true);
                let (serve, asked) = (serve.clone(), asked.clone());
                thread::spawn(move || serve(stream, asked));
            }
        });
        server
    }

    pub fn port(&self) -> u16 {
        self.at.port()
    }

    /// A URL on this server's address.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }

    /// The `--resolve` that brings a name here.
    pub fn named(&self, host: &str) -> String {
        format!("{host}:{}:{}", self.port(), self.at.ip())
    }

    /// Every request so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no script panics").clone()
    }

    /// The targets of the requests so far, without robots.txt, sorted.
    pub fn targets(&self) -> Vec<String> {
        let mut targets: Vec<String> = self.asked().into_iter().map(|asked| asked.target).collect();
        targets.retain(|target| target != "/robots.txt");
        targets.sort();
        targets
    }

    /// The one request for a target.
    pub fn only(&self, target: &str) -> Asked {
        let asked = self.asked();
        let mut found = asked.iter().filter(|asked| asked.target == target);
        let only = found
            .next()
            .unwrap_or_else(|| panic!("nobody asked for {target}: {asked:?}"));
        assert!(found.next().is_none(), "{target} was asked for twice");
        only.clone()
    }

    /// Waits until so many connections were ended by the client in good order.
    pub fn wait_for_partings(&self, count: usize) {
        let began = Instant::now();
        while self.parted.load(Ordering::Relaxed) < count {
            assert!(began.elapsed() < PATIENCE, "{count} partings never came");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until so many requests have come.
    pub fn wait_for(&self, count: usize) {
        let began = Instant::now();
        while self.asked().len() < count {
            assert!(began.elapsed() < PATIENCE, "{count} requests never came");
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.at);
    }
}

/// A page.
pub fn page(body: &str) -> Vec<Step> {
    reply(
        "200 OK",
        &["Content-Type: text/html; charset=utf-8"],
        body.as_bytes(),
    )
}

/// A whole reply with its length.
pub fn reply(status: &str, headers: &[&str], body: &[u8]) -> Vec<Step> {
    let length = format!("Content-Length: {}", body.len());
    vec![raw(
        &[&head(status, &[headers, &[&length]].concat()), body].concat()
    )]
}

/// A status line and headers.
pub fn head(status: &str, headers: &[&str]) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status}\r\n");
    for header in headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    head.into_bytes()
}

pub fn raw(bytes: &[u8]) -> Step {
    Step::Send(bytes.to_vec())
}

/// A redirect.
pub fn redirect(status: &str, to: &str) -> Vec<Step> {
    reply(status, &[&format!("Location: {to}")], b"")
}

pub fn not_found() -> Vec<Step> {
    reply("404 Not Found", &["Content-Type: text/plain"], b"no")
}

/// Serves a connection; says whether the client ended it in good order (with TLS: with close_notify).
fn serve(mut stream: impl Read + Write, script: &Script, asked: &Mutex<Vec<Asked>>) -> bool {
    loop {
        let request = match read_request(&mut stream) {
            Ok(Some(request)) => request,
            Ok(None) => return true,
            Err(_) => return false,
        };
        let steps = script(&request);
        asked.lock().expect("no script panics").push(request);
        if !matches!(play(&mut stream, steps), Ok(true)) {
            return false;
        }
    }
}

/// Does the steps; says whether the connection may carry another request.
fn play(stream: &mut (impl Read + Write), steps: Vec<Step>) -> io::Result<bool> {
    for step in steps {
        match step {
            Step::Send(bytes) => {
                stream.write_all(&bytes)?;
                stream.flush()?;
            }
            Step::Wait(span) => thread::sleep(span),
            Step::Forever(bytes, pause) => {
                let began = Instant::now();
                while began.elapsed() < LONGEST {
                    stream.write_all(&bytes)?;
                    stream.flush()?;
                    thread::sleep(pause);
                }
            }
            Step::Silence => {
                let began = Instant::now();
                while began.elapsed() < LONGEST && stream.read(&mut [0; 1024])? > 0 {}
                return Ok(false);
            }
            Step::Close => return Ok(false),
        }
    }
    Ok(true)
}

fn read_request(stream: &mut impl Read) -> io::Result<Option<Asked>> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        let mut block = [0; 4096];
        match stream.read(&mut block)? {
            0 => return Ok(None),
            count => bytes.extend_from_slice(&block[..count]),
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.lines();
    let mut first = lines.next().unwrap_or("").split(' ').map(str::to_owned);
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let length = headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map_or(0, |(_, value)| value.parse().expect("a length"));
    let mut body = bytes.split_off(end);
    while body.len() < length {
        let mut block = [0; 4096];
        match stream.read(&mut block)? {
            0 => return Ok(None),
            count => body.extend_from_slice(&block[..count]),
        }
    }
    Ok(Some(Asked {
        method: first.next().unwrap_or_default(),
        target: first.next().unwrap_or_default(),
        headers,
        body,
    }))
}

/// How long a server waits for a client.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a server goes on with what has no end.
const LONGEST: Duration = Duration::from_secs(40);
