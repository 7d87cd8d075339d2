//! What messages advise is right, and what could be missed is said.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::run::{Crawl, Ended, Going, check_refused};
use crate::server::{Asked, Server, Step, head, not_found, page, raw, reply};

/// Runs a command line in a folder, split at spaces.
fn run_in(folder: &Path, line: &str) -> Ended {
    let words: Vec<&str> = line.split(' ').collect();
    Going::start(&words, folder, b"").wait()
}

/// The flags of a crawl of loopback.
const NET: &str = "--allow-net loopback --delay 0 -s ROBOTSTXT_OBEY=false";

#[test]
fn a_seeds_file_without_its_flag_is_never_taken_for_the_file_of_filtered() {
    let server = Server::new(|_| page("a page"));
    let folder = tempfile::tempdir().expect("a folder");
    let url = server.url("/");
    fs::write(folder.path().join("urls.txt"), &url).expect("a file");
    for words in [
        "urls.txt --filtered",
        "URL urls.txt --filtered",
        "--filtered urls.txt URL",
    ] {
        let line = format!("crawl {} {NET}", words.replace("URL", &url));
        let refused = run_in(folder.path(), &line);
        check_refused(&refused, &["--seeds urls.txt"]);
        assert!(!refused.err.contains("remove"), "{}", refused.err);
    }
    assert!(server.asked().is_empty());
}

#[test]
fn the_file_of_filtered_may_have_any_path() {
    let server = Server::new(|_| page("<a href=http://c.test/>c</a>"));
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["logs", "my.logs"] {
        fs::create_dir(folder.path().join(name)).expect("a folder");
    }
    let absolute = folder.path().join("absolute");
    let absolute = absolute.to_str().expect("text");
    let files = [
        "left",
        "logs/left.jsonl",
        "my.logs/left",
        "out3/left.jsonl",
        absolute,
    ];
    for (number, file) in files.into_iter().enumerate() {
        let url = server.url(&format!("/{number}"));
        let line = format!("crawl {url} --filtered {file} --out out{number} {NET}");
        let ended = run_in(folder.path(), &line);
        assert_eq!(ended.code, Some(0), "{file}: {}", ended.err);
        let lines = fs::read_to_string(folder.path().join(file)).expect(file);
        assert!(lines.contains("http://c.test/"), "{lines}");
    }
    // A URL behind it is one.
    let line = format!("crawl --filtered {} --out last {NET}", server.url("/last"));
    let ended = run_in(folder.path(), &line);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(folder.path().join("last/filtered.jsonl").exists());
}

#[test]
fn a_link_whose_file_was_rotated_is_pointed_out() {
    let server = Server::new(|_| page("<a href=http://c.test/>c</a>"));
    let crawl = Crawl::of(&[&server.url("/"), "--filtered=left.jsonl"]).aloud();
    let out = crawl.folder().join("out");
    let first = crawl.try_run().expect(0);
    assert!(!first.err.contains("rotate"), "{}", first.err);
    // As an order to rotate leaves it.
    let (from, to) = (
        out.join("filtered.jsonl"),
        out.join("filtered-000001.jsonl"),
    );
    fs::rename(from, to).expect("it can be renamed");
    let line = format!(
        "crawl {} --filtered left.jsonl --out out --resume",
        server.url("/")
    );
    let again = run_in(crawl.folder(), &line);
    let words = "the link has no file since `argiope ctl rotate`";
    assert!(again.err.contains(words), "{}", again.err);
}

#[test]
fn a_crawl_whose_seeds_were_all_rejected_is_begun_anew_by_the_corrected_command() {
    let server = Server::new(|_| page("a page"));
    let bad: String = (0..20).map(|n| format!("not a url {n}\n")).collect();
    let crawl = Crawl::of(&["--seeds", "seeds.txt"]);
    crawl.file("seeds.txt", bad.as_bytes());
    for _ in 0..2 {
        let ended = crawl.try_run().expect(2);
        assert!(ended.err.contains("contain no URL"), "{}", ended.err);
        let file = fs::read_to_string(crawl.folder().join("out/rejected.jsonl"));
        assert_eq!(file.expect("it is written").lines().count(), 20);
    }
    crawl.file("seeds.txt", server.url("/").as_bytes());
    let crawled = crawl.run();
    assert_eq!(crawled.lines().len(), 1);
    assert!(!crawled.out().join("rejected.jsonl").exists());
}

