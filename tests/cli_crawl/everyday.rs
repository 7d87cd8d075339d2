//! What people reach for first: the flags of the commonest needs, and what is said at the end.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::run::{Crawl, Crawled, Ended, Going, check_refused, code};
use crate::server::{Asked, Server, Step, not_found, page, redirect, reply};

/// Pages `/0` to `/99` of a kilobyte, each with links to all.
fn hundred(asked: &Asked) -> Vec<Step> {
    if asked.target == "/robots.txt" {
        return not_found();
    }
    let links: String = (0..100).map(|n| format!("<a href='/{n}'>")).collect();
    page(&links)
}

/// Runs a command line of the binary in a folder, split at spaces.
fn run_in(folder: &Path, line: &str) -> Ended {
    let words: Vec<&str> = line.split(' ').skip(1).collect();
    Going::start(&words, folder, b"").wait()
}

/// The line of a summary with this name.
fn said<'a>(ended: &'a Ended, name: &str) -> Option<&'a str> {
    let mut lines = ended.err.lines();
    let start = format!("  {name} ");
    let line = lines.find(|line| line.starts_with(&start))?;
    Some(line[start.len()..].trim())
}

#[test]
fn delay_and_concurrency_are_flags() {
    let server = Server::new(hundred);
    let urls: Vec<String> = (0..4).map(|n| server.url(&format!("/{n}"))).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let args = ["--follow", "none", "--delay", "0.3", "--concurrency", "2"];
    let crawled = Crawl::of(&urls).with(&args).run();
    assert_eq!(crawled.lines().len(), 4);
    let took = crawled.ended.took;
    assert!(took > Duration::from_millis(880), "three gaps: {took:?}");
    let runs = crawled.read("runs.jsonl");
    let start: Value = serde_json::from_str(runs.lines().next().expect("a line")).expect("JSON");
    let default = &start["settings"]["default"];
    assert_eq!(
        (&default["delay"], &default["concurrency"]),
        (&json!(0.3), &json!(2))
    );
    assert_eq!(default["jitter"], json!([0.0, 0.0]), "it is the least gap");
    let random = [&args[..], &["-s", "RANDOMIZE_DOWNLOAD_DELAY=true"]].concat();
    let runs = Crawl::of(&urls).with(&random).run().read("runs.jsonl");
    let start: Value = serde_json::from_str(runs.lines().next().expect("a line")).expect("JSON");
    let default = &start["settings"]["default"];
    assert_eq!(default["jitter"], json!([-0.5, 0.5]));
}

#[test]
fn max_bytes_ends_a_crawl_near_the_limit_over_all_its_runs() {
    let server = Server::new(hundred);
    let first = Crawl::of(&[&server.url("/0"), "--max-bytes", "30kB"]).aloud();
    let ended = first.try_run().expect(0);
    assert_eq!(
        said(&ended, "continue"),
        Some("argiope crawl --resume --out out --max-bytes 60000")
    );
    let command = said(&ended, "continue").expect("there is one").to_owned();
    let received = |crawled: &Crawled| -> u64 {
        let lines = crawled.lines();
        lines
            .iter()
            .filter_map(|line| line["bytes_wire"].as_u64())
            .sum()
    };
    let crawled = first.left(ended);
    assert_eq!(crawled.stats()["finish_reason"], "closespider_bytecount");
    let bytes = received(&crawled);
    assert!((30_000..36_000).contains(&bytes), "{bytes}");

    let folder = crawled.out().parent().expect("a folder").to_owned();
    run_in(&folder, &command).expect(0);
    assert_eq!(crawled.stats()["finish_reason"], "closespider_bytecount");
    let bytes = received(&crawled);
    assert!((60_000..66_000).contains(&bytes), "{bytes}");
    // As it was, it ends at once.
    let again = run_in(&folder, "argiope crawl --resume --out out").expect(0);
    assert!(
        again
            .err
            .contains("--max-bytes (CLOSESPIDER_BYTECOUNT) is for all runs"),
        "{}",
        again.err
    );
    assert_eq!(received(&crawled), bytes);
}

