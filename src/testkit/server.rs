//! A server with a thread for each connection: an answer may block, and TLS may be spoken.

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::http::{Answer, Request, Step};
use super::stamp::{Clock, Stamping, ask_for_stamps};
use super::stream::{self, Stream};

pub use super::stream::TlsConfig;

/// A server until it is dropped. It keeps every request, and when it came.
pub struct Server {
    acceptor: Acceptor,
    record: Arc<Record>,
}

/// A request as it came. Times are on the steady clock, as [`Clock`] reads it.
#[derive(Clone, Debug)]
pub struct Asked {
    request: Request,
    /// Which of the server's connections it came on, in the order of their coming, from 0.
    pub conn: usize,
    /// When its first bytes arrived: by the kernel's stamp where stamps were asked for.
    pub at: Duration,
    /// When its reply began to be written; `Duration::MAX` until then. As this is read before the
    /// write, no request of a client that has the reply comes earlier.
    pub done: Duration,
}

impl Asked {
    /// The value of a header, by its name in any case.
    ///
    /// # Panics
    /// It came twice.
    pub fn header(&self, name: &str) -> Option<&str> {
        let headers = self.headers.iter();
        let mut named = headers.filter(|(other, _)| other.eq_ignore_ascii_case(name));
        let value = named.next().map(|(_, value)| value.as_str());
        assert!(named.next().is_none(), "{name} came twice: {self:?}");
        value
    }
}

impl Deref for Asked {
    type Target = Request;

    fn deref(&self) -> &Request {
        &self.request
    }
}

#[derive(Default)]
struct Record {
    asked: Mutex<Vec<Asked>>,
    /// Connections that the client ended in good order.
    ended: AtomicUsize,
}

impl Server {
    /// A server on 127.0.0.1.
    pub fn start<A: Answer>(answer: impl Fn(&Asked) -> A + Send + Sync + 'static) -> Server {
        Server::on(loopback(), None, answer)
    }

    /// A server with TLS on 127.0.0.1.
    pub fn tls<A: Answer>(
        config: TlsConfig,
        answer: impl Fn(&Asked) -> A + Send + Sync + 'static,
    ) -> Server {
        Server::on(loopback(), Some(config), answer)
    }

    /// A server on 127.0.0.1 whose requests the kernel stamps, so that it judges a pace even where
    /// the machine is too busy to read them in time.
    pub fn stamped<A: Answer>(answer: impl Fn(&Asked) -> A + Send + Sync + 'static) -> Server {
        let listener = loopback();
        ask_for_stamps(&listener).expect("the kernel stamps what arrives");
        // The listener keeps it at it from here on.
        Stamping::begin().expect("the kernel stamps what arrives");
        Server::on(listener, None, answer)
    }

    /// A server on this socket.
    pub fn on<A: Answer>(
        listener: TcpListener,
        tls: Option<TlsConfig>,
        answer: impl Fn(&Asked) -> A + Send + Sync + 'static,
    ) -> Server {
        let record = Arc::<Record>::default();
        let kept = Arc::clone(&record);
        let acceptor = Acceptor::start(listener, move |mut stream, conn| {
            let serve = |stream: &mut dyn Stream| serve(stream, conn, &kept, &answer);
            let ended = match &tls {
                None => serve(&mut stream),
                Some(config) => serve(&mut stream::tls(Arc::clone(config), stream)?),
            };
            let is_in_order = matches!(ended, Ok(Ended::ByClient));
            kept.ended
                .fetch_add(usize::from(is_in_order), Ordering::Relaxed);
            ended.map(|_| ())
        });
        Server { acceptor, record }
    }

    /// A server that takes these steps on each connection, whatever it is sent.
    pub fn deaf(steps: Vec<Step>) -> Server {
        let acceptor = Acceptor::start(loopback(), move |mut stream, _| {
            play(&mut stream, steps.clone(), || ()).map(|_| ())
        });
        let record = Arc::default();
        Server { acceptor, record }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.acceptor.at
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.acceptor.at.port()
    }

    /// Every request so far, in the order of arrival.
    pub fn asked(&self) -> Vec<Asked> {
        let mut asked = self.record.asked.lock().expect(NO_PANIC).clone();
        asked.sort_by_key(|asked| asked.at);
        asked
    }

    /// Waits until so many requests have come.
    ///
    /// # Panics
    /// They do not come in time.
    pub fn wait_for_requests(&self, count: usize) {
        let came = || self.record.asked.lock().expect(NO_PANIC).len();
        wait_for("requests", count, came);
    }

    /// Waits until so many connections were ended by the client in good order, with close_notify
    /// where they had TLS.
    ///
    /// # Panics
    /// They do not end in time.
    pub fn wait_for_ends(&self, count: usize) {
        wait_for("connections that end in good order", count, || {
            self.record.ended.load(Ordering::Relaxed)
        });
    }
}

