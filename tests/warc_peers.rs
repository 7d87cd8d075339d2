//! WARC files of a crawl, read by warcio, which checks every digest and every record.
//!
//! Prints `SKIPPED` if warcio is not installed (`pip install warcio`).

#[path = "warc_peers/cdxj.rs"]
mod cdxj;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use argiope::DiskSink;
use argiope::base::disk::{DiskDone, DiskJob, FileId, Written};
use argiope::base::time::{Instant, Wall};
use argiope::fetch::failure::{Failure, FailureKind, Truncation};
use argiope::sink::files::{FileSink, FileSinkOptions, WarcOptions};
use argiope::sink::page::{Page, TlsInfo};
use argiope::{HttpVersion, PageKind, Stamp, TlsVersion};
use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::Value;

#[test]
fn warcio_accepts_every_kind_of_reply() {
    let crawl = Crawl::of(every_kind_of_page(), 1 << 30);
    let [file] = &crawl.warcs[..] else {
        panic!("one file was expected: {:?}", crawl.warcs);
    };
    if let Some((accepted, output_text)) = warcio(&["check", "-v"], file) {
        assert!(accepted, "{output_text}");
        assert!(
            !output_text.to_lowercase().contains("fail"),
            "{output_text}"
        );
    }
}

#[test]
fn warcio_reads_the_fields_we_wrote() {
    let crawl = Crawl::of(every_kind_of_page(), 1 << 30);
    let fields = "warc-type,warc-target-uri,warc-truncated,http:status,warc-cipher-suite";
    let Some((accepted, output_text)) = warcio(&["index", "-f", fields], &crawl.warcs[0]) else {
        return;
    };
    assert!(accepted, "{output_text}");
    let records: Vec<Value> = output_text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{output_text}")))
        .collect();
    let count = |kind| {
        records
            .iter()
            .filter(|record| record["warc-type"] == kind)
            .count()
    };
    let pages = every_kind_of_page();
    let replies = pages.iter().filter(|page| page.status.is_some()).count();
    assert_eq!(count("warcinfo"), 1);
    assert_eq!(count("response"), replies);
    assert_eq!(count("request"), pages.len());
    assert_eq!(count("metadata"), pages.len());
    let response = |name: &str| {
        let uri = format!("http://a.test/{name}");
        records
            .iter()
            .find(|record| record["warc-type"] == "response" && record["warc-target-uri"] == *uri)
            .unwrap_or_else(|| panic!("no response of {uri}"))
    };
    assert_eq!(response("plain")["http:status"], "200");
    assert_eq!(response("not-modified")["http:status"], "304");
    assert_eq!(response("cut")["warc-truncated"], "length");
    assert_eq!(
        response("tls")["warc-cipher-suite"],
        "TLS_AES_128_GCM_SHA256"
    );
}

#[test]
fn warcio_accepts_each_file_of_a_crawl_that_needs_several() {
    let pages = (0..40).map(|n| plain(&format!("page-{n}"))).collect();
    let crawl = Crawl::of(pages, 20_000);
    assert!(crawl.warcs.len() > 2, "{:?}", crawl.warcs);
    for file in &crawl.warcs {
        assert!(fs::metadata(file).unwrap().len() <= 20_000);
        if let Some((accepted, output_text)) = warcio(&["check"], file) {
            assert!(accepted, "{output_text}");
        }
    }
}

#[test]
fn warcio_detects_a_wrong_digest() {
    let crawl = Crawl::of(vec![plain("plain")], 1 << 30);
    let file = &crawl.warcs[0];
    let mut text = Vec::new();
    for member in members(&fs::read(file).unwrap()) {
        text.push(String::from_utf8(member).unwrap().replace("hello", "jello"));
    }
    let mut forged = File::create(file).unwrap();
    for member in text {
        forged.write_all(&gzip(member.as_bytes())).unwrap();
    }
    if let Some((accepted, output_text)) = warcio(&["check"], file) {
        assert!(!accepted, "{output_text}");
    }
}

