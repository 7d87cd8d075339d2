//! Bodies that expand a lot when decoded, into a sink with room: timers and other connections are not
//! delayed.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use argiope::testkit::server::{Acceptor, loopback};
use argiope::{BodyMode, Crawler, Flow, Page, Reply, Request, Sink, Turn};

/// A sink that takes bodies in pieces, and counts their bytes.
#[derive(Clone, Default)]
struct Takes(Arc<AtomicUsize>);

impl Sink for Takes {
    fn on_head(&mut self, _reply: &Reply<'_>) -> BodyMode {
        BodyMode::Take
    }

    fn on_body(&mut self, _id: u64, piece: &[u8]) -> Flow {
        self.0.fetch_add(piece.len(), Ordering::Relaxed);
        Flow::Ready
    }

    fn put(&mut self, _page: &mut Page) {}
}

/// Deflate blocks that decode to 8 MiB and can be repeated. The ratio is a hundred, which is allowed.
fn blocks() -> Vec<u8> {
    let mut text = vec![0; 8 << 20];
    let mut state = 1_u64;
    for chunk in text.chunks_mut(64 << 10) {
        for byte in &mut chunk[..400] {
            state = state.wrapping_mul(6_364_136_223_846_793_005) + 1;
            *byte = (state >> 56) as u8;
        }
    }
    let mut coded = Vec::with_capacity(1 << 20);
    flate2::Compress::new(flate2::Compression::best(), false)
        .compress_vec(&text, &mut coded, flate2::FlushCompress::Full)
        .expect("it compresses");
    coded
}

/// A server that sends endless gzip on each connection, once this many have arrived.
fn endless(connections: usize) -> Acceptor {
    let (coded, all) = (blocks(), Barrier::new(connections));
    Acceptor::start(loopback(), move |mut stream, _| {
        // A request is short, so one read gets it whole.
        let _ = stream.read(&mut [0; 4096])?;
        all.wait();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n")?;
        stream.write_all(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255])?;
        // Ends with an error when the crawl closes the connection.
        loop {
            stream.write_all(&coded)?;
        }
    })
}

fn crawler(server: &Acceptor, sink: Takes, hosts: usize, timeout: &str) -> Crawler {
    let config = crate::loopback::crawling::config(&[
        ("ALLOW_NET", "loopback"),
        ("RESOLVE", &format!("*:80:{}", server.address())),
        ("DOWNLOAD_TIMEOUT", timeout),
    ]);
    let builder = Crawler::builder(config).sink(sink);
    let mut crawler = builder.build().expect("a crawler");
    for host in 0..hosts {
        let request = Request::get(format!("http://host{host}.test/"));
        crawler.submit(request).expect("it is a URL");
    }
    crawler
}

#[test]
fn an_endlessly_expanding_body_is_bounded_by_the_timeout() {
    let server = endless(1);
    let mut crawler = crawler(&server, Takes::default(), 1, "1s");
    let began = Instant::now();
    while crawler.turn(Some(Duration::from_millis(100))) == Turn::GoesOn {
        assert!(began.elapsed() < Duration::from_secs(20), "it never ends");
    }
    assert!(crawler.elapsed() < Duration::from_secs(10));
    assert_eq!(crawler.stats().errors(), 1);
}

#[test]
fn a_turn_decodes_a_bounded_number_of_expanding_bodies() {
    const HOSTS: usize = 40;
    let sink = Takes::default();
    let taken = || sink.0.load(Ordering::Relaxed) >> 20;
    let server = endless(HOSTS);
    let mut crawler = crawler(&server, sink.clone(), HOSTS, "60s");
    let mut most = 0;
    while taken() < 10 * HOSTS {
        let before = taken();
        crawler.turn(Some(Duration::from_millis(100)));
        // Not counted: the first bytes of each body, which arrive at once.
        if before > 2 * HOSTS {
            most = most.max(taken() - before);
        }
    }
    assert!(most <= 12, "{most} MiB in one turn");
}