#[test]
fn ignore_robots_warns_and_is_bounded_until_it_is_confirmed() {
    let server = Server::new(|asked: &Asked| match asked.target.as_str() {
        "/robots.txt" => page("User-agent: *\nDisallow: /\n"),
        _ => page("a page"),
    });
    let url = server.url("/private");
    let obeys = ["-s", "ROBOTSTXT_OBEY=true"];
    let obeying = Crawl::of(&[&url]).with(&obeys).aloud().run();
    assert_eq!(server.targets(), [] as [&str; 0]);
    let warning = "every seed was filtered: 1 by robots.txt";
    assert!(obeying.ended.err.contains(warning), "{}", obeying.ended.err);
    let ignoring = Crawl::of(&[&url, "--ignore-robots"])
        .with(&obeys)
        .aloud()
        .run();
    assert_eq!(server.targets(), ["/private"]);
    let warning = "warning: robots.txt is ignored (--ignore-robots)";
    assert!(
        ignoring.ended.err.contains(warning),
        "{}",
        ignoring.ended.err
    );

    let seeds: String = (0..11).map(|n| format!("host{n}.example.com\n")).collect();
    let proxy = Server::new(|_| page("a page"));
    let by_proxy = format!("http://127.0.0.1:{}", proxy.port());
    let args = [
        "--seeds",
        "-",
        "--ignore-robots",
        "--contact",
        "me@example.org",
        "--proxy",
        &by_proxy,
    ];
    let refused = Crawl::of(&args).input(seeds.as_bytes());
    check_refused(
        &refused.try_run(),
        &[
            "--ignore-robots: ",
            "10 public hosts",
            "--ignore-robots-everywhere",
        ],
    );
    assert!(!refused.folder().join("out").exists());
    assert!(proxy.asked().is_empty());
    let confirmed = Crawl::of(&args).with(&["--ignore-robots-everywhere"]);
    confirmed.input(seeds.as_bytes()).run();
    assert_eq!(proxy.asked().len(), 11);
}

#[test]
fn links_to_an_eleventh_host_are_filtered_with_ignore_robots() {
    let links: String = (1..20)
        .map(|n| format!("<a href='http://host{n}.example.com/'>{n}</a>"))
        .collect();
    let server = Server::new(move |_| page(&links));
    let proxy = format!("http://127.0.0.1:{}", server.port());
    let args = [
        "http://host0.example.com/",
        "--follow",
        "all",
        "--proxy",
        &proxy,
    ];
    let args = [
        &args[..],
        &["--ignore-robots", "--contact", "me@example.org"],
    ]
    .concat();
    let crawled = Crawl::of(&args).aloud().run();
    let lines = crawled.lines();
    let beyond = lines
        .iter()
        .filter(|line| code(line) == "filtered.robots_ignored");
    assert_eq!((beyond.count(), server.targets().len()), (10, 10));
    let warning = "more than 10 public hosts and obeys no robots.txt";
    assert!(crawled.ended.err.contains(warning), "{}", crawled.ended.err);
}

/// A crawl of two hosts with these variables in its environment.
fn with_variables(variables: &[(&str, &str)], args: &[&str]) -> Ended {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_argiope"));
    let fixed = [
        "crawl",
        "http://one.example.com/",
        "http://two.example.com/",
        "--results",
        "-",
        "-s",
        "RETRY_TIMES=0",
        "-s",
        "HOST_DOWN_AFTER=0",
        "--dns",
        "127.0.0.1:9",
        "-s",
        "DOWNLOAD_TIMEOUT=2s",
        "-s",
        "OUTAGE_BREAKER=false",
    ];
    command.args(fixed).args(args);
    for name in [
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "no_proxy",
        "NO_PROXY",
    ] {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied());
    Going::start_command(command, folder.path(), b"").wait()
}

#[test]
fn proxies_of_the_environment_are_used_on_request_only() {
    let server = Server::new(
        |asked: &Asked| match asked.target.ends_with("/robots.txt") {
            true => not_found(),
            false => page("by proxy"),
        },
    );
    let proxy = format!("127.0.0.1:{}", server.port());
    let variables = [
        ("http_proxy", proxy.as_str()),
        ("no_proxy", ".two.example.com"),
    ];
    let ended = with_variables(&variables, &[]);
    assert!(server.asked().is_empty(), "{}", ended.err);
    with_variables(&variables, &["--proxy", "env"]).expect(0);
    let expected = [
        "http://one.example.com/",
        "http://one.example.com/robots.txt",
    ];
    assert_eq!(server.targets(), expected, "the other host is an exception");
    let none = with_variables(&[("HTTP_PROXY", &proxy)], &["--proxy", "env"]);
    assert!(none.err.contains("HTTP_PROXY is not read"), "{}", none.err);
    assert_eq!(server.asked().len(), 2);
    let wrong = with_variables(&[("http_proxy", "p.test")], &["--proxy", "env"]);
    check_refused(
        &wrong,
        &["--proxy env: http_proxy: ", "the port is missing"],
    );
}

