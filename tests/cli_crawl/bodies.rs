//! Endless bodies, and decompression bombs.

use std::io::Write;
use std::time::Duration;

use data_encoding::HEXLOWER;

use crate::run::{Crawl, code};
use crate::server::{Asked, Server, Step, head, not_found, raw, reply};

/// 64 MiB of zeros in Brotli, hexadecimal.
const BROTLI_ZEROS: &str = "cfffff7f002400e2b14072effff9ffff0f8004401c1680eefd3fffffff01900088c302d0bdffcfffff7f001200715800baf7ff";
const ZEROS: usize = 64 << 20;

fn bomb(coding: &str) -> Vec<u8> {
    let zeros = vec![0; 1 << 20];
    match coding {
        "br" => HEXLOWER
            .decode(BROTLI_ZEROS.as_bytes())
            .expect("it is hexadecimal"),
        "gzip" => {
            let level = flate2::Compression::best();
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            for _ in 0..ZEROS >> 20 {
                encoder.write_all(&zeros).expect("a Vec takes all");
            }
            encoder.finish().expect("a Vec takes all")
        }
        _ => {
            let mut encoder = zstd::Encoder::new(Vec::new(), 3).expect("level 3 exists");
            for _ in 0..ZEROS >> 20 {
                encoder.write_all(&zeros).expect("a Vec takes all");
            }
            encoder.finish().expect("a Vec takes all")
        }
    }
}

#[test]
fn a_bomb_in_any_coding_has_its_error_in_bounded_memory() {
    let codings = ["gzip", "br", "zstd"];
    let bombs = codings.map(|coding| (coding, bomb(coding)));
    let server = Server::new(move |asked: &Asked| {
        let coding = asked.target.trim_start_matches('/');
        let (coding, bomb) = bombs
            .iter()
            .find(|(name, _)| *name == coding)
            .expect("a coding");
        let coding = format!("Content-Encoding: {coding}");
        reply("200 OK", &["Content-Type: text/html", &coding], bomb)
    });
    let urls = codings.map(|coding| server.url(&format!("/{coding}")));
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let crawled = Crawl::of(&urls).run();
    for url in &urls {
        let line = crawled.line(url);
        assert_eq!(code(&line), "content_encoding.bomb", "{line}");
        assert_eq!(line["status"], 200);
        assert!(
            line["bytes_body"].as_u64().expect("a count") < 12 << 20,
            "{line}"
        );
    }
    assert!(crawled.ended.memory > 0, "its memory was looked at");
    assert!(
        crawled.ended.memory < 100 << 20,
        "{} bytes",
        crawled.ended.memory
    );

    // Below the size at which a ratio counts, the limit of the body cuts first, and that is no error.
    let crawled = Crawl::of(&urls).with(&["--max-body", "100KiB"]).run();
    for url in &urls {
        let line = crawled.line(url);
        let found = (
            code(&line),
            line["truncated"].as_str(),
            line["bytes_body"].as_u64(),
        );
        assert_eq!(found, ("", Some("length"), Some(100 << 10)), "{line}");
    }
}

#[test]
fn an_endless_body_is_truncated_and_kept() {
    let server = Server::new(|asked: &Asked| {
        let mut block = format!("{:x}\r\n", 8192).into_bytes();
        block.extend_from_slice(&[b'x'; 8192]);
        block.extend_from_slice(b"\r\n");
        match asked.target.as_str() {
            "/chunked" => vec![
                raw(&head("200 OK", &["Transfer-Encoding: chunked"])),
                Step::Repeat(block, Duration::ZERO),
            ],
            "/closed" => vec![
                raw(&head("200 OK", &["Connection: close"])),
                Step::Repeat(vec![b'x'; 8192], Duration::ZERO),
            ],
            "/declared" => vec![
                raw(&head("200 OK", &["Content-Length: 999999999999"])),
                Step::Repeat(vec![b'x'; 8192], Duration::ZERO),
            ],
            "/exact" => reply("200 OK", &[], &[b'x'; 100_000]),
            _ => not_found(),
        }
    });
    let urls = ["/chunked", "/closed", "/declared"].map(|path| server.url(path));
    let exact = server.url("/exact");
    let mut all: Vec<&str> = urls.iter().map(String::as_str).collect();
    all.push(&exact);
    let crawled = Crawl::of(&all).with(&["--max-body", "100000"]).run();
    for url in &urls {
        let line = crawled.line(url);
        let found = (
            code(&line),
            line["truncated"].as_str(),
            line["bytes_body"].as_u64(),
        );
        assert_eq!(found, ("", Some("length"), Some(100_000)), "{line}");
        assert!(
            line["bytes_wire"].as_u64().expect("a count") < 2 << 20,
            "{line}"
        );
    }
    let line = crawled.line(&exact);
    let found = (
        code(&line),
        line["truncated"].as_str(),
        line["bytes_body"].as_u64(),
    );
    assert_eq!(found, ("", None, Some(100_000)), "{line}");
    let records = crawled.warc();
    let records = String::from_utf8_lossy(&records);
    assert_eq!(records.matches("WARC-Truncated: length").count(), 3);
}
