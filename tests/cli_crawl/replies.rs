//! Servers that cannot be reached, and invalid replies.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use argiope::testkit::dns;
use serde_json::Value;

use crate::run::{Crawl, Going, code, detail};
use crate::server::{Asked, Server, Step, head, not_found, page, raw, reply};

fn script(asked: &Asked) -> Vec<Step> {
    let target = asked.target.as_str();
    let chunked = head("200 OK", &["Transfer-Encoding: chunked"]);
    match target {
        "/good" => page("good"),
        "/no-http" => vec![raw(b"SSH-2.0-OpenSSH_9.6\r\n"), Step::Close],
        "/nothing" => vec![Step::Close],
        "/half-a-head" => vec![raw(b"HTTP/1.1 200 OK\r\nContent-Le"), Step::Close],
        "/endless-headers" => vec![
            raw(b"HTTP/1.1 200 OK\r\n"),
            Step::Repeat(b"X-More: and more\r\n".repeat(100), Duration::ZERO),
        ],
        "/endless-header" => vec![
            raw(b"HTTP/1.1 200 OK\r\nX-More: "),
            Step::Repeat(vec![b'x'; 4096], Duration::ZERO),
        ],
        "/endless-status" => vec![
            raw(b"HTTP/1.1 200 "),
            Step::Repeat(vec![b'x'; 4096], Duration::ZERO),
        ],
        "/endless-interim" => vec![Step::Repeat(
            b"HTTP/1.1 103 Early Hints\r\n\r\n".to_vec(),
            Duration::ZERO,
        )],
        "/shorter" => vec![
            raw(&head("200 OK", &["Content-Length: 10"])),
            raw(b"short"),
            Step::Close,
        ],
        "/longer" => vec![
            raw(&head("200 OK", &["Content-Length: 4"])),
            raw(b"four and HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad"),
        ],
        "/two-lengths" => vec![
            raw(&head("200 OK", &["Content-Length: 4", "Content-Length: 5"])),
            raw(b"fives"),
        ],
        "/no-size" => vec![raw(&chunked), raw(b"4\r\nfour\r\nnope\r\n"), Step::Close],
        "/no-end" => vec![
            raw(&chunked),
            raw(b"4\r\nfourteen\r\n0\r\n\r\n"),
            Step::Close,
        ],
        "/cut-chunks" => vec![raw(&chunked), raw(b"4\r\nfour\r\n9\r\nfi"), Step::Close],
        "/endless-chunk-line" => vec![
            raw(&chunked),
            raw(b"4;"),
            Step::Repeat(vec![b'x'; 4096], Duration::ZERO),
        ],
        "/unknown-coding" => reply("200 OK", &["Content-Encoding: rot13"], b"uryyb"),
        "/broken-gzip" => reply("200 OK", &["Content-Encoding: gzip"], b"no gzip at all"),
        "/binary" => vec![raw(&[0, 159, 146, 150, 0, 255]), Step::Close],
        _ => not_found(),
    }
}

#[test]
fn every_bad_reply_has_its_own_error_and_the_crawl_continues() {
    let server = Server::new(script);
    let expected: &[(&str, Option<u64>, &str, Option<&str>)] = &[
        ("/good", Some(200), "", None),
        ("/no-http", None, "protocol.not_http", None),
        ("/binary", None, "protocol.not_http", None),
        ("/nothing", None, "truncated.no_reply", None),
        ("/half-a-head", None, "truncated.head", None),
        ("/endless-headers", None, "too_large.header_lines", None),
        ("/endless-header", None, "too_large.header_line", None),
        ("/endless-status", None, "too_large.status_line", None),
        ("/endless-interim", None, "too_large.interim", None),
        ("/shorter", Some(200), "truncated.body", Some("disconnect")),
        ("/longer", Some(200), "", None),
        ("/two-lengths", None, "protocol.content_length", None),
        (
            "/no-size",
            Some(200),
            "protocol.chunk_size",
            Some("disconnect"),
        ),
        (
            "/no-end",
            Some(200),
            "protocol.chunk_end",
            Some("disconnect"),
        ),
        (
            "/cut-chunks",
            Some(200),
            "truncated.chunks",
            Some("disconnect"),
        ),
        (
            "/endless-chunk-line",
            Some(200),
            "too_large.chunk_extras",
            Some("disconnect"),
        ),
        (
            "/unknown-coding",
            Some(200),
            "content_encoding.unknown",
            None,
        ),
        ("/broken-gzip", Some(200), "content_encoding.broken", None),
    ];
    let urls: Vec<String> = expected.iter().map(|(path, ..)| server.url(path)).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let crawled = Crawl::of(&urls).run();
    for ((path, status, error, truncated), url) in expected.iter().zip(&urls) {
        let line = crawled.line(url);
        let found = (
            line["status"].as_u64(),
            code(&line),
            line["truncated"].as_str(),
        );
        assert_eq!(found, (*status, *error, *truncated), "{path}: {line}");
    }
    assert_eq!(crawled.line(&server.url("/shorter"))["bytes_body"], 5);
    assert_eq!(crawled.line(&server.url("/longer"))["bytes_body"], 4);
    assert_eq!(crawled.line(&server.url("/cut-chunks"))["bytes_body"], 6);

    let stats = crawled.stats();
    assert_eq!(stats["finish_reason"], "finished");
    assert_eq!(stats["attempts"], expected.len());
    assert_eq!(stats["errors"]["truncated.body"], 1);
    assert_eq!(stats["errors"]["protocol.not_http"], 2);
    let records = String::from_utf8_lossy(&crawled.warc()).into_owned();
    assert!(records.contains("WARC-Truncated: disconnect"));
    let responses = records.matches("WARC-Type: response").count();
    let heads = expected
        .iter()
        .filter(|(_, status, ..)| status.is_some())
        .count();
    assert_eq!(
        responses, heads,
        "a response record for each head, and none without"
    );
}