#[test]
fn a_result_line_points_to_the_gzip_member_of_its_reply() {
    let crawl = Crawl::of(every_kind_of_page(), 20_000);
    let text = fs::read_to_string(crawl.folder.path().join("results.jsonl")).unwrap();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let place = &line["warc"];
        assert_eq!(place.is_null(), line["status"].is_null(), "{line}");
        if place.is_null() {
            continue;
        }
        let file = crawl.folder.path().join(place["file"].as_str().unwrap());
        let offset = place["offset"].as_u64().unwrap() as usize;
        let length = place["length"].as_u64().unwrap() as usize;
        let found = members(&fs::read(file).unwrap()[offset..offset + length]);
        let [record] = &found[..] else {
            panic!("one member is one record: {line}");
        };
        let head = String::from_utf8_lossy(record);
        assert!(
            head.starts_with("WARC/1.1\r\nWARC-Type: response\r\n"),
            "{head}"
        );
        let url = line["url"].as_str().unwrap();
        let url = url.split(|c: char| !c.is_ascii()).next().unwrap();
        let uri = format!("\r\nWARC-Target-URI: {url}");
        assert!(head.contains(&uri), "{head}");
    }
}

/// One page of each kind that is special in a record.
fn every_kind_of_page() -> Vec<Page> {
    let zipped = gzip(b"hello, hello, hello");
    let chunked = |body: &[u8]| {
        let mut out = format!("{:x};ext=1\r\n", body.len()).into_bytes();
        out.extend_from_slice(body);
        out.extend_from_slice(b"\r\n0\r\nTrailer: x\r\n\r\n");
        out
    };
    let gzip_field = "Content-Encoding: gzip\r\n";
    let chunked_field = "Transfer-Encoding: chunked\r\n";
    let huge: String = (0..190)
        .map(|n| format!("X-{n}: {}\r\n", "v".repeat(1300)))
        .collect();
    let failure = |kind, code| Some(Failure::new(kind, code, "broken\r\noff"));

    let mut pages = vec![
        plain("plain"),
        page("gzip", "200 OK", gzip_field, &zipped),
        with(
            page("chunked", "200 OK", chunked_field, &chunked(b"hello")),
            |page| {
                page.chunked = true;
            },
        ),
        with(
            page(
                "chunked-gzip",
                "200 OK",
                &format!("{gzip_field}{chunked_field}"),
                &chunked(&zipped),
            ),
            |page| {
                page.chunked = true;
            },
        ),
        with(
            page("chunked-cut", "200 OK", chunked_field, b"ff\r\nhello"),
            |page| {
                page.chunked = true;
                page.truncated = Some(Truncation::Disconnect);
                page.failure = failure(FailureKind::Truncated, "chunks");
            },
        ),
        with(
            page("cut", "200 OK", "Content-Length: 1000\r\n", b"hello"),
            |page| {
                page.truncated = Some(Truncation::Length);
            },
        ),
        with(
            page(
                "gzip-cut",
                "200 OK",
                gzip_field,
                &zipped[..zipped.len() / 2],
            ),
            |page| {
                page.truncated = Some(Truncation::Time);
            },
        ),
        page("empty", "200 OK", "Content-Length: 0\r\n", b""),
        with(
            page("head", "200 OK", "Content-Length: 5\r\n", b""),
            |page| {
                page.method = "HEAD".into();
            },
        ),
        with(page("head-chunked", "200 OK", chunked_field, b""), |page| {
            page.method = "HEAD".into();
            page.chunked = true;
        }),
        with(
            page("not-modified", "304 Not Modified", "ETag: \"x\"\r\n", b""),
            |page| {
                page.status = Some(304);
            },
        ),
        with(page("no-content", "204 No Content", "", b""), |page| {
            page.status = Some(204);
        }),
        with(
            page("redirect", "301 Moved", "Location: /plain\r\n", b"moved"),
            |page| {
                page.status = Some(301);
                page.redirect = Some("http://a.test/plain".into());
            },
        ),
        page("huge-head", "200 OK", &huge, b"hello"),
        page("binary", "200 OK", "", &(0..=255).collect::<Vec<u8>>()),
        page("line-ends", "200 OK", "", b"\r\n\r\nWARC/1.1\r\n\r\n"),
        page(
            "not-ascii",
            "200 \u{d6}k",
            "X-Name: J\u{fc}rgen\r\n",
            b"hello",
        ),
        with(plain("tls"), |page| {
            page.tls = Some(TlsInfo::new(TlsVersion::Tls13, "TLS_AES_128_GCM_SHA256"));
        }),
        with(plain("ipv6"), |page| {
            page.remote = Some("[2001:db8::1]:443".parse().unwrap());
        }),
        with(plain("strange-url"), |page| {
            page.url = "http://a.test/caf\u{e9} \r\nWARC-Type: request".into();
        }),
        with(plain("no-reply"), |page| {
            page.status = None;
            page.version = None;
            page.failure = failure(FailureKind::Timeout, "first_byte");
            page.response_bytes = Vec::new();
            page.head_length = 0;
        }),
    ];
    let mut posted = plain("posted");
    posted.method = "POST".into();
    posted.request_bytes =
        b"POST /posted HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\na=\0b".to_vec();
    pages.push(posted);
    let mut bare = plain("bare-line-ends");
    bare.response_bytes = b"HTTP/1.0 200 OK\nContent-Type: text/plain\n\nhello".to_vec();
    bare.head_length = bare.response_bytes.len() - 5;
    bare.version = Some(HttpVersion::Http10);
    pages.push(bare);
    pages
}

