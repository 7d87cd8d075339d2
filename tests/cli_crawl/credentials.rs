//! Credentials are sent only to their origins, also after links, redirects, robots.txt and a restart
//! from `pending.jsonl`.

use std::sync::Arc;

use argiope::Request;
use rustix::process::Signal;
use serde_json::json;

use crate::authority::Authority;
use crate::run::{Crawl, Going, check_refused};
use crate::server::{Asked, Server, Step, not_found, page, redirect, reply};

const SECRETS: [&str; 8] = [
    "-H",
    "Authorization: Bearer t0k3n",
    "-H",
    "Cookie: a=b",
    "-H",
    "X-Api-Key: k3y",
    "-H",
    "X-Else: yes",
];

/// A server that links and redirects to another, which differs from it in its port alone.
fn two_origins() -> (Server, Server) {
    let other = Server::new(|asked| match asked.target.as_str() {
        "/robots.txt" => not_found(),
        _ => page("other"),
    });
    let (link, moved) = (other.url("/link"), other.url("/moved"));
    let first = Server::new(move |asked: &Asked| match asked.target.as_str() {
        "/robots.txt" => not_found(),
        "/" => page(&format!(
            "<a href='/own'>own</a><a href='/away'>away</a><a href='{link}'>link</a>"
        )),
        "/away" => redirect("302 Found", &moved),
        _ => page("own"),
    });
    (first, other)
}

/// Which of the secrets a request carried.
fn carried(asked: &Asked) -> Vec<&str> {
    let names = ["Authorization", "Cookie", "X-Api-Key", "X-Else"];
    let carries = |name: &&str| asked.header(name).is_some();
    names.into_iter().filter(carries).collect()
}

fn crawl(first: &Server, args: &[&str]) -> String {
    let args = [&["--follow", "all", "-s", "ROBOTSTXT_OBEY=true"], args].concat();
    let crawl = Crawl::of(&[&first.url("/")]).with(&SECRETS).with(&args);
    crawl.aloud().run().ended.err
}

#[test]
fn default_credentials_are_sent_only_to_origins_of_seeds() {
    let (first, other) = two_origins();
    let said = crawl(&first, &["-s", "PRIVATE_HEADERS=x-api-key"]);
    let all = ["Authorization", "Cookie", "X-Api-Key", "X-Else"];
    for target in ["/robots.txt", "/", "/own", "/away"] {
        assert_eq!(carried(&first.only(target)), all, "{target}");
    }
    for target in ["/robots.txt", "/link", "/moved"] {
        assert_eq!(carried(&other.only(target)), ["X-Else"], "{target}");
    }
    let warnings = said.matches("CREDENTIAL_ORIGINS").count();
    assert_eq!(warnings, 1, "{said}");
    assert!(
        said.contains("Authorization, Cookie, X-Api-Key is sent to the origins of the seeds only"),
        "{said}"
    );
}

#[test]
fn credential_origins_adds_origins() {
    let all = ["Authorization", "Cookie", "X-Api-Key", "X-Else"];
    for widened in ["*", "the other"] {
        let (first, other) = two_origins();
        let origin = match widened {
            "*" => "*".to_owned(),
            _ => other.url(""),
        };
        let said = crawl(&first, &["-s", &format!("CREDENTIAL_ORIGINS={origin}")]);
        for target in ["/robots.txt", "/link", "/moved"] {
            assert_eq!(carried(&other.only(target)), all, "{widened}: {target}");
        }
        assert!(!said.contains("CREDENTIAL_ORIGINS"), "{said}");
    }
}

