//! Allocations of a page between its release and its end.
//!
//! Plain HTTP, links not followed, results dropped, robots.txt cached. All URLs are admitted before the
//! crawl runs; the first pages, which fill reusable buffers, are not counted. A lane stores only the part
//! of a URL that differs from its neighbours; the URL is assembled at its release.

#[expect(dead_code, reason = "how many bytes are held is others' affair")]
mod counting;

use std::net::SocketAddr;

use argiope::base::shared::Shared;
use argiope::testkit::http::{Reply, Step};
use argiope::testkit::server::Server;
use argiope::{Config, Crawler, Page, Request, Sink};
use argiope::{FinishReason, PageKind};
use counting::{Counting, asked};

#[global_allocator]
static COUNTING: Counting = Counting;

const PAGES: usize = 3000;
const WARM: usize = 500;

/// A sink that drops pages, and records the number of allocations at two of them.
#[derive(Default)]
struct Noting {
    pages: usize,
    /// Allocations at the first page that counts, and at the last.
    asked: Shared<[usize; 2]>,
}

impl Sink for Noting {
    fn put(&mut self, page: &mut Page) {
        if page.kind != PageKind::Page {
            return;
        }
        assert_eq!(page.status, Some(200), "{:?}", page.failure);
        assert_eq!(page.body, BODY.as_bytes());
        assert_eq!(page.content_type.as_deref(), Some("text/html"));
        self.pages += 1;
        let [first, last] = self.asked.get();
        match self.pages {
            WARM => self.asked.set([asked(), last]),
            PAGES => self.asked.set([first, asked()]),
            _ => {}
        }
    }
}

#[test]
fn a_page_on_a_kept_connection_allocates_only_its_url() {
    check("keep-alive", 1.0);
}

#[test]
fn a_page_on_a_new_connection_allocates_only_its_url() {
    check("close", 1.0);
}

/// Crawls with connections that are kept or closed. Checks that a page makes at most `most` allocations
/// in the mean.
#[track_caller]
fn check(connection: &'static str, most: f64) {
    let server = answering(connection);
    let noting = Noting::default();
    let noted = Shared::clone(&noting.asked);
    let mut crawler = Crawler::builder(config(server.address()))
        .sink(noting)
        .build()
        .expect("it can be set up");
    for number in 0..PAGES {
        let url = format!("http://a.test/{number}");
        crawler.submit(Request::get(url)).expect("it is a URL");
    }
    assert_eq!(crawler.run(), FinishReason::Finished);
    let [first, last] = noted.get();
    let each = (last - first) as f64 / (PAGES - WARM) as f64;
    // Tables grow from time to time.
    assert!(each <= most + 0.01, "{each} allocations a page");
}

fn config(server: SocketAddr) -> Config {
    [
        ("ALLOW_NET", "loopback".to_owned()),
        ("RESOLVE", format!("*:80:{server}")),
        ("DOWNLOAD_DELAY", "0".to_owned()),
        ("ROBOTSTXT_OBEY", "true".to_owned()),
        ("FOLLOW", "none".to_owned()),
        ("CONCURRENT_REQUESTS", "8".to_owned()),
        ("CONCURRENT_REQUESTS_PER_DOMAIN", "8".to_owned()),
    ]
    .into_iter()
    .try_fold(Config::default(), |config, (name, value)| {
        config.with(name, value)
    })
    .expect("these settings are sound")
}

/// A server with one answer for every request.
fn answering(connection: &'static str) -> Server {
    Server::start(move |_| {
        let reply = Reply::new(200)
            .field("Server", "nginx")
            .field("Content-Type", "text/html")
            .field("Connection", connection)
            .body(BODY);
        let mut steps = vec![Step::Send(reply.to_bytes())];
        steps.extend((connection == "close").then_some(Step::Close));
        steps
    })
}

const BODY: &str = "<html><body><p>A page without links.</p></body></html>";
