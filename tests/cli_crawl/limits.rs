//! Limits of a crawl, and its reason for ending.

use std::time::Duration;

use serde_json::json;

use crate::run::Crawl;
use crate::server::{Asked, Server, Step, not_found, page, reply};

/// A web in which every page has two more: `/1` has `/10` and `/11`.
fn endless(asked: &Asked) -> Vec<Step> {
    if asked.target == "/robots.txt" {
        return not_found();
    }
    let at = asked.target.trim_end_matches('/');
    page(&format!("<a href='{at}0'>0</a> <a href='{at}1'>1</a>"))
}

#[test]
fn max_pages_is_exact() {
    for limit in [1, 7, 40] {
        let server = Server::new(endless);
        let count = limit.to_string();
        let crawled = Crawl::of(&[&server.url("/1"), "--max-pages", &count]).run();
        let lines = crawled.lines();
        let pages = lines
            .iter()
            .filter(|line| line["status"] == 200 && line["final"] == true);
        assert_eq!(pages.count(), limit);
        let stats = crawled.stats();
        assert_eq!(stats["pages"], limit);
        assert_eq!(stats["finish_reason"], "closespider_pagecount");
        assert_eq!(server.asked().len(), limit, "no page is fetched in vain");
    }
}

#[test]
fn a_crawl_ends_after_max_time() {
    let server = Server::new(endless);
    let args = ["--max-time", "1s", "-s", "DOWNLOAD_DELAY=50ms"];
    let crawled = Crawl::of(&[&server.url("/1")]).with(&args).run();
    assert_eq!(crawled.stats()["finish_reason"], "closespider_timeout");
    let took = crawled.ended.took;
    assert!(
        (Duration::from_millis(900)..Duration::from_secs(5)).contains(&took),
        "{took:?}"
    );
    assert!(crawled.lines().len() > 2);
}

#[test]
fn max_depth_bounds_the_depth() {
    let check = |depth: &str, pages: usize| {
        let server = Server::new(endless);
        let crawled = Crawl::of(&[&server.url("/1"), "--max-depth", depth]).run();
        assert_eq!(server.targets().len(), pages, "depth {depth}");
        let deepest = crawled
            .lines()
            .iter()
            .filter_map(|line| line["depth"].as_u64())
            .max();
        assert_eq!(
            deepest.map(|depth| depth.to_string()).as_deref(),
            Some(depth)
        );
    };
    check("1", 3);
    check("3", 15);
}

#[test]
fn max_pages_per_host_bounds_the_pages_of_a_host() {
    let server = Server::new(endless);
    let args = ["--max-pages-per-host", "4", "--max-depth", "4"];
    let crawled = Crawl::of(&[&server.url("/1")]).with(&args).run();
    let lines = crawled.lines();
    assert_eq!(lines.iter().filter(|line| line["status"] == 200).count(), 4);
    assert_eq!(server.targets().len(), 4);
}

#[test]
fn follow_setting_limits_links() {
    let web = |asked: &Asked| match (asked.header("Host"), asked.target.as_str()) {
        (Some(host), "/") if host.starts_with("www.a.test") => {
            let port = host.rsplit(':').next().expect("a port");
            page(&format!(
                "<a href='/in'>in</a><a href='http://other.a.test:{port}/domain'>domain</a>\
                 <a href='http://b.test:{port}/all'>all</a><a href='ftp://b.test/'>never</a>"
            ))
        }
        _ => page("end"),
    };
    let check = |follow: &[&str], expected: &[&str]| {
        let server = Server::new(web);
        let port = server.port();
        Crawl::of(&[&format!("http://www.a.test:{port}/")])
            .with(&["--resolve", &format!("*:{port}:127.0.0.1")])
            .with(follow)
            .run();
        assert_eq!(server.targets(), expected, "{follow:?}");
    };
    check(&["--follow", "none"], &["/"]);
    check(&["--follow", "host"], &["/", "/in"]);
    check(&[], &["/", "/in"]);
    check(&["--follow", "domain"], &["/", "/domain", "/in"]);
    check(&["--follow", "all"], &["/", "/all", "/domain", "/in"]);
}

