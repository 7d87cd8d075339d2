//! Crawls through proxies: requests as received by proxies and origins, and proxies that refuse, send
//! invalid replies, close, or do not answer.

mod dead;
mod origin;
mod proxy;

use std::io::Write;

use argiope::{Config, Crawler, Page, PageKind, Request};

use crate::authority::Authority;
use crate::loopback::crawling::crawl;
use origin::{Origin, page, redirect};
use proxy::{Manner, Proxy};

/// A crawl that could look up no name at all, and that may ask no address of this machine's.
fn config(settings: &[(&str, &str)]) -> Config {
    // What does not answer fails at once: how hosts and proxies are waited for is in dead.rs.
    let own = [
        ("DNS_SERVERS", "127.0.0.1:9"),
        ("FOLLOW", "all"),
        ("HOST_DOWN_AFTER", "0"),
    ];
    crate::loopback::crawling::config(&[&own, settings].concat())
}

/// The one page that comes of this URL.
fn fetch(config: Config, url: &str) -> Page {
    let mut pages = crawl(config, vec![Request::get(url)]);
    assert_eq!(pages.len(), 1);
    pages.remove(0)
}

fn code(page: &Page) -> String {
    let failure = page.failure.as_ref();
    failure.map_or_else(String::new, |failure| {
        format!("{}.{}", failure.kind.as_str(), failure.name)
    })
}

/// The first lines of these heads.
fn lines(heads: &[String]) -> Vec<&str> {
    let lines = heads.iter().map(|head| head.lines().next().unwrap_or(""));
    lines.collect()
}

/// A file that makes an authority known.
fn known(authority: &Authority) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(authority.pem().as_bytes()).expect("room");
    file
}

#[test]
fn http_pages_are_requested_from_an_http_proxy_by_absolute_url() {
    let origin = Origin::start(|_| page("there"));
    for manner in [Manner::Good, Manner::Slow] {
        let proxy = Proxy::http(manner, origin.at);
        let page = fetch(
            config(&[("PROXY", &proxy.url("http"))]),
            "http://a.test/x?y#z",
        );
        assert_eq!((page.status, &*page.body), (Some(200), &b"there"[..]));
        assert_eq!(page.remote, Some(proxy.at), "whom we were connected to");
        assert!(page.timings.dns.is_none(), "names are the proxy's to find");
        let asked = proxy.asked();
        assert_eq!(lines(&asked), ["GET http://a.test/x?y HTTP/1.1"]);
        assert!(asked[0].contains("\r\nHost: a.test\r\n"), "{}", asked[0]);
        assert!(!asked[0].contains("Proxy-"), "{}", asked[0]);
    }
    assert_eq!(lines(&origin.asked()), ["GET /x?y HTTP/1.1"; 2]);
}

#[test]
fn https_pages_use_a_tunnel_with_the_origins_tls() {
    let authority = Authority::new();
    let file = known(&authority);
    let ca = file.path().to_str().expect("a path of letters");
    let origin = Origin::tls(&authority, "a.test", |_| page("there"));
    for (manner, url) in [
        (Manner::Good, "http"),
        (Manner::Slow, "http"),
        (Manner::Guarded, "http://Aladdin:open%20sesame@"),
    ] {
        let proxy = Proxy::http(manner, origin.at);
        let url = match url.strip_suffix('@') {
            None => proxy.url(url),
            Some(user) => format!("{user}@{}", proxy.at),
        };
        let config = config(&[("PROXY", &url), ("CA_FILE", ca)]);
        let page = fetch(config.clone(), "https://a.test/x");
        assert_eq!((page.status, code(&page).as_str()), (Some(200), ""));
        assert!(page.tls.expect("TLS was made").verified);
        assert_eq!(page.remote, Some(proxy.at));
        let timings = page.timings;
        let (connect, secured) = (timings.connect, timings.tls_handshake());
        assert!(connect.expect("to the proxy").at <= secured.expect("to the origin").at);
        let asked = proxy.asked();
        assert_eq!(lines(&asked), ["CONNECT a.test:443 HTTP/1.1"]);
        assert!(
            asked[0].contains("\r\nHost: a.test:443\r\n"),
            "{}",
            asked[0]
        );

        // The certificate is one for another name.
        let page = fetch(config, "https://b.test/x");
        assert_eq!(code(&page), "tls.name_mismatch");
        assert_eq!(proxy.asked().len(), 2);
    }
    let asked = origin.asked();
    assert_eq!(lines(&asked), ["GET /x HTTP/1.1"; 3]);
    assert!(
        !asked.concat().contains("Proxy-"),
        "credentials are a proxy's"
    );
}

