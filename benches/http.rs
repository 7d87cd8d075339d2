//! Cost to parse a reply: typical heads and bodies, whole and in small pieces.

#![expect(
    missing_docs,
    reason = "criterion_group makes an undocumented public function"
)]

use std::hint::black_box;

use argiope::wire::coding::{Budget, Decoder, gzip};
use argiope::wire::http::{Item, Limits, RequestHead, ResponseReader, UsualFields, write_request};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// Parses a reply that arrives in pieces; returns the size of its body.
fn read(raw: &[u8], piece: usize) -> usize {
    let mut reader = ResponseReader::new(false, Limits::default());
    let mut body = 0;
    for mut input in raw.chunks(piece) {
        while let Some(item) = reader.next(&mut input).expect("a good reply") {
            match item {
                Item::Body(bytes) => body += bytes.len(),
                Item::End { .. } => return body,
                other => drop(black_box(other)),
            }
        }
    }
    body
}

/// A reply with fourteen headers, typical of large sites, with this framing and body.
fn reply(framing: &str, body: &[u8]) -> Vec<u8> {
    let mut raw = b"HTTP/1.1 200 OK\r\nDate: Sat, 21 Nov 2026 02:00:00 GMT\r\nServer: nginx\r\n\
        Content-Type: text/html; charset=utf-8\r\nConnection: keep-alive\r\n\
        Vary: Accept-Encoding\r\nCache-Control: private, max-age=0, must-revalidate\r\n\
        ETag: \"5f3c1a2b-1c84\"\r\nLast-Modified: Fri, 20 Nov 2026 11:12:13 GMT\r\n\
        Set-Cookie: session=0123456789abcdef0123456789abcdef; path=/; HttpOnly; SameSite=Lax\r\n\
        Strict-Transport-Security: max-age=31536000; includeSubDomains\r\n\
        X-Content-Type-Options: nosniff\r\nX-Frame-Options: SAMEORIGIN\r\n\
        Referrer-Policy: strict-origin-when-cross-origin\r\n"
        .to_vec();
    raw.extend_from_slice(framing.as_bytes());
    raw.extend_from_slice(b"\r\n\r\n");
    raw.extend_from_slice(body);
    raw
}

fn page() -> Vec<u8> {
    let mut page = String::from("<!doctype html><title>A page</title>");
    for number in 0..600 {
        page += &format!("<p>Paragraph <a href=\"/page/{number}\">number {number}</a></p>\n");
    }
    page.into_bytes()
}

fn replies(c: &mut Criterion) {
    let page = page();
    let small = reply("Content-Length: 1024", &page[..1024]);
    let large = reply(&format!("Content-Length: {}", page.len()), &page);
    let mut chunks = Vec::new();
    for piece in page.chunks(4096) {
        chunks.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        chunks.extend_from_slice(piece);
        chunks.extend_from_slice(b"\r\n");
    }
    chunks.extend_from_slice(b"0\r\n\r\n");
    let chunked = reply("Transfer-Encoding: chunked", &chunks);

    let mut group = c.benchmark_group("http");
    for (name, raw, piece) in [
        ("1 KiB", &small, usize::MAX),
        ("1 KiB in pieces of 100 bytes", &small, 100),
        ("1 KiB byte by byte", &small, 1),
        ("36 KiB", &large, 16 << 10),
        ("36 KiB chunked", &chunked, 16 << 10),
    ] {
        group.throughput(Throughput::Bytes(raw.len() as u64));
        group.bench_function(name, |b| b.iter(|| read(black_box(raw), piece)));
    }
    group.finish();
}

fn requests(c: &mut Criterion) {
    let ours = [
        ("User-Agent", "argiope/0.1 (+https://example.com/bot)"),
        ("Accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"),
        ("Accept-Encoding", "gzip, deflate, br, zstd"),
    ];
    let usual = UsualFields::new(&ours, &[]).expect("good fields");
    let request = RequestHead {
        method: "GET",
        target: "/a/page?number=7",
        host: "www.example.com",
        proxy_authorization: "",
        usual: &usual,
        headers: &[],
        body_bytes: None,
    };
    let mut out = Vec::with_capacity(1024);
    c.bench_function("http/request", |b| {
        b.iter(|| {
            out.clear();
            write_request(&mut out, black_box(&request)).expect("a good request");
            out.len()
        });
    });
}

fn codings(c: &mut Criterion) {
    let page = page();
    let coded = gzip(&page);
    let mut out = Vec::with_capacity(page.len());
    let mut group = c.benchmark_group("coding");
    group.throughput(Throughput::Bytes(page.len() as u64));
    group.bench_function("gzip, 36 KiB", |b| {
        b.iter(|| {
            out.clear();
            let mut decoder =
                Decoder::new([&b"gzip"[..]], Budget::default()).expect("a known coding");
            decoder
                .write(black_box(&coded), &mut out)
                .expect("good bytes");
            decoder.finish().expect("all of it");
            out.len()
        });
    });
    group.finish();
}

criterion_group!(benches, replies, requests, codings);
criterion_main!(benches);
