//! Crawls in virtual time in which making a connection takes longer than the gap, while something
//! keeps requests from being released: the work stays in step with what is sent.

use std::net::SocketAddr;
use std::time::Duration;

use crate::base::rng::Rng;
use crate::crawl::config::Config;
use crate::crawl::core::tests::trial::{SinkRecord, crawl_under, turn};
use crate::crawl::finish::FinishReason;
use crate::crawl::{Crawler, Handle, Turn};
use crate::frontier::request::Request;
use crate::io::sim::{Answer, ConnId, Faults, Net, Origins, Sim, World};
use crate::io::{Io, IoSettings};

const HOSTS: u32 = 2;
const PAGES: u32 = 60;
const DELAY: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(600);

/// Servers with a varying round trip, so that some requests are ready before their delay is over. Each
/// reply closes its connection.
struct NearAndFar(Origins);

impl World for NearAndFar {
    fn distance(&mut self, _to: SocketAddr, rng: &mut Rng) -> Duration {
        Duration::from_millis(50 + rng.below(500))
    }

    fn connect(&mut self, conn: ConnId, to: SocketAddr, net: &mut Net) -> Answer {
        self.0.connect(conn, to, net)
    }

    fn bytes(&mut self, conn: ConnId, bytes: &[u8], net: &mut Net) {
        self.0.bytes(conn, bytes, net);
    }
}

/// A way to keep requests from being released for a while.
struct Way {
    name: &'static str,
    settings: fn(&mut Config, &mut IoSettings),
    /// Most sockets that the machine allows.
    sockets: usize,
    stop: fn(&Handle, &SinkRecord),
    resume: fn(&Handle, &SinkRecord),
}

const UNHINDERED: Way = Way {
    name: "nothing",
    settings: |_, _| (),
    sockets: usize::MAX,
    stop: |_, _| (),
    resume: |_, _| (),
};

const WAYS: [Way; 5] = [
    Way {
        name: "a full cap",
        settings: |config, _| config.throttle.concurrent_requests = 8,
        ..UNHINDERED
    },
    Way {
        name: "pauses",
        stop: |handle, _| handle.pause(),
        resume: |handle, _| handle.resume(),
        ..UNHINDERED
    },
    Way {
        name: "a full sink",
        stop: |_, record| record.room.set(Some(0)),
        resume: |_, record| record.room.set(None),
        ..UNHINDERED
    },
    Way {
        name: "SOCKETS_MAX",
        settings: |_, settings| settings.sockets_max = 10,
        ..UNHINDERED
    },
    Way {
        name: "refused sockets",
        sockets: 10,
        ..UNHINDERED
    },
];

fn crawl(way: &Way) -> (Crawler<Sim>, Handle, SinkRecord) {
    let mut origins = Origins::default();
    for host in 1..=HOSTS {
        for page in 0..PAGES {
            let at = format!("10.0.0.{host}:80").parse().expect("an address");
            let think = Duration::from_millis(500);
            let reply = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 1\r\n\r\n!";
            origins.reply(at, &format!("/{page}"), think, reply);
        }
    }
    let faults = Faults {
        sockets_max: way.sockets,
        ..Faults::default()
    };
    let world = NearAndFar(origins);
    let (mut crawler, record) = crawl_under(faults, None, world, 1, |config, settings| {
        config.throttle.default.delay = DELAY;
        config.throttle.default.concurrency = 8;
        (way.settings)(config, settings);
    });
    for page in 0..PAGES {
        for host in 1..=HOSTS {
            let url = format!("http://10.0.0.{host}/{page}");
            crawler.submit(Request::get(url)).expect("a seed");
        }
    }
    let handle = crawler.handle();
    (crawler, handle, record)
}

/// Runs turns for this long, or until the crawl is over. Returns their number, and whether it is over.
fn run_for(crawler: &mut Crawler<Sim>, span: Duration) -> (u64, bool) {
    let until = crawler.io().now() + span;
    let mut turns = 0;
    while crawler.io().now() < until {
        let left = until.saturating_since(crawler.io().now());
        turns += 1;
        if let Turn::Over(reason) = turn(crawler, Some(left)) {
            assert_eq!(reason, FinishReason::Finished);
            return (turns, true);
        }
        assert!(turns < 100_000, "virtual time does not advance");
    }
    (turns, false)
}

/// Crawls to the end and stops releases from time to time, so that they begin at many moments of a
/// set-up. Returns the number of turns.
fn finish(way: &Way, crawler: &mut Crawler<Sim>, handle: Handle, record: &SinkRecord) -> u64 {
    let mut turns = 0;
    // The crawl ends once no handle exists.
    let mut handle = Some(handle);
    loop {
        assert!(crawler.elapsed() < PATIENCE, "{}: no end", way.name);
        for (change, span) in [(way.stop, 770), (way.resume, 410)] {
            if let Some(handle) = &handle {
                change(handle, record);
            }
            let (more, is_over) = run_for(crawler, Duration::from_millis(span));
            turns += more;
            if is_over {
                return turns;
            }
        }
        handle = handle.filter(|_| record.pages.borrow().len() < (HOSTS * PAGES) as usize);
    }
}

#[test]
fn scopes_do_not_spin_while_releases_are_stopped_and_set_up_exceeds_the_gap() {
    for way in &WAYS {
        let (mut crawler, handle, record) = crawl(way);
        let turns = finish(way, &mut crawler, handle, &record);
        let pages = record.pages.borrow();
        let fetched = pages.iter().filter(|page| page.status == Some(200)).count() as u64;
        assert_eq!(fetched, u64::from(HOSTS * PAGES), "{}", way.name);
        let scopes_checked = crawler.core.throttle.scopes_checked();
        assert!(
            scopes_checked < 10 * fetched,
            "{}: {scopes_checked} checks",
            way.name
        );
        assert!(turns < 40 * fetched, "{}: {turns} turns", way.name);
    }
}
