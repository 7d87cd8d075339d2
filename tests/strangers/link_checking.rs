//! Tests of the link checker: its report, and the requests to the sites.

use std::future::{Future, pending};
use std::sync::Mutex;
use std::time::Duration;

use argiope::testkit::dns;
use argiope::{Config, FinishReason};
use tokio::runtime;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::{Instant, sleep, timeout};

use crate::PATIENCE;
use crate::link_checker::{Report, Verdict, check};
use crate::loopback::{Reply, Server};

/// A name server that knows no name.
fn nobody() -> String {
    dns::serve(|_| dns::Answer::Nonexistent).to_string()
}

/// Does this on one thread.
fn on_one_thread<T>(work: impl Future<Output = T>) -> T {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async { timeout(PATIENCE, work).await.expect("it ends") })
}

fn config(server: &Server) -> Config {
    server
        .config()
        .with("DNS_SERVERS", nobody())
        .expect("it is sound")
}

/// The report on a URL, and the pages that contain it.
fn verdict_on<'a>(report: &'a Report, url: &str) -> (&'a Verdict, Vec<&'a str>) {
    let target = report
        .targets
        .iter()
        .find(|target| target.url.as_str() == url);
    let target = target.unwrap_or_else(|| panic!("{url} is not in {report:#?}"));
    (
        &target.verdict,
        target.pages.iter().map(String::as_str).collect(),
    )
}

#[test]
fn each_broken_link_is_reported_with_its_pages() {
    let server = Server::start(|asked| {
        match (asked.host.as_str(), asked.target.as_str()) {
        ("a.test", "/") => Reply::page(
            "<a href=/fine>1</a> <a href=/gone>2</a> <a href=/moved>3</a> <a href='http://b.test/'>4</a>
             <a href='http://b.test/no-head'>5</a> <a href='http://nobody.test:81/'>6</a>
             <a href='http://slow.test/'>7</a> <a href='mailto:me@a.test'>8</a> <img src=/missing.png>",
        ),
        ("a.test", "/fine") => Reply::page("<a href='/gone#there'>1</a> <a href=/fine>2</a>"),
        ("a.test", "/moved") => Reply::redirect("301 Moved Permanently", "/moved/on"),
        ("a.test", "/moved/on") => Reply::redirect("302 Found", "http://b.test/page"),
        // Nobody reads what the other site links to.
        ("b.test", "/page") => Reply::page("<a href='http://b.test/unread'>1</a>"),
        ("b.test", "/no-head") if asked.method == "HEAD" => Reply::status("405 Method Not Allowed"),
        ("b.test", "/" | "/no-head") => Reply::page(""),
        ("slow.test", _) => Reply::page("").after(Duration::from_secs(600)),
        _ => Reply::status("404 Not Found"),
    }
    });
    let config = config(&server)
        .with("FIRST_BYTE_TIMEOUT", "2s")
        .expect("it is sound");
    let (report, longest) = on_one_thread(async {
        let mut checked = tokio::spawn(check("http://a.test/", config, 100, pending()));
        // A task on the same thread, which measures how long it has to wait.
        let (mut longest, mut ticks) = (Duration::ZERO, 0);
        let report = loop {
            let tick = Instant::now();
            tokio::select! {
                report = &mut checked => break report.expect("it does not panic").expect("it is checked"),
                () = sleep(Duration::from_millis(10)) => longest = longest.max(tick.elapsed()),
            }
            ticks += 1;
        };
        assert!(ticks >= 10, "the neighbour had {ticks} turns");
        (report, longest)
    });
    assert!(
        longest < Duration::from_secs(1),
        "somebody waited for {longest:?}"
    );
    assert_eq!(
        (report.reason, report.left_out, report.targets.len()),
        (FinishReason::Finished, 0, 9)
    );

    let broken = |code: &str| Verdict::Broken(code.to_owned());
    let start = "http://a.test/";
    for (url, verdict, pages) in [
        ("http://a.test/", Verdict::Fine(200), vec![]),
        (
            "http://a.test/fine",
            Verdict::Fine(200),
            vec![start, "http://a.test/fine"],
        ),
        (
            "http://a.test/gone",
            broken("404"),
            vec![start, "http://a.test/fine"],
        ),
        ("http://a.test/missing.png", broken("404"), vec![start]),
        ("http://a.test/moved", Verdict::Fine(200), vec![start]),
        ("http://b.test/", Verdict::Fine(200), vec![start]),
        ("http://b.test/no-head", Verdict::Fine(200), vec![start]),
        (
            "http://nobody.test:81/",
            broken("dns.nxdomain"),
            vec![start],
        ),
        (
            "http://slow.test/",
            broken("timeout.first_byte"),
            vec![start],
        ),
    ] {
        assert_eq!(verdict_on(&report, url), (&verdict, pages), "{url}");
    }
    let moved = report
        .targets
        .iter()
        .find(|target| !target.redirects.is_empty());
    let redirects = [(301, "http://a.test/moved/on"), (302, "http://b.test/page")];
    let redirects = redirects.map(|(status, to)| (status, to.to_owned()));
    assert_eq!(moved.expect("one is redirected").redirects, redirects);

    let mut asked: Vec<_> = server.asked();
    asked.sort_by(|a, b| (&a.host, &a.target, &a.at).cmp(&(&b.host, &b.target, &b.at)));
    let asked: Vec<_> = asked
        .iter()
        .map(|a| [&*a.method, &*a.host, &*a.target])
        .collect();
    let expected = [
        ["GET", "a.test", "/"],
        ["GET", "a.test", "/fine"],
        ["GET", "a.test", "/gone"],
        ["GET", "a.test", "/missing.png"],
        ["GET", "a.test", "/moved"],
        ["GET", "a.test", "/moved/on"],
        ["HEAD", "b.test", "/"],
        ["HEAD", "b.test", "/no-head"],
        ["GET", "b.test", "/no-head"],
        ["GET", "b.test", "/page"],
        ["HEAD", "slow.test", "/"],
    ];
    assert_eq!(asked, expected);
}