#[test]
fn a_socks5_proxy_gets_names_and_tunnels_http_and_https() {
    let authority = Authority::new();
    let file = known(&authority);
    let ca = file.path().to_str().expect("a path of letters");
    let plain = Origin::start(|_| page("plain"));
    let secured = Origin::tls(&authority, "a.test", |_| page("secured"));
    for (scheme, manner) in [("socks5", Manner::Good), ("socks5h", Manner::Slow)] {
        for (url, origin, body, expected) in [
            ("http://a.test/x", plain.at, "plain", "NAME a.test:80"),
            (
                "http://127.0.0.1:81/x",
                plain.at,
                "plain",
                "ADDRESS 127.0.0.1:81",
            ),
            ("https://a.test/x", secured.at, "secured", "NAME a.test:443"),
        ] {
            let proxy = Proxy::socks(manner, origin);
            let config = config(&[
                ("PROXY", &proxy.url(scheme)),
                ("CA_FILE", ca),
                ("ALLOW_NET", "loopback"),
            ]);
            let page = fetch(config, url);
            assert_eq!(
                (page.status, code(&page).as_str()),
                (Some(200), ""),
                "{url}"
            );
            assert_eq!(page.body, body.as_bytes());
            assert_eq!(page.remote, Some(proxy.at));
            assert_eq!(proxy.asked(), [expected]);
        }
    }
    assert_eq!(lines(&plain.asked()), ["GET /x HTTP/1.1"; 4]);
}

#[test]
fn credentials_are_sent_only_to_the_proxy() {
    let origin = Origin::start(|target| match target {
        "/moved" => redirect("http://b.test/elsewhere"),
        _ => page("there"),
    });
    let named = |proxy: &Proxy, scheme: &str, who: &str| {
        let url = format!("{scheme}://{who}@{}", proxy.at);
        crawl(
            config(&[("PROXY", &url)]),
            vec![Request::get("http://a.test/moved")],
        )
    };
    let right = "Aladdin:open%20sesame";
    let proxy = Proxy::http(Manner::Guarded, origin.at);
    let pages = named(&proxy, "http", right);
    let expected: Vec<_> = pages.iter().map(|page| page.status).collect();
    assert_eq!(expected, [Some(302), Some(200)]);
    let field = "Proxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==";
    assert!(proxy.asked().iter().all(|head| head.contains(field)));
    for page in &pages {
        // What is kept of a request is shown to others.
        let kept = String::from_utf8_lossy(&page.request_bytes);
        assert!(!kept.contains("Proxy-"), "{kept}");
        assert!(
            kept.starts_with("GET http://") && kept.contains("\r\nUser-Agent: "),
            "{kept}"
        );
        assert!(kept.ends_with("\r\n\r\n"), "{kept}");
    }
    let socks = Proxy::socks(Manner::Guarded, origin.at);
    let pages = named(&socks, "socks5", right);
    assert_eq!(pages.last().and_then(|page| page.status), Some(200));
    assert_eq!(
        socks.asked()[..2],
        ["Aladdin:open sesame", "NAME a.test:80"]
    );
    assert!(!origin.asked().concat().contains("Proxy-"));

    let before = origin.asked().len();
    for (proxy, scheme) in [(&proxy, "http"), (&socks, "socks5")] {
        let pages = named(proxy, scheme, "Aladdin:abracadabra");
        assert_eq!(code(&pages[0]), "connect.proxy_auth");
        assert_eq!(pages[0].status, None, "a 407 is not the origin's status");
        let url = proxy.url(scheme);
        assert_eq!(
            code(&fetch(config(&[("PROXY", &url)]), "http://a.test/")),
            "connect.proxy_auth"
        );
    }
    assert_eq!(origin.asked().len(), before);
}

