//! `--extract`: fields of pages in result lines, and in tables of them.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::thread;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::run::{Crawl, Crawled, Going, argiope, check_refused, code};
use crate::server::{Asked, Server, Step, page, redirect, reply};

/// Pages with a title and a price, and replies that have none.
fn web(asked: &Asked) -> Vec<Step> {
    match asked.target.as_str() {
        "/moved" => redirect("302 Found", "/p1"),
        "/text" => reply("200 OK", &["Content-Type: text/plain"], b"<title>no</title>"),
        "/gone" => reply(
            "404 Not Found",
            &["Content-Type: text/html"],
            b"<title>Not here</title>",
        ),
        "/latin" => reply(
            "200 OK",
            &["Content-Type: text/html; charset=iso-8859-1"],
            b"<title>caf\xe9, \"open\"</title>",
        ),
        target => page(&format!(
            "<html lang=en><title>The page\n {target}</title><p class=price data-a='1 2'>{} &euro;</p>
             <a href=/moved>a</a><a href=/text>b</a><a href=/gone>c</a><a href=/latin>d</a>{}",
            target.len(),
            "<p>text</p>".repeat(target.len() * 100),
        )),
    }
}

fn fields(crawled: &Crawled) -> BTreeMap<String, Value> {
    let lines = crawled.lines();
    let path = |line: &Value| {
        let url = line["url"].as_str().expect("a URL");
        url.rsplit_once('/').expect("a path").1.to_owned()
    };
    let lines = lines.iter().filter(|line| line["kind"] == "page");
    let line = |line: &Value| Some((path(line), line.get("fields")?.clone()));
    lines.filter_map(line).collect()
}

#[test]
fn extracted_fields_are_in_the_lines_of_html_pages() {
    let server = Server::new(web);
    let crawled = Crawl::of(&[&server.url("/start")])
        .with(&["--extract", "title", "--extract", "price=p.price"])
        .with(&["--extract", "a=.price::attr(data-a)"])
        .run();
    let expected = json!({
        "start": {"title": "The page /start", "price": "6 €", "a": "1 2"},
        "p1": {"title": "The page /p1", "price": "3 €", "a": "1 2"},
        "gone": {"title": "Not here", "price": null, "a": null},
        "latin": {"title": "café, \"open\"", "price": null, "a": null},
    });
    assert_eq!(json!(fields(&crawled)), expected);
}

#[test]
fn url_status_and_title_are_a_table() {
    let server = Server::new(web);
    let crawled = Crawl::of(&[&server.url("/start")])
        .with(&["--extract", "title,lang", "-s", "RESULTS_COMPRESSION=gzip"])
        .run();
    let folder = crawled.out().parent().expect("a parent").to_owned();
    let export = |args: &[&str]| {
        let args = [&["export", "out", "--csv"], args].concat();
        Going::start(&args, &folder, b"").wait()
    };
    let table = export(&["url", "status", "title", "fields.lang"])
        .expect(0)
        .out;
    let mut rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows.remove(0), "url,status,title,fields.lang");
    rows.sort_unstable();
    let expected = [
        format!("{},404,Not here,", server.url("/gone")),
        format!("{},200,\"café, \"\"open\"\"\",", server.url("/latin")),
        format!("{},200,The page /p1,en", server.url("/p1")),
        format!("{},200,The page /start,en", server.url("/start")),
        format!("{},200,,", server.url("/text")),
    ];
    assert_eq!(rows, expected, "a row for each page");
    check_refused(&export(&["url", "price"]), &["price", "lang, title"]);
    let all = export(&["url", "status", "kind", "--all"]).expect(0).out;
    let redirect = format!("{},302,page", server.url("/moved"));
    assert!(all.lines().any(|row| row == redirect), "{all}");
    assert_eq!(all.lines().count(), 1 + rows.len() + 1);
    let later = export(&["url", "h1", "fields.price"]).expect(0).out;
    assert!(later.starts_with("url,h1,fields.price\n"), "{later}");
}

