//! Crawls in virtual time of a server that speaks TLS: what leaves when.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::base::rng::Rng;
use crate::base::shared::Shared;
use crate::base::time::Instant;
use crate::crawl::config::Config;
use crate::crawl::core::tests::trial::turn;
use crate::crawl::{Crawler, Parts, Turn};
use crate::fetch::resolver;
use crate::fetch::tls::testing::{Authority, Server, ServerConfig};
use crate::frontier::request::Request;
use crate::io::IoSettings;
use crate::io::sim::{Answer, ConnId, Faults, Net, Sim, World};
use crate::sink::function::FunctionSink;
use crate::throttle::settings::Jitter;

/// One server, which closes each connection after its reply.
struct Secure {
    config: Arc<ServerConfig>,
    /// Connections in the order of their arrival.
    connections: BTreeMap<ConnId, Peer>,
}

struct Peer {
    server: Server,
    /// Arrival times of bytes; the request's are last.
    came: Vec<Instant>,
    asked: bool,
}

impl World for Secure {
    fn distance(&mut self, _to: SocketAddr, _rng: &mut Rng) -> Duration {
        distance(self.connections.len())
    }

    fn connect(&mut self, conn: ConnId, _to: SocketAddr, _net: &mut Net) -> Answer {
        let peer = Peer {
            server: Server::new(&self.config),
            came: Vec::new(),
            asked: false,
        };
        self.connections.insert(conn, peer);
        Answer::Accept
    }

    fn bytes(&mut self, conn: ConnId, bytes: &[u8], net: &mut Net) {
        let peer = self.connections.get_mut(&conn).expect("it was accepted");
        if peer.asked {
            return;
        }
        peer.came.push(net.now());
        let (answer, request) = peer.server.exchange(bytes);
        net.reply(conn, Duration::ZERO, &answer);
        if !request.is_empty() {
            peer.asked = true;
            let reply = peer.server.respond(REPLY);
            net.reply(conn, Duration::ZERO, &reply);
            net.end(conn, Duration::ZERO);
        }
    }
}

/// Crawls this many pages of the server with this delay. Returns the arrival times of bytes at the
/// server, by connection.
fn crawl(pages: usize, delay: Duration) -> Vec<Vec<Instant>> {
    let mut config = Config::default();
    config.throttle.default.delay = delay;
    config.throttle.default.delay_per_slot = Duration::ZERO;
    config.throttle.default.concurrency = 2;
    config.throttle.default.jitter = Jitter::NONE;
    config.frontier.robots_obey = false;
    config.allow_net = vec!["10.0.0.0/8".to_owned()];
    config.insecure = true;
    config.random_seed = Some(1);
    let world = Shared::new(Secure {
        config: Authority::new().good_server("a.test"),
        connections: BTreeMap::new(),
    });
    let boxed = Box::new(Shared::clone(&world));
    let io = Sim::with(1, IoSettings::default(), Faults::default(), boxed);
    let config = config.finish().expect("a sound config");
    let sink = FunctionSink::new(|page| assert_eq!(page.status, Some(200), "{:?}", page.failure));
    let mut crawler = Crawler::on(
        io,
        config,
        resolver::ResolverSettings::default(),
        Parts::new(sink),
    )
    .expect("a crawler");
    for number in 0..pages {
        let url = format!("https://10.0.0.1/{number}");
        crawler.submit(Request::get(url)).expect("a sound seed");
    }
    while !matches!(turn(&mut crawler, None), Turn::Over(_)) {}
    let world = world.borrow();
    let peers = world.connections.values();
    peers.map(|peer| peer.came.clone()).collect()
}

#[test]
fn the_end_of_a_handshake_leaves_with_its_request() {
    let came = crawl(4, Duration::ZERO);
    assert_eq!(came.len(), 4);
    for came in came {
        assert_eq!(came.len(), 2, "the hello, and the rest: {came:?}");
    }
}

#[test]
fn a_handshake_does_not_wait_for_a_request_that_must() {
    let came = crawl(4, Duration::from_millis(500));
    let mut waited = 0;
    for (number, came) in came.into_iter().enumerate() {
        let took = came[1].saturating_since(came[0]);
        assert!(took <= distance(number), "{number}: {came:?}");
        waited += usize::from(came.len() == 3);
    }
    assert!(waited > 0, "no connection was ready ahead of its request");
}

/// Each connection has a shorter round trip than the earlier ones, from which the crawl predicted it.
fn distance(number: usize) -> Duration {
    Duration::from_millis(40) / (number as u32 + 1)
}

const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi";