#[test]
fn a_refused_tunnel_is_a_failure_with_a_code() {
    let origin = Origin::start(|_| page("there"));
    let check = |proxy: Proxy, scheme: &str, expected: &str| {
        let settings = config(&[("PROXY", &proxy.url(scheme)), ("CONNECT_TIMEOUT", "300ms")]);
        let page = fetch(settings, "https://a.test/");
        assert_eq!(code(&page), expected, "{:?}", page.failure);
        assert_eq!(page.status, None);
        assert!(page.timings.connect.is_some(), "TCP stood");
        assert!(page.timings.sent.is_none());
    };
    for (says, expected) in [
        (
            &b"HTTP/1.1 403 Forbidden\r\n\r\n"[..],
            "connect.proxy_refused",
        ),
        (b"HTTP/1.1 407 Who\r\n\r\n", "connect.proxy_auth"),
        (
            b"HTTP/1.1 502 Bad Gateway\r\n\r\n",
            "connect.proxy_unreachable",
        ),
        (b"HTTP/1.1 200 OK\r\nX-Half: a", "connect.proxy_closed"),
        (b"", "connect.proxy_closed"),
        (b"\x05\x00 what is this\r\n\r\n", "connect.proxy_protocol"),
    ] {
        check(Proxy::http(Manner::Says(says), origin.at), "http", expected);
    }
    for (says, expected) in [
        (&b"\x05\xff"[..], "connect.proxy_auth"),
        (b"\x05\x00\x05\x02", "connect.proxy_refused"),
        (
            b"\x05\x00\x05\x05\x00\x01\x00\x00\x00\x00\x00\x00",
            "connect.proxy_unreachable",
        ),
        (b"\x05\x00\x05\x00\x00\x01", "connect.proxy_closed"),
        (b"", "connect.proxy_closed"),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            "connect.proxy_protocol",
        ),
    ] {
        check(
            Proxy::socks(Manner::Says(says), origin.at),
            "socks5",
            expected,
        );
    }
    check(
        Proxy::http(Manner::Silent, origin.at),
        "http",
        "timeout.proxy",
    );
    check(
        Proxy::socks(Manner::Silent, origin.at),
        "socks5",
        "timeout.proxy",
    );
    assert!(origin.asked().is_empty());
}

#[test]
fn an_unreachable_proxy_fails_the_request() {
    let origin = Origin::start(|_| page("there"));
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let gone = nobody.local_addr().expect("it is bound");
    drop(nobody);
    for scheme in ["http", "socks5"] {
        let url = format!("{scheme}://{gone}");
        let page = fetch(config(&[("PROXY", &url)]), "http://a.test/");
        assert_eq!(code(&page), "connect.refused");
        assert_eq!(page.remote, Some(gone));
    }
    // Its name is looked up as others are.
    let proxy = Proxy::http(Manner::Good, origin.at);
    let (url, port) = (
        format!("http://proxy.test:{}", proxy.at.port()),
        proxy.at.port(),
    );
    let decree = format!("proxy.test:{port}:127.0.0.1");
    let settings = config(&[("PROXY", &url), ("RESOLVE", &decree)]);
    assert_eq!(fetch(settings, "http://a.test/").status, Some(200));
}

