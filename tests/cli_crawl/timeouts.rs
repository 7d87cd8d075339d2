//! Silent servers: each phase has its own timeout and error code.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::run::{Crawl, Crawled, code};
use crate::server::{Asked, Server, Step, head, page, raw};

#[track_caller]
fn check(crawled: &Crawled, expected: &str, truncated: Option<&str>) {
    let line = crawled.only();
    assert_eq!(code(&line), expected, "{line}");
    assert_eq!(line["truncated"].as_str(), truncated, "{line}");
    assert_eq!(line["status"].is_null(), truncated.is_none(), "{line}");
    assert!(
        crawled.ended.took < Duration::from_secs(10),
        "{:?}",
        crawled.ended.took
    );
    assert_eq!(crawled.stats()["errors"][expected], 1);
}

#[test]
fn connect_timeout_ends_an_unanswered_connection() {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    listener.bind(&any.into()).expect("a port");
    listener.listen(0).expect("it listens");
    let at = listener
        .local_addr()
        .expect("it is bound")
        .as_socket()
        .expect("it is IPv4");
    // Nobody accepts: the queue is full after one or two, and the kernel drops every other SYN.
    let patience = Duration::from_millis(300);
    let waiting: Vec<TcpStream> = (0..8)
        .map_while(|_| TcpStream::connect_timeout(&at, patience).ok())
        .collect();
    assert!(waiting.len() < 8, "the queue never filled");
    let url = format!("http://{at}/");
    let crawled = Crawl::of(&[&url, "-s", "CONNECT_TIMEOUT=500ms"]).run();
    check(&crawled, "timeout.connect", None);
    assert!(crawled.only()["connect"].is_null());
}

#[test]
fn tls_timeout_ends_an_unfinished_handshake() {
    let server = Server::deaf(vec![Step::Hang]);
    let url = server.url("/").replace("http:", "https:");
    let crawled = Crawl::of(&[&url, "-s", "TLS_TIMEOUT=500ms"]).run();
    check(&crawled, "timeout.tls", None);
    let line = crawled.only();
    assert!(
        line["connect"].is_number() && line["tls_handshake"].is_null(),
        "{line}"
    );
}

#[test]
fn first_byte_timeout_ends_a_silent_server() {
    let server = Server::new(|_| vec![Step::Hang]);
    let crawled = Crawl::of(&[&server.url("/"), "-s", "FIRST_BYTE_TIMEOUT=500ms"]).run();
    check(&crawled, "timeout.first_byte", None);
    let line = crawled.only();
    assert!(
        line["request"].is_number() && line["first_byte"].is_null(),
        "{line}"
    );
}

#[test]
fn an_interim_reply_is_not_the_first_byte() {
    let server = Server::new(|_| vec![raw(b"HTTP/1.1 103 Early Hints\r\n\r\n"), Step::Hang]);
    let crawled = Crawl::of(&[&server.url("/"), "-s", "FIRST_BYTE_TIMEOUT=500ms"]).run();
    check(&crawled, "timeout.first_byte", None);
}

#[test]
fn idle_timeout_ends_a_stalled_reply() {
    let silent = |sent: Vec<u8>| Server::new(move |_| vec![raw(&sent), Step::Hang]);
    let server = silent([&head("200 OK", &["Content-Length: 9"])[..], b"four"].concat());
    let crawled = Crawl::of(&[&server.url("/"), "-s", "IDLE_TIMEOUT=500ms"]).run();
    check(&crawled, "timeout.idle", Some("time"));
    assert_eq!(crawled.only()["bytes_body"], 4);
    assert!(String::from_utf8_lossy(&crawled.warc()).contains("WARC-Truncated: time"));

    let server = silent(b"HTTP/1.1 200 OK\r\nContent-".to_vec());
    let crawled = Crawl::of(&[&server.url("/"), "-s", "IDLE_TIMEOUT=500ms"]).run();
    check(&crawled, "timeout.idle", None);
}

#[test]
fn minimum_rate_ends_a_slow_reply() {
    let server = Server::new(|_| {
        vec![
            raw(&head("200 OK", &["Content-Length: 100000"])),
            Step::Repeat(b"drip".to_vec(), Duration::from_millis(250)),
        ]
    });
    let crawled = Crawl::of(&[&server.url("/")]).run();
    let line = crawled.only();
    assert_eq!(code(&line), "timeout.rate", "{line}");
    assert_eq!(line["truncated"], "time");
    assert!(
        line["bytes_body"].as_u64().expect("a count") > 100,
        "{line}"
    );
    let took = crawled.ended.took.as_secs_f64();
    assert!((29.0..38.0).contains(&took), "{took} s");
}

#[test]
fn total_timeout_ends_a_long_fetch() {
    let server = Server::new(|_| {
        vec![
            raw(&head("200 OK", &["Content-Length: 100000"])),
            Step::Repeat(b"drip".to_vec(), Duration::from_millis(20)),
        ]
    });
    let crawled = Crawl::of(&[&server.url("/"), "--timeout", "700ms"]).run();
    check(&crawled, "timeout.total", Some("time"));
    let server = Server::new(|_| vec![Step::Hang]);
    let crawled = Crawl::of(&[&server.url("/"), "--timeout", "500ms"]).run();
    check(&crawled, "timeout.total", None);
}

#[test]
fn a_slow_page_delays_no_other_page() {
    let server = Server::new(|asked: &Asked| match asked.target.as_str() {
        "/slow" => vec![Step::Hang],
        _ => page("quick"),
    });
    let quick: Vec<String> = (0..20).map(|n| server.url(&format!("/{n}"))).collect();
    let slow = server.url("/slow");
    let mut urls = vec![slow.as_str()];
    urls.extend(quick.iter().map(String::as_str));
    let crawled = Crawl::of(&urls)
        .with(&["-s", "FIRST_BYTE_TIMEOUT=1s"])
        .run();
    let lines = crawled.lines();
    assert_eq!(lines.len(), 21);
    assert_eq!(
        lines[20]["url"], slow,
        "lines stand in the order of finishing"
    );
}
