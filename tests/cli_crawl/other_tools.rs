//! What users of curl, wget, Scrapy and Heritrix type, and words that stand where others are expected: each message has
//! what mends it.

use crate::mistakes::{Mistake, check, of, run, with};
use crate::run::{Going, check_refused};
use crate::server::{Asked, Server, page};

const MISTAKES: &[Mistake] = &[
    // Patterns of the shell.
    of(
        "crawl URL NET --allow *.html",
        &["--allow", "write '(/|[.]html?|[.]html)$'"],
        "crawl URL NET --allow (/|[.]html?|[.]html)$",
    ),
    // Numbers and units.
    of(
        "crawl URL --max-bytes 100 MB",
        &["--max-bytes", "one word", "write --max-bytes 100MB"],
        "crawl URL NET --max-bytes 100MB",
    ),
    of(
        "crawl URL --max-time 10 minutes",
        &["one word", "write --max-time 10m"],
        "crawl URL NET --max-time 10m",
    ),
    // Letters that mean something else in curl and Scrapy.
    of(
        "crawl URL NET -b a=b",
        &["no -b; for a cookie write -H 'Cookie: a=b'"],
        "crawl URL NET -H Cookie:·a=b",
    ),
    of(
        "fetch URL NET -b a=b",
        &["no -b; for a cookie write -H 'Cookie: a=b'"],
        "fetch URL NET -H Cookie:·a=b",
    ),
    with(
        &[("jar", "a.test\tFALSE\t/\tFALSE\t0\ta\tb\n")],
        "crawl URL NET -b jar",
        &["write --cookies jar"],
        "crawl URL NET --cookies jar",
    ),
    of(
        "crawl URL NET -e http://b.test/",
        &["no -e; for that header write -H 'Referer: http://b.test/'"],
        "crawl URL NET -H Referer:·http://b.test/",
    ),
    of(
        "crawl URL NET -t json",
        &["no -t; result lines are JSON", "`argiope export DIR --csv"],
        "crawl URL NET --out x && export x --csv url status",
    ),
    of(
        "crawl URL NET -a foo=bar",
        &["no spider with an argument foo=bar", "-s RETRY_TIMES=2"],
        "crawl URL NET -s RETRY_TIMES=2",
    ),
    of(
        "crawl NET -a start_urls=URL",
        &["URLs need no flag: write http://"],
        "crawl NET URL",
    ),
    // Files behind switches.
    of(
        "crawl URL NET --links links.jsonl",
        &[
            "\"links.jsonl\" is no URL",
            "--links takes no file: leave the word out",
        ],
        "crawl URL NET --links",
    ),
    of(
        "crawl URL NET --warc shop.warc.gz",
        &["--warc takes no file", "the folder warc in --out DIR"],
        "crawl URL NET --warc",
    ),
    of(
        "crawl URL NET results.csv",
        &[
            "is no URL, and no file is there",
            "--results - > results.csv",
        ],
        "crawl URL NET --results -",
    ),
    of(
        "crawl --resume=t4b",
        &["--resume", "write --resume --out t4b"],
        "crawl URL NET --out t4b && crawl --resume --out t4b",
    ),
    of(
        "crawl --resume t4b",
        &["write --resume --out t4b"],
        "crawl URL NET --out t4b && crawl --resume --out t4b",
    ),
    // Words in each other's places.
    of(
        "crawl URL NET --user-for ann:secret login.test",
        &["--user-for", "write --user-for login.test NAME:PASSWORD"],
        "crawl URL NET --user-for login.test ann:secret",
    ),
    of(
        "crawl NET --seeds URL",
        &["--seeds http://", "give it without --seeds"],
        "crawl NET URL",
    ),
    of(
        "robots shop.test /cart",
        &["no such file", "write http://shop.test\n"],
        "robots URL --allow-net loopback",
    ),
    with(
        &[(
            "results.jsonl",
            "{\"id\":1,\"parent\":null,\"seed\":true,\"final\":true,\"kind\":\"page\",\"url\":\"{url}\",\"attempt\":1}\n",
        )],
        "crawl NET --seeds results.jsonl",
        &[
            "is a file of result lines",
            "argiope export . --csv url | argiope crawl --seeds -",
        ],
        "export . --csv url -o urls.txt && crawl NET --seeds urls.txt",
    ),
    // Flags and settings.
    of(
        "crawl URL --ouput d",
        &["--ouput", "if --output is meant", "write --out DIR"],
        "crawl URL NET --out d",
    ),
    of(
        "crawl URL --max-pages-per-domain=1",
        &["write -s PAGES_PER_DOMAIN_MAX=1"],
        "crawl URL NET -s PAGES_PER_DOMAIN_MAX=1",
    ),
    of(
        "crawl URL --spider",
        &["no --spider; ", "--no-warc"],
        "crawl URL NET --no-warc",
    ),
    of(
        "crawl URL --tries=3",
        &["no --tries; write -s RETRY_TIMES=2"],
        "crawl URL NET -s RETRY_TIMES=2",
    ),
    of(
        "crawl URL -s delayFactor=5",
        &["delayFactor: unknown setting", "AUTOTHROTTLE_ENABLED=true"],
        "crawl URL NET -s AUTOTHROTTLE_ENABLED=true",
    ),
    of(
        "crawl URL -s maxHops=3",
        &["maxHops: unknown setting", "--max-depth N"],
        "crawl URL NET --max-depth 3",
    ),
    with(
        &[
            ("c.toml", "DELAY = 1\n"),
            ("d.toml", "DOWNLOAD_DELAY = 1\n"),
        ],
        "crawl URL --config c.toml",
        &[
            "c.toml:1: delay: unknown setting",
            "in a file DOWNLOAD_DELAY",
        ],
        "crawl URL NET --config d.toml",
    ),
    of(
        "crawl URL NET --extract price=..price",
        &["a dot without the name of a class behind it"],
        "crawl URL NET --extract price=.price",
    ),
];