#[test]
fn bytes_after_a_reply_are_not_the_next_reply() {
    let server = Server::new(script);
    let (longer, good) = (server.url("/longer"), server.url("/good"));
    let crawled = Crawl::of(&[&longer, &good])
        .with(&["-s", "CONCURRENT_REQUESTS_PER_DOMAIN=1"])
        .run();
    assert_eq!(crawled.line(&good)["bytes_body"], 4);
    assert_eq!(crawled.line(&good)["reused"], false);
    assert_eq!(crawled.line(&good)["status"], 200);
}

#[test]
fn a_refused_connection_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
    drop(listener);
    let crawled = Crawl::of(&[&url]).run();
    let line = crawled.only();
    assert_eq!(code(&line), "connect.refused");
    assert!(line["sent"].is_null() && line["status"].is_null(), "{line}");
    assert_eq!(crawled.stats()["errors"]["connect.refused"], 1);
    assert_eq!(crawled.stats()["pages"], 0);
}

#[test]
fn a_nonexistent_host_is_reported_and_not_retried() {
    let server = dns::serve(|_| dns::Answer::Nonexistent).to_string();
    let crawled = Crawl::of(&["http://nobody.test/", "--dns", &server])
        .with(&["-s", "RETRY_TIMES=2"])
        .run();
    let line = crawled.only();
    assert_eq!(code(&line), "dns.nxdomain");
    assert_eq!((&line["sent"], &line["attempt"]), (&Value::Null, &1.into()));
}

#[test]
fn a_host_without_a_reachable_name_server_is_reported() {
    let crawled = Crawl::of(&["http://nobody.test/", "--dns", "127.0.0.1:9"]).run();
    let line = crawled.only();
    assert_eq!(code(&line), "dns.timeout");
    assert!(detail(&line).contains("name server"), "{line}");
    assert!(crawled.ended.took < Duration::from_secs(20));
}

#[test]
fn a_host_that_does_not_resolve_is_reported() {
    // RFC 6761: resolvers answer for this one themselves, without asking anyone.
    let crawled = Crawl::of(&["http://nobody.invalid/", "--dns", "127.0.0.1:9"]).run();
    let line = crawled.only();
    assert!(code(&line).starts_with("dns."), "{line}");
    assert!(line["sent"].is_null());
}

#[test]
fn missing_name_servers_are_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let empty = folder.path().join("resolv.conf");
    std::fs::write(&empty, b"").expect("a file");
    let mut command = Command::new("unshare");
    let script = r#"mount --bind "$0" /etc/resolv.conf && exec "$@""#;
    command.args(["--map-root-user", "--mount", "sh", "-c", script]);
    command.arg(&empty);
    let mut trial = Command::new("unshare");
    trial.args(["--map-root-user", "--mount", "sh", "-c", script]);
    trial.arg(&empty).arg("true");
    if !trial.output().is_ok_and(|output| output.status.success()) {
        crate::loud::skip("no private mount namespaces here");
        return;
    }
    command.arg(env!("CARGO_BIN_EXE_argiope"));
    command.args(["fetch", "http://nobody.test/", "-s", "RETRY_TIMES=0"]);
    let mut going = Going::start_command(command, folder.path(), b"");
    let mut lines = String::new();
    let _ = std::io::Read::read_to_string(&mut going.stdout(), &mut lines);
    let ended = going.wait().expect(1);
    let line: serde_json::Value = serde_json::from_str(&lines).expect("a line");
    assert!(code(&line).starts_with("dns."), "{line}");
    let message = format!("{}{}", detail(&line), ended.err);
    assert!(
        message.contains("name server") && message.contains("--dns"),
        "{message}"
    );
}