#[test]
fn each_line_says_whether_it_went_by_a_proxy_where_not_all_do() {
    let server = Server::new(|_: &Asked| page("a page"));
    let proxy = format!("http://127.0.0.1:{}", server.port());
    let (far, near) = ("http://one.example.com/", server.url("/near"));
    let check = |set: &str, by_proxy: [Value; 2]| {
        let args = ["--proxy", &proxy, "-s", set];
        let crawled = Crawl::of(&[far, &near]).with(&args).run();
        let found = [far, &near].map(|url| crawled.line(url)["proxied"].clone());
        assert_eq!(found, by_proxy, "{set}");
    };
    check("NO_PROXY=127.0.0.1", [json!(true), json!(false)]);
    check("PROXY_HTTPS=direct", [json!(true), json!(true)]);
    check("NO_PROXY=", [Value::Null, Value::Null]);
}

#[test]
fn the_summary_names_the_output_what_is_left_and_a_command_that_continues() {
    let server = Server::new(hundred);
    let crawl = Crawl::of(&[&server.url("/0"), "--max-pages", "30"]).aloud();
    let ended = crawl.try_run().expect(0);
    assert_eq!(
        said(&ended, "output"),
        Some("out (results, WARC files, statistics)")
    );
    assert_eq!(said(&ended, "still queued"), Some("70 requests"));
    let command = said(&ended, "continue").expect("there is one").to_owned();
    assert_eq!(command, "argiope crawl --resume --out out --max-pages 60");
    let ended = run_in(crawl.folder(), &command).expect(0);
    assert_eq!(said(&ended, "still queued"), Some("40 requests"));
    let ended = run_in(
        crawl.folder(),
        "argiope crawl --resume --out out --max-pages 0",
    )
    .expect(0);
    assert_eq!(said(&ended, "still queued"), Some("nothing"));
    assert_eq!(said(&ended, "continue"), None);
    assert_eq!(crawl.left(ended).urls().len(), 100);
}

#[test]
fn a_crawl_that_fetched_nothing_leaves_nothing() {
    let server = Server::new(hundred);
    let check = |args: &[&str], code: i32, parts: &[&str]| {
        let crawl = Crawl::of(args).aloud().with(&["--out", "a/out"]);
        let ended = crawl.try_run();
        assert_eq!(ended.code, Some(code), "{}", ended.err);
        for part in parts {
            assert!(ended.err.contains(part), "{part} is not in: {}", ended.err);
        }
        let left: Vec<_> = fs::read_dir(crawl.folder()).expect("a folder").collect();
        assert!(left.is_empty(), "{args:?}: {left:?}");
    };
    let url = server.url("/0");
    let parts = [
        "every seed was filtered: 1 by --deny",
        "nothing is left in a/out",
    ];
    check(&[&url, "--deny", "."], 0, &parts);
    check(&[&url, "--allow", "/docs/"], 0, &["1 by --allow"]);
    check(&["nonsense"], 2, &["neither a URL nor a host"]);
    check(
        &[
            &url,
            "--admin",
            "192.0.2.1:80",
            "--admin-token-file",
            "/dev/null",
        ],
        2,
        &[],
    );
    assert!(server.asked().is_empty());

    // What was there before stays, and a crawl that has something to continue.
    let crawl = Crawl::of(&[&url, "--deny", "."]);
    fs::create_dir(crawl.folder().join("out")).expect("a folder");
    crawl.file("out/notes.txt", b"mine");
    let crawled = crawl.run();
    let left = fs::read_dir(crawled.out()).expect("it is there");
    assert_eq!(left.count(), 1);
}

