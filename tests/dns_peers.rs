//! The resolver over real sockets with real name servers: unbound and dnsmasq.
//!
//! Each test starts and ends its own server on a free port of 127.0.0.1. If the server is not installed,
//! the test prints `SKIPPED`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use argiope::base::rng::Rng;
use argiope::base::secret::Secret;
use argiope::base::time::{Instant, nanos};
use argiope::fetch::resolver::{
    Action, Families, Lookup, Resolver, ResolverSettings, SocketId, Source, Transport,
};
use argiope::testkit::dns;

#[test]
fn replies_of_unbound_are_parsed() {
    let mut config = String::new();
    for line in [
        "server:",
        "  do-daemonize: no",
        "  use-syslog: no",
        "  chroot: \"\"",
        "  username: \"\"",
        "  pidfile: \"\"",
        "  directory: \"$DIR\"",
        "  interface: 127.0.0.1",
        "  port: $PORT",
        "  module-config: \"iterator\"",
        "  local-zone: \"test.\" static",
        "  local-data: \"test. 300 SOA ns.test. root.test. 1 2 3 4 77\"",
        "  local-data: \"a.test. 300 A 192.0.2.1\"",
        "  local-data: \"a.test. 300 AAAA 2001:db8::1\"",
        "  local-data: \"four.test. 300 A 192.0.2.4\"",
        "  local-data: \"alias.test. 300 CNAME a.test.\"",
        "  local-data: \"text.test. 300 TXT hello\"",
        "remote-control:",
        "  control-enable: no",
    ] {
        writeln!(config, "{line}").unwrap();
        if line.contains("four.test") {
            for last in 1..=BIG {
                let record = format!("big.test. 300 A 198.51.100.{last}");
                writeln!(config, "  local-data: \"{record}\"").unwrap();
            }
        }
    }
    if let Some(peer) = Peer::start("unbound", &config, &["-d", "-c"]) {
        check_peer(&peer);
    }
}

#[test]
fn replies_of_dnsmasq_are_parsed() {
    let mut config = String::from(
        "keep-in-foreground\nno-resolv\nno-hosts\nuser=root\npid-file=\nbind-interfaces\n\
         listen-address=127.0.0.1\nport=$PORT\nlocal=/test/\nlocal-ttl=300\n\
         addn-hosts=$DIR/hosts\ncname=alias.test,a.test\ntxt-record=text.test,hello\n",
    );
    config.push_str("log-facility=-\n");
    if let Some(peer) = Peer::start("dnsmasq", &config, &["-C"]) {
        check_peer(&peer);
    }
}

/// Sends the same queries to every peer, all for one small zone.
fn check_peer(peer: &Peer) {
    let mut driver = Driver::new(peer.address, 1);
    let check = |driver: &mut Driver, host, expected: Result<&[&str], &str>| {
        let found = driver.resolve(host);
        let found: Result<Vec<&str>, &str> = match &found {
            Ok(list) => Ok(list.iter().map(String::as_str).collect()),
            Err(code) => Err(code),
        };
        assert_eq!(found, expected.map(<[_]>::to_vec), "{host}");
    };
    let both: &[&str] = &["2001:db8::1", "192.0.2.1"];
    check(&mut driver, "a.test", Ok(both));
    check(&mut driver, "A.Test.", Ok(both));
    check(&mut driver, "four.test", Ok(&["192.0.2.4"]));
    check(&mut driver, "alias.test", Ok(both));
    check(&mut driver, "none.test", Err("nxdomain"));
    check(&mut driver, "text.test", Err("nodata"));
    let before = driver.resolver.stats();
    assert_eq!(before.tcp_fallbacks, 0, "all that fits a datagram");
    assert_eq!(before.strays, 0, "the peer keeps id, question and case");
    assert_eq!(before.hits, 1, "of the name asked for twice");

    let big = driver.resolve("big.test").expect("it has many addresses");
    assert!(big.iter().all(|text| text.starts_with("198.51.100.")));
    assert!(big.len() >= 16, "as many as are kept: {}", big.len());
    assert_eq!(driver.resolver.stats().tcp_fallbacks, 1);

    // Many queries at once, over several ports.
    let mut driver = Driver::new(peer.address, 2);
    for number in 0..200 {
        let host = format!("none-{number}.test");
        let lookup = driver.resolver.resolve(&host, 80, number, driver.now());
        assert_eq!(lookup, Lookup::Pending);
    }
    let results = driver.run();
    assert_eq!(results.len(), 200);
    assert!(results.iter().all(|result| *result == Err("nxdomain")));
    assert_eq!(driver.resolver.stats().strays, 0);
}

