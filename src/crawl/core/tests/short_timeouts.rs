//! Crawls in virtual time that give a connection little time.

use std::net::SocketAddr;
use std::time::Duration;

use crate::base::rng::Rng;
use crate::base::shared::Shared;
use crate::crawl::Turn;
use crate::crawl::core::tests::trial::{crawl, crawl_under, get, turn};
use crate::io::sim::{Answer, ConnId, Faults, Net, Origins, World};
use crate::sink::page::Page;

/// Hosts at a distance of 100 ms, all with the same answer.
struct Far(Answer);

impl World for Far {
    fn distance(&mut self, _to: SocketAddr, _rng: &mut Rng) -> Duration {
        Duration::from_millis(100)
    }

    fn connect(&mut self, _conn: ConnId, _to: SocketAddr, _net: &mut Net) -> Answer {
        self.0
    }

    fn bytes(&mut self, conn: ConnId, _bytes: &[u8], net: &mut Net) {
        let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        net.reply(conn, Duration::ZERO, reply);
    }
}

#[test]
fn a_requests_own_timeout_that_is_too_short_to_connect_counts_against_no_host() {
    const HOSTS: u32 = 12;
    let (mut crawler, _, record) = crawl(Far(Answer::Accept), 1, |config, _| {
        config.frontier.retry_times = 1;
    });
    for host in 1..=HOSTS {
        for page in 0..5 {
            let request = get(host, page).timeout(Duration::from_millis(50));
            crawler.submit(request).expect("a request");
        }
        crawler.submit(get(host, 5)).expect("a request");
    }
    while turn(&mut crawler, Some(Duration::from_secs(3600))) == Turn::GoesOn {
        let progress = crawler.progress();
        assert_eq!((progress.hosts_held, progress.outages), (0, 0));
    }
    let pages = record.pages.borrow();
    for page in pages.iter() {
        let code = page.failure.as_ref().map(|failure| failure.code());
        match page.url.ends_with("/5") {
            true => assert_eq!((page.status, code), (Some(200), None)),
            false => assert_eq!(code.as_deref(), Some("timeout.total")),
        }
    }
    // Each request was retried RETRY_TIMES times.
    assert_eq!(pages.len(), HOSTS as usize * (5 * 2 + 1));
}

#[test]
fn an_unresponsive_host_is_held_and_failed_with_a_short_download_timeout() {
    let (mut crawler, _, record) = crawl(Far(Answer::Silence), 1, |config, _| {
        config.fetch.download_timeout = Duration::from_secs(5);
        config.frontier.hosts.down_after = Duration::from_secs(60);
    });
    for page in 0..5 {
        crawler.submit(get(1, page)).expect("a request");
    }
    let mut held = 0;
    while turn(&mut crawler, Some(Duration::from_secs(3600))) == Turn::GoesOn {
        held = held.max(crawler.progress().hosts_held);
    }
    assert_eq!(held, 1);
    let pages = record.pages.borrow();
    let ends = |is_final, wanted: &str| {
        let is_it = |page: &&Page| {
            let failure = page.failure.as_ref().expect("nothing answers");
            page.is_final == is_final && failure.code() == wanted
        };
        pages.iter().filter(is_it).count()
    };
    assert!(ends(false, "timeout.connect") >= 5, "each has a line");
    assert_eq!(ends(true, "timeout.connect"), 1, "of the last attempt");
    assert_eq!(ends(true, "host_down.gave_up"), 4);
}

/// The failures of fetches of so many bytes from forty hosts. Our thread takes 20 ms for each piece of a reply, and
/// each host waits for the others.
fn read_slowly(bytes: usize, download_timeout: Duration) -> Vec<Option<String>> {
    const HOSTS: u32 = 40;
    let mut reply = format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n").into_bytes();
    reply.resize(reply.len() + bytes, b'x');
    let mut origins = Origins::default();
    for host in 1..=HOSTS {
        let at: SocketAddr = ([10, 0, 0, host as u8], 80).into();
        origins.reply(at, "/0", Duration::ZERO, reply.clone());
    }
    let faults = Faults {
        chunk_takes: Duration::from_millis(20),
        piece_gap_max: Duration::ZERO,
        ..Faults::default()
    };
    let world = Shared::new(origins);
    let (mut crawler, record) = crawl_under(faults, None, world, 1, |config, _| {
        config.throttle.concurrent_requests = HOSTS as usize;
        config.fetch.download_timeout = download_timeout;
        config.fetch.idle_timeout = Duration::from_millis(100);
        config.fetch.first_byte_timeout = Duration::from_millis(300);
        config.frontier.retry_times = 0;
    });
    for host in 1..=HOSTS {
        crawler.submit(get(host, 0)).expect("a request");
    }
    while turn(&mut crawler, Some(Duration::from_secs(3600))) == Turn::GoesOn {}
    let pages = record.pages.borrow();
    assert_eq!(pages.len(), HOSTS as usize);
    let failure = |page: &Page| page.failure.as_ref().map(|failure| failure.code());
    pages.iter().map(failure).collect()
}

#[test]
fn a_reply_that_has_come_and_waits_to_be_read_is_no_silence_of_its_server() {
    let ends = read_slowly(60_000, Duration::from_secs(3600));
    assert!(ends.iter().all(Option::is_none), "{ends:?}");
}

#[test]
fn a_reply_that_always_waits_to_be_read_ends_at_the_timeout_of_the_whole_fetch() {
    let ends = read_slowly(5_000_000, Duration::from_secs(10));
    let is_total = |end: &Option<String>| end.as_deref() == Some("timeout.total");
    assert!(ends.iter().all(is_total), "{ends:?}");
}
