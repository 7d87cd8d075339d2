//! Seeds: formats, order, and errors.

use std::io::Write;

use serde_json::json;

use crate::run::Crawl;
use crate::server::{Server, page};

/// A crawl of seeds on standard input; gives the targets asked for.
fn check(seeds: impl Fn(&Server) -> Vec<u8>, expected: &[&str]) {
    let server = Server::new(|_| page("hello"));
    let crawl = Crawl::of(&["--seeds", "-"]).input(&seeds(&server));
    crawl.run();
    assert_eq!(server.targets(), expected);
}

#[test]
fn lines_of_every_form_are_read() {
    check(
        |server| {
            let port = server.port();
            format!(
                "\u{feff}# seeds\r\n\r\nhttp://127.0.0.1:{port}/url\r\n127.0.0.1:{port}/bare\n\
                 1,127.0.0.1:{port}/ranked\n  127.0.0.1:{port}/indented  \n\
                 {{\"url\": \"http://127.0.0.1:{port}/json\"}}\n127.0.0.1:{port}/unended"
            )
            .into_bytes()
        },
        &["/bare", "/indented", "/json", "/ranked", "/unended", "/url"],
    );
}

#[test]
fn compressed_seeds_are_read_from_anywhere() {
    let gzip = |bytes: &[u8]| {
        let level = flate2::Compression::default();
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
        encoder.write_all(bytes).expect("a Vec takes all");
        encoder.finish().expect("a Vec takes all")
    };
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 3).expect("a Vec takes all");
    check(|server| gzip(server.url("/gz\n").as_bytes()), &["/gz"]);
    check(|server| zstd(server.url("/zst\n").as_bytes()), &["/zst"]);

    let server = Server::new(|_| page("hello"));
    let crawl = Crawl::of(&["--seeds", "a.gz", "--seeds", "b.zst", "--seeds", "c.txt"]);
    crawl.file("a.gz", &gzip(server.url("/a\n").as_bytes()));
    crawl.file("b.zst", &zstd(server.url("/b\n").as_bytes()));
    crawl.file("c.txt", server.url("/c\n").as_bytes());
    let crawled = crawl.with(&[&server.url("/named")]).run();
    assert_eq!(server.targets(), ["/a", "/b", "/c", "/named"]);
    assert_eq!(crawled.stats()["seeds"], 4);
}

