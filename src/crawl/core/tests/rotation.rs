//! Crawls of more hosts than connections are kept.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::base::rng::Rng;
use crate::base::shared::Shared;
use crate::crawl::config::Config;
use crate::crawl::core::tests::trial::{config, crawl_under, finish};
use crate::crawl::finish::FinishReason;
use crate::frontier::request::Request;
use crate::io::sim::{Answer, ConnId, Faults, Net, World};

/// Servers that answer each request after the same time, and keep connections.
#[derive(Default)]
struct Patient {
    connections: BTreeMap<ConnId, SocketAddr>,
    /// Requests of each server.
    hits: BTreeMap<SocketAddr, u32>,
}

const ANSWERS_AFTER: Duration = Duration::from_millis(10);

impl World for Patient {
    fn distance(&mut self, _to: SocketAddr, _rng: &mut Rng) -> Duration {
        Duration::from_micros(100)
    }

    fn connect(&mut self, conn: ConnId, to: SocketAddr, _net: &mut Net) -> Answer {
        self.connections.insert(conn, to);
        Answer::Accept
    }

    fn bytes(&mut self, conn: ConnId, _bytes: &[u8], net: &mut Net) {
        let server = self.connections[&conn];
        *self.hits.entry(server).or_default() += 1;
        let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        net.reply(conn, ANSWERS_AFTER, reply);
    }
}

/// Fetches so many pages of each of so many hosts, which take turns in the list of seeds.
fn rotate(hosts: u32, pages: u32, edit: impl FnOnce(&mut Config)) -> Shared<Patient> {
    let world = Shared::new(Patient::default());
    let net = Shared::clone(&world);
    let (mut crawler, _) = crawl_under(Faults::default(), None, net, 1, |settings, _| {
        *settings = config(1);
        settings.throttle.default.concurrency = 1;
        edit(settings);
    });
    for page in 0..pages {
        for host in 0..hosts {
            let url = format!("http://10.0.{}.{}/{page}", host / 256, host % 256);
            crawler.submit(Request::get(url)).expect("a sound seed");
        }
    }
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    assert_eq!(world.borrow().hits.values().sum::<u32>(), hosts * pages);
    world
}

#[test]
fn of_hosts_that_take_turns_by_their_delay_as_many_keep_connections_as_can_be_kept() {
    let (hosts, pages, kept) = (100, 40, 60);
    let world = rotate(hosts, pages, |config| {
        config.throttle.default.delay = Duration::from_secs(1);
        // One after the other.
        config.throttle.concurrent_requests = 1;
        config.fetch.keepalive_max = kept;
    });
    let connections = world.borrow().connections.len() as u32;
    let least = hosts + (hosts - kept as u32) * (pages - 1);
    assert!(
        connections <= least + least / 10,
        "{connections} connections, {least} at the best"
    );
}