#[test]
fn a_run_whose_requests_cannot_be_sent_says_how_it_is_begun_anew() {
    let server = Server::new(hundred);
    let crawl = Crawl::of(&[&server.url("/0"), "--max-pages", "1"]).aloud();
    let run = |args: &[&str]| {
        let fixed = [
            "crawl",
            &server.url("/0"),
            "--max-pages",
            "1",
            "--out",
            "out",
        ];
        let ended = Going::start(&[&fixed[..], args].concat(), crawl.folder(), b"").wait();
        ended.expect(0)
    };
    let blocked = run(&[]);
    let words = "127.0.0.1 is not globally routable";
    assert!(blocked.err.contains(words), "{}", blocked.err);
    let words = "no request was sent; the corrected command needs --overwrite";
    assert_eq!(said(&blocked, "begin anew"), Some(words));
    let sent = run(&["--allow-net", "loopback", "--overwrite"]);
    assert_eq!(said(&sent, "begin anew"), None);
}

#[test]
fn of_seeds_that_are_all_invalid_a_file_has_those_that_are_not_logged() {
    let text: String = (0..30).map(|n| format!("not a url {n}\n")).collect();
    let check = |count: usize, is_kept: bool| {
        let lines: Vec<&str> = text.lines().take(count).collect();
        let crawl = Crawl::of(&["--seeds", "seeds.txt"]).aloud();
        crawl.file("seeds.txt", lines.join("\n").as_bytes());
        let ended = crawl.try_run().expect(2);
        let file = crawl.folder().join("out/rejected.jsonl");
        let found = fs::read_to_string(file).unwrap_or_default();
        assert_eq!(found.lines().count(), if is_kept { count } else { 0 });
        let said = "invalid seeds are in out/rejected.jsonl";
        assert_eq!(ended.err.contains(said), is_kept, "{}", ended.err);
        assert_eq!(crawl.folder().join("out").exists(), is_kept);
    };
    check(10, false);
    check(30, true);
}

#[test]
fn of_many_invalid_seeds_ten_are_logged_and_all_are_in_a_file() {
    let server = Server::new(hundred);
    let mut text = String::new();
    for number in 0..5000 {
        text += &format!("not a url {number}\n");
    }
    text += &format!("{}\n", server.url("/0"));
    for number in 5000..10_000 {
        text += &format!("not a url {number}\n");
    }
    let crawl = Crawl::of(&["--seeds", "seeds.txt", "--max-pages", "1"]).aloud();
    crawl.file("seeds.txt", text.as_bytes());
    let crawled = crawl.run();
    let said_of = crawled.ended.err.matches("seeds.txt:").count();
    assert_eq!(said_of, 10, "{}", crawled.ended.err);
    assert!(
        crawled
            .ended
            .err
            .contains("further invalid seeds are counted")
    );
    assert_eq!(crawled.stats()["seeds_bad"], 10_000);
    let all = "10000 invalid seeds are in out/rejected.jsonl";
    assert_eq!(said(&crawled.ended, "rejected"), Some(all));
    let text = crawled.read("rejected.jsonl");
    let lines: Vec<Value> = (text.lines())
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 10_000);
    for (number, line) in lines.iter().enumerate() {
        assert_eq!(line["seed"], format!("not a url {number}"));
        let at = number + if number < 5000 { 1 } else { 2 };
        assert_eq!(
            (&line["file"], &line["line"]),
            (&json!("seeds.txt"), &json!(at))
        );
    }
    let reason = lines[0]["error"].as_str().expect("a reason");
    assert!(reason.contains("is neither a URL nor a host"), "{reason}");
}

#[test]
fn seeds_of_csv_with_quotation_marks_are_read() {
    let server = Server::new(hundred);
    let (one, two, three) = (server.url("/1"), server.url("/2"), server.url("/3"));
    let seeds = format!("1,\"{one}\"\r\n\"2\",\"{two}\"\r\n\"{three}\"\r\n");
    let args = ["--seeds", "-", "--follow", "none"];
    Crawl::of(&args).input(seeds.as_bytes()).run();
    assert_eq!(server.targets(), ["/1", "/2", "/3"]);
}

fn echo(asked: &Asked) -> Vec<Step> {
    match asked.target.as_str() {
        "/moved" => redirect("301 Moved Permanently", "/there"),
        _ => {
            let kind = asked.header("Content-Type").unwrap_or("none");
            let body = String::from_utf8_lossy(&asked.body).into_owned();
            reply(
                "200 OK",
                &[],
                format!("{} {kind} {body}", asked.method).as_bytes(),
            )
        }
    }
}

