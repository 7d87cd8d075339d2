//! Indexes of WARC files, compared with those of cdxj-indexer, and read by pywb.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::process::Stdio;

use argiope::base::rng::Rng;
use argiope::index_warc;
use argiope::wire::surt;

use super::*;

/// URLs and the keys that `surt` made of them when it was installed.
const KEYS: &str = include_str!("../../src/wire/surt/keys.txt");

/// The index of a WARC file, as we make it.
fn index(warc: &Path) -> String {
    let index = index_warc(warc).expect("it is whole");
    fs::read_to_string(index).expect("it is ASCII")
}

/// Checks that cdxj-indexer makes the same index; returns it.
fn check(warc: &Path) -> String {
    let ours = index(warc);
    let mut sorted: Vec<&str> = ours.lines().collect();
    sorted.sort_unstable();
    assert!(ours.lines().eq(sorted), "{ours}");
    if let Some(theirs) = run(Command::new("cdxj-indexer").arg("--sort").arg(warc), "") {
        assert_eq!(ours, theirs, "{}", warc.display());
    } else {
        skip("cdxj-indexer is not installed; `pip install cdxj-indexer` to have indexes compared");
    }
    ours
}

#[test]
fn cdxj_indexer_makes_the_same_index_of_every_kind_of_reply() {
    let mut pages = every_kind_of_page();
    for (number, value) in [
        "text/html;charset=\"x\"",
        " \"a\\b\"/c",
        "",
        "\u{fc}/\u{1f600}",
        "a\tb",
        ";x",
    ]
    .iter()
    .enumerate()
    {
        let name = format!("B/../Type?{number}&a=%41");
        pages.push(page(
            &name,
            "200 OK",
            &format!("Content-Type: {value}\r\n"),
            b"x",
        ));
    }
    let replies = pages.iter().filter(|page| page.status.is_some()).count();
    let crawl = Crawl::of(pages, 1 << 30);
    let [warc] = &crawl.warcs[..] else {
        panic!("one file was expected: {:?}", crawl.warcs);
    };
    assert_eq!(check(warc).lines().count(), replies);
}

