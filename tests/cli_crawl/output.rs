//! Output files and streams.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::run::{Crawl, Going, check_refused};
use crate::server::{Asked, Server, Step, not_found, page, redirect, reply};

fn web(asked: &Asked) -> Vec<Step> {
    match asked.target.as_str() {
        "/" => page(
            &(0..30)
                .map(|n| format!("<a href='/{n}'></a>"))
                .collect::<String>(),
        ),
        _ => page("a page"),
    }
}

#[test]
fn links_of_each_page_are_in_a_file_of_their_own() {
    let server = Server::new(web);
    let crawled = Crawl::of(&[&server.url("/"), "--links"])
        .with(&["-s", "RESULTS_COMPRESSION=gzip"])
        .run();
    let file = fs::read(crawled.out().join("links.jsonl.gz")).expect("the links");
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(&*file)
        .read_to_string(&mut text)
        .expect("gzip members");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 1, "the other pages have no links");
    assert_eq!(lines[0]["url"], server.url("/"));
    let links = lines[0]["links"].as_array().expect("a list");
    assert_eq!(links.len(), 30);
    let first = serde_json::json!({
        "url": server.url("/0"), "element": "a", "attribute": "href", "nofollow": false
    });
    assert_eq!(links[0], first);
    let results = crawled.lines();
    let page = results.iter().find(|line| line["id"] == lines[0]["id"]);
    assert_eq!(page.expect("its line")["links"], 30);
    // A file without lines is whole, too.
    let empty = Crawl::of(&[&server.url("/0"), "--links"])
        .with(&["-s", "RESULTS_COMPRESSION=gzip"])
        .run();
    let file = fs::read(empty.out().join("links.jsonl.gz")).expect("the links");
    text.clear();
    let read = flate2::read::MultiGzDecoder::new(&*file).read_to_string(&mut text);
    assert_eq!(read.expect("a gzip member"), 0);
    // They have nowhere to go without a directory.
    let args = ["crawl", "http://a.test/", "--results", "-", "--links"];
    let folder = tempfile::tempdir().expect("a folder");
    let refused = Going::start(&args, folder.path(), b"").wait();
    check_refused(&refused, &["LINKS_FILE", "--out"]);
}

#[test]
fn what_filters_leave_out_is_in_a_file_with_the_rule() {
    let server = Server::new(|asked: &Asked| match asked.target.as_str() {
        "/" => {
            page("<a href=/a.pdf>a</a><a href=/b>b</a><a href=/b>b</a><a href=http://c.test/>c</a>")
        }
        "/b" => redirect("302 Found", "/d.pdf"),
        _ => page("a page"),
    });
    let (root, denied) = (server.url("/"), server.url("/seed.pdf"));
    let crawled = Crawl::of(&[&root, &denied, "--filtered", "--deny", "[.]pdf$"]).run();
    let file = fs::read_to_string(crawled.out().join("filtered.jsonl")).expect("the lines");
    let mut lines: Vec<Value> = file
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let line = |url: &str, from: Option<&str>, filter: &str, rule: &str| serde_json::json!({"url": url, "from": from, "filter": filter, "rule": rule, "count": 1});
    let deny = "DENY=[.]pdf$";
    let mut expected = [
        line(&server.url("/a.pdf"), Some(&root), "denied", deny),
        line("http://c.test/", Some(&root), "offsite", "FOLLOW=host"),
        line(
            &server.url("/d.pdf"),
            Some(&server.url("/b")),
            "denied",
            deny,
        ),
        line(&denied, None, "denied", deny),
    ];
    let by_url = |line: &Value| line["url"].to_string();
    lines.sort_by_key(by_url);
    expected.sort_by_key(by_url);
    assert_eq!(lines, expected);
}

#[test]
fn what_robots_txt_disallows_is_among_what_is_left_out() {
    let server = Server::new(|asked: &Asked| match asked.target.as_str() {
        "/robots.txt" => reply("200 OK", &[], b"User-agent: *\nDisallow: /x"),
        _ => page("<a href=/x1>x</a><a href=/y>y</a>"),
    });
    let root = server.url("/");
    let crawled = Crawl::of(&[&root, "--filtered"])
        .with(&["-s", "ROBOTSTXT_OBEY=true"])
        .run();
    let line: Value = serde_json::from_str(&crawled.read("filtered.jsonl")).expect("one line");
    let expected = serde_json::json!({
        "url": server.url("/x1"),
        "from": root,
        "filter": "disallowed",
        "rule": "line 2 of robots.txt: /x",
        "count": 1,
    });
    assert_eq!(line, expected);
}