/// A child process with a name server, killed when dropped.
struct Peer {
    child: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Peer {
    /// Starts a server with a configuration in which `$DIR` and `$PORT` are filled in; `None` if it is
    /// not installed.
    fn start(program: &str, config: &str, arguments: &[&str]) -> Option<Peer> {
        let mut last = String::new();
        for _ in 0..TRIES {
            match Peer::start_once(program, config, arguments) {
                Ok(peer) => return peer,
                // Another process may have taken the port in the meantime.
                Err(error) => last = error,
            }
        }
        panic!("{last}");
    }

    fn start_once(program: &str, config: &str, arguments: &[&str]) -> Result<Option<Peer>, String> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let address = free_address();
        let dir = folder.path().to_str().expect("its path is text");
        let config = config
            .replace("$DIR", dir)
            .replace("$PORT", &address.port().to_string());
        let config_path = folder.path().join("peer.conf");
        fs::write(&config_path, config).expect("the folder is writable");
        fs::write(folder.path().join("hosts"), hosts()).expect("the folder is writable");

        let log_path = folder.path().join("log");
        let log = fs::File::create(&log_path).expect("the folder is writable");
        let said = || fs::read_to_string(&log_path).unwrap_or_default();

        let spawned = Command::new(program)
            .args(arguments)
            .arg(&config_path)
            .stdin(Stdio::null())
            .env("PATH", path_with_sbin())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        let child = match spawned {
            Ok(child) => child,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // Directly, because the harness captures the output of passing tests.
                let _ = writeln!(
                    std::io::stderr(),
                    "SKIPPED: {program} is not installed, so nothing was checked against it"
                );
                return Ok(None);
            }
            Err(error) => panic!("{program} cannot be started: {error}"),
        };
        let mut peer = Peer {
            child,
            address,
            _folder: folder,
        };
        for _ in 0..500 {
            let listens = TcpStream::connect(address).is_ok();
            if let Some(status) = peer.child.try_wait().expect("a child of ours") {
                return Err(format!("{program} ended at once: {status}\n{}", said()));
            }
            if listens {
                return Ok(Some(peer));
            }
            sleep(Duration::from_millis(10));
        }
        panic!("{program} does not listen on {address}\n{}", said());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Drives a resolver with blocking sockets and the system's clock.
struct Driver {
    resolver: Resolver,
    sockets: BTreeMap<SocketId, Socket>,
    began: std::time::Instant,
    results: Vec<Result<Vec<String>, &'static str>>,
}

enum Socket {
    Udp(UdpSocket),
    Tcp(TcpStream),
}

impl Driver {
    fn new(server: SocketAddr, seed: u64) -> Self {
        let settings = ResolverSettings {
            servers: vec![server],
            families: Families::V6First,
            ..ResolverSettings::default()
        };
        Driver {
            resolver: Resolver::new(settings, Rng::from_seed(seed), &Secret::from_seed(seed)),
            sockets: BTreeMap::new(),
            began: std::time::Instant::now(),
            results: Vec::new(),
        }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(nanos(self.began.elapsed()))
    }

