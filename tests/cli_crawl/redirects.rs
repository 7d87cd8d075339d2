//! Redirects: followed, bounded, and their invalid targets.

use crate::run::{Crawl, code};
use crate::server::{Asked, Server, Step, not_found, page, raw, redirect, reply};

fn script(asked: &Asked) -> Vec<Step> {
    let target = asked.target.as_str();
    if let Some(n) = target.strip_prefix("/chain/") {
        let n: u32 = n.parse().expect("a number");
        return redirect("302 Found", &format!("/chain/{}", n + 1));
    }
    match target {
        "/to-end" => redirect("301 Moved Permanently", "end#part"),
        "/end" => page("end"),
        "/a" => redirect("302 Found", "/b"),
        "/b" => redirect("302 Found", "/a"),
        "/self" => redirect("307 Temporary Redirect", "/self"),
        "/mail" => redirect("302 Found", "mailto:me@example.com"),
        "/none" => reply("302 Found", &[], b"where to?"),
        "/empty-host" => redirect("302 Found", "http://"),
        "/see-other" => redirect("303 See Other", "/end"),
        "/found" => redirect("302 Found", "/found-end"),
        "/keep" => redirect("307 Temporary Redirect", "/keep-end"),
        "/keep-end" | "/found-end" => page("kept"),
        "/not-modified" => reply("304 Not Modified", &[], b""),
        "/choices" => reply("300 Multiple Choices", &["Location: /end"], b"choose"),
        _ => not_found(),
    }
}

fn last(path: &str, args: &[&str]) -> (Server, Vec<serde_json::Value>) {
    let server = Server::new(script);
    let lines = Crawl::of(&[&server.url(path)]).with(args).run().lines();
    (server, lines)
}

#[test]
fn a_redirect_is_followed_and_its_line_has_the_target() {
    let (server, lines) = last("/to-end", &[]);
    assert_eq!(lines.len(), 2);
    assert_eq!(
        (lines[0]["status"].as_u64(), &lines[0]["final"]),
        (Some(301), &false.into())
    );
    assert_eq!(
        lines[0]["redirect"],
        server.url("/end"),
        "the fragment is not part of it"
    );
    assert_eq!(lines[1]["parent"], lines[0]["id"]);
    assert_eq!(
        (&lines[1]["seed"], &lines[1]["depth"]),
        (&true.into(), &0.into())
    );
    assert_eq!(server.targets(), ["/end", "/to-end"]);
}

#[test]
fn non_ascii_octets_of_a_location_are_percent_encoded() {
    let locations: [(&str, &[u8], &str); 3] = [
        ("/latin", b"/caf\xe9?q=\xfc", "/caf%E9?q=%FC"),
        ("/utf-8", "/café".as_bytes(), "/caf%C3%A9"),
        ("/absolute", b"HOST/a%20b\xff", "/a%20b%FF"),
    ];
    let server = Server::new(move |asked| {
        let redirect = locations.iter().find(|(from, _, _)| *from == asked.target);
        let Some((_, location, _)) = redirect else {
            return page("there");
        };
        let host = asked.header("Host").expect("a host");
        let location = match location.strip_prefix(b"HOST") {
            Some(path) => [b"http://", host.as_bytes(), path].concat(),
            None => location.to_vec(),
        };
        vec![raw(&[
            b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: ",
            &location[..],
            b"\r\n\r\n",
        ]
        .concat())]
    });
    for (from, _, to) in locations {
        let crawled = Crawl::of(&[&server.url(from)]).run();
        let lines = crawled.lines();
        assert_eq!(lines[0]["redirect"], server.url(to));
        assert_eq!(lines[1]["url"], server.url(to));
        server.only(to);
    }
}

#[test]
fn a_loop_ends() {
    let (server, lines) = last("/a", &[]);
    assert_eq!(code(lines.last().expect("a line")), "redirect.loop");
    assert_eq!(server.targets(), ["/a", "/b"]);
    let (server, lines) = last("/self", &[]);
    assert_eq!(code(lines.last().expect("a line")), "redirect.loop");
    assert_eq!(server.targets(), ["/self"]);
}

#[test]
fn a_chain_ends_at_its_limit() {
    let (server, lines) = last("/chain/0", &["-s", "REDIRECT_MAX_TIMES=3"]);
    let line = lines.last().expect("a line");
    assert_eq!(code(line), "redirect.limit", "{line}");
    assert_eq!(line["status"], 302);
    assert_eq!(
        server.targets(),
        ["/chain/0", "/chain/1", "/chain/2", "/chain/3"]
    );
    let (server, _) = last("/chain/0", &[]);
    assert_eq!(server.targets().len(), 21, "twenty are followed");
    let (server, lines) = last("/to-end", &["-s", "REDIRECT_MAX_TIMES=0"]);
    assert_eq!(server.targets(), ["/to-end"]);
    assert_eq!(code(&lines[0]), "redirect.limit");
}

#[test]
fn a_redirect_to_a_filtered_url_ends_there() {
    for path in ["/mail", "/empty-host"] {
        let (server, lines) = last(path, &[]);
        assert_eq!(lines.len(), 1);
        assert_eq!(code(&lines[0]), "redirect.invalid", "{}", lines[0]);
        assert_eq!(
            (lines[0]["status"].as_u64(), &lines[0]["final"]),
            (Some(302), &true.into())
        );
        assert_eq!(server.targets(), [path]);
    }
}

#[test]
fn a_redirect_without_location_is_a_page() {
    for (path, status) in [("/none", 302), ("/not-modified", 304)] {
        let (_, lines) = last(path, &[]);
        assert_eq!(lines.len(), 1, "{path}");
        assert_eq!(
            (code(&lines[0]), lines[0]["status"].as_u64()),
            ("", Some(status))
        );
        assert_eq!(lines[0]["final"], true);
        assert!(lines[0]["redirect"].is_null());
    }
}

#[test]
fn a_redirect_may_turn_post_into_get() {
    let server = Server::new(script);
    let seeds: String = ["/see-other", "/keep", "/found"]
        .iter()
        .map(|path| {
            let url = server.url(path);
            format!("{{\"url\": \"{url}\", \"method\": \"POST\", \"body_b64\": \"aGVsbG8=\"}}\n")
        })
        .collect();
    let crawl = Crawl::of(&["--seeds", "-"]).input(seeds.as_bytes());
    crawl.run();
    for path in ["/see-other", "/keep", "/found"] {
        let asked = server.only(path);
        assert_eq!(
            (asked.method.as_str(), &asked.body[..]),
            ("POST", &b"hello"[..]),
            "{path}"
        );
        assert_eq!(asked.header("Content-Length"), Some("5"));
    }
    for path in ["/end", "/found-end"] {
        let asked = server.only(path);
        assert_eq!(
            (asked.method.as_str(), &asked.body[..]),
            ("GET", &b""[..]),
            "{path}"
        );
        assert_eq!(asked.header("Content-Length"), None);
    }
    let kept = server.only("/keep-end");
    assert_eq!(
        (kept.method.as_str(), &kept.body[..]),
        ("POST", &b"hello"[..])
    );
}
