//! Details of a page: certificates, headers, source of timestamps, scopes and pace.

#[allow(dead_code, reason = "other tests ask it for more")]
mod authority;
#[allow(dead_code, reason = "other tests ask it for more")]
mod loopback;

use std::sync::Arc;
use std::time::Duration;

use argiope::settings::SettingValue;
use argiope::testkit::server;
use argiope::{Accuracy, Config, Crawler, Page, Request};

use authority::Authority;
use loopback::{Reply, Server};

/// A server with a chain of two certificates, and the certificates.
fn serve() -> (server::Server, Vec<Vec<u8>>) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let (config, chain) = Authority::new().chain_server(provider, "a.test");
    let server = server::Server::tls(config, |_| Reply::page("ok"));
    (server, chain.iter().map(|der| der.to_vec()).collect())
}

fn set(config: Config, name: &str, value: impl Into<SettingValue>) -> Config {
    config.with(name, value).expect("the setting is sound")
}

/// The pages of these requests, sent one after the other.
fn pages(config: Config, requests: Vec<Request>) -> Vec<Page> {
    let config = set(config, "CONCURRENT_REQUESTS_PER_DOMAIN", 1);
    let mut crawler = Crawler::builder(config).build().expect("a crawler");
    for request in requests {
        crawler.submit(request).expect("it is a URL");
    }
    let pages: Vec<Page> = std::iter::from_fn(|| crawler.next_result()).collect();
    for page in &pages {
        assert_eq!((page.status, &page.failure), (Some(200), &None));
    }
    pages
}

#[test]
fn certificates_are_shared_by_pages_and_known_after_resumption() {
    let (server, chain) = serve();
    let config = [
        ("ALLOW_NET", "loopback".to_owned()),
        ("RESOLVE", format!("a.test:443:{}", server.address())),
        ("INSECURE", "true".to_owned()),
        ("DOWNLOAD_DELAY", "0".to_owned()),
        ("ROBOTSTXT_OBEY", "false".to_owned()),
    ];
    let config = config
        .into_iter()
        .fold(Config::default(), |config, (name, value)| {
            set(config, name, value)
        });
    let get = |page| Request::get(format!("https://a.test/{page}"));
    // A request that may not be sent twice gets a new connection.
    let again = Request::post("https://a.test/3", "body");
    let pages = pages(config, vec![get(1), get(2), again]);
    for page in &pages {
        let shown: Vec<&[u8]> = page.certificates.iter().collect();
        assert_eq!(shown, chain);
        assert_eq!(page.certificates.end_entity(), Some(&chain[0][..]));
    }
    let places: Vec<_> = pages
        .iter()
        .map(|page| page.certificates.end_entity().map(<[u8]>::as_ptr))
        .collect();
    assert!(pages[1].reused && !pages[2].reused);
    assert!(pages[2].tls.expect("it came by TLS").resumed);
    assert_eq!(places[0], places[1], "copied once for the connection");
    assert_ne!(places[0], places[2]);
}

#[test]
fn headers_keep_order_and_case_and_plain_pages_have_no_certificates() {
    let server = Server::start(|_| {
        Reply::page("ok")
            .field("X-Last", 1)
            .field("x-first", 2)
            .field("X-LAST", 3)
    });
    let pages = pages(server.config(), vec![Request::get("http://a.test/")]);
    let fields: Vec<(&str, &[u8])> = pages[0].headers.iter().collect();
    let expected: [(&str, &[u8]); 5] = [
        ("Content-Type", b"text/html"),
        ("X-Last", b"1"),
        ("x-first", b"2"),
        ("X-LAST", b"3"),
        ("Content-Length", b"2"),
    ];
    assert_eq!(fields, expected);
    assert!(pages[0].certificates.is_empty());
}

#[test]
fn a_page_has_its_scopes_its_gap_and_the_source_of_its_stamps() {
    let server = Server::start(|_| Reply::page("ok"));
    let config = set(server.config(), "DOWNLOAD_DELAY", "150ms");
    let config = set(config, "AUTOTHROTTLE_ENABLED", false);
    let get = |page| {
        Request::get(format!("http://a.test/{page}"))
            .scope("key-7")
            .scope("a.test")
    };
    let pages = pages(config, vec![get(1), get(2)]);
    for page in &pages {
        assert_eq!(page.scopes, ["key-7", "a.test"]);
        assert!(page.timings.accuracy().is_some(), "{:?}", page.timings);
        let headers = page.timings.headers.expect("a head");
        assert_eq!(
            page.timings.accuracy() == Some(Accuracy::User),
            !headers.is_kernels()
        );
    }
    assert_eq!(
        pages[0].delay,
        Some(Duration::ZERO),
        "nothing was before it"
    );
    assert_eq!(pages[1].delay, Some(Duration::from_millis(150)));
}