    fn resolve(&mut self, host: &str) -> Result<Vec<String>, &'static str> {
        match self.resolver.resolve(host, 80, 0, self.now()) {
            Lookup::Ready(Ok(answer)) => {
                assert_eq!(answer.source, Source::Cache);
                Ok(answer.addresses.iter().map(ToString::to_string).collect())
            }
            Lookup::Ready(Err(failure)) => Err(failure.name),
            Lookup::Pending => self.run().remove(0),
            Lookup::Busy => panic!("nothing else is being resolved"),
        }
    }

    /// Runs until no name is being resolved.
    fn run(&mut self) -> Vec<Result<Vec<String>, &'static str>> {
        while !self.resolver.is_empty() {
            self.act();
            self.receive();
            self.resolver.handle_timeout(self.now());
            self.act();
            sleep(Duration::from_micros(200));
        }
        std::mem::take(&mut self.results)
    }

    fn act(&mut self) {
        while let Some(action) = self.resolver.poll() {
            match action {
                Action::Open {
                    socket,
                    server,
                    transport,
                } => self.open(socket, server, transport),
                Action::Send { socket, bytes } => match &mut self.sockets.get_mut(&socket) {
                    Some(Socket::Udp(udp)) => drop(udp.send(&bytes).expect("loopback takes it")),
                    Some(Socket::Tcp(tcp)) => tcp.write_all(&bytes).expect("loopback takes it"),
                    None => panic!("only what is open is sent on"),
                },
                Action::Close { socket } => drop(self.sockets.remove(&socket)),
                Action::Resolved { result, .. } => self.results.push(match result {
                    Ok(answer) => {
                        assert_eq!(answer.source, Source::Query);
                        Ok(answer.addresses.iter().map(ToString::to_string).collect())
                    }
                    Err(failure) => Err(failure.name),
                }),
            }
        }
    }

    fn open(&mut self, socket: SocketId, server: SocketAddr, transport: Transport) {
        let opened = match transport {
            Transport::Udp => {
                let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
                udp.connect(server).expect("a route on loopback");
                udp.set_nonblocking(true).expect("a socket of ours");
                Socket::Udp(udp)
            }
            Transport::Tcp => {
                let tcp = TcpStream::connect(server).expect("the peer listens");
                tcp.set_nonblocking(true).expect("a socket of ours");
                Socket::Tcp(tcp)
            }
        };
        self.sockets.insert(socket, opened);
        if transport == Transport::Tcp {
            self.resolver.handle_connected(socket);
        }
    }

    fn receive(&mut self) {
        let now = self.now();
        let mut ended = Vec::new();
        for (id, socket) in &mut self.sockets {
            let mut buffer = [0; 4096];
            let read = match socket {
                Socket::Udp(udp) => udp.recv(&mut buffer),
                Socket::Tcp(tcp) => tcp.read(&mut buffer),
            };
            match read {
                Ok(0) if matches!(socket, Socket::Tcp(_)) => ended.push(*id),
                Ok(length) => self
                    .resolver
                    .handle_received(*id, &buffer[..length], now, now),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => ended.push(*id),
            }
        }
        for id in ended {
            self.sockets.remove(&id);
            self.resolver.handle_ended(id, now);
        }
    }
}

/// An address that is free for UDP and TCP both.
fn free_address() -> SocketAddr {
    let (listener, _) = dns::sockets();
    listener.local_addr().expect("it is bound")
}

/// The zone's addresses as a hosts file, for dnsmasq.
fn hosts() -> String {
    let mut hosts = String::from("192.0.2.1 a.test\n2001:db8::1 a.test\n192.0.2.4 four.test\n");
    for last in 1..=BIG {
        writeln!(hosts, "198.51.100.{last} big.test").unwrap();
    }
    hosts
}

/// The search path with the `sbin` directories, where name servers are often installed.
fn path_with_sbin() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/local/sbin:/usr/sbin:/sbin")
}

/// Attempts to start a server, each on another port.
const TRIES: u32 = 3;

/// Addresses of the name whose answer fits no datagram: 16 bytes each are beyond 1232.
const BIG: u8 = 100;