#[test]
fn an_endless_site_is_checked_until_the_limit_or_a_stop() {
    let (sender, mut receiver) = unbounded_channel();
    let sender = Mutex::new(sender);
    let server = Server::start(move |asked| {
        let _ = sender.lock().expect("no holder panics").send(());
        let number: u64 = asked.target[1..].parse().unwrap_or(0);
        Reply::page(format!(
            "<a href=/{}>1</a> <a href=/{}>2</a>",
            2 * number + 1,
            2 * number + 2
        ))
    });
    let report = on_one_thread(check("http://a.test/", config(&server), 20, pending()));
    let report = report.expect("it is checked");
    assert_eq!(
        (report.reason, report.targets.len(), server.asked().len()),
        (FinishReason::Finished, 20, 20)
    );
    assert!(
        report
            .targets
            .iter()
            .all(|target| target.verdict == Verdict::Fine(200))
    );
    assert_eq!(report.left_out, 2 * 20 + 1 - 20);

    let report = on_one_thread(async {
        let stop = async {
            for _ in 0..20 + 10 {
                receiver.recv().await.expect("it is asked");
            }
        };
        check("http://a.test/", config(&server), 100_000, stop)
            .await
            .expect("it is checked")
    });
    assert_eq!(report.reason, FinishReason::Shutdown);
    let verdicts = report.targets.iter().map(|target| &target.verdict);
    let (unknown, known): (Vec<_>, Vec<_>) =
        verdicts.partition(|verdict| **verdict == Verdict::Unknown);
    assert!(
        known.len() >= 9 && unknown.len() > known.len(),
        "{unknown:?} {known:?}"
    );
    // Each that was asked for was waited for.
    assert_eq!(known.len(), server.asked().len() - 20);
}

#[test]
fn disallowed_links_are_not_reported_as_broken() {
    let server = Server::start(|asked| match asked.target.as_str() {
        "/" => Reply::page("<a href=/private>1</a>"),
        "/robots.txt" => Reply::page("User-agent: *\nDisallow: /private\n"),
        _ => Reply::status("404 Not Found"),
    });
    let config = config(&server)
        .with("ROBOTSTXT_OBEY", true)
        .expect("it is sound");
    let report =
        on_one_thread(check("http://a.test/", config, 20, pending())).expect("it is checked");
    let skipped = Verdict::Skipped("robots.disallowed".to_owned());
    assert_eq!(
        verdict_on(&report, "http://a.test/private"),
        (&skipped, vec!["http://a.test/"])
    );
    assert_eq!(server.asked_of(|asked| asked.target == "/private").len(), 0);
}
