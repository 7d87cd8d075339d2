//! `argiope fetch`: fetches only the given URLs.

use std::fs;
use std::io::Write;

use crate::run::{Ended, Going, argiope, check_refused, code};
use crate::server::{Asked, Server, Step, not_found, page, redirect, reply};

fn web(asked: &Asked) -> Vec<Step> {
    match asked.target.as_str() {
        "/robots.txt" => page("User-agent: *\nDisallow: /\n"),
        "/page" => page("<a href='/other'>never followed</a>"),
        "/gzip" => {
            let level = flate2::Compression::best();
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(b"decoded").expect("a Vec takes all");
            let body = encoder.finish().expect("a Vec takes all");
            reply("200 OK", &["Content-Encoding: gzip"], &body)
        }
        "/moved" => redirect("302 Found", "/page"),
        "/broken" => reply("500 Internal Server Error", &[], b"sorry"),
        "/nothing" => vec![Step::Close],
        _ => not_found(),
    }
}

fn fetch(server: &Server, paths: &[&str], args: &[&str]) -> Ended {
    let folder = tempfile::tempdir().expect("a folder");
    fetch_in(folder.path(), server, paths, args)
}

fn fetch_in(folder: &std::path::Path, server: &Server, paths: &[&str], args: &[&str]) -> Ended {
    let urls: Vec<String> = paths.iter().map(|path| server.url(path)).collect();
    let mut all = vec![
        "fetch",
        "--allow-net",
        "loopback",
        "-s",
        "DOWNLOAD_DELAY=0",
        "-s",
        "RETRY_TIMES=0",
    ];
    all.extend(urls.iter().map(String::as_str));
    all.extend(args);
    Going::start(&all, folder, b"").wait()
}

#[test]
fn an_argument_that_is_not_a_url_is_refused() {
    let words = ["\"nonsense\" is neither a URL nor a host", "http://"];
    check_refused(&argiope(&["fetch", "nonsense"]), &words);
    let folder = tempfile::tempdir().expect("a folder");
    let ended = Going::start(&["crawl", "nonsense"], folder.path(), b"").wait();
    assert_eq!(ended.code, Some(2), "{}", ended.err);
    assert!(ended.err.contains(words[0]), "{}", ended.err);
}

#[test]
fn terminal_escapes_are_not_printed() {
    let wild = "text/html\u{9b}2J\u{85}\u{202e}; x";
    let server = Server::new(move |_| {
        let status = "200 \u{9b}31m\u{90}";
        let kind = format!("Content-Type: {wild}");
        reply(status, &[&kind, "Location: \u{9b}x"], b"a page")
    });
    let ended = fetch(&server, &["/"], &["-v"]).expect(0);
    let line: serde_json::Value = serde_json::from_str(&ended.out).expect("a line");
    assert_eq!(line["content_type"], wild);
    let is_command = |char: char| {
        char != '\n' && (char.is_control() || ('\u{202a}'..='\u{202e}').contains(&char))
    };
    for said in [&ended.out, &ended.err] {
        assert!(!said.contains(is_command), "{said:?}");
    }
}

#[test]
fn fetch_writes_one_line_per_url_without_robots_or_links() {
    let server = Server::new(web);
    let ended = fetch(&server, &["/missing", "/moved"], &[]).expect(0);
    let mut seen: Vec<(String, u64)> = ended
        .lines()
        .iter()
        .map(|line| {
            (
                crate::run::text(&line["url"]),
                line["status"].as_u64().expect("a status"),
            )
        })
        .collect();
    seen.sort();
    let expected = [("/missing", 404), ("/page", 200)];
    assert_eq!(
        seen,
        expected.map(|(path, status)| (server.url(path), status))
    );
    assert_eq!(server.targets(), ["/missing", "/moved", "/page"]);
    assert_eq!(server.asked().len(), 3, "no robots.txt");
    assert_eq!(ended.err, "");
}