#[test]
fn a_redirect_to_another_port_drops_a_requests_credentials() {
    let (first, other) = two_origins();
    let seed = json!({
        "url": first.url("/away"),
        "headers": {
            "Authorization": "Basic QQ==", "Cookie": "a=b", "X-Api-Key": "k3y", "X-Else": "yes",
            "Host": "named.example",
        },
        "private_headers": ["x-api-key"],
    });
    let crawl = Crawl::of(&["--seeds", "-"]).input(seed.to_string().as_bytes());
    crawl.run();
    let asked = first.only("/away");
    assert_eq!(carried(&asked).len(), 4);
    assert_eq!(asked.header("Host"), Some("named.example"));
    let asked = other.only("/moved");
    assert_eq!(carried(&asked), ["X-Else"]);
    assert_eq!(asked.header("Host"), other.url("").strip_prefix("http://"));
}

#[test]
fn a_redirect_to_another_scheme_drops_all_credentials() {
    let authority = Authority::new();
    let config = authority.server("a.test", |_| {});
    let safe = Server::tls(Arc::clone(&config), |_| page("safe"));
    let plain = Server::new(|_| redirect("301 Moved Permanently", "https://a.test/"));
    let seed = json!({"url": "http://a.test/", "headers": {"Cookie": "a=b", "X-Else": "yes"}});
    let at = |port: u16, server: &Server| format!("a.test:{port}:127.0.0.1:{}", server.port());
    let crawl = Crawl::of(&["--seeds", "-", "-H", "Authorization: Bearer t0k3n"]);
    let crawl = crawl.input(seed.to_string().as_bytes()).with(&[
        "--resolve",
        &at(80, &plain),
        "--resolve",
        &at(443, &safe),
        "--ca-file",
        "ca.pem",
    ]);
    crawl.file("ca.pem", authority.pem().as_bytes());
    crawl.run();
    assert_eq!(
        carried(&plain.only("/")),
        ["Authorization", "Cookie", "X-Else"]
    );
    assert_eq!(carried(&safe.only("/")), ["X-Else"]);
}

#[test]
fn pending_lines_get_no_further_credentials_also_of_a_run_that_had_none() {
    let token = ["-H", "Authorization: Bearer t0k3n"];
    for of_first in [&token[..], &[]] {
        let other = Server::new(|_| vec![Step::Hang]);
        let link = other.url("/link");
        let first = Server::new(move |asked: &Asked| match asked.target.as_str() {
            "/" => page(&format!("<a href='{link}'>link</a><a href='/own'>own</a>")),
            _ => vec![Step::Hang],
        });
        let follows = ["--follow", "all", "--stop-grace", "100ms"];
        let crawl = Crawl::of(&[&first.url("/")]).with(of_first).with(&follows);
        let going = crawl.start();
        first.wait_for_requests(2);
        other.wait_for_requests(1);
        going.signal(Signal::INT);
        let crawled = crawl.left(going.wait().expect(3));
        let (pending, results) = (crawled.read("pending.jsonl"), crawled.read("results.jsonl"));
        let expected = [
            json!({"url": other.url("/link"), "depth": 1, "dont_send_credentials": true}),
            json!({"url": first.url("/own"), "depth": 1}),
        ];
        let read = |line| serde_json::from_str::<serde_json::Value>(line).expect("JSON");
        let lines: Vec<_> = pending.lines().map(read).collect();
        assert_eq!(lines.len(), 2, "{pending} {results}");
        assert!(
            expected.iter().all(|line| lines.contains(line)),
            "{pending}"
        );

        let again = Crawl::of(&["--seeds", "-", "-s", "FIRST_BYTE_TIMEOUT=300ms"]);
        again.with(&token).input(pending.as_bytes()).run();
        let last = |server: &Server| server.asked().pop().expect("it was asked again");
        assert_eq!(carried(&last(&first)), ["Authorization"]);
        let asked = last(&other);
        assert_eq!((carried(&asked), other.asked().len()), (vec![], 2));
    }
}

