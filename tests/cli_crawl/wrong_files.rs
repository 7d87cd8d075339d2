//! Files that are no lists of seeds, given as such: each is refused as a whole, with the command that crawls what it has.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::run::{Crawl, Going, check_refused, read_lines};
use crate::server::{Server, page, reply};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("a Vec takes all");
    encoder.finish().expect("a Vec takes all")
}

fn utf16(text: &str, to_bytes: impl Fn(u16) -> [u8; 2]) -> Vec<u8> {
    let text = format!("\u{feff}{text}");
    text.encode_utf16().flat_map(to_bytes).collect()
}

fn shell(script: &str, folder: &Path) -> bool {
    let mut command = Command::new("bash");
    command.args(["-c", script]).current_dir(folder);
    command.status().expect("a shell").success()
}

/// The command that the advice in a message names; `file` is the one it is about.
fn command_in(message: &str, file: &str) -> String {
    let advice = message.split("a seed in each line: ").last();
    let advice = advice.expect("advice").trim_end();
    let begins = ["write ", "crawl its own URL: ", ", as in ", ", and write "];
    let begin = begins.iter().find_map(|begin| advice.split_once(begin));
    let (_, command) = begin.unwrap_or_else(|| panic!("{advice}"));
    let ends = [", where URL ", ", with the key "];
    let end = ends.iter().find_map(|end| command.split_once(end));
    let command = end.map_or(command, |(command, _)| command);
    let file = format!("'{file}'");
    command
        .replace('…', &format!("cat {file}"))
        .replace("FILE", &file)
}

/// Runs a command in this folder, with a crawl of loopback into a folder of its own, and returns what was requested.
fn asked_by(command: &str, server: &Server, folder: &Path) -> Vec<String> {
    let into = tempfile::tempdir().expect("a folder");
    let (binary, out) = (env!("CARGO_BIN_EXE_argiope"), into.path().display());
    let flags = format!(
        "--quiet --out {out}/out --allow-net loopback -s DOWNLOAD_DELAY=0 -s ROBOTSTXT_OBEY=false"
    );
    let command = command.replace("--base URL", &format!("--base {}", server.url("/")));
    let command = command.replace("argiope ", &format!("{binary} "));
    let command = command.replace(" crawl ", &format!(" crawl {flags} "));
    let before = server.asked().len();
    assert!(shell(&command, folder), "{command}");
    let asked = server.asked();
    let mut asked: Vec<String> = (asked.iter().skip(before))
        .map(|asked| format!("{} {}", asked.method, asked.target))
        .collect();
    asked.sort();
    asked
}

/// Refuses a file of this name and content, also from a pipe, and crawls `/a` and `/b` by the commands in the messages,
/// which change no file. `tool` is one of them.
fn check(server: &Server, name: &str, bytes: &[u8], what: &str, tool: &str) {
    check_asked(server, name, bytes, what, tool, ["GET /a", "GET /b"]);
}

fn check_asked(
    server: &Server,
    name: &str,
    bytes: &[u8],
    what: &str,
    tool: &str,
    expected: [&str; 2],
) {
    let crawl = Crawl::of(&["--seeds", name, "--seeds", "other"]);
    crawl.file(name, bytes);
    crawl.file("other", b"http://127.0.0.1:1/\n");
    let refused = crawl.try_run();
    let begins =
        format!("argiope: --seeds: {name} is {what}, and no list with a seed in each line");
    check_refused(&refused, &[&begins]);
    assert!(!crawl.folder().join("out").exists(), "{name}");
    let piped = Crawl::of(&["--seeds", "-"]).input(bytes).try_run();
    check_refused(&piped, &[&format!("standard input is {what}, and no list")]);
    if !shell(&format!("command -v {tool} > /dev/null"), crawl.folder()) {
        return crate::loud::skip(format!("{name} needs {tool}"));
    }
    for message in [&refused.err, &piped.err] {
        let command = command_in(message, name);
        let asked = asked_by(&command, server, crawl.folder());
        assert_eq!(asked, expected, "{command}");
        let left = fs::read(crawl.folder().join(name)).expect("it is there");
        assert_eq!(left, bytes, "{command}");
    }
    let names = fs::read_dir(crawl.folder()).expect("a folder").count();
    assert_eq!(names, 2, "{}", refused.err);
}