#[test]
fn fetch_sends_a_method_and_data_as_curl_does_and_writes_the_body_to_stdout() {
    let server = Server::new(echo);
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("data"), "a=1\r\nb=2\n").expect("a file");
    let url = server.url("/x");
    let check = |args: &[&str], input: &[u8], expected: &str| {
        let fixed = ["fetch", &url, "--allow-net", "loopback", "-o", "-"];
        let all = [&fixed[..], args].concat();
        let ended = Going::start(&all, folder.path(), input).wait().expect(0);
        assert_eq!(ended.out, expected, "{args:?}");
        let line: Value = serde_json::from_str(&ended.err).expect("a result line");
        assert_eq!(line["status"], 200);
    };
    let form = "application/x-www-form-urlencoded";
    check(&[], b"", "GET none ");
    check(&["-X", "DELETE"], b"", "DELETE none ");
    check(
        &["-d", "a=1", "-d", "b=2"],
        b"",
        &format!("POST {form} a=1&b=2"),
    );
    check(&["-d", "@data"], b"", &format!("POST {form} a=1b=2"));
    check(
        &["-d", "@-", "-X", "PUT"],
        b"c=3\n",
        &format!("PUT {form} c=3"),
    );
    check(
        &["--data-binary", "@data"],
        b"",
        &format!("POST {form} a=1\r\nb=2\n"),
    );
    let json = ["-d", "{}", "-H", "Content-Type: application/json"];
    check(&json, b"", "POST application/json {}");
    let json = "Content-Type: application/json";
    let of_host = ["-d", "{}", "--header-for", &server.url(""), json];
    check(&of_host, b"", "POST application/json {}");
    let missing = ["fetch", &url, "--allow-net", "loopback", "-d", "@nowhere"];
    let missing = Going::start(&missing, folder.path(), b"").wait();
    check_refused(
        &missing,
        &["-d @nowhere", "cannot be read", "give a readable file"],
    );
}

#[test]
fn robots_of_a_url_are_fetched_shown_and_asked() {
    let rules = "User-agent: *\nDisallow: /private\nCrawl-delay: 3\n";
    let server = Server::new(move |asked: &Asked| match asked.target.as_str() {
        "/robots.txt" => redirect("302 Found", "/elsewhere.txt"),
        "/elsewhere.txt" => page(rules),
        _ => page("a page"),
    });
    let ask = |url: &str, args: &[&str]| {
        let fixed = ["robots", url, "--allow-net", "loopback"];
        let all = [&fixed[..], args].concat();
        Going::start(&all, Path::new("/"), b"").wait()
    };
    let shown = ask(&server.url("/"), &[]).expect(0);
    assert_eq!(shown.out, rules);
    assert!(
        shown
            .err
            .contains("/elsewhere.txt: 200: these rules are obeyed"),
        "{}",
        shown.err
    );
    let other = server.url("/x");
    let answers = ask(&server.url("/private/x"), &["/a", &other]).expect(0);
    let expected = format!(
        "disallowed {}\nallowed /a\nallowed {other}\n",
        server.url("/private/x")
    );
    assert_eq!(answers.out, expected);
    let rule = format!(
        "{}: by Disallow: /private (line 2)\n",
        server.url("/private/x")
    );
    assert!(answers.err.ends_with(&rule), "{}", answers.err);
    let json = ask(&server.url("/"), &["--json"]).expect(0);
    let object: Value = serde_json::from_str(&json.out).expect("an object");
    assert_eq!(
        (&object["meaning"], &object["crawl_delay"]),
        (&json!("rules"), &json!(3.0))
    );
    assert_eq!(object["body"], rules);
    let elsewhere = ask(&server.url("/"), &["http://other.test/x"]);
    check_refused(
        &elsewhere,
        &[
            "http://other.test/x",
            "another origin",
            "a command of its own",
        ],
    );
    let targets = server.targets();
    assert!(
        targets.iter().all(|target| target.ends_with(".txt")),
        "{targets:?}"
    );

    let none = Server::new(|_| not_found());
    let ended = ask(&none.url("/"), &["/x"]).expect(0);
    assert_eq!(ended.out, "allowed /x\n");
    assert!(ended.err.contains("404: there is none"), "{}", ended.err);
    let broken = Server::new(|_| reply("503 Service Unavailable", &[], b""));
    let ended = ask(&broken.url("/"), &["/x"]).expect(1);
    assert_eq!(ended.out, "disallowed /x\n");
    assert!(!ended.err.contains("by Disallow"), "{}", ended.err);
    let refused = ask("http://127.0.0.1:1/", &[]).expect(1);
    assert!(refused.err.contains("127.0.0.1:1"), "{}", refused.err);
}

