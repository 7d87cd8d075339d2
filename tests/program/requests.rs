//! Options of a single request that override settings.

use std::time::Duration;

use argiope::{AdmitError, Config, Crawler, Request, Truncation};

use crate::loopback::crawling::crawl;
use crate::loopback::{Reply, Server};

fn set(config: Config, name: &str, value: &str) -> Config {
    config.with(name, value).expect("a sound setting")
}

#[test]
fn credentials_are_sent_only_to_their_origin() {
    let server = Server::start(|asked| match asked.target.as_str() {
        "/here" => Reply::redirect("302 Found", "/again"),
        "/again" => Reply::redirect("302 Found", "http://b.test/elsewhere"),
        _ => Reply::page("there"),
    });
    crawl(
        server.config(),
        vec![
            Request::get("http://a.test/here")
                .basic_auth("Aladdin", "open sesame")
                .header("Cookie", "a=b"),
            Request::get("http://c.test/token").bearer_auth("t0k3n"),
        ],
    );
    let asked = server.asked();
    let of = |target: &str| {
        let found = asked.iter().find(|asked| asked.target == target);
        let found = found.expect("it was asked for");
        (found.header("Authorization"), found.header("Cookie"))
    };
    // RFC 7617, section 2.
    let basic = Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    assert_eq!(of("/here"), (basic, Some("a=b")));
    assert_eq!(of("/again"), (basic, Some("a=b")));
    assert_eq!(of("/elsewhere"), (None, None));
    assert_eq!(of("/token"), (Some("Bearer t0k3n"), None));
}

#[test]
fn non_idempotent_requests_use_a_new_connection_and_are_not_retried() {
    let server = Server::start(|_| Reply::status("500 Internal Server Error"));
    let pages = crawl(
        set(server.config(), "RETRY_TIMES", "2"),
        vec![
            Request::get("http://a.test/get"),
            Request::post("http://a.test/post", "x"),
        ],
    );
    let of = |end: &str| pages.iter().filter(|page| page.url.ends_with(end)).count();
    assert_eq!((of("/get"), of("/post")), (3, 1));
    let post = pages.iter().find(|page| page.url.ends_with("/post"));
    assert!(!post.expect("a page").reused);
    let reused = pages.iter().filter(|page| page.reused).count();
    assert!(reused > 0, "others use a connection again");
}

#[test]
fn a_request_may_override_timeout_and_body_max() {
    let server = Server::start(|asked| match asked.target.as_str() {
        "/slow" => Reply::page("late").after(Duration::from_secs(20)),
        _ => Reply::page("x".repeat(5000)),
    });
    let pages = crawl(
        set(server.config(), "DOWNLOAD_MAXSIZE", "1000"),
        vec![
            Request::get("http://a.test/slow").timeout(Duration::from_millis(200)),
            Request::get("http://b.test/usual"),
            Request::get("http://c.test/more").body_max(4000),
        ],
    );
    let of = |end: &str| {
        let mut pages = pages.iter();
        pages.find(|page| page.url.ends_with(end)).expect("a page")
    };
    let failure = of("/slow").failure.as_ref().expect("a failure");
    assert_eq!((failure.kind.as_str(), failure.name), ("timeout", "total"));
    assert_eq!(of("/usual").body.len(), 1000);
    assert_eq!(of("/more").body.len(), 4000);
    assert_eq!(of("/more").truncated, Some(Truncation::Length));
}

#[test]
fn ignore_robots_skips_robots_txt() {
    let server = Server::start(|asked| match asked.target.as_str() {
        "/robots.txt" => Reply::page("User-agent: *\nDisallow: /\n"),
        _ => Reply::page("a page"),
    });
    let pages = crawl(
        set(server.config(), "ROBOTSTXT_OBEY", "true"),
        vec![
            Request::get("http://a.test/asks"),
            Request::get("http://b.test/does-not").ignore_robots(),
        ],
    );
    let status = |end: &str| pages.iter().find(|page| page.url.ends_with(end))?.status;
    assert_eq!(status("/asks"), None);
    assert_eq!(status("/does-not"), Some(200));
    let robots = server.asked_of(|asked| asked.target == "/robots.txt");
    assert_eq!(robots.len(), 1);
    assert_eq!(robots[0].host, "a.test");
}