#[test]
fn a_file_of_filtered_is_a_second_name_of_the_one_in_the_directory() {
    let server = Server::new(|_: &Asked| page("<a href=http://c.test/>c</a>"));
    let root = server.url("/");
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let args = [
            &["crawl", &root, "--out", "out", "--allow-net", "loopback"],
            args,
        ]
        .concat();
        Going::start(&args, folder.path(), b"").wait()
    };
    let left = folder.path().join("left.jsonl");
    for file in [
        &["--filtered=left.jsonl"][..],
        &["--filtered", "left.jsonl", "--overwrite"],
    ] {
        let ended = run(file);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        let lines = fs::read_to_string(&left).expect("the lines");
        assert!(lines.contains("http://c.test/"), "{lines}");
    }
    let refused = run(&[
        "--overwrite",
        "--filtered=left.jsonl",
        "-s",
        "RESULTS_SIZE_MAX=1M",
    ]);
    check_refused(&refused, &["RESULTS_SIZE_MAX", "without a file"]);
    fs::write(folder.path().join("mine.jsonl"), "mine").unwrap();
    let refused = run(&["--overwrite", "--filtered=mine.jsonl"]);
    check_refused(&refused, &["mine.jsonl", "exists"]);
    let refused = run(&["--overwrite", "--filtered=none/left.jsonl"]);
    check_refused(&refused, &["none/left.jsonl", "folder"]);
    assert!(
        fs::read_to_string(&left).is_ok(),
        "the crawl before is kept"
    );
    // A run that fetches nothing leaves what says why.
    let ended = run(&["--overwrite", "--filtered=left.jsonl", "--deny", "."]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let lines = fs::read_to_string(&left).expect("the line");
    assert!(lines.contains("DENY"), "{lines}");
}

#[test]
fn two_v_log_what_happens_to_each_url() {
    let server = Server::new(|asked: &Asked| match asked.target.as_str() {
        "/" => page("<a href=/a>a</a><a href=http://c.test/>c</a>"),
        _ => reply("503 Service Unavailable", &[], b""),
    });
    let (root, page) = (server.url("/"), server.url("/a"));
    let args = ["-vv", "-s", "RETRY_TIMES=1", "-s", "BACKOFF_ENABLED=false"];
    let crawled = Crawl::of(&[&root]).with(&args).aloud().run();
    let err = &crawled.ended.err;
    let found = |text: &str| {
        let lines = err
            .lines()
            .filter(|line| line.starts_with("url: ") && line.contains(text));
        lines.count()
    };
    for (text, count) in [
        (format!("admitted 1: GET {root} (depth 0, from outside)"), 1),
        (format!("GET {page} (depth 1, from {root})"), 1),
        (
            format!("left out http://c.test/: offsite (FOLLOW=host, from {root})"),
            1,
        ),
        ("released ".to_owned(), 3),
        ("sent ".to_owned(), 3),
        (format!("answered 1: GET {root} (200, "), 1),
        (format!("GET {page} (503, "), 2),
        ("retried ".to_owned(), 1),
    ] {
        assert_eq!(found(&text), count, "{text}: {err}");
    }
    let quiet = Crawl::of(&[&root]).with(&["-v"]).aloud().run();
    assert!(!quiet.ended.err.contains("url: "), "{}", quiet.ended.err);
}