#[test]
fn each_file_of_a_crawl_has_an_index_of_its_own_replies() {
    let pages = (0..40).map(|n| plain(&format!("page-{n}"))).collect();
    let crawl = Crawl::of(pages, 20_000);
    let indexes: Vec<String> = crawl.warcs.iter().map(|warc| check(warc)).collect();
    assert!(indexes.len() > 2);
    let urls: BTreeSet<String> = (indexes.iter().flat_map(|index| index.lines()))
        .map(|line| line.split(' ').next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(urls.len(), 40);
}

#[test]
fn records_of_other_programs_are_indexed_as_by_cdxj_indexer() {
    let record = |kind: &str, url: &str, fields: &str, block: &str| {
        let length = block.len();
        gzip(
            format!(
                "WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Date: 2026-11-28T01:02:03Z\r\n\
                 WARC-Target-URI: {url}\r\n{fields}Content-Length: {length}\r\n\r\n{block}\r\n\r\n"
            )
            .as_bytes(),
        )
    };
    let http = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\nbody";
    let digest = "WARC-Payload-Digest: sha1:ABC\r\n";
    let text = "Content-Type: text/plain; x\r\n";
    let info = "Content-Type: application/warc-fields\r\n";
    let warc = [
        record("warcinfo", "http://a.test/", info, "a: b\r\n"),
        record("response", "<http://a.test/brackets>", "", http),
        record(
            "revisit",
            "http://a.test/1",
            digest,
            "HTTP/1.1 304 No\r\n\r\n",
        ),
        record("revisit", "http://a.test/2", digest, ""),
        record("revisit", "http://a.test/3", "", "HTTP/1.1 200 OK\r\n\r\n"),
        record("resource", "http://a.test/4", text, http),
        record("metadata", "http://a.test/5", info, "a: b\r\n"),
        record("metadata", "http://a.test/6", text, "a: b\r\n"),
        record(
            "response",
            "dns:a.test",
            text,
            "20261128010203\na.test. 60 IN A 1.2.3.4\n",
        ),
        record("response", "https://www.a.test:443/x?b&a", "", ""),
        record("conversion", "http://a.test/7", text, "text"),
        record("request", "http://a.test/8", "", "GET / HTTP/1.1\r\n\r\n"),
    ];
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("others.warc.gz");
    fs::write(&path, warc.concat()).expect("it is writable");
    assert_eq!(check(&path).lines().count(), 8);
}

#[test]
fn surt_makes_the_same_keys() {
    let mut urls: Vec<String> = KEYS
        .lines()
        .filter_map(|line| line.split('\t').next())
        .map(str::to_owned)
        .collect();
    let mut rng = Rng::from_seed(11);
    let mut any = |of: &[&str]| of[rng.below(of.len() as u64) as usize].to_owned();
    for _ in 0..600 {
        let mut url = any(&["http://", "https://", "http://", "ftp://", "HTTPS://"]);
        url += &any(&["", "", "user:pass@", "www.", "WWW12."]);
        url += &any(&[
            "a.test",
            "B.a.Test",
            "127.0.0.1",
            "017.1",
            "1.2.3",
            "[::1]",
            "xn--bcher-kva.test",
            "a..test",
            "%41.test",
        ]);
        url += &any(&["", "", ":80", ":443", ":8080", ":0", ":"]);
        // A host that is neither ASCII nor a name gets another key, as the libraries for IDNA differ.
        url += &any(&["/", "/", "/", ""]);
        let parts = usize::from(url.ends_with('/')) * 4;
        for _ in 0..parts {
            url += &any(&[
                "/",
                "/",
                "a",
                "B",
                ".",
                "..",
                "/./",
                "/../",
                "%41",
                "%2541",
                "%zz",
                "%c3%BC",
                "\u{fc}",
                "~",
                ";jsessionid=0123456789abcdef0123456789ABCDEF",
                "(0123456789abcdefghijklmn)/",
                "x.aspx",
                " ",
                "%23",
                "|",
                "'",
                "+",
                ",",
            ]);
        }
        url += &any(&["", "?", "?", "?"]);
        for _ in 0..3 {
            url += &any(&[
                "",
                "b=2",
                "A=1",
                "a",
                "a=",
                "&",
                "&",
                "&&",
                "%26",
                "sid=0123456789abcdef0123456789ABCDEF",
                "PHPSESSID=0123456789abcdef0123456789ABCDEF&",
                "cfid=1&cftoken=2",
                "aspsessionidABCDEFGH=abcdefghijklmnopqrstuvwx",
                "?",
                "/",
            ]);
        }
        url += &any(&["", "", "#x", "#x?y"]);
        urls.push(url);
    }
    // One a line: a key has no line end, and one that cannot be made is missing.
    let program = "import sys, surt\n\
                   for url in sys.stdin.read().split('\\n'):\n    \
                       try:\n        print(surt.surt(url))\n    \
                       except Exception:\n        print()\n";
    let Some(keys) = python("surt", |python| {
        run(python.args(["-c", program]), &urls.join("\n"))
    }) else {
        return skip("surt for Python is not installed; `pip install surt` to have keys compared");
    };
    let keys: Vec<&str> = keys.lines().collect();
    assert_eq!(keys.len(), urls.len());
    let mut compared = 0;
    for (url, theirs) in urls.iter().zip(keys).filter(|(_, key)| !key.is_empty()) {
        assert_eq!(surt::key_of(url), theirs, "{url}");
        compared += 1;
    }
    assert!(compared > 500, "{compared}");
}

#[test]
fn pywb_finds_replies_by_the_index() {
    let crawl = Crawl::of(every_kind_of_page(), 1 << 30);
    let warc = &crawl.warcs[0];
    let index = index_warc(warc).expect("it is whole");
    let folder = warc.parent().expect("a folder");
    let read = |python: &mut Command| {
        let arguments: [&OsStr; 4] = [
            "-c".as_ref(),
            PYWB.as_ref(),
            index.as_ref(),
            folder.as_ref(),
        ];
        run(
            python.args(arguments),
            "http://a.test/plain http://www.a.test/PLAIN?#x http://a.test/none",
        )
    };
    let Some(found) = python("pywb", read) else {
        return skip(
            "pywb is not installed; `pip install pywb` to have a page replayed by its index",
        );
    };
    assert_eq!(
        found,
        "200 http://a.test/plain 200 hello\n200 http://a.test/plain 200 hello\n404\n"
    );
}

/// Asks pywb for each URL on standard input: its status, and URL, status and body of the record.
const PYWB: &str = r#"
from gevent import monkey
monkey.patch_all()
import io, sys
from urllib.parse import urlencode
from warcio.archiveiterator import ArchiveIterator
from pywb.warcserver.basewarcserver import BaseWarcServer
from pywb.warcserver.handlers import DefaultResourceHandler
from pywb.warcserver.index.aggregator import SimpleAggregator
from pywb.warcserver.index.indexsource import FileIndexSource
index, folder = sys.argv[1:]
app = BaseWarcServer()
source = SimpleAggregator({"crawl": FileIndexSource(index)})
app.add_route("/crawl", DefaultResourceHandler(source, folder + "/"))
for url in sys.stdin.read().split():
    statuses = []
    asked = {"REQUEST_METHOD": "GET", "PATH_INFO": "/crawl/resource", "SCRIPT_NAME": "",
             "QUERY_STRING": urlencode({"url": url}), "SERVER_NAME": "a", "SERVER_PORT": "80",
             "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(), "wsgi.errors": sys.stderr}
    reply = b"".join(app(asked, lambda status, fields, error=None: statuses.append(status)))
    words = statuses[0].split()[:1]
    if words == ["200"]:
        record = next(iter(ArchiveIterator(io.BytesIO(reply))))
        words += [record.rec_headers.get_header("WARC-Target-URI"), record.http_headers.get_statuscode(),
                  record.content_stream().read().decode()]
    print(*words)
"#;

/// What `run` returns with a Python that has this module.
fn python<T>(module: &str, run: impl FnOnce(&mut Command) -> Option<T>) -> Option<T> {
    // Where .ci/run installs pywb, which is kept from the other modules.
    let of_ci = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/ci/pywb/bin/python");
    let pythons = [Path::new("python3"), &of_ci];
    let has_module = |python: &&&Path| {
        let mut command = Command::new(python);
        let output = command.args(["-c", &format!("import {module}")]).output();
        output.is_ok_and(|output| output.status.success())
    };
    let found = pythons.iter().find(has_module)?;
    run(&mut Command::new(found))
}

/// The output of a program; `None` if it is not installed.
fn run(command: &mut Command, input: &str) -> Option<String> {
    let piped = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = piped.spawn().ok()?;
    let mut stdin = child.stdin.take().expect("it is piped");
    let input = input.to_owned();
    let written = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("a child of ours");
    // One that does not read is judged by its output.
    let _ = written.join().expect("it does not panic");
    if output.status.code() == Some(127) {
        return None;
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    Some(String::from_utf8(output.stdout).expect("its output is UTF-8"))
}

/// Directly, because the harness captures the output of passing tests.
fn skip(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}