#[test]
fn settings_are_shown_in_full_by_name_and_only_those_that_changed() {
    let show = |args: &[&str]| {
        let all = [&["settings"], args].concat();
        Going::start(&all, Path::new("/"), b"").wait()
    };
    let text = show(&[
        "download_delay",
        "ALLOW",
        "--delay",
        "2",
        "-s",
        "ALLOW=/docs/",
    ])
    .expect(0)
    .out;
    for part in [
        "DOWNLOAD_DELAY = 2s\n",
        "  from        --delay\n",
        "  default     1s\n",
        "ALLOW = /docs/\n",
        "  meaning     a URL must match one of these",
    ] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    let changed = show(&["--changed", "--concurrency", "3"]).expect(0).out;
    assert_eq!(changed.lines().count(), 2, "{changed}");
    assert!(
        changed.contains("CONCURRENT_REQUESTS_PER_DOMAIN"),
        "{changed}"
    );
    let toml = show(&["--changed", "--toml", "--concurrency", "3"])
        .expect(0)
        .out;
    assert!(
        toml.ends_with("\nconcurrent_requests_per_domain = 3\n"),
        "{toml}"
    );
    let json = show(&["--json", "RETRY_TIMES"]).expect(0).out;
    let rows: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(rows.as_array().map(Vec::len), Some(1));
    let unknown = ["RETRY_TIME: unknown setting; did you mean RETRY_TIMES?"];
    check_refused(&show(&["RETRY_TIME"]), &unknown);
    for name in ["PROXY", "PROXY_HTTPS"] {
        let proxy = format!("{name}=http://me:s3cret@127.0.0.1:3128");
        let text = show(&[name, "-s", &proxy]).expect(0).out;
        assert!(
            text.contains("http://me:") && !text.contains("s3cret"),
            "{text}"
        );
    }
}

#[test]
fn a_bare_host_is_read_as_a_crawl_reads_it_and_for_robots_the_url_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |line: &str, input: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        Going::start(&words, folder.path(), input.as_bytes()).wait()
    };
    let check = |text: &str, canonical: &str, is_fetched: bool| {
        let ended = run(&format!("url {text}"), "").expect(0);
        let expected = format!("{text}\n  canonical  {canonical}\n");
        assert!(ended.out.starts_with(&expected), "{}", ended.out);
        assert_eq!(
            ended.out.contains("fetched    yes"),
            is_fetched,
            "{}",
            ended.out
        );
    };
    check("example.com", "http://example.com/", true);
    // By its address, as every loopback URL.
    check("localhost:8080", "http://localhost:8080/", false);
    for (line, input) in [
        ("url mailto:me@example.org", ""),
        ("url example.com --from http://a.test/", ""),
        // The standard's reading.
        ("url -", "{\"input\": \"example.com\"}"),
    ] {
        let out = run(line, input).expect(0).out;
        assert!(out.contains("failure"), "{line}: {out}");
    }
    let robots = run("robots example.com /a", "").expect(2);
    assert!(
        robots.err.contains("write http://example.com"),
        "{}",
        robots.err
    );
    let robots = run("robots robots.txt /a", "").expect(2);
    assert!(!robots.err.contains("https://"), "{}", robots.err);
}

#[test]
fn robots_of_a_url_is_fetched_whatever_a_crawl_would_leave_out() {
    let server = Server::new(|_: &Asked| page("User-agent: *\nDisallow: /a\n"));
    let url = server.url("/a");
    let args = [
        "robots",
        &url,
        "--allow-net",
        "loopback",
        "-s",
        "DENY=robots",
        "-s",
        "DOWNLOAD_MAXSIZE=4",
        "-s",
        "ROBOTSTXT_OBEY=true",
        "-s",
        "URLLENGTH_LIMIT=5",
    ];
    let ended = Going::start(&args, Path::new("/"), b"").wait().expect(0);
    assert_eq!(ended.out, format!("disallowed {url}\n"), "{}", ended.err);
    assert_eq!(server.asked().len(), 1);
}