#[test]
fn each_is_refused_with_the_command_that_crawls_what_it_has() {
    let server = Server::new(|_| page("hello"));
    let (a, b) = (server.url("/a"), server.url("/b"));
    let list = format!("{a}\n{b}\n");
    let one_line = json!([a, b]).to_string();
    let objects = json!([{"url": a, "title": "A"}, {"url": b, "title": "B"}]);
    let pretty = |value: &Value| serde_json::to_string_pretty(value).expect("JSON");
    let array = "a JSON array";
    check(&server, "one line.json", one_line.as_bytes(), array, "jq");
    check(
        &server,
        "lines.json",
        pretty(&json!([a, b])).as_bytes(),
        array,
        "jq",
    );
    check(
        &server,
        "objects.json",
        pretty(&objects).as_bytes(),
        array,
        "jq",
    );
    check(
        &server,
        "a.json.gz",
        &gzip(one_line.as_bytes()),
        array,
        "jq",
    );
    let several = format!(
        "{}\n{}\n",
        pretty(&json!({"url": a})),
        pretty(&json!({"url": b}))
    );
    let object = "a JSON object over several lines";
    check(&server, "objects.jsonl", several.as_bytes(), object, "jq");
    let titled = [&a, &b].map(|url| pretty(&json!({"url": url, "title": "A"})));
    let titled = titled.join("\n");
    check(&server, "titled.jsonl", titled.as_bytes(), object, "jq");
    let posts =
        json!([{"url": a, "method": "POST", "body_b64": "eA=="}, {"url": b, "method": "PUT"}]);
    let sent = ["POST /a", "PUT /b"];
    check_asked(
        &server,
        "posts.json",
        pretty(&posts).as_bytes(),
        array,
        "jq",
        sent,
    );
    let coded = "text in UTF-16";
    check(
        &server,
        "urls.txt",
        &utf16(&list, u16::to_le_bytes),
        coded,
        "iconv",
    );
    check(
        &server,
        "be.txt",
        &utf16(&list, u16::to_be_bytes),
        coded,
        "iconv",
    );
    let html = format!("\n<!doctype html>\n<a href=/a>a</a> <a href='{b}'>b</a>");
    check(
        &server,
        "page.html",
        html.as_bytes(),
        "an HTML page",
        "true",
    );
    let part = format!("<p><a href='{a}'>a</a> <a href='{b}'>b</a>");
    check(&server, "part.html", part.as_bytes(), "XML or HTML", "true");
    let records = [
        ("warcinfo", "urn:x"),
        ("request", a.as_str()),
        ("response", a.as_str()),
        ("response", b.as_str()),
    ];
    let warc: String = (records.iter())
        .map(|(kind, url)| {
            format!("WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {url}\r\nContent-Length: 2\r\n\r\n\u{1}x\r\n\r\n")
        })
        .collect();
    let what = "a WARC file";
    check(&server, "old.warc", warc.as_bytes(), what, "sed");
    check(&server, "old.warc.gz", &gzip(warc.as_bytes()), what, "sed");
    for (tool, packs, what) in [
        ("zip", "zip -q packed list", "a zip archive"),
        ("tar", "tar -cf packed list", "a tar archive"),
        ("xz", "xz -c list > packed", "a file compressed by xz"),
        (
            "bzip2",
            "bzip2 -c list > packed",
            "a file compressed by bzip2",
        ),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("list"), &list).expect("a file");
        if !shell(
            &format!("command -v {tool} > /dev/null && {packs}"),
            folder.path(),
        ) {
            crate::loud::skip(format!("{what} needs {tool}"));
            continue;
        }
        let packed = ["packed", "packed.zip"].map(|name| fs::read(folder.path().join(name)));
        let packed = packed.into_iter().find_map(Result::ok).expect("a file");
        let tool = if tool == "zip" { "unzip" } else { tool };
        check(&server, "packed", &packed, what, tool);
    }
}