fn plain(name: &str) -> Page {
    page(name, "200 OK", "Content-Length: 5\r\n", b"hello")
}

/// A page of `http://a.test/`, with this reply.
fn page(name: &str, status: &str, fields: &str, body: &[u8]) -> Page {
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: text/plain\r\n{fields}\r\n");
    let at = |millis: u64| Some(Instant::from_nanos(millis * 1_000_000));
    let mut page = Page::default();
    page.id = 1;
    page.root = 1;
    page.via = Some("http://a.test/".into());
    page.seed = true;
    page.is_final = true;
    page.kind = PageKind::Page;
    page.url = format!("http://a.test/{name}");
    page.method = "GET".into();
    page.attempt = 1;
    page.scopes = vec!["a.test".into()];
    page.status = Some(200);
    page.version = Some(HttpVersion::Http11);
    page.content_type = Some("text/plain".into());
    page.remote = Some(([127, 0, 0, 1], 80).into());
    page.local = Some(([127, 0, 0, 1], 40112).into());
    page.bytes_wire = (head.len() + body.len()) as u64;
    page.wall_at_start = Wall(1_795_219_200_123_456_789);
    page.request_bytes = format!("GET /{name} HTTP/1.1\r\nHost: a.test\r\n\r\n").into();
    page.head_length = head.len();
    page.response_bytes = [head.as_bytes(), body].concat();
    page.body = body.to_vec();
    page.timings.due = at(0);
    page.timings.connect = at(1).map(Stamp::exact);
    page.timings.ready = at(1);
    page.timings.sent = at(2);
    page.timings.first_byte = at(20).map(Stamp::exact);
    page.timings.headers = at(21).map(Stamp::exact);
    page.timings.body = at(22).map(Stamp::exact);
    page
}

/// The files of a crawl of some pages.
struct Crawl {
    folder: tempfile::TempDir,
    warcs: Vec<PathBuf>,
}