#[test]
fn fields_of_all_result_lines_are_exported_as_csv() {
    let server = Server::new(web);
    let crawled = Crawl::of(&[&server.url("/")])
        .with(&[
            "-s",
            "RESULTS_SIZE_MAX=3000",
            "-s",
            "RESULTS_COMPRESSION=zstd",
        ])
        .run();
    let folder = crawled.out().parent().expect("a parent").to_owned();
    let export = |args: &[&str]| {
        let args = [&["export", "out", "--all", "--csv"], args].concat();
        Going::start(&args, &folder, b"").wait()
    };
    let csv = export(&["id", "url", "warc.file", "error.code"])
        .expect(0)
        .out;
    let mut expected = "id,url,warc.file,error.code\n".to_owned();
    for line in crawled.lines() {
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let (url, file) = (text(&line["url"]), text(&line["warc"]["file"]));
        expected += &format!("{},{url},{file},\n", line["id"]);
    }
    assert_eq!(csv, expected);
    let written = export(&["id", "url", "warc.file", "error.code", "-o", "a.csv"]).expect(0);
    assert_eq!(written.out, "");
    let file = folder.join("a.csv");
    assert_eq!(fs::read_to_string(&file).expect("the file"), expected);
    check_refused(&export(&["id", "-o", "a.csv"]), &["a.csv", "not replaced"]);
    assert_eq!(fs::read_to_string(&file).expect("it is kept"), expected);
    check_refused(&export(&["id", "colour"]), &["colour", "content_type"]);
    let spaced = export(&["id, url"]).expect(0);
    assert_eq!(spaced.out.lines().next(), Some("id,url"));
    let near = export(&["statsu"]);
    check_refused(&near, &["did you mean status?"]);
    let none = Going::start(&["export", ".", "--csv", "id"], &folder, b"").wait();
    check_refused(&none, &["has no results.jsonl"]);
    // Damaged lines are left out.
    fs::write(
        crawled.out().join("results.jsonl"),
        "nonsense\n{\"id\": 0}\n",
    )
    .expect("a file");
    let damaged = export(&["id"]).expect(0);
    assert!(damaged.out.starts_with("id\n0\n1\n"), "{}", damaged.out);
    let named = damaged.err.contains("1 damaged lines") && damaged.err.contains("line 1 of");
    assert!(named, "{}", damaged.err);
}

#[test]
fn rows_without_a_reply_are_left_out_of_a_table_on_request() {
    let server = Server::new(|asked: &Asked| match asked.target.as_str() {
        "/robots.txt" => reply("200 OK", &[], b"User-agent: *\nDisallow: /private"),
        "/" => page("<a href=/private>p</a><a href=/broken>b</a><a href=/none>n</a>"),
        "/broken" => vec![Step::Close],
        _ => not_found(),
    });
    let obey = ["-s", "ROBOTSTXT_OBEY=true"];
    let crawled = Crawl::of(&[&server.url("/")]).with(&obey).run();
    let folder = crawled.out().parent().expect("a parent").to_owned();
    let export = |args: &[&str]| {
        let args = [&["export", "out", "--csv", "status", "error.code"], args].concat();
        let table = Going::start(&args, &folder, b"").wait().expect(0).out;
        let mut rows: Vec<String> = table.lines().skip(1).map(str::to_owned).collect();
        rows.sort();
        rows
    };
    let all = export(&[]);
    assert_eq!(all.len(), 4, "{all:?}");
    assert!(all.contains(&",robots.disallowed".to_owned()), "{all:?}");
    assert_eq!(export(&["--replied"]), ["200,", "404,"]);
    assert_eq!(export(&["--replied", "--all"]), ["200,", "200,", "404,"]);
}

#[test]
fn a_directory_among_the_fields_of_a_table_is_pointed_out() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("results.jsonl"), "{\"id\": 1}\n").expect("a file");
    fs::create_dir(folder.path().join("second")).expect("a folder");
    let args = ["export", ".", "--csv", "url", "second"];
    let refused = Going::start(&args, folder.path(), b"").wait();
    let says = ["\"second\" is a directory", "argiope export second --csv"];
    check_refused(&refused, &says);
    fs::create_dir(folder.path().join("my second")).expect("a folder");
    for flag in ["--csv", "--parquet"] {
        let args = ["export", ".", flag, "my second"];
        let refused = Going::start(&args, folder.path(), b"").wait();
        let cure = format!("argiope export 'my second' {flag} url\n");
        check_refused(&refused, &["\"my second\" is a directory", &cure]);
    }
}