#[test]
fn a_requests_own_proxy_applies_to_its_redirects_and_links() {
    let origin = Origin::start(|target| match target {
        "/robots.txt" => page("Sitemap: /sitemap.xml\n"),
        "/sitemap.xml" => page(
            "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\
             <url><loc>/listed</loc></url></urlset>",
        ),
        "/" => page("<a href=/linked></a>"),
        "/linked" => redirect("http://other.test/moved"),
        _ => page("there"),
    });
    let usual = Proxy::http(Manner::Good, origin.at);
    let own = Proxy::socks(Manner::Good, origin.at);
    let settings = config(&[
        ("PROXY", &usual.url("http")),
        ("ROBOTSTXT_OBEY", "true"),
        ("FOLLOW_SITEMAPS", "true"),
        ("ALLOW_NET", "loopback"),
        ("RESOLVE", &format!("direct.test:80:{}", origin.at)),
    ]);
    let proxy = own.url("socks5").parse().expect("a proxy");
    let pages = crawl(
        settings,
        vec![
            Request::get("http://usual.test/x"),
            Request::get("http://own.test/").proxy(proxy),
            Request::get("http://direct.test/x").without_proxy(),
        ],
    );
    let mut by_hosts = Vec::new();
    for page in &pages {
        assert_eq!(code(page), "", "{}", page.url);
        let host = page.url.split('/').nth(2).expect("a host");
        by_hosts.push((
            host,
            page.url.rsplit_once('/').expect("a path").1,
            page.remote,
        ));
    }
    by_hosts.sort_unstable();
    let (own, usual, direct) = (Some(own.at), Some(usual.at), Some(origin.at));
    assert_eq!(
        by_hosts,
        [
            ("direct.test", "listed", direct),
            ("direct.test", "robots.txt", direct),
            ("direct.test", "sitemap.xml", direct),
            ("direct.test", "x", direct),
            ("other.test", "listed", own),
            ("other.test", "moved", own),
            ("other.test", "robots.txt", own),
            ("other.test", "sitemap.xml", own),
            ("own.test", "", own),
            ("own.test", "linked", own),
            ("own.test", "listed", own),
            ("own.test", "robots.txt", own),
            ("own.test", "sitemap.xml", own),
            ("usual.test", "listed", usual),
            ("usual.test", "robots.txt", usual),
            ("usual.test", "sitemap.xml", usual),
            ("usual.test", "x", usual),
        ]
    );
}

#[test]
fn connections_are_reused_per_origin_and_proxy() {
    let origin = Origin::start(|_| page("there"));
    let one = Proxy::socks(Manner::Guarded, origin.at);
    let other = Proxy::socks(Manner::Good, origin.at);
    let named = |proxy: &Proxy, who: &str| {
        let url = format!("socks5://{who}{}", proxy.at);
        url.parse::<argiope::Proxy>().expect("a proxy")
    };
    let aladdin = named(&one, "Aladdin:open%20sesame@");
    let second = named(&other, "");
    // With other credentials: the connection must not be reused for them.
    let stranger = named(&one, "Jafar:x@");
    let mut requests = Vec::new();
    for number in 0..5 {
        let to = |host: &str| Request::get(format!("http://{host}/{number}")).scope("all");
        requests.push(to("a.test").proxy(aladdin.clone()));
        requests.push(to("b.test").proxy(aladdin.clone()));
    }
    for number in 5..10 {
        let url = format!("http://a.test/{number}");
        requests.push(Request::get(url).scope("all").proxy(second.clone()));
    }
    requests.push(
        Request::get("http://a.test/10")
            .scope("all")
            .proxy(stranger),
    );
    let one_at_a_time = config(&[("CONCURRENT_REQUESTS", "1")]);
    let pages = crawl(one_at_a_time, requests);
    let well = pages.iter().filter(|page| page.status == Some(200)).count();
    assert_eq!((well, pages.len()), (15, 16));
    let mut expected = one.asked();
    expected.retain(|what| what.starts_with("NAME"));
    expected.sort_unstable();
    assert_eq!(expected, ["NAME a.test:80", "NAME b.test:80"]);
    assert_eq!(other.asked(), ["NAME a.test:80"]);
    assert_eq!(pages.iter().filter(|page| page.reused).count(), 12);
}

