//! Cost of each thing that is done to a page, one by one: a page of 60 kB with 101 links, 15 kB as gzip.
//!
//! ```sh
//! cargo bench --bench pages
//! ```

#![expect(
    missing_docs,
    reason = "criterion_group makes an undocumented public function"
)]

use std::fmt::Write as _;
use std::hint::black_box;

use argiope::Config;
use argiope::base::gzip::Deflater;
use argiope::wire::charset;
use argiope::wire::coding::{Budget, Decoder, gzip, inflate};
use argiope::wire::html::{LinkOptions, links_of};
use argiope::wire::url::{Base, CrawlUrl};
use argiope::wire::warc::Digest;
use criterion::{Criterion, criterion_group, criterion_main};

/// The same numbers every time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Text of words, frequent ones more often.
fn prose(numbers: &mut Numbers, words: &[String], count: u64, page: &mut String) {
    for _ in 0..count {
        let rank = numbers.below(words.len() as u64);
        let rank = numbers.below(rank + 1);
        page.push_str(&words[rank as usize]);
        page.push(if numbers.below(14) == 0 { '\n' } else { ' ' });
    }
}

/// References as they stand on pages: from the root, relative, absolute, with queries.
fn references() -> Vec<String> {
    (0..LINKS)
        .map(|number| match number % 5 {
            0 | 1 => format!("/articles/2026/11/{number}-a-longer-title-of-a-page.html"),
            2 => format!("../topics/{number}/"),
            3 => format!("https://www.example.org/elsewhere/{number}?from=feed"),
            _ => format!("/search?q=topic-{number}&amp;page=2"),
        })
        .collect()
}

/// The page: a head with scripts and styles, a navigation, and paragraphs in nested elements.
fn page() -> Vec<u8> {
    let mut numbers = Numbers(2);
    let words: Vec<String> = (0..900)
        .map(|_| {
            let length = 2 + numbers.below(4) + numbers.below(5);
            (0..length)
                .map(|_| char::from(b"etaoinshrdlucmfwypvbgk"[numbers.below(22) as usize]))
                .collect()
        })
        .collect();
    let mut page = String::from(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>A page of usual size &amp; form</title>\n\
         <link rel=\"stylesheet\" href=\"/assets/site.css\">\n<style>\n",
    );
    for number in 0..60 {
        let _ = writeln!(
            page,
            ".block-{number} > .inner {{ margin: 0 {number}px; color: #{:06x}; }}",
            numbers.below(1 << 24)
        );
    }
    page += "</style>\n<script>\n";
    for (number, word) in words.iter().take(60).enumerate() {
        let _ = writeln!(page, "if (a < {number} && b) {{ f(\"{word}\"); }}");
    }
    page += "</script>\n</head>\n<body class=\"home page\">\n<!-- navigation -->\n";
    for (number, reference) in references().iter().enumerate() {
        let _ = write!(
            page,
            "<div class=\"block block-{number}\" id=\"b{number}\"><div class=\"inner\">\
             <h3 class=\"title\"><a class=\"link\" href=\"{reference}\" title=\"To {number}\">"
        );
        prose(&mut numbers, &words, 4, &mut page);
        page += "</a></h3>\n<p class=\"text\">";
        prose(&mut numbers, &words, 18, &mut page);
        page += "<em>";
        prose(&mut numbers, &words, 3, &mut page);
        page += "</em> &mdash; <span class=\"more\">";
        prose(&mut numbers, &words, 12, &mut page);
        let _ = write!(
            page,
            "</span></p>\n<img src=\"/images/{number}.jpg\" alt=\"\" width=\"120\" height=\"80\">\
             <br></div></div>\n"
        );
    }
    page += "</body>\n</html>\n";
    page.into_bytes()
}

fn pages(c: &mut Criterion) {
    let page = page();
    let coded = gzip(&page);
    println!("{} bytes, {} as gzip", page.len(), coded.len());
    assert!((58_000..62_000).contains(&page.len()), "{}", page.len());
    let url = CrawlUrl::parse("https://www.example.com/articles/index.html").expect("a URL");
    let content_type = Some("text/html; charset=utf-8");
    let options = LinkOptions::default();
    let found = links_of(&page, content_type, &url, &options);
    assert_eq!(found.links.len(), LINKS);
    let references: Vec<String> = references()
        .iter()
        .map(|reference| reference.replace("&amp;", "&"))
        .collect();

    let mut group = c.benchmark_group("pages");
    group.bench_function("inflate as it arrives", |b| {
        b.iter(|| {
            let mut out = Vec::new();
            let mut decoder =
                Decoder::new([&b"gzip"[..]], Budget::default()).expect("a known coding");
            decoder
                .write(black_box(&coded), &mut out)
                .expect("good bytes");
            decoder.finish().expect("all of it");
            assert_eq!(out.len(), page.len());
            out
        });
    });
    group.bench_function("inflate at once", |b| {
        b.iter(|| {
            let mut out = Vec::new();
            assert!(inflate(black_box(&coded), usize::MAX, &mut out));
            out
        });
    });
    // UTF-8 that nothing declares is checked to its end.
    let bare = &page[UNDECLARED..];
    group.bench_function("encoding", |b| {
        b.iter(|| charset::name(black_box(bare), None));
    });
    // Links: tokenizing, recording, resolving, and keeping each once.
    group.bench_function("links", |b| {
        b.iter(|| links_of(black_box(&page), content_type, &url, &options));
    });
    // A page that forbids following has its tags read, and no link resolved.
    let mut closed = b"<meta name=robots content=nofollow>".to_vec();
    closed.extend_from_slice(&page);
    group.bench_function("tags and references of them", |b| {
        b.iter(|| links_of(black_box(&closed), content_type, &url, &options));
    });
    // The first is found at the beginning; the last is nowhere, and the whole page is a tree.
    for field in ["title", "h1", "x=.block .inner > p em", "x=.block .nowhere"] {
        let config = Config::default().with("EXTRACT", field).expect("a field");
        let extraction = config.extraction();
        let id = format!("field {field}");
        group.bench_function(id, |b| {
            b.iter(|| extraction.fields_of(black_box(&page), content_type, false));
        });
    }
    let base = Base::of(&url);
    group.bench_function("URLs of them", |b| {
        b.iter(|| {
            for reference in black_box(&references) {
                black_box(base.join(reference).expect("a URL"));
            }
        });
    });
    group.bench_function("digest of the coded body", |b| {
        b.iter(|| Digest::new(black_box(&coded)));
    });
    group.bench_function("digest of the decoded body", |b| {
        b.iter(|| Digest::new(black_box(&page)));
    });
    // As a stream, by zlib, which the command does not do.
    group.bench_function("deflate by zlib", |b| {
        b.iter(|| gzip(black_box(&page)));
    });
    for level in [1, 4, 6] {
        let (mut deflater, mut member) = (Deflater::new(level), Vec::new());
        deflater.member(&page, &mut member);
        println!("level {level}: {} bytes", member.len());
        group.bench_function(format!("deflate, WARC_GZIP_LEVEL={level}"), |b| {
            b.iter(|| {
                member.clear();
                deflater.member(black_box(&page), &mut member);
            });
        });
    }
    group.finish();
}

/// From here on the page declares no encoding.
const UNDECLARED: usize = 2_000;

/// Links of the page.
const LINKS: usize = 101;

criterion_group!(benches, pages);
criterion_main!(benches);