#[test]
fn what_is_typed_for_other_tools_is_answered_with_the_same_here() {
    check(MISTAKES);
}

#[test]
fn a_login_before_its_host_is_not_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    for line in [
        "crawl http://a.test/ --user-for ann:secret login.test",
        "fetch http://a.test/ --user-for ann:secret login.test",
    ] {
        let ended = run(line, "", folder.path());
        check_refused(&ended, &["write --user-for login.test NAME:PASSWORD"]);
        assert!(!ended.err.contains("secret"), "{}", ended.err);
    }
}

#[test]
fn settings_where_an_order_takes_a_scope_are_answered_with_the_order() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir_all(folder.path().join("out")).expect("a folder");
    for (wrong, part) in [
        (
            "pause now",
            "pause does not take \"now\"; write argiope ctl out pause\n",
        ),
        ("speed 2", "write argiope ctl out set default delay=0.5\n"),
        ("rate 30/min", "write argiope ctl out set default delay=2\n"),
        (
            "speed a.test 4",
            "write argiope ctl out set a.test delay=0.25\n",
        ),
        (
            "set DOWNLOAD_DELAY=2",
            "write argiope ctl out set default delay=2, or",
        ),
        (
            "set delay=2 concurrency=1",
            "set default delay=2 concurrency=1, or",
        ),
        (
            "set max-pages=5",
            "write argiope ctl out limits closespider_pagecount=5\n",
        ),
        (
            "set a.test delay=2 max-pages=3",
            "\"max-pages=3\" is a limit of the crawl and no setting of a scope; write argiope ctl out limits \
             closespider_pagecount=3\n",
        ),
        (
            "set a.test max-pages=",
            "write argiope ctl out limits closespider_pagecount=\n",
        ),
        ("set a.test max-pages", "write KEY=VALUE, such as delay=2"),
        (
            "set RETRY_TIMES=5",
            "the file of --config, and write argiope ctl out reload\n",
        ),
    ] {
        let ended = run(&format!("ctl out {wrong}"), "", folder.path());
        check_refused(&ended, &[part]);
    }
    // A scope may have such a name.
    let named = run("ctl out set tenant/a=b delay=2", "", folder.path());
    check_refused(&named, &["no crawl is running in out"]);
}