#[test]
fn allow_and_deny_filter_urls() {
    let web = |asked: &Asked| match asked.target.as_str() {
        "/" => page("<a href='/a.html'></a><a href='/b.pdf'></a><a href='/c/d.html'></a>"),
        _ => page(""),
    };
    let check = |args: &[&str], expected: &[&str]| {
        let server = Server::new(web);
        let crawled = Crawl::of(&[&server.url("/")]).with(args).run();
        assert_eq!(server.targets(), expected, "{args:?}");
        let filtered = &crawled.stats()["filtered"];
        let filtered = filtered.as_object().expect("an object");
        let count: u64 = filtered
            .values()
            .filter_map(serde_json::Value::as_u64)
            .sum();
        assert_eq!(count as usize, 4 - expected.len(), "{args:?}: {filtered:?}");
    };
    check(&["--deny", r"\.pdf$"], &["/", "/a.html", "/c/d.html"]);
    check(
        &["--allow", r"/$", "--allow", r"\.html$"],
        &["/", "/a.html", "/c/d.html"],
    );
    check(
        &["--allow", r"/$|html$", "--deny", "/c/"],
        &["/", "/a.html"],
    );
}

#[test]
fn disallowed_urls_have_result_lines() {
    let server = Server::new(|asked: &Asked| match asked.target.as_str() {
        "/robots.txt" => page("User-agent: argiope\nDisallow: /private\n"),
        "/" => page("<a href='/private/x'></a><a href='/open'></a>"),
        _ => page(""),
    });
    let args = ["-s", "ROBOTSTXT_OBEY=true"];
    let crawled = Crawl::of(&[&server.url("/")]).with(&args).run();
    assert_eq!(server.targets(), ["/", "/open"]);
    assert_eq!(server.asked().len(), 3, "one robots.txt for all");
    let line = crawled.line(&server.url("/private/x"));
    assert_eq!(line["error"]["code"], "robots.disallowed", "{line}");
    assert!(line["sent"].is_null());
    assert_eq!(crawled.line(&server.url("/robots.txt"))["kind"], "robots");
    assert_eq!(crawled.stats()["robots"], 1);
}

#[test]
fn failures_are_retried_up_to_retry_times() {
    let server = Server::new(|asked: &Asked| match asked.target.as_str() {
        "/503" => crate::server::reply("503 Service Unavailable", &["Connection: close"], b"later"),
        _ => vec![Step::Close],
    });
    let (busy, gone) = (server.url("/503"), server.url("/gone"));
    let crawled = Crawl::of(&[&busy, &gone, "-s", "RETRY_TIMES=2"]).run();
    assert_eq!(
        server.targets(),
        ["/503", "/503", "/503", "/gone", "/gone", "/gone"]
    );
    let lines = crawled.lines();
    for url in [&busy, &gone] {
        let tries: Vec<_> = lines.iter().filter(|line| line["url"] == **url).collect();
        let attempts: Vec<_> = tries.iter().map(|line| line["attempt"].as_u64()).collect();
        assert_eq!(attempts, [Some(1), Some(2), Some(3)]);
        let finals: Vec<_> = tries.iter().map(|line| line["final"] == true).collect();
        assert_eq!(finals, [false, false, true]);
        assert_eq!(tries[1]["parent"], tries[0]["id"]);
    }
}

#[test]
fn a_long_base_with_many_links_costs_no_memory_and_its_links_are_counted() {
    let server = Server::new(|asked: &Asked| {
        let links: String = (0..10_000).map(|link| format!("<a href={link}>")).collect();
        match asked.target.as_str() {
            "/" => page(&format!("<base href='/{}/'>{links}", "b".repeat(60_000))),
            _ => not_found(),
        }
    });
    let crawled = Crawl::of(&[&server.url("/")]).run();
    let stats = crawled.stats();
    assert_eq!(stats["filtered"]["url_length"], 10_000, "{stats}");
    assert_eq!(crawled.only()["links"], 10_000);
    let memory = crawled.ended.memory;
    assert!(memory < 200 << 20, "{memory} bytes were resident");
}