#[test]
fn standard_output_that_is_closed_is_an_error_at_once() {
    let server = Server::new(web);
    let url = server.url("/");
    let folder = tempfile::tempdir().expect("a folder");
    let run = |line: &str, redirection: &str| {
        let script = format!(r#"exec "$0" {line} {redirection}"#);
        let mut command = Command::new("bash");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_argiope")]);
        Going::start_command(command, folder.path(), b"").wait()
    };
    let crawl = format!("crawl {url} --allow-net loopback -s DOWNLOAD_DELAY=0");
    let fetch = format!("fetch {url} --allow-net loopback");
    for line in [&format!("{crawl} --results -"), &fetch, "settings"] {
        let refused = run(line, ">&-");
        check_refused(&refused, &["standard output is closed", "> FILE"]);
        run(line, "> /dev/null").expect(0);
        run(line, "<> /dev/null 1>&0").expect(0);
    }
    // It is not needed.
    run(&format!("{crawl} --quiet --out out"), ">&-").expect(0);
    assert!(folder.path().join("out/results.jsonl").exists());
    let probe = format!("probe {url} --allow-net loopback --rate 50 --requests 1");
    for line in [
        &probe,
        &format!("{probe} --json --hdr a.hdr"),
        &format!("{probe} --results -"),
        "audit out",
        &format!("audit out --site 127.0.0.1:{}", server.port()),
        "audit out --json",
        "audit out -o -",
        "report out --json",
        "report out -o -",
        "export out --csv url",
        "cdxj out -o -",
        "links - --base http://a.test/",
        "robots - --agent a",
        "url http://a.test/",
        "state out",
        "completions bash",
    ] {
        let refused = run(line, ">&-");
        check_refused(&refused, &["standard output is closed", "> FILE"]);
        run(line, "> /dev/null").expect(0);
    }
    for line in [
        &format!("{probe} --results lines"),
        &format!("{probe} --hdr b.hdr"),
        &format!("{probe} --fail-above errors=50%"),
        "audit out -o audit.json",
        "report out",
        "export out --csv url -o pages.csv",
        "cdxj out",
        "cdxj out -o all.cdxj",
        "man pages",
    ] {
        run(line, ">&-").expect(0);
    }
    check_refused(&run("demo", ">&-"), &["standard output is closed"]);
    // No crawl runs there, to be asked or to be given an order.
    for question in ["", "status", "scopes", "limits", "log", "exclude"] {
        let refused = run(&format!("ctl out {question}"), ">&-");
        check_refused(&refused, &["standard output is closed"]);
    }
    for order in ["stop", "limits max-pages=5", "log debug", "exclude a.test"] {
        let refused = run(&format!("ctl out {order}"), ">&-");
        check_refused(&refused, &["no crawl is running in out"]);
    }
}

#[cfg(not(feature = "parquet"))]
#[test]
fn export_as_parquet_names_the_feature_that_the_build_lacks() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("results.jsonl"), "{\"id\": 1}\n").expect("a file");
    let args = ["export", ".", "--parquet", "id", "-o", "a.parquet"];
    let refused = Going::start(&args, folder.path(), b"").wait();
    check_refused(&refused, &["--parquet", "--features parquet", "--csv"]);
    assert!(!folder.path().join("a.parquet").exists());
}

#[test]
fn settings_of_files_are_refused_for_lines_on_standard_output() {
    for setting in [
        "RESULTS_SIZE_MAX=1MiB",
        "RESULTS_TIME_MAX=1h",
        "RESULTS_COMPRESSION=gzip",
    ] {
        let name = setting.split('=').next().expect("a name");
        let args = ["crawl", "http://a.test/", "--results", "-", "-s", setting];
        let folder = tempfile::tempdir().expect("a folder");
        let refused = Going::start(&args, folder.path(), b"").wait();
        check_refused(&refused, &[name, "--results -", "leave one of them out"]);
    }
}