#[test]
fn logged_pending_lines_get_no_further_credentials() {
    let (first, other) = two_origins();
    let token = ["-H", "Authorization: Bearer t0k3n"];
    let crawl = Crawl::of(&[&first.url("/"), "--follow", "all", "--no-warc"]).with(&token);
    let ended = crawl.try_run_with_small_files(2).expect(1);
    let crawled = crawl.left(ended);
    let pending = crawled.read("pending.jsonl");
    let read = |line: &str| {
        Request::from_line(line)
            .expect("a seed")
            .expect("no comment")
    };
    let lines: Vec<String> = pending.lines().map(|line| read(line).to_line()).collect();
    let written = crawled.lines();
    let other_page =
        |page| json!({"url": other.url(page), "depth": 1, "dont_send_credentials": true});
    let other_pages = ["/link", "/moved"].map(other_page);
    for page in [json!({"url": first.url("/")})].iter().chain(&other_pages) {
        // What a commit covered before the file was full has a line, the rest is pending.
        let is_written = written
            .iter()
            .any(|line| line["final"] == true && line["url"] == page["url"]);
        let is_pending = lines.contains(&read(&page.to_string()).to_line());
        assert_ne!(is_pending, is_written, "{page} {pending}");
    }

    Crawl::of(&["--seeds", "-"])
        .with(&token)
        .input(pending.as_bytes())
        .run();
    for asked in other.asked() {
        assert_eq!(carried(&asked), [""; 0], "{}", asked.target);
    }
}

/// The value of a field of a request; empty without one.
fn value<'a>(asked: &'a Asked, name: &str) -> &'a str {
    asked.header(name).unwrap_or_default()
}

#[test]
fn headers_and_logins_of_a_host_are_sent_to_it_alone_also_by_redirects_and_links() {
    let (first, other) = two_origins();
    let (one, two) = (first.url("")[7..].to_owned(), other.url(""));
    let file =
        format!("[hosts.\"{one}\"]\nheaders = {{\"X-Own\" = \"file\", \"X-More\" = \"1\"}}\n");
    let crawl = Crawl::of(&[&first.url("/"), "--follow", "all", "--config", "crawl.toml"]).with(&[
        "-s",
        "ROBOTSTXT_OBEY=true",
        "-H",
        "X-Else: yes",
        "--header-for",
        &one,
        "X-Own: flag",
        "--user-for",
        &one,
        "Aladdin:open sesame",
        "--header-for",
        &two,
        "X-Other: 2",
        "--header-for",
        &two,
        "X-Else: no",
    ]);
    crawl.file("crawl.toml", file.as_bytes());
    let crawled = crawl.aloud().run();
    let basic = "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==";
    let all = |asked: &Asked| {
        let names = ["X-Own", "X-More", "Authorization", "X-Other", "X-Else"];
        names.map(|name| value(asked, name).to_owned())
    };
    for target in ["/robots.txt", "/", "/own", "/away"] {
        let asked = first.only(target);
        assert_eq!(all(&asked), ["flag", "1", basic, "", "yes"], "{target}");
    }
    for target in ["/robots.txt", "/link", "/moved"] {
        let asked = other.only(target);
        assert_eq!(all(&asked), ["", "", "", "2", "no"], "{target}");
    }
    assert!(
        !crawled.ended.err.contains("sesame"),
        "{}",
        crawled.ended.err
    );
}

#[test]
fn a_login_without_a_host_is_for_the_origins_of_the_seeds() {
    let (first, other) = two_origins();
    let args = ["--follow", "all", "--user", "Aladdin:open sesame"];
    Crawl::of(&[&first.url("/")]).with(&args).run();
    let basic = "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==";
    assert_eq!(value(&first.only("/own"), "Authorization"), basic);
    assert_eq!(value(&other.only("/link"), "Authorization"), "");
}