#[test]
fn an_endless_sitemap_index_ends_and_delays_no_page() {
    let server = Server::new(|asked: &Asked| {
        let target = asked.target.as_str();
        let sitemap = |inside: String| {
            reply(
                "200 OK",
                &["Content-Type: application/xml"],
                inside.as_bytes(),
            )
        };
        match target {
            "/robots.txt" => page("Sitemap: /map/0\nUser-agent: *\nDisallow: /map/0/1\n"),
            _ if target.starts_with("/map/") => {
                let maps = (0..5).map(|n| format!("<sitemap><loc>{target}/{n}</loc></sitemap>"));
                sitemap(maps.collect())
            }
            _ => endless(asked),
        }
    });
    let args = [
        "--max-depth",
        "3",
        "-s",
        "FOLLOW_SITEMAPS=true",
        "-s",
        "ROBOTSTXT_OBEY=true",
        "-s",
        "SITEMAP_DEPTH_LIMIT=4",
        "-s",
        "SITEMAPS_PER_HOST_MAX=20",
    ];
    let crawled = Crawl::of(&[&server.url("/1")]).with(&args).run();
    let stats = crawled.stats();
    assert_eq!(stats["finish_reason"], "finished");
    let maps: Vec<String> = server
        .targets()
        .into_iter()
        .filter(|target| target.starts_with("/map/"))
        .collect();
    assert!(maps.len() <= 20, "{maps:?}");
    assert!(
        !maps.iter().any(|map| map.starts_with("/map/0/1")),
        "robots.txt forbids it: {maps:?}"
    );
    assert_eq!(
        server.targets().len() - maps.len(),
        15,
        "all pages as deep as allowed"
    );
}

#[test]
fn a_full_frontier_is_logged_once_and_in_the_summary() {
    let server = Server::new(endless);
    let args = ["--max-pages", "30", "-s", "FRONTIER_MAX=5"];
    let crawled = Crawl::of(&[&server.url("/1")]).with(&args).aloud().run();
    let err = &crawled.ended.err;
    let count = |part: &str| err.lines().filter(|line| line.contains(part)).count();
    assert_eq!(
        count("warning: 5 requests are queued (FRONTIER_MAX)"),
        1,
        "{err}"
    );
    let dropped = crawled.stats()["filtered"]["frontier_full"].clone();
    assert!(dropped.as_u64() > Some(10), "{dropped}");
    let line = format!("frontier full  {dropped} links dropped");
    assert_eq!(count(&line), 1, "{err}");
}

#[test]
fn zero_means_no_limit() {
    let server = Server::new(|asked: &Asked| match asked.target.len() {
        6.. => page("the end"),
        _ => endless(asked),
    });
    let args = ["--max-pages", "0", "--max-depth", "0", "--max-time", "0"];
    let args = [&args[..], &["--max-bytes", "0"]].concat();
    let crawled = Crawl::of(&[&server.url("/1")]).with(&args).run();
    assert_eq!(crawled.stats()["finish_reason"], "finished");
    assert_eq!(server.targets().len(), 31);
    let help = crate::run::argiope(&["crawl", "--help"]).expect(0).out;
    assert_eq!(help.matches("0: no limit").count(), 5, "{help}");
}

#[test]
fn a_sitemap_of_a_seeds_line_counts_for_its_host_and_keeps_its_depth() {
    let server = Server::new(|_| page("no sitemap"));
    let seed = |n: u32| {
        let seed = json!({"url": server.url(&format!("/{n}")), "sitemap": n});
        format!("{seed}\n")
    };
    let seeds: String = [2, 4, 3, 1].into_iter().map(seed).collect();
    let limits = [
        "-s",
        "SITEMAP_DEPTH_LIMIT=3",
        "-s",
        "SITEMAPS_PER_HOST_MAX=2",
    ];
    let crawl = Crawl::of(&["--seeds", "-"]).with(&limits);
    let crawled = crawl.input(seeds.as_bytes()).run();
    assert_eq!(server.targets(), ["/2", "/3"]);
    let filtered = &crawled.stats()["filtered"];
    assert_eq!(filtered["sitemap_depth"], 1);
    assert_eq!(filtered["max_sitemaps_per_host"], 1);
    assert!(crawled.lines().iter().all(|line| line["kind"] == "sitemap"));
}