#[test]
fn what_robots_txt_disallows_is_fetched_by_the_command_that_the_warning_has() {
    let server = Server::new(|asked: &Asked| match asked.target.as_str() {
        "/robots.txt" => page("User-agent: *\nDisallow: /\n"),
        _ => page("a page"),
    });
    let folder = tempfile::tempdir().expect("a folder");
    let url = server.url("/a");
    let first = run("crawl URL NET", &url, folder.path()).expect(0);
    let cure = "--overwrite --ignore-robots";
    assert!(first.err.contains(cure), "{}", first.err);
    run(&format!("crawl URL NET {cure}"), &url, folder.path()).expect(0);
    assert_eq!(server.targets(), ["/a"]);
}

#[test]
fn a_seed_that_matches_no_pattern_is_named_with_a_command_that_explains() {
    let server = Server::new(|_| page("a page"));
    let folder = tempfile::tempdir().expect("a folder");
    let url = server.url("/docs");
    let allow = "--allow /docs/";
    let ended = run(&format!("crawl URL NET {allow}"), &url, folder.path()).expect(0);
    let cure = format!("`argiope url {url} {allow}` explains");
    for part in [
        &format!("{url} does not match {allow}: give a seed that does"),
        &cure,
    ] {
        assert!(ended.err.contains(part), "{part} is not in: {}", ended.err);
    }
    let explained = run(&format!("url URL {allow}"), &url, folder.path()).expect(0);
    assert!(
        explained.out.contains("no pattern matches it"),
        "{}",
        explained.out
    );
}

#[test]
fn a_limit_of_some_bytes_that_ends_a_crawl_without_a_page_is_shown() {
    let server = Server::new(|_| page(&"a page".repeat(1000)));
    let folder = tempfile::tempdir().expect("a folder");
    let line = "crawl URL NET --max-bytes 100";
    let ended = run(line, &server.url("/"), folder.path()).expect(0);
    for part in [
        "--max-bytes is 100 bytes, and no page was received before",
        "--resume --out crawl --max-bytes 100MB",
    ] {
        assert!(ended.err.contains(part), "{part} is not in: {}", ended.err);
    }
    let next = "crawl --resume --out crawl --max-bytes 100MB";
    run(next, "", folder.path()).expect(0);
    let table = run("export crawl --csv status", "", folder.path()).expect(0);
    assert_eq!(table.out, "status\n200\n");
}

#[test]
fn columns_that_the_crawl_did_not_extract_are_pointed_out() {
    let server = Server::new(|_| page("<title>Tea</title>"));
    let folder = tempfile::tempdir().expect("a folder");
    let url = server.url("/");
    run("crawl URL NET", &url, folder.path()).expect(0);
    let table = run("export crawl --csv status title", "", folder.path()).expect(0);
    assert_eq!(table.out, "status,title\n200,\n");
    let cure =
        "no line has the field title: to have what pages have there, crawl with --extract title";
    assert!(table.err.contains(cure), "{}", table.err);
    run(
        "crawl URL NET --overwrite --extract title",
        &url,
        folder.path(),
    )
    .expect(0);
    let table = run("export crawl --csv status title", "", folder.path()).expect(0);
    assert_eq!(
        (table.out.as_str(), table.err.as_str()),
        ("status,title\n200,Tea\n", "")
    );
}

#[test]
fn long_timeouts_and_unused_proxies_are_pointed_out() {
    let server = Server::new(|_| page("a page"));
    let folder = tempfile::tempdir().expect("a folder");
    let url = server.url("/");
    let start = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_argiope"));
        for name in [
            "https_proxy",
            "HTTPS_PROXY",
            "all_proxy",
            "ALL_PROXY",
            "no_proxy",
            "NO_PROXY",
        ] {
            command.env_remove(name);
        }
        command.env("http_proxy", "http://127.0.0.1:9");
        let fixed = [
            "crawl",
            &url,
            "--allow-net",
            "loopback",
            "--overwrite",
            "--timeout",
            "30000",
        ];
        command.args([&fixed[..], args].concat());
        Going::start_command(command, folder.path(), b"")
            .wait()
            .expect(0)
            .err
    };
    let err = start(&[]);
    let timeout = "--timeout: 8:20:00 for a whole fetch; for milliseconds write 30000ms";
    assert!(err.contains(timeout), "{err}");
    let proxy = "the variable http_proxy is not used";
    assert_eq!(err.matches(proxy).count(), 1, "{err}");
    assert!(err.contains("to use it write --proxy env"), "{err}");
    assert!(!start(&["-s", "NO_PROXY=*"]).contains(proxy));
}
