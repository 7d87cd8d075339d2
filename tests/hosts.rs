//! Programs that embed a crawl: each example runs against a server on loopback, which measures.

#[allow(dead_code, reason = "other tests ask it for more")]
mod loopback;

#[allow(dead_code, reason = "its main is a user's to run")]
#[path = "../examples/in_a_thread.rs"]
mod in_a_thread;
#[allow(dead_code, reason = "its main is a user's to run")]
#[path = "../examples/in_epoll.rs"]
mod in_epoll;
#[allow(dead_code, reason = "its main is a user's to run")]
#[path = "../examples/in_tokio.rs"]
mod in_tokio;
#[allow(dead_code, reason = "its main is a user's to run")]
#[path = "../examples/in_virtual_time.rs"]
mod in_virtual_time;
#[allow(dead_code, reason = "its main is a user's to run")]
#[path = "../examples/one_function.rs"]
mod one_function;
#[cfg(feature = "tokio")]
#[allow(dead_code, reason = "its main is a user's to run")]
#[path = "../examples/tokio_to_sqlite.rs"]
mod tokio_to_sqlite;

use std::fs;
use std::io::{PipeWriter, Write};
use std::path::Path;
use std::time::Duration;

use argiope::settings::SettingValue;
#[cfg(feature = "tokio")]
use argiope::sim::{Reply as SimReply, Web};
use argiope::{Config, Crawler, Page};
#[cfg(feature = "tokio")]
use argiope::{FinishReason, Request};

use tokio::runtime::Runtime;

use loopback::{Reply, Server, gaps};

/// No crawl here takes longer, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// An example fits on one screen.
const LINES_MAX: usize = 40;

#[test]
fn each_example_has_at_most_forty_lines() {
    let shown = [
        "examples/in_a_thread.rs",
        "examples/in_tokio.rs",
        "examples/in_epoll.rs",
        "examples/lines.sh",
        "examples/in_virtual_time.rs",
    ];
    for name in shown {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        let text = fs::read_to_string(path).expect("the example is there");
        let lines = text.lines().count();
        assert!(lines <= LINES_MAX, "{name} has {lines} lines");
    }
}

#[test]
fn the_function_that_a_test_runs_in_virtual_time_runs_on_the_kernel() {
    let server = Server::start(|asked| match asked.path() {
        "/0" => Reply::status(404),
        _ => Reply::page("a page"),
    });
    let urls = urls(3);
    let mut crawler = Crawler::builder(server.config()).build().expect("set up");
    let gone = one_function::gone(&mut crawler, &urls);
    assert_eq!(gone, Ok(vec![urls[0].clone()]));
}

#[test]
fn a_thread_fetches_in_sequence_by_a_handle() {
    let server = Server::start(|_| Reply::page("a page"));
    let urls = urls(3);
    let pages = in_a_thread::crawl(server.config(), urls.clone()).expect("it can be set up");
    let results: Vec<_> = pages.iter().map(|page| page.url.clone()).collect();
    assert_eq!(results, urls);
    let asked = server.asked();
    for pair in asked.windows(2) {
        assert!(pair[1].at > pair[0].done, "the next waits for the answer");
    }
}

#[test]
fn a_tokio_program_keeps_a_pace_to_the_millisecond() {
    const PAGES: usize = 12;
    let pace = Duration::from_millis(50);
    let mut seen = Vec::new();
    // Other processes may delay some requests. A loop that rounds its timeouts delays most.
    for _ in 0..5 {
        let server = Server::start(|_| Reply::page("a page"));
        let config = set(server.config(), "DOWNLOAD_DELAY", "50ms");
        let pages = runtime().block_on(async {
            let mut crawl = in_tokio::crawl(config, urls(PAGES)).expect("it can be set up");
            let mut pages: Vec<Page> = Vec::new();
            while let Some(page) = crawl.next().await {
                pages.push(page);
            }
            pages
        });
        assert_eq!(pages.len(), PAGES);
        let mut gaps = gaps(&server.asked());
        gaps.sort();
        let late = gaps[gaps.len() / 4].saturating_sub(pace);
        if late < Duration::from_millis(1) {
            return;
        }
        seen.push(gaps);
    }
    panic!("the server saw {seen:?}");
}