fn wait_for(what: &str, count: usize, came: impl Fn() -> usize) {
    let began = Instant::now();
    while came() < count {
        assert!(began.elapsed() < PATIENCE, "{count} {what} never came");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A listener whose connections are each served by a thread, until it is dropped.
pub struct Acceptor {
    at: SocketAddr,
    listener: Arc<TcpListener>,
    is_over: Arc<AtomicBool>,
}

impl Acceptor {
    /// Serves each connection of a listener, which has its number, from 0. That a client goes is no
    /// failure, so what `serve` returns is not looked at.
    pub fn start(
        listener: TcpListener,
        serve: impl Fn(TcpStream, usize) -> io::Result<()> + Send + Sync + 'static,
    ) -> Acceptor {
        let acceptor = Acceptor {
            at: listener.local_addr().expect("it is bound"),
            listener: Arc::new(listener),
            is_over: Arc::default(),
        };
        let listener = Arc::clone(&acceptor.listener);
        let is_over = Arc::clone(&acceptor.is_over);
        let serve = Arc::new(serve);
        thread::spawn(move || {
            let mut conn = 0;
            loop {
                let stream = accept(&listener);
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let Some(stream) = stream else { continue };
                let _ = stream.set_read_timeout(Some(PATIENCE));
                let _ = stream.set_write_timeout(Some(PATIENCE));
                let _ = stream.set_nodelay(true);
                let serve = Arc::clone(&serve);
                thread::spawn(move || serve(stream, conn));
                conn += 1;
            }
        });
        acceptor
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.at
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // From here on connections are refused; it wakes the thread that accepts, which then ends.
        let _ = SockRef::from(&*self.listener).shutdown(Shutdown::Both);
    }
}

/// The next connection; none where there is no descriptor for it. Then the next attempt would fail at
/// once, too, so this pauses first.
fn accept(listener: &TcpListener) -> Option<TcpStream> {
    match listener.accept() {
        Ok((stream, _)) => Some(stream),
        Err(_) => {
            thread::sleep(ACCEPT_PAUSE);
            None
        }
    }
}

/// A listener on a free port of 127.0.0.1.
pub fn loopback() -> TcpListener {
    listener((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port")
}

/// A listener on this address, with room for many connections that come at once.
pub fn listener(at: impl ToSocketAddrs) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(at)?;
    SockRef::from(&listener).listen(BACKLOG)?;
    Ok(listener)
}

/// End of a connection.
#[derive(PartialEq, Eq)]
enum Ended {
    /// The client closed it between two requests: with TLS, by close_notify.
    ByClient,
    ByServer,
}

fn serve<A: Answer>(
    stream: &mut dyn Stream,
    conn: usize,
    record: &Record,
    answer: &dyn Fn(&Asked) -> A,
) -> io::Result<Ended> {
    let mut unread = Vec::new();
    while let Some(asked) = read(stream, conn, &mut unread)? {
        let steps = answer(&asked).into_steps(&asked);
        let number = {
            let mut kept = record.asked.lock().expect(NO_PANIC);
            kept.push(asked);
            kept.len() - 1
        };
        let before_first = || {
            record.asked.lock().expect(NO_PANIC)[number].done = Clock::read().now;
        };
        if play(stream, steps, before_first)? == Ended::ByServer {
            return Ok(Ended::ByServer);
        }
    }
    Ok(Ended::ByClient)
}

/// The next request of a connection, or `None` at its end.
fn read(stream: &mut dyn Stream, conn: usize, unread: &mut Vec<u8>) -> io::Result<Option<Asked>> {
    let mut buffer = [0; 4096];
    let mut at = None;
    loop {
        match Request::take(unread) {
            Ok(Some(request)) => {
                return Ok(Some(Asked {
                    request,
                    conn,
                    at: at.unwrap_or_else(|| Clock::read().now),
                    done: Duration::MAX,
                }));
            }
            Ok(None) => {}
            Err(_) => return Err(io::ErrorKind::InvalidData.into()),
        }
        let (count, arrived) = stream.receive(&mut buffer)?;
        if count == 0 {
            return Ok(None);
        }
        at.get_or_insert(arrived);
        unread.extend_from_slice(&buffer[..count]);
    }
}

/// Takes the steps; [`Ended::ByClient`] means that the connection may carry another request. Calls
/// `before_first` before the first bytes are written.
fn play(
    stream: &mut dyn Stream,
    steps: Vec<Step>,
    before_first: impl FnOnce(),
) -> io::Result<Ended> {
    let mut before_first = Some(before_first);
    let mut before_write = || {
        if let Some(call) = before_first.take() {
            call();
        }
    };
    for step in steps {
        match step {
            Step::Send(bytes) => {
                before_write();
                stream.write_all(&bytes)?;
                stream.flush()?;
            }
            Step::Wait(span) => thread::sleep(span),
            Step::Repeat(bytes, pause) => {
                before_write();
                // A write fails once the client has gone, or has taken nothing for `PATIENCE`.
                loop {
                    stream.write_all(&bytes)?;
                    stream.flush()?;
                    thread::sleep(pause);
                }
            }
            Step::Hang => {
                wait_for_end(stream)?;
                return Ok(Ended::ByServer);
            }
            Step::End => stream.end()?,
            Step::Close => return Ok(Ended::ByServer),
            Step::Reset => {
                let socket = SockRef::from(stream.socket());
                socket.set_linger(Some(Duration::ZERO))?;
                return Ok(Ended::ByServer);
            }
        }
    }
    Ok(Ended::ByClient)
}

/// Waits until the client ends the connection, however long that takes.
fn wait_for_end(stream: &mut dyn Stream) -> io::Result<()> {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    loop {
        match stream.read(&mut [0; 1024]) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), Interrupted | TimedOut | WouldBlock) => {}
            Err(error) => return Err(error),
        }
    }
}

