//! A web of many hosts on the loopback device, in a separate thread, with its own name server.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use argiope::testkit::engine::Engine;
use argiope::testkit::server::listener;
use rustix::event::{EventfdFlags, eventfd};

use super::ledger::Ledger;
use super::report::{Promised, WebReport};
use super::requests::RequestLog;
use super::server::Server;
use super::site::{ADDRESSES, World};

/// Settings of the web.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DemoOptions {
    /// Number of hosts, from 1.
    pub domains: u32,
    /// Approximate number of pages of each host, from 1.
    pub pages: u32,
    /// Random seed.
    pub seed: u64,
}

impl Default for DemoOptions {
    /// 1000 hosts, so that the crawler is busy in spite of a delay of 1 s per host, with as many pages
    /// as a crawl of about 10 s fetches.
    fn default() -> Self {
        DemoOptions {
            domains: 1000,
            pages: 5,
            seed: 1,
        }
    }
}

/// A running demo web. It ends when stopped or dropped.
pub struct DemoWeb {
    world: Arc<World>,
    names: SocketAddr,
    stop: OwnedFd,
    thread: Option<JoinHandle<io::Result<Ledger>>>,
}

impl DemoWeb {
    /// Starts the servers, on the addresses 127.0.0.1 to 127.0.0.16 and free ports.
    ///
    /// Raises the process's soft limit on open files to the hard limit, because both ends of each
    /// connection are in this process. Requests are written to `log`.
    pub fn start(options: DemoOptions, log: Option<RequestLog>) -> io::Result<DemoWeb> {
        argiope::raise_open_files();
        let (listeners, port) = listen()?;
        let DemoOptions {
            domains,
            pages,
            seed,
        } = options;
        let world = Arc::new(World::draw(domains, pages, seed, port));
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let names = socket.local_addr()?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        let service = Server::new(world.clone(), log);
        let mut engine = Engine::new(service, listeners, Some(socket), stop.try_clone()?)?;
        let thread = thread::Builder::new()
            .name("demo web".into())
            .spawn(move || {
                engine.run(None)?;
                Ok(engine.into_service().into_ledger())
            })?;
        Ok(DemoWeb {
            world,
            names,
            stop,
            thread: Some(thread),
        })
    }

    /// Every host's home page.
    pub fn seeds(&self) -> Vec<String> {
        let sites = self.world.sites().iter();
        sites.map(|site| self.world.url(site, "/")).collect()
    }

    /// The name server, which resolves the hosts' names only.
    pub fn dns(&self) -> SocketAddr {
        self.names
    }

    /// Stops the servers and compares their records with the client's settings.
    pub fn stop(mut self, promised: Promised) -> io::Result<WebReport> {
        let ledger = self.end().unwrap_or_else(|| Ok(Ledger::new(0)))?;
        Ok(ledger.report(&self.world, promised))
    }

    fn end(&mut self) -> Option<io::Result<Ledger>> {
        let thread = self.thread.take()?;
        if let Err(error) = rustix::io::write(&self.stop, &1u64.to_ne_bytes()) {
            return Some(Err(error.into()));
        }
        let panicked = |_| Err(io::Error::other("the demo's server thread panicked"));
        Some(thread.join().unwrap_or_else(panicked))
    }
}

impl Drop for DemoWeb {
    fn drop(&mut self) {
        // A dropped web needs no report.
        let _ = self.end();
    }
}

/// A listener on each address, all on one port.
fn listen() -> io::Result<(Vec<TcpListener>, u16)> {
    let mut attempts = 0;
    loop {
        let first = listener((ADDRESSES[0], 0))?;
        let port = first.local_addr()?.port();
        let others = ADDRESSES[1..]
            .iter()
            .map(|address| listener((*address, port)));
        let listeners: io::Result<Vec<_>> = [Ok(first)].into_iter().chain(others).collect();
        attempts += 1;
        match listeners {
            Ok(listeners) => return Ok((listeners, port)),
            // The port is free on one address but not on all.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempts < ATTEMPTS => {}
            Err(error) => return Err(error),
        }
    }
}