#[test]
fn a_list_of_exclusions_that_is_no_text_is_refused() {
    let crawl = Crawl::of(&["http://127.0.0.1:1/", "--exclude", "hosts.gz"]);
    crawl.file("hosts.gz", &gzip(b"a.test\n"));
    let refused = crawl.try_run();
    let parts = [
        "--exclude hosts.gz: cannot be read: ",
        "with a host in each line\n",
    ];
    check_refused(&refused, &parts);
}

#[test]
fn a_sitemap_is_crawled_by_its_own_url_as_the_message_says() {
    let files = Arc::new(OnceLock::<[(&str, String); 3]>::new());
    let served = Arc::clone(&files);
    let server = Server::new(move |asked| {
        let files = served.get().expect("it is set");
        match files.iter().find(|(name, _)| *name == asked.target) {
            Some((_, text)) => reply("200 OK", &["Content-Type: text/xml"], text.as_bytes()),
            None => page("hello"),
        }
    });
    let (a, b) = (server.url("/a?x=1&amp;y=2"), server.url("/b"));
    let map = format!(
        "<?xml version='1.0'?>\n<urlset><url><loc>\n{a}\n</loc></url><url><loc><![CDATA[{b}]]></loc></url></urlset>"
    );
    let index = format!(
        "<sitemapindex><sitemap><loc>{}</loc></sitemap></sitemapindex>",
        server.url("/map.xml")
    );
    let feed = format!(
        "<rss><channel><item><link>{a}</link></item><item><link>{b}</link></item></channel></rss>"
    );
    let (index_asked, map_asked) = ("GET /index.xml", "GET /map.xml");
    let pages = ["GET /a?x=1&y=2", "GET /b"];
    let set = files.set([
        ("/map.xml", map),
        ("/index.xml", index),
        ("/feed.xml", feed),
    ]);
    assert!(set.is_ok());
    for (target, what, before) in [
        ("/map.xml", "a sitemap", &[map_asked][..]),
        ("/index.xml", "a sitemap", &[index_asked, map_asked]),
        ("/feed.xml", "a feed", &["GET /feed.xml"]),
    ] {
        let files = files.get().expect("it is set");
        let file = files.iter().find(|(name, _)| *name == target);
        let crawl = Crawl::of(&["--seeds", "a file"]);
        crawl.file("a file", file.expect("it is served").1.as_bytes());
        let refused = crawl.try_run();
        check_refused(&refused, &[&format!("a file is {what}, and no list")]);
        let command = command_in(&refused.err, "a file");
        let (begin, behind) = command.split_once("https://example.com/").expect("a URL");
        let (_, end) = behind.split_once('"').expect("its end");
        let command = format!("{begin}{}\"{end}", server.url(target));
        let asked = asked_by(&command, &server, crawl.folder());
        let mut expected = [before, &pages].concat();
        expected.sort_unstable();
        assert_eq!(asked, expected, "{command}");
    }
}