#[test]
fn busy_tasks_do_not_delay_the_requests_of_a_crawl() {
    let pace = Duration::from_millis(10);
    let mut seen = Vec::new();
    for _ in 0..5 {
        let server = Server::start(|_| Reply::page("a page"));
        let config = set(server.config(), "DOWNLOAD_DELAY", "10ms");
        runtime().block_on(async {
            let mut crawl = in_tokio::crawl(config, urls(30)).expect("it can be set up");
            while crawl.next().await.is_some() {
                // The only thread of the runtime has other work.
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let mut gaps = gaps(&server.asked());
        gaps.sort();
        let late = gaps[gaps.len() / 4].saturating_sub(pace);
        if late < Duration::from_millis(1) {
            return;
        }
        seen.push(gaps);
    }
    panic!("the server saw {seen:?}");
}

#[test]
fn untaken_pages_in_tokio_pause_the_crawl_and_none_is_lost() {
    const PAGES: usize = 12_000;
    let server = Server::start(|_| Reply::page("a page"));
    let config = set(server.config(), "CONCURRENT_REQUESTS_PER_DOMAIN", 8);
    runtime().block_on(async {
        let mut crawl = in_tokio::crawl(config, urls(PAGES)).expect("it can be set up");
        let mut taken = 0;
        while crawl.next().await.is_some() {
            taken += 1;
            if taken == 1 {
                // The task sleeps, and its thread with it: 256 results wait, and those that were in flight.
                std::thread::sleep(Duration::from_millis(500));
                let asked = server.asked().len();
                assert!((256..=taken + 256 + 8).contains(&asked), "{asked} pages");
            }
        }
        assert_eq!(taken, PAGES);
    });
}

#[cfg(feature = "tokio")]
#[test]
fn requests_of_a_channel_keep_the_pace_of_their_scopes_and_their_pages_are_in_sqlite() {
    let server = Server::start(|_| Reply::page("a page"));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pages.db");
    let scopes = argiope::serde_json::json!({"key/a": {"delay": "50ms"}, "key/b": {"delay": 0}});
    let config = set(server.config(), "THROTTLING_SCOPES", scopes);
    let config = set(config, "RANDOMIZE_DOWNLOAD_DELAY", false);
    let reason = runtime().block_on(async {
        let (sender, requests) = tokio::sync::mpsc::channel(2);
        let crawl = tokio::spawn(tokio_to_sqlite::harvest(config, requests, file.clone()));
        for (number, url) in urls(40).into_iter().enumerate() {
            let scope = ["key/a", "key/b"][usize::from(number >= 10)];
            let request = Request::get(url).meta(scope);
            sender.send(request).await.expect("the crawl receives");
        }
        drop(sender);
        crawl.await.expect("no panic").expect("it writes")
    });
    assert_eq!(reason, Some(FinishReason::Finished));
    let database = rusqlite::Connection::open(file).expect("a database");
    let mut rows = database
        .prepare(
            "SELECT scope, count(*) FROM pages WHERE status = 200 GROUP BY scope ORDER BY scope",
        )
        .expect("SQL");
    let counts = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    let counts: Vec<(String, u32)> = counts.expect("rows").map(Result::unwrap).collect();
    assert_eq!(counts, [("key/a".to_owned(), 10), ("key/b".to_owned(), 30)]);
    let asked = server.asked();
    let took = asked.last().expect("pages").at - asked[0].at;
    assert!(took >= Duration::from_millis(9 * 50), "{took:?}");
}

#[cfg(feature = "tokio")]
#[test]
fn a_refusal_slows_the_host_and_not_the_scope_that_its_requests_name() {
    let web = Web::new(|asked| match &*asked.host {
        "a.test" | "b.test" => SimReply::status(429).field("Retry-After", 60),
        _ => SimReply::page("a page"),
    });
    let config = tokio_to_sqlite::config().expect("the settings are valid");
    let config = set(config, "ROBOTSTXT_OBEY", false);
    let config = set(config, "RETRY_TIMES", 0);
    let builder = Crawler::builder(config).scope_map(tokio_to_sqlite::NamedAndHost);
    let mut crawler = builder.build_in(&web, 1).expect("it can be set up");
    for (number, host) in ["a", "b", "c", "d", "a", "b"].iter().enumerate() {
        let request = Request::get(format!("http://{host}.test/{number}"));
        crawler
            .submit(request.meta("key/b"))
            .expect("it is a request");
    }
    while crawler.next_result().is_some() {}
    let pacing = crawler.pacing();
    let of = |name: &str| pacing.scopes.iter().find(|scope| scope.scope == name);
    let delay = |name: &str| of(name).map(|scope| (scope.pace.delay, scope.refused));
    assert_eq!(delay("key/b"), Some((Duration::from_millis(250), 0)));
    for host in ["a.test", "b.test"] {
        let (delay, refused) = delay(host).expect("it is a scope");
        assert_eq!(refused, 2);
        assert!(delay > Duration::from_secs(1), "{host}: {delay:?}");
    }
    let at = |host: &str| {
        let asked = web.asked().into_iter().filter(|asked| asked.host == host);
        asked.map(|asked| asked.at).collect::<Vec<_>>()
    };
    let (a, d) = (at("a.test"), at("d.test"));
    assert!(a[1].saturating_since(a[0]) >= Duration::from_secs(60));
    assert!(d[0].saturating_since(a[0]) < Duration::from_secs(2));
}

#[test]
fn an_epoll_loop_runs_a_crawl_and_its_own_descriptors() {
    let server = Server::start(|_| Reply::page("a page"));
    let (reads, writes) = std::io::pipe().expect("a pipe");
    let builder = Crawler::builder(server.config()).sink(|_: Page| {});
    let crawler = builder.build().expect("an epoll");
    let crawl = std::thread::spawn(|| in_epoll::crawl(crawler, reads).map_err(|e| e.to_string()));
    let say = |mut pipe: &PipeWriter, text: &str| pipe.write_all(text.as_bytes());
    // Each line arrives when nothing is in flight, and one of them in two pieces.
    for (before, text) in [
        (0, "http://a.test/1\n"),
        (1, "http://a.test/2\nhttp://a.te"),
        (2, "st/3\n"),
    ] {
        wait_until(|| server.asked().len() == before);
        say(&writes, text).expect("it reads");
    }
    wait_until(|| server.asked().len() == 3);
    drop(writes);
    assert_eq!(crawl.join().expect("it ends").as_deref(), Ok("finished"));
}

#[cfg(feature = "cli")]
#[test]
fn a_shell_script_drives_a_crawl_through_pipes() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    use std::time::Instant;

    let server = Server::start(|asked| match asked.target.as_str() {
        "/robots.txt" => Reply::status("404 Not Found"),
        "/moved" => Reply::redirect("302 Found", "/there"),
        _ => Reply::page("<a href=/linked>not followed</a>"),
    });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/lines.sh");
    let mut shell = Command::new("bash")
        .arg(script)
        .args(["--allow-net", "loopback", "--resolve", &server.here()])
        .args(["-s", "DOWNLOAD_DELAY=0"])
        .env("ARGIOPE", env!("CARGO_BIN_EXE_argiope"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("bash is there");
    let mut seeds = shell.stdin.take().expect("stdin is piped");
    let mut lines = BufReader::new(shell.stdout.take().expect("stdout is piped")).lines();
    let mut next = || -> argiope::serde_json::Value {
        let line = lines.next().expect("a line").expect("text");
        argiope::serde_json::from_str(&line).expect("JSON")
    };
    let began = Instant::now();
    for number in 1..=8 {
        writeln!(
            seeds,
            r#"{{"url": "http://a.test/{number}", "meta": {number}}}"#
        )
        .expect("it reads");
        if number == 1 {
            assert_eq!(next()["kind"], "robots");
        }
        let line = next();
        assert_eq!(
            (&line["status"], &line["meta"]),
            (&200.into(), &number.into())
        );
    }
    // A crawl that collected lines for a second would take one second for each.
    let took = began.elapsed();
    assert!(took < Duration::from_secs(4), "{took:?}");
    writeln!(seeds, "http://a.test/moved").expect("it reads");
    assert_eq!(next()["redirect"], "http://a.test/there");
    assert_eq!(next()["url"], "http://a.test/there");
    drop(seeds);
    assert!(shell.wait().expect("it ends").success());
    assert!(lines.next().is_none(), "links are not followed");
}

#[test]
fn a_day_in_virtual_time_is_reproducible_from_the_seed() {
    let (web, results) = in_virtual_time::day(1).expect("it can be set up");
    assert_eq!((results.len(), web.asked().len()), (8640, 8640));
    assert!(results.iter().all(|page| page.status == Some(200)));
    let last = web.asked()[8639].at.as_nanos();
    let almost_a_day = Duration::from_secs(8639 * 10);
    assert!(u128::from(last) >= almost_a_day.as_nanos());
    let (again, _) = in_virtual_time::day(1).expect("it can be set up");
    assert_eq!(web.asked(), again.asked());
    let (other, _) = in_virtual_time::day(2).expect("it can be set up");
    assert_ne!(web.asked(), other.asked());
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_io().build().expect("a runtime")
}

fn urls(count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("http://a.test/{number}"))
        .collect()
}

fn set(config: Config, name: &str, value: impl Into<SettingValue>) -> Config {
    config.with(name, value).expect("the setting is sound")
}

fn wait_until(is_so: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "it does not come about");
        std::thread::sleep(Duration::from_millis(2));
    }
}