const NO_PANIC: &str = "no answer panics";
/// How long a server waits for a client to send a request, or to take bytes.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a server waits after it could not accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// A crawl may begin with a connection to every host at once.
const BACKLOG: i32 = 4096;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::testkit::http::Reply;

    fn connect(server: &Server) -> TcpStream {
        let stream = TcpStream::connect(server.address()).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    }

    #[test]
    fn requests_are_kept_with_their_times_and_answered_in_turn() {
        let server = Server::stamped(|asked| {
            let reply = Reply::new(200).body(&asked.target);
            reply.after(Duration::from_millis(10))
        });
        let mut client = connect(&server);
        for target in ["/1", "/2"] {
            write!(client, "GET {target} HTTP/1.1\r\n\r\n").expect("sent");
            let expected = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n".to_owned() + target;
            let mut reply = vec![0; expected.len()];
            client.read_exact(&mut reply).expect("a reply");
            assert_eq!(String::from_utf8(reply).expect("text"), expected);
        }
        drop(client);
        server.wait_for_requests(2);
        server.wait_for_ends(1);
        let asked = server.asked();
        assert_eq!((&asked[0].target[..], asked[1].conn), ("/1", 0));
        assert!(asked[0].done - asked[0].at >= Duration::from_millis(10));
        assert!(asked[0].done <= asked[1].at);
    }

    #[test]
    fn a_step_may_end_close_or_reset_the_connection() {
        let check = |step: Step, expected: Option<&[u8]>| {
            let steps = vec![
                Step::Send(b"half".to_vec()),
                Step::Wait(Duration::from_millis(50)),
                step,
            ];
            let server = Server::start(move |_| steps.clone());
            let mut client = connect(&server);
            client.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
            let mut reply = Vec::new();
            match (client.read_to_end(&mut reply), expected) {
                (Ok(_), Some(expected)) => assert_eq!(reply, expected),
                (Err(error), None) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
                (other, _) => panic!("{other:?}"),
            }
        };
        check(Step::End, Some(b"half"));
        check(Step::Close, Some(b"half"));
        check(Step::Reset, None);
    }

    #[test]
    fn a_connection_hangs_until_the_client_ends_it_however_long_that_takes() {
        let listener = loopback();
        let at = listener.local_addr().expect("it is bound");
        let mut client = TcpStream::connect(at).expect("it listens");
        let (mut stream, _) = listener.accept().expect("a client connects");
        // In place of `PATIENCE`.
        let timeout = Some(Duration::from_millis(1));
        stream.set_read_timeout(timeout).expect("a timeout");
        let hanging = thread::spawn(move || play(&mut stream, vec![Step::Hang], || ()).map(drop));
        let while_it_hangs = Some(Duration::from_millis(50));
        client.set_read_timeout(while_it_hangs).expect("a timeout");
        let error = client.read(&mut [0]).expect_err("nothing is sent");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(client);
        hanging.join().expect("no panic").expect("it ends in order");
    }

    #[test]
    fn a_failed_accept_is_followed_by_a_pause() {
        let listener = loopback();
        listener.set_nonblocking(true).expect("it can");
        let began = Instant::now();
        assert!(accept(&listener).is_none());
        assert!(began.elapsed() >= ACCEPT_PAUSE);
    }

    #[test]
    fn a_server_that_is_dropped_accepts_nothing_more() {
        let listener = loopback();
        // While this is open no other socket is given the port.
        let _held = listener.try_clone().expect("a descriptor");
        let server = Server::on(listener, None, |_| vec![Step::Close]);
        let at = server.address();
        drop(server);
        let refused = TcpStream::connect(at).expect_err("no server listens");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
