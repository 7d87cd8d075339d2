//! Unreachable hosts and proxies: which requests wait, and for how long.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use argiope::{Page, Request};

use super::origin::{Origin, page};
use super::proxy::{Manner, Proxy};
use super::{code, config, known};
use crate::authority::Authority;
use crate::loopback::crawling::crawl;

const URLS: usize = 40;

/// Settings under which what cannot be reached is waited for.
const WAITS: [(&str, &str); 2] = [("HOST_DOWN_AFTER", "2s"), ("RETRY_TIMES", "1")];

fn requests(origins: &[&str]) -> Vec<Request> {
    let of = |origin: &&str| {
        let origin = (*origin).to_owned();
        (0..URLS).map(move |number| Request::get(format!("{origin}/{number}")))
    };
    origins.iter().flat_map(of).collect()
}

/// How many pages of a host ended so, by code, and how many tries came before.
fn ends(pages: &[Page], host: &str) -> (BTreeMap<String, usize>, usize) {
    let mut ends = BTreeMap::new();
    let mut tries = 0;
    for page in pages.iter().filter(|page| page.url.contains(host)) {
        match page.is_final {
            true => *ends.entry(code(page)).or_default() += 1,
            false => tries += 1,
        }
    }
    (ends, tries)
}

#[test]
fn a_host_that_a_proxy_cannot_reach_is_given_up_and_the_proxy_is_not() {
    let authority = Authority::new();
    let file = known(&authority);
    let ca = file.path().to_str().expect("a path of letters");
    let origin = Origin::tls(&authority, "a.test", |_| page("there"));
    let lacks = Manner::Without("dead.test");
    for (proxy, scheme) in [
        (Proxy::http(lacks, origin.at), "http"),
        (Proxy::socks(lacks, origin.at), "socks5"),
    ] {
        let url = proxy.url(scheme);
        let own = [("PROXY", &url[..]), ("CA_FILE", ca)];
        let pages = crawl(
            config(&[&WAITS[..], &own].concat()),
            requests(&["https://dead.test", "https://a.test"]),
        );
        let (ends_dead, tries) = ends(&pages, "dead.test");
        let given_up = ends_dead.get("host_down.gave_up").copied();
        let unreached = ends_dead.get("connect.proxy_unreachable").copied();
        let both = given_up.unwrap_or(0) + unreached.unwrap_or(0);
        assert_eq!(both, URLS, "{scheme}: {ends_dead:?}");
        assert!(given_up > Some(URLS / 2), "{scheme}: {ends_dead:?}");
        let failures = pages.iter().filter_map(|page| page.failure.as_ref());
        let mut failures = failures.filter(|failure| failure.code() == "host_down.gave_up");
        assert!(
            failures.all(|failure| failure.detail.starts_with("the host was unresponsive")),
            "{scheme}"
        );
        assert!(tries < URLS, "{scheme}: tried {tries} times");
        let (ends_live, tries) = ends(&pages, "a.test");
        assert_eq!(ends_live, [(String::new(), URLS)].into(), "{scheme}");
        assert_eq!(tries, 0, "{scheme}");
    }
}

#[test]
fn requests_through_a_dead_proxy_wait_until_it_is_given_up() {
    for scheme in ["http", "socks5"] {
        let gone = unused();
        let url = format!("{scheme}://{}", gone.local_addr().expect("it is bound"));
        drop(gone);
        let began = Instant::now();
        let pages = crawl(
            config(&[&WAITS[..], &[("PROXY", &url)]].concat()),
            requests(&["http://a.test", "http://b.test"]),
        );
        let took = began.elapsed();
        // Not a moment sooner: no URL is lost while the proxy may come back.
        assert!(took >= Duration::from_secs(2), "{scheme}: {took:?}");
        let refused = pages.iter().filter_map(|page| page.failure.as_ref());
        let refused: Vec<&str> = refused
            .filter(|failure| failure.code() == "connect.refused")
            .map(|failure| &*failure.detail)
            .collect();
        let names_proxy = |detail: &&str| detail.starts_with("the proxy 127.0.0.1:");
        assert!(
            !refused.is_empty() && refused.iter().all(names_proxy),
            "{refused:?}"
        );
        let given_up = pages.iter().filter_map(|page| page.failure.as_ref());
        let mut given_up = given_up.filter(|failure| failure.code() == "host_down.gave_up");
        assert!(
            given_up.all(|failure| names_proxy(&&*failure.detail)),
            "{scheme}"
        );
        let mut tried = 0;
        for host in ["a.test", "b.test"] {
            let (ends, tries) = ends(&pages, host);
            let expected = [("host_down.gave_up".to_owned(), URLS)];
            assert_eq!(ends, expected.into(), "{scheme}");
            tried += tries;
        }
        assert!(tried < URLS, "{scheme}: tried {tried} times");
    }
}

#[test]
fn a_proxy_that_recovers_in_time_loses_no_url() {
    let origin = Origin::start(|_| page("there"));
    let late = unused();
    let at = late.local_addr().expect("it is bound");
    drop(late);
    let starts = thread::spawn(move || {
        thread::sleep(Duration::from_millis(700));
        let listener = TcpListener::bind(at).expect("the port is free");
        Proxy::http_on(listener, Manner::Good, origin.at)
    });
    let url = format!("http://{at}");
    let pages = crawl(
        config(&[&WAITS[..], &[("PROXY", &url)]].concat()),
        requests(&["http://a.test", "http://b.test"]),
    );
    starts.join().expect("the proxy starts");
    for host in ["a.test", "b.test"] {
        let (ends, tries) = ends(&pages, host);
        assert_eq!(ends, [(String::new(), URLS)].into(), "{host}");
        assert!(tries > 0, "{host}");
    }
}

/// A loopback port without a listener, once this is dropped.
fn unused() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("a free port")
}