#[test]
fn a_proxy_may_have_any_address_and_direct_requests_may_not() {
    let origin = Origin::start(|_| page("there"));
    let proxy = Proxy::http(Manner::Good, origin.at);
    let settings = config(&[("PROXY", &proxy.url("http"))]);
    // Behind the proxy a name leads to what we cannot see.
    assert_eq!(fetch(settings.clone(), "http://a.test/").status, Some(200));
    let url = format!("http://{}/", origin.at);
    let pages = crawl(settings, vec![Request::get(url).without_proxy()]);
    assert_eq!(code(&pages[0]), "blocked_address.not_global");
    assert_eq!(proxy.asked().len(), 1);
}

#[test]
fn credentials_for_a_proxy_are_not_set_by_hand() {
    let mut crawler = Crawler::builder(config(&[]))
        .sink(|_: Page| {})
        .build()
        .expect("a crawler");
    let request = Request::get("http://a.test/").header("Proxy-Authorization", "Basic eDp5");
    let refused = crawler
        .submit(request)
        .expect_err("it would reach the origin");
    assert!(
        refused.to_string().contains("follows from the proxy"),
        "{refused}"
    );
    let by_setting = Config::default().with("DEFAULT_REQUEST_HEADERS", "Proxy-Authorization: x");
    assert!(by_setting.is_err());
    for wrong in [
        "proxy.test:3128",
        "https://proxy.test:3128",
        "http://proxy.test",
        "socks4://a:1",
    ] {
        let error = Config::default().with("PROXY", wrong).expect_err(wrong);
        assert!(error.to_string().contains("invalid proxy"), "{error}");
    }
}