#[test]
fn cookies_of_a_file_are_sent_to_their_hosts() {
    let (first, other) = two_origins();
    let crawl = Crawl::of(&[&first.url("/"), "--follow", "all", "--cookies", "jar"]);
    let lines = "# Netscape HTTP Cookie File\n127.0.0.1\tFALSE\t/own\tFALSE\t0\tsid\tx\n\
                 other.test\tFALSE\t/\tFALSE\t0\tno\ty\n";
    crawl.file("jar", lines.as_bytes());
    crawl.run();
    // Cookies do not know ports (RFC 6265, section 8.5).
    assert_eq!(value(&first.only("/own"), "Cookie"), "sid=x");
    assert_eq!(value(&first.only("/"), "Cookie"), "");
    assert_eq!(value(&other.only("/link"), "Cookie"), "");
}

#[test]
fn headers_of_a_seeds_line_may_hold_for_its_origin() {
    let (first, other) = two_origins();
    let seed = json!({
        "url": first.url("/"),
        "method": "POST",
        "body_b64": "e30=",
        "headers": {"Authorization": "Basic QQ==", "X-Else": "yes", "Content-Type": "application/json"},
        "headers_for_host": true,
    });
    let args = [
        "--seeds",
        "-",
        "--follow",
        "all",
        "-s",
        "ROBOTSTXT_OBEY=true",
    ];
    let crawl = Crawl::of(&args).input(seed.to_string().as_bytes());
    crawl.run();
    for target in ["/robots.txt", "/", "/own", "/away"] {
        let asked = first.only(target);
        assert_eq!(carried(&asked), ["Authorization", "X-Else"], "{target}");
        let is_post = asked.header("Content-Type").is_some();
        assert_eq!(is_post, target == "/", "only that has a body: {target}");
    }
    for target in ["/robots.txt", "/link", "/moved"] {
        assert_eq!(carried(&other.only(target)), [""; 0], "{target}");
    }
}

#[test]
fn a_host_has_its_own_agent_proxy_and_limits() {
    let (first, other) = two_origins();
    let link = first.url("/deep");
    let proxy = Server::new(move |asked: &Asked| match asked.target.as_str() {
        "http://a.test/" => page(&format!("<a href=/1>1</a><a href={link}>2</a>")),
        "http://a.test/1" => page("<a href=/2>2</a>"),
        _ => page("a page"),
    });
    let hosts = json!({
        "a.test": {"proxy": proxy.url(""), "depth_limit": 1, "user_agent": "own/1.0"},
        "127.0.0.1": {"pages_max": 1},
        &first.url("")[7..]: {"body_max": 2},
    });
    let hosts = format!("HOSTS={hosts}");
    let crawl = Crawl::of(&[&first.url("/own"), "http://a.test/"]).with(&["-s", &hosts]);
    let args = ["--follow", "all", "--filtered", "-A", "usual/1.0"];
    let crawled = crawl
        .with(&args)
        .with(&["-s", "CONCURRENT_REQUESTS=1"])
        .run();
    assert_eq!(proxy.targets(), ["http://a.test/", "http://a.test/1"]);
    assert_eq!(
        value(&proxy.only("http://a.test/1"), "User-Agent"),
        "own/1.0"
    );
    assert_eq!(value(&first.only("/own"), "User-Agent"), "usual/1.0");
    assert_eq!(first.targets(), ["/own"], "one page of it");
    assert_eq!(other.targets(), [""; 0]);
    let line = crawled.line("http://a.test/1");
    assert_eq!(line["proxied"], true);
    let line = crawled.line(&first.url("/own"));
    assert_eq!(
        (&line["proxied"], &line["truncated"]),
        (&json!(null), &json!("length"))
    );
    let left_out = crawled.read("filtered.jsonl");
    for rule in [
        "HOSTS.\\\"a.test\\\".depth_limit=1",
        "HOSTS.\\\"127.0.0.1\\\".pages_max=1",
    ] {
        assert!(left_out.contains(rule), "{rule}: {left_out}");
    }
}