#[test]
fn a_crawl_writes_lines_stats_and_warc_files() {
    let server = Server::new(web);
    let crawled = Crawl::of(&[&server.url("/")]).run();
    assert_eq!(crawled.ended.out, "");
    assert_eq!(crawled.ended.err, "");
    let lines = crawled.lines();
    assert_eq!(lines.len(), 31);
    let first = crawled.line(&server.url("/"));
    assert_eq!(first["links"], 30);
    assert_eq!(first["content_type"], "text/html; charset=utf-8");
    assert_eq!(first["version"], "HTTP/1.1");
    assert_eq!(first["remote"], format!("127.0.0.1:{}", server.port()));
    for line in &lines {
        let place = &line["warc"];
        let file = fs::read(crawled.out().join(crate::run::text(&place["file"]))).expect("a file");
        let at = |key: &str| place[key].as_u64().expect("a count") as usize;
        let member = &file[at("offset")..at("offset") + at("length")];
        let mut record = String::new();
        flate2::read::GzDecoder::new(member)
            .read_to_string(&mut record)
            .expect("one member");
        assert!(record.starts_with("WARC/1.1\r\n") && record.contains("WARC-Type: response"));
        let url = crate::run::text(&line["url"]);
        assert!(
            record.contains(&format!("WARC-Target-URI: {url}\r\n")),
            "{record}"
        );
    }
    let stats = crawled.stats();
    for (key, value) in [
        ("pages", 31),
        ("attempts", 31),
        ("seeds", 1),
        ("seeds_bad", 0),
        ("links", 30),
        ("queued", 0),
        ("in_flight", 0),
    ] {
        assert_eq!(stats[key], value, "{key}");
    }
    assert_eq!(stats["finish_reason"], "finished");
    assert_eq!(stats["status"]["200"], 31);
    for key in ["latency", "server_latency", "lateness", "lag"] {
        assert!(stats[key].is_object(), "{key}: {stats}");
    }
    let used = stats["lag_processor_max"].as_f64().expect("a number");
    let longest = stats["lag"]["max"].as_f64().expect("a number");
    // Longer turns are rounded to 0.1 %, and the clocks are not read at once.
    assert!(
        used > 0.0 && used < 1.002 * longest + 0.001,
        "{used} of {longest}"
    );
    assert!(
        stats["phases"]["tls"].is_null(),
        "what never happened is null"
    );
    assert!(!crawled.out().join("pending.jsonl").exists());
}

#[test]
fn the_summary_goes_to_stderr() {
    let server = Server::new(web);
    let crawled = Crawl::of(&[&server.url("/"), "--no-warc"]).aloud().run();
    assert_eq!(crawled.ended.out, "");
    assert!(crawled.ended.err.contains("finished after") && crawled.ended.err.contains("200: 31"));
    assert!(!crawled.out().join("warc").exists());
    assert!(crawled.lines().iter().all(|line| line["warc"].is_null()));
}

#[test]
fn lines_to_stdout_write_nothing_to_disk() {
    let server = Server::new(web);
    let crawl = Crawl::of(&[&server.url("/"), "--results", "-"]);
    let ended = crawl.try_run().expect(0);
    let lines = ended.lines();
    assert_eq!(lines.len(), 31);
    assert!(lines.iter().all(|line| line["warc"].is_null()));
    assert_eq!(fs::read_dir(crawl.folder()).expect("the folder").count(), 0);
    assert_eq!(ended.err, "");
}

#[test]
fn lines_to_stdout_and_files_to_a_directory() {
    let server = Server::new(web);
    let crawl = Crawl::of(&[&server.url("/"), "--results", "-", "--out", "out"]);
    let ended = crawl.try_run().expect(0);
    let lines = ended.lines();
    assert_eq!(lines.len(), 31);
    assert!(lines.iter().all(|line| line["warc"].is_object()));
    let crawled = crawl.left(ended);
    assert!(!crawled.out().join("results.jsonl").exists());
    assert_eq!(crawled.stats()["pages"], 31);
}

