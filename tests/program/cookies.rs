//! Cookies of a crawl: off by default, and sent only to matching requests.
#![cfg(feature = "cookies")]

use argiope::{Config, Crawler, FinishReason, Page, Request};

use crate::loopback::{Asked, Reply, Server};

/// A server that sets two cookies at the login: one for the host, and one for the domain.
fn server() -> Server {
    Server::start(|asked| match asked.target.as_str() {
        "/login" | "/login?out" => Reply::redirect("302 Found", "/home")
            .field("Set-Cookie", "session=1; Path=/")
            .field("Set-Cookie", "all=2; Domain=a.test; Path=/; Max-Age=60"),
        "/home" => Reply::page("<a href=/next></a><a href=http://www.a.test/></a>"),
        _ => Reply::page("there"),
    })
}

/// Crawls these requests, one at a time and in their order.
fn crawl(config: Config, requests: Vec<Request>) {
    let settings = [("CONCURRENT_REQUESTS", "1"), ("FOLLOW", "all")];
    let config = settings.iter().fold(config, |config, (name, value)| {
        config.with(name, *value).expect("a sound setting")
    });
    let mut crawler = Crawler::builder(config)
        .sink(|page: Page| assert!(page.failure.is_none(), "{:?}", page.failure))
        .build()
        .expect("a crawler");
    for request in requests {
        crawler.submit(request).expect("a sound request");
    }
    assert_eq!(crawler.run(), FinishReason::Finished);
}

fn on(server: &Server) -> Config {
    let config = server.config().with("COOKIES_ENABLED", true);
    config.expect("a sound setting")
}

/// The Cookie field of the request for a target on a host.
fn sent(asked: &[Asked], host: &str, target: &str) -> Option<String> {
    let mut found = asked
        .iter()
        .filter(|a| a.host == host && a.target == target);
    let found = found.next().expect("it was asked for");
    let headers = found.headers.iter();
    let mut cookies = headers.filter(|(name, _)| name.eq_ignore_ascii_case("cookie"));
    let first = cookies.next().map(|(_, value)| value.to_owned());
    assert!(cookies.next().is_none(), "one field holds them all");
    first
}

#[test]
fn cookies_of_a_login_are_sent_with_later_requests() {
    let server = server();
    crawl(on(&server), vec![Request::get("http://a.test/login")]);
    let asked = server.asked();
    let sent = |host: &str, target: &str| sent(&asked, host, target);
    assert_eq!(sent("a.test", "/login"), None);
    assert_eq!(sent("a.test", "/home").as_deref(), Some("session=1; all=2"));
    assert_eq!(sent("a.test", "/next").as_deref(), Some("session=1; all=2"));
    assert_eq!(sent("www.a.test", "/").as_deref(), Some("all=2"));
}

#[test]
fn cookies_are_off_by_default() {
    let server = server();
    crawl(server.config(), vec![Request::get("http://a.test/login")]);
    let asked = server.asked();
    assert_eq!(sent(&asked, "a.test", "/home"), None);
}

#[test]
fn own_cookie_header_and_dont_merge_cookies_bypass_the_jar() {
    let server = server();
    let get = |url: &str| Request::get(url).dont_follow().scope("all");
    crawl(
        on(&server),
        vec![
            // The cookies of this response are not stored.
            get("http://a.test/login?out").dont_merge_cookies(),
            get("http://a.test/1"),
            get("http://a.test/login"),
            get("http://a.test/own").header("Cookie", "mine=3"),
            get("http://a.test/out").dont_merge_cookies(),
            get("http://a.test/in").header("X-More", "kept"),
        ],
    );
    let asked = server.asked();
    let sent = |target: &str| sent(&asked, "a.test", target);
    assert_eq!(sent("/1"), None);
    assert_eq!(sent("/own").as_deref(), Some("mine=3"));
    assert_eq!(sent("/out"), None);
    assert_eq!(sent("/in").as_deref(), Some("session=1; all=2"));
    let last = asked.iter().find(|asked| asked.target == "/in");
    let last = last.expect("it was asked for");
    assert_eq!(last.header("X-More"), Some("kept"));
}
