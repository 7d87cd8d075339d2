//! Files that are no lists of seeds, given as such: each is refused as a whole, with the command that makes a list of it.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::run::{Crawl, Going, check_refused, read_lines};
use crate::server::{Server, page};

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

/// Refuses a file of this name and content, and crawls `/a` and `/b` from what the command in the message makes of it;
/// `tool` is that command.
fn check(server: &Server, name: &str, bytes: &[u8], what: &str, tool: &str) {
    let crawl = Crawl::of(&["--seeds", name, "--seeds", "other"]);
    crawl.file(name, bytes);
    crawl.file("other", b"http://127.0.0.1:1/\n");
    let refused = crawl.try_run();
    let begins =
        format!("argiope: --seeds: {name} is {what}, and no list with a seed in each line");
    check_refused(&refused, &[&begins]);
    assert!(!crawl.folder().join("out").exists(), "{name}");
    if !shell(&format!("command -v {tool} > /dev/null"), crawl.folder()) {
        return crate::loud::skip(format!("{name} needs {tool}"));
    }
    let command = refused.err.split("write ").last().unwrap_or_default();
    let (command, _) = command
        .split_once(", and give urls.txt")
        .expect("a command");
    let binary = env!("CARGO_BIN_EXE_argiope");
    let command = command.replace("argiope ", &format!("{binary} "));
    let command = command.replace("--base URL", &format!("--base {}", server.url("/")));
    assert!(shell(&command, crawl.folder()), "{command}");
    let asked = server.asked().len();
    let crawled = Crawl::of(&["--seeds", "urls.txt", "--follow", "none"]);
    let list = fs::read(crawl.folder().join("urls.txt")).expect("a list");
    crawled.file("urls.txt", &list);
    crawled.run();
    let mut targets: Vec<String> = (server.asked().iter().skip(asked))
        .map(|asked| asked.target.clone())
        .collect();
    targets.sort();
    assert_eq!(targets, ["/a", "/b"], "{command}");
}

#[test]
fn each_is_refused_with_the_command_that_makes_a_list_of_it() {
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
    let coded = "text in UTF-16";
    check(
        &server,
        "le.txt",
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
    let map = format!(
        "<?xml version=\"1.0\"?>\n<urlset><url><loc>{a}</loc></url><url><loc>{b}</loc></url></urlset>"
    );
    check(&server, "map.xml", map.as_bytes(), "a sitemap", "grep");
    let feed = format!("<rss><link>{a}</link>\n<link>{b}</link></rss>");
    check(&server, "feed.xml", feed.as_bytes(), "XML or HTML", "grep");
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
fn a_pipe_that_is_no_list_is_refused_as_one_of_standard_input() {
    let crawl = Crawl::of(&["--seeds", "-"]).input(b"[\"http://a.test/\"]\n");
    let says = ["standard input is a JSON array", "jq -r '.[]' /dev/stdin"];
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