#[test]
fn decisions_are_written_to_a_file_and_logged_in_scrapys_format() {
    // Every page takes its time, or a busy machine makes some look far quicker than the others.
    let server = Server::new(|asked: &Asked| {
        let wait = Step::Wait(Duration::from_millis(10));
        [vec![wait], web(asked)].concat()
    });
    let url = server.url("/");
    let slot = format!("slot: 127.0.0.1:{} | conc: ", server.port());
    let crawl = |args: &[&str]| {
        let automatic = ["-s", "AUTOTHROTTLE_ENABLED=1"];
        let quick = ["-s", "AUTOTHROTTLE_START_DELAY=0"];
        Crawl::of(&[&url]).with(&automatic).with(&quick).with(args)
    };
    let debug = ["-s", "AUTOTHROTTLE_DEBUG=1"];
    let crawled = crawl(&debug).with(&["-v"]).aloud().run();
    let decisions = crawled.read("throttle.jsonl");
    assert_eq!(decisions.lines().count(), 31);
    for (line, result) in decisions.lines().zip(crawled.lines()) {
        let line: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(line["id"], result["id"]);
        assert_eq!(line["size"], result["bytes_body"]);
    }
    let aloud = crawled
        .ended
        .err
        .lines()
        .filter(|line| line.starts_with(&slot));
    assert_eq!(aloud.count(), 31, "{}{decisions}", crawled.ended.err);
    assert_eq!(crawled.stats()["decisions"]["autothrottle"], 31);

    // Not unless both are asked for, and nowhere but below --out.
    let crawled = crawl(&debug).aloud().run();
    assert!(!crawled.ended.err.contains(&slot), "{}", crawled.ended.err);
    let crawled = crawl(&["-v"]).aloud().run();
    assert!(!crawled.ended.err.contains(&slot), "{}", crawled.ended.err);
    assert!(!crawled.out().join("throttle.jsonl").exists());
    assert_eq!(crawled.stats()["decisions"]["autothrottle"], 31);
    let streamed = crawl(&debug).with(&["--results", "-"]);
    assert_eq!(streamed.try_run().expect(0).lines().len(), 31);
    assert_eq!(fs::read_dir(streamed.folder()).expect("it").count(), 0);
}

#[test]
fn lines_are_written_while_the_crawl_runs() {
    let server = Server::new(|asked: &Asked| match asked.target.as_str() {
        "/slow" => vec![Step::Wait(Duration::from_secs(3))],
        _ => page("quick"),
    });
    let (quick, slow) = (server.url("/"), server.url("/slow"));
    let crawl = Crawl::of(&[&quick, &slow, "--results", "-"]).with(&["--timeout", "4s"]);
    let mut going = crawl.start_without_reader();
    let began = std::time::Instant::now();
    let mut lines = BufReader::new(going.stdout()).lines();
    let first: Value =
        serde_json::from_str(&lines.next().expect("a line").expect("text")).expect("JSON");
    assert_eq!(first["url"], quick);
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(lines.count(), 1);
    going.wait().expect(0);
}

#[test]
fn closing_stdout_ends_the_crawl_quietly() {
    let server = Server::new(|asked: &Asked| {
        let at = asked.target.trim_end_matches('/');
        page(&format!(
            "<a href='{at}0'></a><a href='{at}1'></a>{}",
            "x".repeat(500)
        ))
    });
    let crawl = Crawl::of(&[&server.url("/1"), "--results", "-"]);
    let mut going = crawl.start_without_reader();
    let mut reader = BufReader::new(going.stdout());
    let mut line = String::new();
    reader.read_line(&mut line).expect("a line");
    drop(reader);
    let ended = going.wait();
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    assert!(ended.took < Duration::from_secs(10));
}

#[test]
fn a_full_disk_ends_the_crawl_and_names_the_path() {
    // Files that may not grow beyond a few kilobytes are the nearest that needs no rights.
    let server = Server::new(web);
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = std::process::Command::new("sh");
    let script = r#"ulimit -f 8; exec "$0" crawl "$1" --out out --quiet --allow-net loopback \
        --no-warc -s ROBOTSTXT_OBEY=0 -s DOWNLOAD_DELAY=0"#;
    command.args([
        "-c",
        script,
        env!("CARGO_BIN_EXE_argiope"),
        &server.url("/"),
    ]);
    let ended = crate::run::Going::start_command(command, folder.path(), b"").wait();
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    let named = ended.err.matches("results.jsonl").count();
    assert_eq!(named, 1, "{}", ended.err);
}

#[test]
fn foreign_files_are_never_overwritten() {
    let server = Server::new(web);
    let crawl = Crawl::of(&[&server.url("/"), "--out", "out/below"]);
    crawl.file("out", b"mine");
    check_refused(&crawl.try_run(), &["--out", "out/below"]);
    assert_eq!(
        fs::read(crawl.folder().join("out")).expect("it is there"),
        b"mine"
    );
}