#[test]
fn a_login_for_the_hosts_of_a_seeds_file_is_pointed_out() {
    let server = Server::new(|_| reply("401 Unauthorized", &[], b"no"));
    let crawl = Crawl::of(&["--seeds", "seeds.txt", "--user", "me:secret"]).aloud();
    crawl.file("seeds.txt", server.url("/").as_bytes());
    let ended = crawl.try_run().expect(0);
    let words = "the login is sent to the hosts of all seeds";
    assert!(ended.err.contains(words), "{}", ended.err);
    // It was sent, and refused.
    assert!(server.only("/").header("Authorization").is_some());
    assert!(
        ended.err.contains("1 reply refuses the login"),
        "{}",
        ended.err
    );
    assert!(!ended.err.contains("sends one"), "{}", ended.err);
}

#[test]
fn a_directory_behind_resume_is_answered_before_another_one_is_looked_at() {
    let server = Server::new(|_| page("a page"));
    let folder = tempfile::tempdir().expect("a folder");
    for out in ["mine", "my.crawl"] {
        let line = format!("crawl {} --out {out} {NET}", server.url("/"));
        run_in(folder.path(), &line).expect(0);
        let refused = run_in(folder.path(), &format!("crawl --resume {out}"));
        check_refused(&refused, &[&format!("write --resume --out {out}")]);
    }
}

#[test]
fn a_bound_of_ignored_robots_that_was_set_holds_beside_the_flag() {
    let server = Server::new(|_| page("a page"));
    let folder = tempfile::tempdir().expect("a folder");
    let seeds = |count: u32| -> String {
        (0..count)
            .map(|n| format!("host{n}.example.com\n"))
            .collect()
    };
    fs::write(folder.path().join("seeds"), seeds(11)).expect("a file");
    fs::write(folder.path().join("strict"), seeds(3)).expect("a file");
    fs::write(
        folder.path().join("c.toml"),
        "ROBOTSTXT_IGNORED_HOSTS_MAX = 2\n",
    )
    .expect("a file");
    let by_proxy = format!(
        "--proxy http://127.0.0.1:{} --allow-net loopback",
        server.port()
    );
    let fixed = format!("--contact me@example.org {by_proxy} --delay 0 --results -");
    let run = |args: &str| {
        run_in(
            folder.path(),
            &format!("crawl --ignore-robots {fixed} {args}"),
        )
    };
    check_refused(&run("--seeds seeds"), &["more than 10 public hosts"]);
    let confirmed = run("--seeds seeds -s ROBOTSTXT_IGNORED_HOSTS_MAX=0");
    assert_eq!(confirmed.expect(0).lines().len(), 11);
    check_refused(
        &run("--seeds strict --config c.toml"),
        &["more than 2 public hosts"],
    );
}

#[test]
fn no_rule_is_named_of_a_robots_txt_that_is_unavailable() {
    let server = Server::new(|_| reply("503 Service Unavailable", &[], b""));
    let folder = tempfile::tempdir().expect("a folder");
    let line = format!(
        "robots {} --agent me --json --allow-net loopback",
        server.url("/x")
    );
    let ended = run_in(folder.path(), &line).expect(1);
    let answer: Value = serde_json::from_str(&ended.out).expect("JSON");
    assert_eq!(answer["allowed"], false);
    assert_eq!(
        (&answer["rule"], &answer["line"]),
        (&Value::Null, &Value::Null)
    );
    let server = Server::new(|_| reply("200 OK", &[], b"User-agent: *\nDisallow: /x\n"));
    let line = format!(
        "robots {} --agent me --json --allow-net loopback",
        server.url("/x")
    );
    let ended = run_in(folder.path(), &line).expect(0);
    let answer: Value = serde_json::from_str(&ended.out).expect("JSON");
    assert_eq!(
        (&answer["rule"], &answer["line"]),
        (&"Disallow: /x".into(), &2.into())
    );
}

#[test]
fn commands_say_that_result_lines_went_to_standard_output() {
    let server = Server::new(|_| page("a page"));
    let url = server.url("/");
    let crawl = Crawl::of(&[&url, "--results", "-", "--out", "out"]);
    crawl.try_run().expect(0);
    let state = run_in(crawl.folder(), &format!("state out --url {url}")).expect(0);
    assert!(
        state.out.contains("went to standard output"),
        "{}",
        state.out
    );
    let export = run_in(crawl.folder(), "export out --csv url");
    check_refused(&export, &["--results -", "standard output"]);
}