#[test]
fn a_field_of_a_later_run_alone_is_a_column() {
    let server = Server::new(|asked| match asked.target.as_str() {
        "/second" => page("<p class=price>7"),
        _ => page("<title>First</title>"),
    });
    let crawl = Crawl::of(&[&server.url("/first")])
        .with(&["--follow", "none", "--extract", "lang"])
        .run();
    let folder = crawl.out().parent().expect("a parent").to_owned();
    let second = server.url("/second");
    let args = ["crawl", &second, "--resume", "--out", "out", "--quiet"];
    let more = ["-s", "EXTRACT=price=.price", "--allow-net", "loopback"];
    Going::start(&[&args[..], &more].concat(), &folder, b"")
        .wait()
        .expect(0);
    let export = Going::start(&["export", "out", "--csv", "price"], &folder, b"").wait();
    assert_eq!(export.expect(0).out, "price\n\n7\n");
}

#[test]
fn a_value_that_a_content_coding_cuts_off_is_null() {
    let page = format!(
        "<p class=a>One</p><h1>First {}</h1>",
        "half <!-- -->".repeat(1000)
    );
    let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
    encoder
        .write_all(page.as_bytes())
        .expect("written to memory");
    let mut body = encoder.finish().expect("written to memory");
    body.truncate(5000);
    let server = Server::new(move |_| {
        let headers = ["Content-Type: text/html", "Content-Encoding: gzip"];
        reply("200 OK", &headers, &body)
    });
    let crawled = Crawl::of(&[&server.url("/")])
        .with(&["--extract", "h1", "--extract", "a=.a"])
        .run();
    let line = crawled.only();
    assert_eq!(code(&line), "content_encoding.truncated");
    assert_eq!(line["truncated"], Value::Null, "on the wire it is complete");
    assert_eq!(line["fields"], json!({"h1": null, "a": "One"}));
    assert_eq!(crawled.stats()["fields_partial"], 1);
}

#[test]
fn lines_on_standard_output_have_the_fields() {
    let server = Server::new(web);
    let url = server.url("/start");
    let args = [
        "crawl",
        &url,
        "--allow-net",
        "loopback",
        "--quiet",
        "--results",
        "-",
    ];
    let ended = argiope(&[&args[..], &["--follow", "none", "-s", "EXTRACT=title"]].concat());
    let lines = ended.expect(0).lines();
    let of_page = lines.iter().find(|line| line["kind"] == "page");
    let of_page = of_page.expect("a line of the page");
    assert_eq!(of_page["fields"], json!({"title": "The page /start"}));
}

#[test]
fn a_resumed_crawl_extracts_the_same_fields() {
    let server = Server::new(|asked| {
        let wait = Step::Wait(Duration::from_millis(20));
        [vec![wait], web(asked)].concat()
    });
    let crawl = Crawl::of(&["--seeds", "list", "--follow", "none"])
        .with(&["--extract", "title", "-s", "RESULTS_COMPRESSION=gzip"])
        .with(&["-s", "RESULTS_SIZE_MAX=1", "-s", "STATE_SYNC=10ms"]);
    let urls = (0..40).map(|number| server.url(&format!("/q{number}\n")));
    crawl.file("list", urls.collect::<String>().as_bytes());
    let going = crawl.start();
    while server.targets().len() < 5 {
        thread::sleep(Duration::from_millis(5));
    }
    going.signal(Signal::INT);
    let ended = going.wait();
    let ended = ended.expect(3);
    let args = ["crawl", "--quiet", "--resume", "--out", "out"];
    Going::start(&args, crawl.folder(), b"").wait().expect(0);
    let found = fields(&crawl.left(ended));
    assert_eq!(found.len(), 40);
    for (name, fields) in found {
        assert_eq!(fields, json!({"title": format!("The page /{name}")}));
    }
}

#[test]
fn a_field_that_cannot_be_read_is_refused_with_the_cure() {
    let refused = |field: &str, parts: &[&str]| {
        let ended = argiope(&["crawl", "http://a.test/", "--extract", field]);
        check_refused(&ended, &[&["--extract"], parts].concat());
    };
    refused("titel", &["titel", "title, lang", "price=.price"]);
    refused("x=p[", &["cannot be read", "style sheet"]);
    refused("x=a::html", &["::html", "::attr(NAME)"]);
    refused("x=p:has(b)", &[":has()"]);
}
