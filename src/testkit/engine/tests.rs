//! Clients of an engine on the loopback device: steps, ends, and TLS.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use super::*;
use crate::testkit::server::loopback;
use crate::testkit::stream::testing::{
    ClientConfig, ClientConnection, HandshakeKind, PrivatePkcs8KeyDer, RootCertStore, ServerConfig,
    StreamOwned, TLS12, Ticketer, default_provider,
};

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

/// The settings of a server and of its clients, of TLS 1.2, whose sessions are resumed by tickets.
fn tls_of_both() -> (TlsConfig, Arc<ClientConfig>) {
    let own = rcgen::generate_simple_self_signed(["a.test".to_owned()]).expect("a certificate");
    let chain = own.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let provider = Arc::new(default_provider());
    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS12])
        .expect("it has TLS 1.2")
        .with_no_client_auth()
        .with_single_cert(vec![chain.clone()], key.into())
        .expect("its key");
    server.ticketer = Ticketer::new().expect("random bytes");
    let mut roots = RootCertStore::empty();
    roots.add(chain).expect("a certificate");
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("it has both")
        .with_root_certificates(roots)
        .with_no_client_auth();
    (Arc::new(server), Arc::new(client))
}

/// Fetches a path over TLS; how the session began, too.
fn get_by_tls(at: SocketAddr, config: &Arc<ClientConfig>, path: &str) -> (Vec<u8>, HandshakeKind) {
    let stream = TcpStream::connect(at).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let name = "a.test".try_into().expect("a name");
    let session = ClientConnection::new(Arc::clone(config), name).expect("settings");
    let mut stream = StreamOwned::new(session, stream);
    // In two parts, so that a request is not one record.
    write!(stream, "GET {path} HTTP/1.1\r\n").expect("sent");
    write!(stream, "Connection: close\r\n\r\n").expect("sent");
    let mut reply = Vec::new();
    // An end without close_notify would be an error.
    stream.read_to_end(&mut reply).expect("a whole reply");
    (reply, stream.conn.handshake_kind().expect("it is over"))
}

#[test]
fn clients_speak_tls_and_resume_their_sessions() {
    let (server, client) = tls_of_both();
    let running = start_with(|engine| engine.with_tls(server));
    let (slow, first) = get_by_tls(running.at, &client, "/slow");
    assert_eq!((&slow[..], first), (&b"ab"[..], HandshakeKind::Full));
    let (large, second) = get_by_tls(running.at, &client, "/large");
    assert_eq!((large.len(), second), (LARGE + 1, HandshakeKind::Resumed));
    let (half, _) = get_by_tls(running.at, &client, "/end");
    assert_eq!(half, b"half");
    let ends = running.ends(3);
    running.stop();
    let is_done = |(_, end): &(String, End)| matches!(end, End::Done { .. });
    assert!(ends.iter().all(is_done), "{ends:?}");
}

#[test]
fn a_client_that_does_not_speak_tls_is_disconnected() {
    let (server, client) = tls_of_both();
    let running = start_with(|engine| engine.with_tls(server));
    let reply = running.get("/end").unwrap_or_default();
    assert!(!reply.starts_with(b"half"), "{reply:?}");
    // Others are served.
    assert_eq!(get_by_tls(running.at, &client, "/end").0, b"half");
    running.stop();
}