#[test]
fn cookies_of_a_file_given_to_a_later_run_replace_the_saved_ones() {
    let server = Server::new(|asked: &Asked| match asked.target.as_str() {
        "/" => reply(
            "200 OK",
            &["Content-Type: text/html", "Set-Cookie: seen=1"],
            b"<a href=/1>1</a><a href=/2>2</a>",
        ),
        _ => page("own"),
    });
    let jar = |value: &str| format!("127.0.0.1\tFALSE\t/\tFALSE\t0\tsid\t{value}\n");
    let crawl = Crawl::of(&[&server.url("/"), "--cookies", "old", "--max-pages", "1"]);
    crawl.file("old", jar("old").as_bytes());
    crawl.file("new", jar("new").as_bytes());
    crawl.file("none", b"# Netscape HTTP Cookie File\n");
    crawl.try_run().expect(0);
    let resume = |args: &[&str]| {
        let args = [&["crawl", "--resume", "--out", "out", "--quiet"], args].concat();
        Going::start(&args, crawl.folder(), b"").wait()
    };
    let refused = resume(&["--cookies", "none", "--max-pages", "2"]);
    check_refused(
        &refused,
        &["--cookies: none", "it has no cookie", "it is empty"],
    );
    resume(&["--max-pages", "2"]).expect(0);
    resume(&["--cookies", "new", "--max-pages", "3"]).expect(0);
    let sent: Vec<String> = ["/", "/1", "/2"]
        .iter()
        .map(|target| value(&server.only(target), "Cookie").to_owned())
        .collect();
    assert_eq!(sent[0], "sid=old");
    for (sent, sid) in sent[1..].iter().zip(["sid=old", "sid=new"]) {
        assert!(sent.contains(sid) && sent.contains("seen=1"), "{sent}");
    }
}

#[test]
fn a_resumed_crawl_whose_file_of_cookies_is_gone_sends_the_saved_ones() {
    // Also where no reply has set one.
    for sets_one in [true, false] {
        let server = Server::new(move |asked: &Asked| match asked.target.as_str() {
            "/" if sets_one => reply(
                "200 OK",
                &["Content-Type: text/html", "Set-Cookie: seen=1"],
                b"<a href=/1>1</a>",
            ),
            "/" => page("<a href=/1>1</a>"),
            _ => page("own"),
        });
        let crawl = Crawl::of(&[&server.url("/"), "--cookies", "jar", "--max-pages", "1"]);
        crawl.file("jar", b"127.0.0.1\tFALSE\t/\tFALSE\t0\tsid\told\n");
        crawl.try_run().expect(0);
        let jar = crawl.folder().join("jar");
        let resume = || {
            let args = "crawl --resume --out out --max-pages 2";
            let args: Vec<&str> = args.split(' ').collect();
            Going::start(&args, crawl.folder(), b"").wait()
        };
        std::fs::remove_file(jar).expect("it is there");
        let ended = resume().expect(0);
        assert!(ended.err.contains("(COOKIES_FILE)"), "{}", ended.err);
        let sent = value(&server.only("/1"), "Cookie").to_owned();
        let expected = if sets_one {
            "sid=old; seen=1"
        } else {
            "sid=old"
        };
        assert_eq!(sent, expected);
    }
}

#[test]
fn a_host_with_other_fields_of_its_own_does_not_hide_that_credentials_are_not_sent_to_it() {
    let check = |field: &str, is_said: bool| {
        let (first, other) = two_origins();
        let args = ["-H", "Authorization: Bearer t0k3n", "--follow", "all"];
        let of_other = ["--header-for", &other.url(""), field];
        let crawl = Crawl::of(&[&first.url("/")]).with(&args).with(&of_other);
        let said = crawl.aloud().run().ended.err;
        let words = "Authorization is sent to the origins of the seeds only";
        assert_eq!(said.contains(words), is_said, "{field}: {said}");
    };
    check("X-Other: 2", true);
    check("Authorization: Bearer other", false);
}
