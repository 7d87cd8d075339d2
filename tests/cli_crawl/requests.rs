//! Requests as sent to servers.

use crate::run::Crawl;
use crate::server::{Asked, Server, page};

/// The one request that came of crawling this path with these options.
fn asked(path: &str, args: &[&str]) -> (u16, Asked) {
    let server = Server::new(|_| page("hello"));
    Crawl::of(&[&server.url(path)]).with(args).run();
    let all = server.asked();
    assert_eq!(all.len(), 1, "{all:?}");
    (server.port(), all[0].clone())
}

#[test]
fn a_request_has_exactly_the_required_bytes() {
    let (port, asked) = asked("/a/../b c?q=%c3%a4&x=1#fragment", &[]);
    assert_eq!(
        (asked.method.as_str(), asked.target.as_str()),
        ("GET", "/b%20c?q=%c3%a4&x=1")
    );
    let host = format!("127.0.0.1:{port}");
    assert_eq!(asked.header("Host"), Some(host.as_str()));
    assert_eq!(
        asked.header("Accept-Encoding"),
        Some("gzip, deflate, br"),
        "readers of WARC files do not undo zstd"
    );
    assert!(asked.header("Accept").is_some());
    let agent = concat!("argiope/", env!("CARGO_PKG_VERSION"));
    assert_eq!(asked.header("User-Agent"), Some(agent));
    for name in [
        "Cookie",
        "Referer",
        "Authorization",
        "Content-Length",
        "Transfer-Encoding",
    ] {
        assert_eq!(asked.header(name), None, "{name}");
    }
}

#[test]
fn zstd_is_accepted_without_warc_or_by_a_setting() {
    let check = |args: &[&str], expected: &str| {
        let (_, asked) = asked("/", args);
        assert_eq!(asked.header("Accept-Encoding"), Some(expected), "{args:?}");
    };
    check(&["--no-warc"], "gzip, deflate, br, zstd");
    check(&["-s", "ACCEPT_ZSTD=true"], "gzip, deflate, br, zstd");
    check(
        &["--no-warc", "-s", "ACCEPT_ZSTD=false"],
        "gzip, deflate, br",
    );
    check(&["-s", "ACCEPT_ZSTD=false"], "gzip, deflate, br");
}

#[test]
fn the_user_agent_has_the_contact() {
    let (_, only) = asked("/", &["--contact", "https://example.org/bot"]);
    let agent = only.header("User-Agent").expect("an agent");
    assert!(
        agent.starts_with("argiope/") && agent.contains("+https://example.org/bot"),
        "{agent}"
    );
    let (_, only) = asked("/", &["-A", "spider/7", "--contact", "me@example.org"]);
    let agent = only.header("User-Agent").expect("an agent");
    assert!(
        agent.starts_with("spider/7 ") && agent.contains("me@example.org"),
        "{agent}"
    );
    let (_, only) = asked("/", &["-A", "spider/7"]);
    assert_eq!(only.header("User-Agent"), Some("spider/7"));
}

#[test]
fn own_headers_are_sent_with_every_request() {
    let args = [
        "-H",
        "X-One: 1",
        "-H",
        "Accept: text/plain",
        "-H",
        "Accept-Language: de, en;q=0.5",
    ];
    let (_, only) = asked("/", &args);
    assert_eq!(only.header("X-One"), Some("1"));
    assert_eq!(
        only.header("Accept"),
        Some("text/plain"),
        "once, and as it was said"
    );
    assert_eq!(only.header("Accept-Language"), Some("de, en;q=0.5"));
}

#[test]
fn a_user_in_a_url_is_never_sent() {
    let server = Server::new(|_| page("hello"));
    let url = server.url("/x").replace("http://", "http://user:secret@");
    let crawled = Crawl::of(&[&url]).run();
    assert_eq!(crawled.only()["url"], server.url("/x"));
    let asked = server.only("/x");
    assert_eq!(asked.header("Authorization"), None);
    assert!(!format!("{asked:?}").contains("secret"));
    assert!(!crawled.read("results.jsonl").contains("secret"));
    assert!(!String::from_utf8_lossy(&crawled.warc()).contains("secret"));
}

#[test]
fn the_same_url_is_fetched_once() {
    let server = Server::new(|_| page("<a href='/'>here</a><a href='/#x'>there</a>"));
    let (url, same) = (server.url("/"), server.url("/./#part"));
    let crawled = Crawl::of(&[&url, &url, &same]).run();
    assert_eq!(server.targets(), ["/"]);
    assert_eq!(crawled.lines().len(), 1);
    let stats = crawled.stats();
    assert_eq!(
        (&stats["seeds"], &stats["pages"]),
        (&3.into(), &1.into()),
        "{stats}"
    );
}

#[test]
fn connections_are_kept_and_marked_as_reused() {
    let server = Server::new(|_| page("hello"));
    let urls: Vec<String> = (0..5).map(|n| server.url(&format!("/{n}"))).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let args = ["-s", "CONCURRENT_REQUESTS_PER_DOMAIN=1"];
    let crawled = Crawl::of(&urls).with(&args).run();
    let lines = crawled.lines();
    assert_eq!(lines[0]["reused"], false);
    assert!(lines[0]["connect"].is_number());
    for line in &lines[1..] {
        assert_eq!(line["reused"], true, "{line}");
        assert!(line["connect"].is_null() && line["dns"].is_null(), "{line}");
        assert_eq!(line["local"], lines[0]["local"]);
    }
    assert_eq!(crawled.stats()["connections"], 1);
}