#[test]
fn an_explicit_setting_overrides_the_defaults_of_fetch() {
    let asked_before = std::sync::atomic::AtomicBool::new(false);
    let server = Server::new(move |asked| match asked.target.as_str() {
        "/robots.txt" if !asked_before.swap(true, std::sync::atomic::Ordering::SeqCst) => {
            vec![Step::Close]
        }
        "/robots.txt" => page("User-agent: *\nDisallow: /missing\n"),
        _ => web(asked),
    });
    let obeys = ["-s", "ROBOTSTXT_OBEY=true", "-s", "HOST_DOWN_AFTER=2m"];
    let ended = fetch(&server, &["/page", "/missing"], &obeys).expect(1);
    let lines = ended.lines();
    let mut ends: Vec<&str> = lines.iter().map(code).collect();
    ends.sort();
    assert_eq!(ends, ["", "robots.disallowed"], "{}", ended.out);
    let asked = server.asked();
    let targets: Vec<&str> = asked.iter().map(|asked| asked.target.as_str()).collect();
    assert_eq!(targets, ["/robots.txt", "/robots.txt", "/page"]);
}

#[test]
fn a_setting_that_has_no_effect_is_reported() {
    let server = Server::new(web);
    let ended = fetch(&server, &["/page"], &["-s", "FOLLOW=all"]).expect(0);
    let warning = "FOLLOW (-s) has no effect: fetch does not follow links; use argiope crawl";
    assert!(ended.err.contains(warning), "{}", ended.err);
    assert_eq!(server.targets(), ["/page"]);
}

#[test]
fn fetch_fails_without_a_head_or_with_fail_on_a_bad_status() {
    let server = Server::new(web);
    fetch(&server, &["/page", "/broken"], &[]).expect(0);
    fetch(&server, &["/page", "/broken"], &["--fail"]).expect(1);
    fetch(&server, &["/page", "/missing"], &["--fail"]).expect(1);
    fetch(&server, &["/page", "/moved"], &["--fail"]).expect(0);
    let ended = fetch(&server, &["/page", "/nothing"], &[]).expect(1);
    assert_eq!(ended.lines().len(), 2);
}

#[test]
fn a_body_is_saved_decoded() {
    let server = Server::new(web);
    let folder = tempfile::tempdir().expect("a folder");
    let saved = |args: &[&str], path: &str| {
        let ended = fetch_in(folder.path(), &server, &[path], args).expect(0);
        assert_eq!(ended.lines().len(), 1);
        fs::read(folder.path().join("body")).expect("it is saved")
    };
    assert_eq!(saved(&["-o", "body"], "/gzip"), b"decoded");
    assert_eq!(
        saved(&["--body-out", "body"], "/moved"),
        b"<a href='/other'>never followed</a>"
    );

    let ended = fetch(&server, &["/page", "/gzip"], &["-o", "body"]);
    check_refused(&ended, &["-o/--body-out", "one URL"]);
    let ended = fetch(&server, &["/page"], &["-o", "nowhere/body"]).expect(2);
    assert!(ended.err.contains("nowhere/body"), "{}", ended.err);
}

#[test]
fn an_invalid_url_is_refused_and_nothing_is_sent() {
    let server = Server::new(web);
    let args = [
        "fetch",
        &server.url("/page"),
        "not a url",
        "--allow-net",
        "loopback",
    ];
    check_refused(&crate::run::argiope(&args), &["not a url"]);
    let args = [
        "fetch",
        &server.url("/page"),
        "ftp://a.test/",
        "--allow-net",
        "loopback",
    ];
    check_refused(&crate::run::argiope(&args), &["ftp://a.test/"]);
    assert!(server.asked().is_empty());
}

#[test]
fn the_same_url_twice_is_one_fetch() {
    let server = Server::new(web);
    let ended = fetch(&server, &["/page", "/page#again"], &[]).expect(0);
    assert_eq!(ended.lines().len(), 1);
    assert_eq!(server.targets(), ["/page"]);
}

#[test]
fn an_address_that_is_not_allowed_names_the_flag() {
    let server = Server::new(web);
    let ended = crate::run::argiope(&["fetch", &server.url("/page")]).expect(1);
    let line = &ended.lines()[0];
    assert_eq!(code(line), "blocked_address.not_global");
    assert!(ended.out.contains("--allow-net"));
    assert!(server.asked().is_empty());
}