/// Number of attempts to find a port that is free on all addresses.
const ATTEMPTS: u32 = 50;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::cli::demo::site::{Robots, Site, Temper};

    fn start(domains: u32) -> DemoWeb {
        let options = DemoOptions {
            domains,
            ..DemoOptions::default()
        };
        DemoWeb::start(options, None).expect("the loopback device is there")
    }

    fn promised() -> Promised {
        Promised {
            gap: Duration::from_millis(50),
            in_flight: 1,
        }
    }

    fn port(web: &DemoWeb) -> u16 {
        let home = &web.seeds()[0];
        let port = home.trim_end_matches('/').rsplit(':').next();
        port.and_then(|port| port.parse().ok()).expect("a port")
    }

    fn connect(web: &DemoWeb, site: &Site) -> TcpStream {
        let stream = TcpStream::connect((site.address(), port(web))).expect("connected");
        let patience = Some(Duration::from_secs(5));
        stream.set_read_timeout(patience).expect("a timeout");
        stream
    }

    fn send(stream: &mut TcpStream, site: &Site, path: &str, close: bool) {
        let close = if close { "Connection: close\r\n" } else { "" };
        let host = site.host();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{close}\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
    }

    /// The whole reply to one request on a new connection.
    fn get(web: &DemoWeb, site: &Site, path: &str) -> io::Result<String> {
        let mut stream = connect(web, site);
        send(&mut stream, site, path, true);
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply)?;
        Ok(String::from_utf8_lossy(&reply).into_owned())
    }

    fn find(web: &DemoWeb, wanted: impl Fn(&Site) -> bool) -> u32 {
        let site = web.world.sites().iter().find(|site| wanted(site));
        site.expect("such a host exists").number
    }

    fn is_plain(site: &Site) -> bool {
        let rules = Robots::Rules {
            delay: None,
            moved: false,
        };
        site.temper == Temper::Usual && site.robots == rules
    }

    #[test]
    fn a_polite_visit_is_recorded() {
        let web = start(100);
        let site = web.world.site(find(&web, is_plain)).expect("found");
        assert!(
            get(&web, site, "/robots.txt")
                .expect("rules")
                .contains("Disallow: /private/")
        );
        thread::sleep(Duration::from_millis(60));
        assert!(
            get(&web, site, "/")
                .expect("a page")
                .starts_with("HTTP/1.1 200 OK\r\n")
        );
        let host = site.host();
        let report = web.stop(promised()).expect("served");
        assert!(report.is_polite(), "{report}");
        assert_eq!(
            (report.connections, report.robots, report.pages()),
            (2, 1, 1)
        );
        assert_eq!(report.statuses, [(200, 2)].into());
        let (scope, gap) = report.tightest().expect("a gap");
        assert_eq!((&scope.scope, scope.in_flight_peak), (&host, 1));
        assert!((60..2000).contains(&gap.seen.as_millis()));
    }

    #[test]
    fn an_impolite_visit_is_recorded() {
        let web = start(100);
        let site = web.world.site(find(&web, is_plain)).expect("found");
        let mut first = connect(&web, site);
        let mut second = connect(&web, site);
        send(&mut first, site, "/robots.txt", true);
        send(&mut second, site, "/%70rivate/1", true);
        for stream in [&mut first, &mut second] {
            stream.read_to_end(&mut Vec::new()).expect("a reply");
        }
        let report = web.stop(promised()).expect("served");
        assert_eq!(report.violations().len(), 3, "{report}");
        assert_eq!(report.forbidden(), 1);
    }

    #[test]
    fn a_connection_carries_several_exchanges() {
        let web = start(100);
        let site = web.world.site(find(&web, is_plain)).expect("found");
        let mut stream = connect(&web, site);
        // Both requests at once: the second is answered after the first.
        send(&mut stream, site, "/robots.txt", false);
        send(&mut stream, site, "/nowhere", true);
        let mut replies = String::new();
        stream.read_to_string(&mut replies).expect("replies");
        assert!(replies.starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(replies.contains("HTTP/1.1 404 Not Found\r\n"));
        let report = web.stop(promised()).expect("served");
        assert_eq!((report.connections, report.statuses[&404]), (1, 1));
    }

    #[test]
    fn a_resetting_host_resets_and_a_refusing_host_refuses() {
        let web = start(1000);
        let resetting = find(&web, |site| site.temper == Temper::Resetting);
        let resetting = web.world.site(resetting).expect("found");
        let mut stream = connect(&web, resetting);
        send(&mut stream, resetting, "/robots.txt", false);
        let reset = stream.read(&mut [0]).expect_err("no reply");
        assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
        let refusing = find(&web, |site| site.temper == Temper::Refusing);
        let refusing = web.world.site(refusing).expect("found");
        let refused = TcpStream::connect((refusing.address(), port(&web)));
        let refused = refused.expect_err("no server listens").kind();
        assert_eq!(refused, io::ErrorKind::ConnectionRefused);
        let report = web.stop(promised()).expect("served");
        assert!(
            report.is_polite(),
            "asking for robots.txt is always allowed"
        );
        assert_eq!(report.statuses, [(0, 1)].into());
    }

    #[test]
    fn a_client_that_disconnects_is_dropped() {
        let web = start(1000);
        let slow = find(&web, |site| site.temper == Temper::Slow);
        let slow = web.world.site(slow).expect("found");
        let mut stream = connect(&web, slow);
        send(&mut stream, slow, "/robots.txt", false);
        thread::sleep(Duration::from_millis(20));
        drop(stream);
        thread::sleep(Duration::from_millis(60));
        let mut stream = connect(&web, slow);
        send(&mut stream, slow, "/robots.txt", false);
        thread::sleep(Duration::from_millis(20));
        let report = web.stop(promised()).expect("served");
        assert!(report.is_polite(), "{report}");
        assert!(report.statuses.is_empty());
    }

    #[test]
    fn requests_for_unknown_hosts_get_404_and_malformed_ones_400() {
        let web = start(1);
        let mut stream = TcpStream::connect((ADDRESSES[3], port(&web))).expect("connected");
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: elsewhere.test\r\n\r\n")
            .expect("sent");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("a reply");
        assert!(reply.starts_with("HTTP/1.1 404 Not Found\r\n"));
        let mut stream = TcpStream::connect((ADDRESSES[3], port(&web))).expect("connected");
        stream.write_all(b"EHLO\r\n\r\n").expect("sent");
        reply.clear();
        stream.read_to_string(&mut reply).expect("a reply");
        assert!(reply.starts_with("HTTP/1.1 400 Bad Request\r\n"));
        assert_eq!(web.stop(promised()).expect("served").strange, 2);
    }

    #[test]
    fn names_are_answered_over_udp() {
        let web = start(3);
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let patience = Some(Duration::from_secs(5));
        socket.set_read_timeout(patience).expect("a timeout");
        let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x09site-0002\x04test\0\0\x01\0\x01";
        socket.send_to(query, web.dns()).expect("sent");
        let mut reply = [0; 512];
        let length = socket.recv(&mut reply).expect("a reply");
        let address = web.world.site(2).expect("three are").address();
        assert!(reply[..length].ends_with(&address.octets()));
        assert_eq!(web.stop(promised()).expect("served").queries, 1);
    }

    #[test]
    fn a_thousand_clients_are_served_at_once() {
        let web = start(1000);
        let began = Instant::now();
        let plain = |site: &&Site| is_plain(site);
        let sites: Vec<&Site> = web.world.sites().iter().filter(plain).collect();
        let rounds = sites.iter().cycle().take(1000);
        let mut clients: Vec<_> = rounds
            .map(|site| {
                let mut stream = connect(&web, site);
                send(&mut stream, site, "/robots.txt", true);
                stream
            })
            .collect();
        for stream in &mut clients {
            let mut reply = String::new();
            stream.read_to_string(&mut reply).expect("a reply");
            assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
        }
        assert!(began.elapsed() < Duration::from_secs(5));
        let report = web.stop(promised()).expect("served");
        assert_eq!((report.connections, report.statuses[&200]), (1000, 1000));
    }
}