#[test]
fn dont_follow_and_dont_filter_have_their_effect() {
    let server = Server::start(|asked| match asked.target.as_str() {
        "/moved" => Reply::redirect("302 Found", "/denied"),
        _ => Reply::page("<a href=/linked></a>"),
    });
    let pages = crawl(
        set(server.config(), "DENY", "denied"),
        vec![
            Request::get("http://a.test/end").dont_follow(),
            Request::get("http://a.test/denied")
                .dont_follow()
                .dont_filter(),
            // A duplicate, and a redirect to a denied URL.
            Request::get("http://a.test/end")
                .dont_follow()
                .dont_filter(),
            Request::get("http://a.test/moved")
                .dont_follow()
                .dont_filter(),
        ],
    );
    let mut urls: Vec<_> = pages
        .iter()
        .map(|page| &page.url["http://a.test".len()..])
        .collect();
    urls.sort_unstable();
    assert_eq!(urls, ["/denied", "/denied", "/end", "/end", "/moved"]);
    assert!(pages.iter().all(|page| page.links.is_none()));
}

#[test]
fn an_own_host_header_is_sent_once_and_to_its_origin_only() {
    let server = Server::start(|asked| match asked.target.as_str() {
        "/here" => Reply::redirect("302 Found", "/again"),
        "/again" => Reply::redirect("302 Found", "http://b.test/elsewhere"),
        _ => Reply::page("there"),
    });
    let own = Request::get("http://a.test/here").header("Host", "inside.test");
    crawl(server.config(), vec![own]);
    let hosts: Vec<String> = server
        .asked()
        .iter()
        .map(|asked| asked.host.clone())
        .collect();
    assert_eq!(hosts, ["inside.test", "inside.test", "b.test"]);

    let get = || Request::get("http://a.test/");
    let wrong = [
        get().header("Host", "a.test").header("host", "b.test"),
        get().header("Host", " "),
        get().header("Connection", "close"),
        get().header("TE", "trailers"),
        with(get(), |request| {
            request.method = "CONNECT".to_owned();
        }),
    ];
    let mut crawler = Crawler::builder(server.config())
        .build()
        .expect("a crawler");
    for request in wrong {
        let result = crawler.submit(request.clone());
        assert!(
            matches!(result, Err(AdmitError::Request(_))),
            "{request:?}: {result:?}"
        );
    }
}

#[test]
fn option_values_at_their_bounds_work() {
    let server = Server::start(|_| Reply::page("<a href=/next>on</a>"));
    let get = |path: &str| Request::get(format!("http://a.test/{path}"));
    let edges = vec![
        with(get("deep"), |request| {
            request.depth = u32::MAX;
        }),
        get("patient").timeout(Duration::MAX),
        get("all").body_max(u64::MAX),
        get("nothing").body_max(0),
        get("last").priority(i32::MIN),
        Request::post("http://a.test/posted", ""),
    ];
    let submitted = edges.len();
    let config = set(server.config(), "FOLLOW", "host");
    let pages = crawl(config, edges);
    let bad: Vec<_> = pages.iter().filter(|page| page.failure.is_some()).collect();
    assert!(bad.is_empty(), "{bad:?}");
    assert_eq!(pages.len(), submitted + 1, "and where the links lead");
    let asked = server.asked();
    let posted = asked.iter().find(|asked| asked.method == "POST");
    let length = posted.expect("it was asked").header("Content-Length");
    assert_eq!(length, Some("0"));
}

/// Returns the request with this change.
fn with(mut request: Request, change: impl FnOnce(&mut Request)) -> Request {
    change(&mut request);
    request
}
