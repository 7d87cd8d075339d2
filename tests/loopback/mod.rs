//! A server that measures the pace of a crawl by kernel timestamps, and settings for the crawl.

#[path = "../crawling/mod.rs"]
pub mod crawling;

use std::ops::Deref;
use std::time::Duration;

use argiope::Config;
use argiope::testkit::server;
use argiope::testkit::stamp::Clock;

pub use argiope::testkit::http::Reply;
pub use argiope::testkit::server::Asked;

pub struct Server(server::Server);

impl Deref for Server {
    type Target = server::Server;

    fn deref(&self) -> &server::Server {
        &self.0
    }
}

impl Server {
    pub fn start(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        Server(server::Server::stamped(answer))
    }

    /// Of what it was asked so far, that which this function picks.
    pub fn asked_of(&self, picks: impl Fn(&Asked) -> bool) -> Vec<Asked> {
        self.asked().into_iter().filter(picks).collect()
    }

    /// Every host's port 80 is this server.
    pub fn here(&self) -> String {
        format!("*:80:{}", self.address())
    }

    /// Every host's port 80 is this server; no delay, no robots.txt, no second tries.
    pub fn config(&self) -> Config {
        let here = self.here();
        crawling::config(&[("ALLOW_NET", "loopback"), ("RESOLVE", &here)])
    }
}

/// The steady clock of all times here.
pub fn now() -> Duration {
    Clock::read().now
}

/// The gaps between arrivals.
pub fn gaps(asked: &[Asked]) -> Vec<Duration> {
    let pairs = asked.windows(2);
    pairs.map(|pair| pair[1].at - pair[0].at).collect()
}

/// The most that were being answered at a time.
pub fn peak(asked: &[Asked]) -> usize {
    let at_once = |one: &Asked| {
        let during = |other: &&Asked| other.at <= one.at && one.at < other.done;
        asked.iter().filter(during).count()
    };
    asked.iter().map(at_once).max().unwrap_or(0)
}