#[test]
fn a_long_line_of_a_file_is_skipped_and_one_of_a_pipe_ends_it() {
    let server = Server::new(|_| page("hello"));
    let (a, b) = (server.url("/a"), server.url("/b"));
    let crawl = Crawl::of(&["--seeds", "list"]);
    let path = crawl.file("list", format!("{a}\n{}", "x".repeat(1024)).as_bytes());
    let mut file = fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .expect("it is there");
    // A hole takes no room.
    file.set_len(70 << 20).expect("a long file");
    write!(file, "\n{b}\n").expect("it takes more");
    let piped = Crawl::of(&["--seeds", "-"]);
    let crawled = crawl.run();
    assert_eq!(server.targets(), ["/a", "/b"]);
    assert_eq!(crawled.stats()["seeds_bad"], 1);
    let mut command = Command::new("bash");
    command.args(["-c", r#"exec "$0" "$@" < <(cat "$LIST")"#]);
    command
        .arg(piped.command().get_program())
        .args(piped.command().get_args());
    command.env("LIST", &path);
    let ended = Going::start_command(command, piped.folder(), b"").wait();
    let ended = ended.expect(2);
    let says = "standard input:2: the line is longer than 64 MiB";
    assert!(ended.err.contains(says), "{}", ended.err);
    assert_eq!(server.targets(), ["/a", "/a", "/b"]);
    drop(crawled);
}

#[test]
fn a_pipe_that_is_no_list_is_refused_as_one_of_standard_input() {
    let crawl = Crawl::of(&["--seeds", "-"]).input(b"[\"http://a.test/\"]\n");
    let says = [
        "standard input is a JSON array",
        "put jq -r '.[]' before it, as in … | jq -r '.[]' | argiope crawl --seeds -",
    ];
    check_refused(&crawl.try_run(), &says);
    // Beside other seeds it is reported, and the crawl goes on.
    let server = Server::new(|_| page("hello"));
    let crawl = Crawl::of(&["--seeds", "-", &server.url("/")]).input(b"<html>\n");
    let ended = crawl.try_run().expect(2);
    assert!(
        ended.err.contains("standard input is an HTML page"),
        "{}",
        ended.err
    );
    assert_eq!(server.targets(), ["/"]);
}

#[test]
fn an_endless_line_is_an_error_in_bounded_memory() {
    for (writes, says) in [
        ("cat /dev/zero", "standard input is no text"),
        (
            "yes | tr -d '\\n'",
            "standard input:1: the line is longer than 64 MiB",
        ),
        (
            "echo a..test; yes | tr -d '\\n'",
            "standard input:2: the line is longer than 64 MiB",
        ),
    ] {
        let crawl = Crawl::of(&["--seeds", "-"]);
        let mut command = Command::new("bash");
        let script = format!(r#"exec "$0" "$@" < <({writes})"#);
        command
            .args(["-c", &script])
            .arg(crawl.command().get_program());
        command.args(crawl.command().get_args());
        let ended = Going::start_command(command, crawl.folder(), b"")
            .wait()
            .expect(2);
        assert!(ended.err.contains(says), "{writes}: {}", ended.err);
        assert!(ended.memory < 150 << 20, "{writes}: {} bytes", ended.memory);
    }
}

#[test]
fn columns_between_tabs_are_read_as_those_of_csv() {
    let server = Server::new(|_| page("hello"));
    let (a, b) = (server.url("/a"), server.url("/b"));
    let crawl = Crawl::of(&["--seeds", "plain", "--seeds", "table"]);
    crawl.file("plain", format!("{a}\t200\tA title\n").as_bytes());
    crawl.file(
        "table",
        format!("status\turl\ttitle\n200\t{b}\tB, c\n").as_bytes(),
    );
    let crawled = crawl.run();
    assert_eq!(server.targets(), ["/a", "/b"]);
    assert_eq!(crawled.stats()["seeds_bad"], 0);
}

#[test]
fn several_urls_in_a_line_are_rejected_with_that_reason_under_one_name_of_standard_input() {
    let server = Server::new(|_| page("hello"));
    let (a, b) = (server.url("/a"), server.url("/b"));
    let mut input = format!("{a} {b}\n{a}, {b}\n{a}\n").into_bytes();
    input.extend(b"\xff\xff\n");
    let crawled = Crawl::of(&["--seeds", "-"]).input(&input).aloud().run();
    assert_eq!(server.targets(), ["/a"]);
    let rejected = crawled.read("rejected.jsonl");
    let lines: Vec<Value> = (rejected.lines())
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 3, "{rejected}");
    for (line, number) in lines.iter().zip([1, 2, 4]) {
        assert_eq!(line["file"], "standard input", "{line}");
        assert_eq!(line["line"], number, "{line}");
        let error = line["error"].as_str().expect("a reason");
        let warning = format!("warning: standard input:{number}: {error}\n");
        assert!(
            crawled.ended.err.contains(&warning),
            "{}",
            crawled.ended.err
        );
        assert_eq!(error.contains("more than one URL"), number < 4, "{error}");
    }
    assert_eq!(read_lines(&crawled.read("results.jsonl")).len(), 1);
}