#[test]
fn an_invalid_line_is_logged_counted_and_skipped() {
    let server = Server::new(|_| page("hello"));
    let crawl = Crawl::of(&["--seeds", "seeds.txt"]).aloud();
    let good = server.url("/good");
    let bad: &[&[u8]] = &[
        b"not a url",
        b"ftp://example.com/",
        b"mailto:me@example.com",
        b"{\"url\": 3}",
        b"{\"url\": \"http://a.test/\", \"methd\": \"GET\"",
        b"\xff\xfe",
        b"http://a..b:99999/",
        b"http://[::1/",
        b"{\"url\": \"http://a.test/\", \"method\": \"GET it\"}",
    ];
    let mut text = format!("{good}\n").into_bytes();
    for line in bad {
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    text.extend_from_slice(format!("{}\n", server.url("/after")).as_bytes());
    crawl.file("seeds.txt", &text);
    let crawled = crawl.run();
    assert_eq!(server.targets(), ["/after", "/good"]);
    let said = &crawled.ended.err;
    for number in 2..2 + bad.len() {
        assert!(
            said.contains(&format!("seeds.txt:{number}: ")),
            "line {number}: {said}"
        );
    }
    let stats = crawled.stats();
    assert_eq!(stats["seeds_bad"], bad.len(), "{said}");
    assert_eq!(stats["seeds"], 2);
    assert_eq!(stats["pages"], 2);
}

#[test]
fn every_key_of_a_json_seed_has_its_effect() {
    let server = Server::new(|_| page("hello"));
    let meta = json!({"order": [1, 2.50, "ü"], "deep": {"null": null}});
    let seed = json!({
        "url": server.url("/all"),
        "method": "PUT",
        "headers": {"X-Own": "yes", "Accept": "text/csv"},
        "body_b64": "AAEC/w==",
        "scopes": ["one", "two"],
        "priority": 3,
        "depth": 2,
        "dont_adjust_delay": true,
        "meta": meta,
    });
    let seeds = format!(
        "{seed}\n{}\n{}\n",
        json!({"url": server.url("/one"), "scopes": "mine"}),
        json!({"url": server.url("/map"), "scopes": {"dear": 5, "cheap": 0.5}, "meta": "text"}),
    );
    let crawled = Crawl::of(&["--seeds", "-"]).input(seeds.as_bytes()).run();
    let asked = server.only("/all");
    assert_eq!(
        (asked.method.as_str(), &asked.body[..]),
        ("PUT", &[0, 1, 2, 255][..])
    );
    assert_eq!(asked.header("X-Own"), Some("yes"));
    assert_eq!(asked.header("Accept"), Some("text/csv"));
    assert_eq!(asked.header("Content-Length"), Some("4"));
    let line = crawled.line(&server.url("/all"));
    assert_eq!(line["meta"], meta);
    assert_eq!(
        (&line["method"], &line["depth"]),
        (&json!("PUT"), &json!(2))
    );
    assert_eq!(line["scopes"], json!(["one", "two"]));
    assert_eq!(crawled.line(&server.url("/one"))["scopes"], json!(["mine"]));
    let line = crawled.line(&server.url("/map"));
    let mut scopes: Vec<String> = line["scopes"]
        .as_array()
        .expect("a list")
        .iter()
        .map(crate::run::text)
        .collect();
    scopes.sort();
    assert_eq!(
        (scopes, &line["meta"]),
        (vec!["cheap".to_owned(), "dear".to_owned()], &json!("text"))
    );
}

#[test]
fn higher_priority_goes_first() {
    let server = Server::new(|_| page("hello"));
    let seeds: String = [("/low", -5), ("/plain", 0), ("/high", 9), ("/mid", 4)]
        .iter()
        .map(|(path, priority)| {
            format!(
                "{}\n",
                json!({"url": server.url(path), "priority": priority})
            )
        })
        .collect();
    Crawl::of(&["--seeds", "-"])
        .input(seeds.as_bytes())
        .with(&[
            "-s",
            "CONCURRENT_REQUESTS_PER_DOMAIN=1",
            "-s",
            "DOWNLOAD_DELAY=50ms",
        ])
        .run();
    let order: Vec<String> = server
        .asked()
        .iter()
        .map(|asked| asked.target.clone())
        .collect();
    // The first may have gone before the others were read.
    let rest: Vec<&str> = order
        .iter()
        .map(String::as_str)
        .filter(|at| *at != "/low")
        .collect();
    assert_eq!(rest, ["/high", "/mid", "/plain"]);
}

#[test]
fn seeds_from_a_slow_pipe_are_crawled_as_they_arrive() {
    let server = Server::new(|_| page("hello"));
    let mut command = std::process::Command::new("sh");
    let script = r#"(echo "$1"; sleep 3; echo "$2") | exec "$0" crawl --seeds - --results - \
        --contact me@example.org --allow-net loopback --quiet -s ROBOTSTXT_OBEY=0"#;
    command.args(["-c", script, env!("CARGO_BIN_EXE_argiope")]);
    command.args([server.url("/first"), server.url("/second")]);
    let going = crate::run::Going::start_command(command, std::path::Path::new("/"), b"");
    let began = std::time::Instant::now();
    server.wait_for_requests(1);
    let waited = began.elapsed();
    going.wait().expect(0);
    assert_eq!(server.targets(), ["/first", "/second"]);
    assert!(waited < std::time::Duration::from_secs(2), "{waited:?}");
}

/// Seeds that a crawl of a page an hour does not take while it lasts, and their count.
fn many(server: &Server, name: &str) -> (String, usize) {
    let urls = (0..MANY).map(|n| format!("{}\n", server.url(&format!("/{name}/{n}"))));
    (urls.collect(), MANY)
}

/// More than wait to be taken.
const MANY: usize = 6000;
const TAKES_FEW: [&str; 6] = [
    "-s",
    "DOWNLOAD_DELAY=1h",
    "-s",
    "FRONTIER_MAX=10",
    // Without one ten thousand seeds are looked at first.
    "--contact",
    "me@example.org",
];

#[test]
fn a_broken_seeds_file_fails_and_the_next_file_is_read() {
    let server = Server::new(|_| page("hello"));
    let (text, count) = many(&server, "a");
    let level = flate2::Compression::default();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
    encoder.write_all(text.as_bytes()).expect("a Vec takes all");
    let whole = encoder.finish().expect("a Vec takes all");
    let seeds = ["--seeds", "a.gz", "--seeds", "b.txt", "--max-time", "1s"];
    let crawl = Crawl::of(&seeds).with(&TAKES_FEW);
    // The trailer is missing, and with it what tells that no line is.
    crawl.file("a.gz", &whole[..whole.len() - 8]);
    crawl.file("b.txt", server.url("/b\n").as_bytes());
    let ended = crawl.try_run().expect(2);
    assert!(ended.err.contains("a.gz"), "{}", ended.err);
    let crawled = crawl.left(ended);
    let pending = crawled.read("pending.jsonl");
    assert_eq!(pending.lines().last(), Some(&*server.url("/b")));
    assert_eq!(pending.lines().count() + server.asked().len(), count + 1);
}

#[test]
fn seeds_files_beside_a_silent_pipe_are_pending_and_the_pipe_is_reported() {
    // The crawl ends before it has read the files, or while it waits for the pipe.
    for (pipe, takes_all) in [("-", false), ("-", true), ("fifo", false), ("fifo", true)] {
        let server = Server::new(|_| page("hello"));
        let (text, count) = match takes_all {
            false => many(&server, "b"),
            true => (server.url("/b/0\n") + &server.url("/b/1\n"), 2),
        };
        let seeds = ["--seeds", pipe, "--seeds", "b.txt", "--max-time", "1s"];
        let crawl = Crawl::of(&seeds).with(&TAKES_FEW).aloud();
        crawl.file("b.txt", text.as_bytes());
        let mut command = std::process::Command::new("sh");
        let script = match pipe {
            "-" => r#"(echo "$SEED"; sleep 6) | "$0" "$@""#,
            _ => r#"mkfifo fifo; (echo "$SEED"; sleep 6) > fifo & exec "$0" "$@""#,
        };
        command
            .args(["-c", script])
            .env("SEED", server.url("/pipe"));
        command.arg(crawl.command().get_program());
        command.args(crawl.command().get_args());
        let going = crate::run::Going::start_command(command, crawl.folder(), b"");
        let ended = going.wait().expect(0);
        let message = "a pipe has no data and did not end";
        assert!(ended.err.contains(message), "{}", ended.err);
        let pending = crawl.left(ended).read("pending.jsonl");
        assert_eq!(pending.lines().count() + server.asked().len(), count + 1);
        assert!(
            pending.contains(&server.url("/pipe")),
            "{pipe}, {takes_all}"
        );
    }
}

#[test]
fn broken_seeds_fail_without_a_directory_too() {
    let server = Server::new(|_| page("hello"));
    let (text, _) = many(&server, "a");
    let level = flate2::Compression::default();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
    encoder.write_all(text.as_bytes()).expect("a Vec takes all");
    let whole = encoder.finish().expect("a Vec takes all");
    let seeds = ["--seeds", "a.gz", "--results", "-", "--max-time", "1s"];
    for quiet in [false, true] {
        let crawl = Crawl::of(&seeds).with(&TAKES_FEW);
        let crawl = if quiet { crawl } else { crawl.aloud() };
        crawl.file("a.gz", &whole[..whole.len() - 8]);
        let ended = crawl.try_run().expect(2);
        assert!(ended.err.contains("a.gz"), "{}", ended.err);
    }
}