#[test]
fn a_body_that_is_saved_in_part_is_reported() {
    let server = Server::new(|asked: &Asked| match asked.target.as_str() {
        "/cut" => vec![
            raw(&head("200 OK", &["Content-Length: 1000"])),
            raw(&[b'x'; 100]),
            Step::Close,
        ],
        "/long" => reply("200 OK", &[], &[b'x'; 3000]),
        _ => page("a page"),
    });
    let folder = tempfile::tempdir().expect("a folder");
    let fetch = |path: &str| {
        let url = server.url(path);
        let fixed = "-s RETRY_TIMES=0 -s DOWNLOAD_MAXSIZE=2000 --allow-net loopback";
        run_in(folder.path(), &format!("fetch {url} -o body {fixed}"))
            .expect(0)
            .err
    };
    let said = fetch("/cut");
    assert!(
        said.contains("-o body: the body is not whole, these are 100 bytes"),
        "{said}"
    );
    let said = fetch("/long");
    assert!(said.contains("these are 2000 bytes"), "{said}");
    assert!(said.contains("-s DOWNLOAD_MAXSIZE=BYTES"), "{said}");
    assert_eq!(fetch("/"), "");
    // A second time: what has the name of a host is one, also if there is such a file.
    let port = server.port();
    let line = format!(
        "fetch a.test:{port} -o a.test:{port} --resolve *:{port}:127.0.0.1 --allow-net loopback"
    );
    for _ in 0..2 {
        run_in(folder.path(), &line).expect(0);
    }
}

#[test]
fn settings_that_a_flag_sets_to_their_defaults_are_not_changed() {
    let shown = run_in(
        Path::new("/"),
        "settings --changed --proxy http://127.0.0.1:1 --json",
    );
    let shown: Value = serde_json::from_str(&shown.expect(0).out).expect("JSON");
    let names: Vec<&Value> = shown
        .as_array()
        .expect("a list")
        .iter()
        .map(|it| &it["name"])
        .collect();
    assert_eq!(names, ["PROXY"]);
}

#[test]
fn warc_files_that_were_asked_for_and_have_no_directory_are_refused() {
    let server = Server::new(|_| not_found());
    let folder = tempfile::tempdir().expect("a folder");
    let line = format!("crawl {} --results - -s WARC=true", server.url("/"));
    check_refused(&run_in(folder.path(), &line), &["-s WARC", "give --out"]);
    fs::write(folder.path().join("c.toml"), "WARC = true\n").expect("a file");
    let line = format!(
        "crawl {} --results - --config c.toml {NET}",
        server.url("/")
    );
    let ended = run_in(folder.path(), &line).expect(0);
    assert!(
        ended.err.contains("WARC (c.toml:1): WARC files go"),
        "{}",
        ended.err
    );
    // It is the default.
    let line = format!("crawl {} --results - {NET}", server.url("/"));
    let ended = run_in(folder.path(), &line).expect(0);
    assert!(!ended.err.contains("WARC files go"), "{}", ended.err);
}

#[test]
fn a_url_at_depth_0_of_a_seed_is_refused() {
    let ended = run_in(Path::new("/"), "url --from a.test --depth 0 http://b.test/");
    check_refused(
        &ended,
        &["--depth", "without --from a URL is judged as a seed"],
    );
}

#[test]
fn a_table_with_a_header_is_read_by_its_column_and_pages_of_it_are_requested() {
    let server = Server::new(|_| page("a page"));
    let crawl = Crawl::of(&["--follow", "none", "--seeds", "urls.txt"]);
    let urls: String = ["/1", "/2,3"].map(|path| server.url(path) + "\n").concat();
    crawl.file("urls.txt", urls.as_bytes());
    let ended = crawl.try_run().expect(0);
    let exported = run_in(crawl.folder(), "export out --csv url status").expect(0);
    drop((crawl, ended));
    // What was exported is read again, also in a run that resumes the crawl.
    let again = Crawl::of(&[
        "--follow",
        "none",
        "--seeds",
        "table.csv",
        "--max-pages",
        "1",
    ]);
    again.file("table.csv", exported.out.as_bytes());
    let ended = again.try_run().expect(0);
    assert_eq!(ended.err, "");
    run_in(
        again.folder(),
        "crawl --resume --out out --max-pages 0 --quiet",
    )
    .expect(0);
    assert_eq!(
        again.left(ended).urls(),
        ["/1", "/2,3"].map(|path| server.url(path))
    );
    assert_eq!(server.targets(), ["/1", "/1", "/2,3", "/2,3"]);
}