#[test]
fn robots_txt_is_cached_per_route() {
    let origin = Origin::start(|target| match target {
        "/robots.txt" => page("User-agent: *\nDisallow: /private\n"),
        _ => page("there"),
    });
    let refuses = Proxy::http(
        Manner::Says(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"),
        origin.at,
    );
    let breaks = Proxy::http(Manner::Says(b""), origin.at);
    for proxy in [&refuses, &breaks] {
        let settings = config(&[
            ("ROBOTSTXT_OBEY", "true"),
            ("ALLOW_NET", "loopback"),
            ("CONCURRENT_REQUESTS_PER_DOMAIN", "1"),
            ("RESOLVE", &format!("a.test:80:{}", origin.at)),
        ]);
        let by = proxy.url("http").parse().expect("a proxy");
        let pages = crawl(
            settings,
            vec![
                Request::get("http://a.test/by-proxy").proxy(by),
                Request::get("http://a.test/direct"),
                Request::get("http://a.test/private"),
            ],
        );
        let end_of = |path: &str| {
            let page = pages.iter().find(|page| page.url.ends_with(path));
            code(page.expect("it ended"))
        };
        assert_eq!(end_of("/direct"), "");
        assert_eq!(end_of("/private"), "robots.disallowed");
        let files = pages.iter().filter(|page| page.kind == PageKind::Robots);
        let mut ways: Vec<_> = files.map(|page| page.remote).collect();
        ways.sort_unstable();
        let mut expected = [Some(proxy.at), Some(origin.at)];
        expected.sort_unstable();
        assert_eq!(ways, expected);
    }
}

#[test]
fn a_refused_address_is_not_requested_through_a_proxy() {
    let origin = Origin::start(|_| page("there"));
    let proxy = Proxy::http(Manner::Good, origin.at);
    let end_of = |more: &[(&str, &str)], url: &str| {
        let by = proxy.url("http");
        let all: Vec<_> = [("PROXY", by.as_str())]
            .iter()
            .chain(more)
            .copied()
            .collect();
        code(&fetch(config(&all), url))
    };
    for url in [
        "http://127.0.0.1/",
        "http://[::1]/",
        "http://10.0.0.1/",
        "http://localhost/",
        "http://LOCALHOST./",
        "http://a.b.localhost:8080/",
        "http://2130706433/",
        "http://127.0.0.1./",
        "http://[::ffff:127.0.0.1]/",
    ] {
        assert_eq!(end_of(&[], url), "blocked_address.not_global", "{url}");
    }
    let excluded = [("EXCLUDE", "192.0.2.0/24"), ("ALLOW_NET", "192.0.2.0/24")];
    let end = end_of(&excluded, "http://192.0.2.7/");
    assert_eq!(end, "filtered.excluded_address");
    assert_eq!(proxy.asked(), [""; 0]);
    assert_eq!(
        end_of(&[("ALLOW_NET", "loopback")], "http://127.0.0.1/"),
        ""
    );
    assert_eq!(end_of(&[], "http://192.88.99.1.a.test/"), "");
    assert_eq!(proxy.asked().len(), 2);
}

#[test]
fn loopback_is_not_requested_through_a_proxy() {
    let authority = Authority::new();
    let file = known(&authority);
    let ca = file.path().to_str().expect("a path of letters");
    let origin = Origin::start(|target| match target {
        "/" => page(
            "<a href=http://localhost/linked></a><a href=//a.b.localhost:8080/linked></a>\
             <a href=https://LOCALHOST/linked></a><a href=http://127.0.0.1/linked></a>\
             <a href=/there></a><a href=http://localhost.test/linked></a>",
        ),
        "/moved" => redirect("http://localhost/moved"),
        "/moved-below" => redirect("http://x.localhost./moved"),
        "/moved-secured" => redirect("https://localhost/moved"),
        _ => page("there"),
    });
    let local = [
        "http://localhost/seed",
        "http://x.localhost/seed",
        "https://localhost/seed",
    ];
    let global = ["/", "/moved", "/moved-below", "/moved-secured"];
    let seeds: Vec<String> = local
        .iter()
        .map(|url| (*url).to_owned())
        .chain(global.iter().map(|path| format!("http://a.test{path}")))
        .collect();
    for (scheme, robots) in [("http", "false"), ("http", "true"), ("socks5", "false")] {
        let proxy = match scheme {
            "http" => Proxy::http(Manner::Good, origin.at),
            _ => Proxy::socks(Manner::Good, origin.at),
        };
        let settings = config(&[
            ("PROXY", &proxy.url(scheme)),
            ("ROBOTSTXT_OBEY", robots),
            ("CA_FILE", ca),
        ]);
        let pages = crawl(settings, seeds.iter().map(Request::get).collect());
        let asked = proxy.asked();
        let is_local = |expected: &&String| {
            let expected = expected.to_ascii_lowercase().replace("localhost.test", "");
            expected.contains("localhost") || expected.contains("127.0.0.1")
        };
        let to_local: Vec<&String> = asked.iter().filter(is_local).collect();
        assert_eq!(to_local, [""; 0], "{scheme}");
        assert!(
            asked
                .iter()
                .any(|expected| expected.contains("localhost.test"))
        );
        let ends = |word: &str| {
            let of = pages.iter().filter(|page| page.url.ends_with(word));
            let ends = of.filter(|page| page.kind == PageKind::Page).map(code);
            ends.collect::<Vec<_>>()
        };
        let blocked = "blocked_address.not_global";
        assert_eq!(ends("/seed"), [blocked; 3], "{scheme}");
        let mut linked = ends("/linked");
        linked.sort_unstable();
        assert_eq!(linked, ["", blocked, blocked, blocked, blocked], "{scheme}");
        assert_eq!(ends("host/moved"), [blocked; 3], "{scheme}");
        assert_eq!(ends("/there"), [""], "{scheme}");
    }
}