impl Crawl {
    fn of(pages: Vec<Page>, size_max: u64) -> Crawl {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let _lock = argiope::sink::directory::prepare(folder.path(), false, Default::default())
            .expect("it is empty");
        let mut warc = WarcOptions::new("crawler.test", [42; 16]);
        warc.size_max = size_max;
        warc.info = vec![("robots".into(), "obey".into())];
        warc.cdxj = false;
        let mut options = FileSinkOptions::new(folder.path());
        options.warc = Some(warc);
        let mut sink = FileSink::new(options);
        let mut disk = Disk::default();
        let mut jobs = Vec::new();
        for mut page in pages {
            sink.put(&mut page, &mut jobs);
            disk.run(&mut jobs, &mut sink);
        }
        sink.finish(&mut jobs);
        disk.run(&mut jobs, &mut sink);
        assert!(sink.failure().is_none(), "{:?}", sink.failure());
        assert!(sink.is_done());
        let entries = fs::read_dir(folder.path().join("warc")).expect("the folder was made");
        let mut warcs: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        warcs.sort();
        let whole = |file: &PathBuf| file.extension().is_some_and(|ending| ending == "gz");
        assert!(warcs.iter().all(whole), "{warcs:?}");
        Crawl { folder, warcs }
    }
}

/// A disk that performs jobs at once.
#[derive(Default)]
struct Disk {
    open: BTreeMap<FileId, (PathBuf, File)>,
}

impl Disk {
    fn run(&mut self, jobs: &mut Vec<DiskJob>, sink: &mut FileSink) {
        while !jobs.is_empty() {
            for job in std::mem::take(jobs) {
                if let Some(done) = self.job(job) {
                    sink.disk_done(&done, jobs);
                }
            }
        }
    }

    fn job(&mut self, job: DiskJob) -> Option<DiskDone> {
        let written = self.perform(&job)?;
        Some(job.done(Ok(written)))
    }

    /// Performs a job. Returns where it wrote; `None` for a job that is not reported.
    fn perform(&mut self, job: &DiskJob) -> Option<Written> {
        match job {
            DiskJob::Create { file, path } => {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                let mut options = OpenOptions::new();
                let handle = options.create_new(true).append(true).open(path).unwrap();
                self.open.insert(*file, (path.clone(), handle));
                None
            }
            DiskJob::Append {
                file,
                bytes,
                gzip: compress,
                ..
            } => {
                let (_, handle) = self.open.get_mut(file).expect("an open file");
                let offset = handle.metadata().unwrap().len();
                let bytes = if *compress {
                    gzip(bytes)
                } else {
                    bytes.clone()
                };
                handle.write_all(&bytes).unwrap();
                let length = bytes.len() as u64;
                Some(Written { offset, length })
            }
            DiskJob::Sync { .. } => Some(Written::default()),
            DiskJob::Finish { file, rename } => {
                let (path, _) = self.open.remove(file).expect("an open file");
                if let Some(name) = rename {
                    fs::rename(path, name).unwrap();
                }
                None
            }
            other => panic!("a sink to files asks for no {other:?}"),
        }
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The content of each gzip member.
fn members(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let mut member = Vec::new();
        let mut decoder = GzDecoder::new(bytes);
        decoder.read_to_end(&mut member).unwrap();
        bytes = decoder.into_inner();
        found.push(member);
    }
    found
}

/// Whether warcio accepts a file, and its output; `None` without warcio.
fn warcio(arguments: &[&str], file: &Path) -> Option<(bool, String)> {
    let output = match Command::new("warcio").args(arguments).arg(file).output() {
        Ok(output) if output.status.code() != Some(127) => output,
        _ => {
            // Directly, because the harness captures the output of passing tests.
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: warcio is not installed; `pip install warcio` to have files checked"
            );
            return None;
        }
    };
    let mut output_text = String::from_utf8_lossy(&output.stdout).into_owned();
    output_text.push_str(&String::from_utf8_lossy(&output.stderr));
    Some((output.status.success(), output_text))
}

/// Returns the page with this change.
fn with(mut page: Page, change: impl FnOnce(&mut Page)) -> Page {
    change(&mut page);
    page
}
