//! Limits are exact.

use argiope::FinishReason;
use std::time::Duration;

use super::crawl::{Plan, Run};
use super::web::{PoliteWeb, Reply, Step, address};

/// Three hosts of twelve pages each; some fail, some redirect, some are not there.
fn web() -> (PoliteWeb, Vec<String>) {
    let mut web = PoliteWeb::default();
    let mut urls = Vec::new();
    for (number, name) in ["one.test", "two.test", "three.test"].iter().enumerate() {
        let site = web.site(name, address(1 + number as u16));
        for page in 0..12 {
            let path = format!("/{page}");
            let reply = match page % 6 {
                1 => Reply::Reset,
                2 => Reply::Redirect(301, format!("/to/{page}")),
                3 => Reply::Status(404),
                _ => Reply::Page(Vec::new()),
            };
            let think = Duration::from_millis(50 + 37 * page);
            site.path(&path, [Step::new(reply).after(think)]);
            site.page(&format!("/to/{page}"), &[]);
            urls.push(format!("http://{name}{path}"));
        }
    }
    (web, urls)
}

fn plan(seeds: Vec<String>) -> Plan {
    let mut plan = Plan::new(&[])
        .set("DOWNLOAD_DELAY", 0.05)
        .set("CONCURRENT_REQUESTS_PER_DOMAIN", 4);
    plan.seeds = seeds;
    plan
}

/// Final pages that brought a status, of a host or of all.
fn pages(run: &Run, host: &str) -> usize {
    let lines = run.lines();
    let pages = lines
        .iter()
        .filter(|line| line.is_page() && line.is_final());
    pages
        .filter(|line| !line.0["status"].is_null() && line.url().contains(host))
        .count()
}

#[test]
fn page_count_limit_is_exact() {
    for max in [1, 2, 7, 17] {
        let (web, seeds) = web();
        let web = web.shared();
        let mut run = plan(seeds).set("CLOSESPIDER_PAGECOUNT", max).begin(&web);
        assert_eq!(run.finish(), FinishReason::PageCount);
        run.check_manners();
        assert_eq!(pages(&run, ""), max);
    }
}

#[test]
fn a_crawl_ends_when_its_bytes_are_received_and_sends_little_beyond() {
    let all = {
        let (web, seeds) = web();
        let run = plan(seeds).run(&web.shared());
        bytes(&run)
    };
    for max in [1, all / 4, all / 2, all - 1] {
        let (web, seeds) = web();
        let web = web.shared();
        let mut run = plan(seeds).set("CLOSESPIDER_BYTECOUNT", max).begin(&web);
        assert_eq!(run.finish(), FinishReason::ByteCount);
        run.check_manners();
        let received = bytes(&run);
        assert!(received >= max, "{received} of {max}");
        // Replies are expected to be large until the size of some is known: one is in flight.
        assert!(received < max + largest(&run), "{received} of {max}");
    }
    let (web, seeds) = web();
    let run = plan(seeds).set("CLOSESPIDER_BYTECOUNT", all + 1);
    assert_eq!(bytes(&run.run(&web.shared())), all, "it is not reached");
}

#[test]
fn few_replies_are_in_flight_before_their_size_is_known_where_bytes_are_limited() {
    const BODY: usize = 1 << 20;
    for obeys_robots in [false, true] {
        let mut web = PoliteWeb::default();
        let mut seeds = Vec::new();
        for number in 0..200 {
            let name = format!("h{number}.test");
            let step = Step::new(Reply::Text(vec![b'x'; BODY])).after(Duration::from_secs(1));
            // A robots.txt, which says nothing of the size of pages.
            let rules = Step::new(Reply::Text(b"User-agent: *\nDisallow: /no\n".to_vec()));
            let site = web.site(&name, address(1 + number));
            site.path("/", [step]).path("/robots.txt", [rules]);
            seeds.push(format!("http://{name}/"));
        }
        let max = 10_000_000;
        let run = plan(seeds)
            .set("CLOSESPIDER_BYTECOUNT", max)
            .set("ROBOTSTXT_OBEY", obeys_robots);
        let mut run = run.begin(&web.shared());
        assert_eq!(run.finish(), FinishReason::ByteCount);
        let received = bytes(&run);
        assert!(received >= max, "{received}");
        let small = sizes(&run).into_iter().filter(|bytes| *bytes < 1000);
        let most = 16 * largest(&run) + small.sum::<u64>();
        assert!(received <= most, "{received}, robots.txt: {obeys_robots}");
    }
}

/// Bytes of all replies.
fn bytes(run: &Run) -> u64 {
    sizes(run).iter().sum()
}

/// Bytes of the largest.
fn largest(run: &Run) -> u64 {
    sizes(run).into_iter().max().unwrap_or(0)
}

fn sizes(run: &Run) -> Vec<u64> {
    let lines = run.lines();
    let sizes = lines.iter().map(|line| line.0["bytes_wire"].as_u64());
    sizes.flatten().collect()
}

#[test]
fn pages_per_host_limit_is_exact() {
    let (web, seeds) = web();
    let web = web.shared();
    let run = plan(seeds).set("PAGES_PER_HOST_MAX", 5).run(&web);
    run.check_lines();
    for host in ["one.test", "two.test", "three.test"] {
        assert_eq!(pages(&run, host), 5, "{host}");
    }
    let lines = run.lines();
    let beyond = lines.iter();
    let beyond = beyond.filter(|line| line.end() == "filtered.max_pages_per_host");
    assert!(beyond.count() > 0);
}

/// Several hosts of two domains.
fn domains() -> (PoliteWeb, Vec<String>) {
    let mut web = PoliteWeb::default();
    let mut urls = Vec::new();
    let hosts = [
        "one.test",
        "a.one.test",
        "b.one.test",
        "b.a.one.test",
        "two.test",
    ];
    for (number, name) in hosts.iter().enumerate() {
        let site = web.site(name, address(1 + number as u16));
        for page in 0..10 {
            let path = format!("/{page}");
            let reply = match page % 5 {
                1 => Reply::Reset,
                2 => Reply::Redirect(301, "http://b.one.test/to".to_owned()),
                _ => Reply::Page(vec!["http://new.one.test/1".to_owned()]),
            };
            let think = Duration::from_millis(20 + 31 * page);
            site.path(&path, [Step::new(reply).after(think)]);
            urls.push(format!("http://{name}{path}"));
        }
    }
    web.site("b.one.test", address(3)).page("/to", &[]);
    web.site("new.one.test", address(9)).page("/1", &[]);
    (web, urls)
}

#[test]
fn pages_per_domain_limit_is_exact_over_all_hosts_of_a_domain() {
    for max in [1, 4, 9] {
        let (web, seeds) = domains();
        let web = web.shared();
        let run = plan(seeds).set("PAGES_PER_DOMAIN_MAX", max).run(&web);
        run.check_lines();
        assert_eq!(pages(&run, "one.test"), max);
        assert_eq!(pages(&run, "two.test"), max.min(8));
        let lines = run.lines();
        let beyond = lines.iter();
        let beyond = beyond.filter(|line| line.end() == "filtered.max_pages_per_domain");
        assert!(beyond.count() > 0);
    }
}

#[test]
fn nothing_is_requested_from_a_domain_that_has_sent_as_many_bytes_as_allowed() {
    for max in [1, 1500] {
        let (web, seeds) = domains();
        let web = web.shared();
        let run = plan(seeds)
            .set("BYTES_PER_DOMAIN_MAX", max)
            .set("CONCURRENT_REQUESTS", 1)
            .run(&web);
        run.check_lines();
        let lines = run.lines();
        let of_domain = lines.iter().filter(|line| line.url().contains("one.test"));
        let mut bytes = 0;
        for line in of_domain.filter(|line| !line.0["sent"].is_null()) {
            assert!(bytes < max, "{bytes} bytes before {}", line.0);
            bytes += line.0["bytes_wire"].as_u64().expect("a number");
        }
        assert!(bytes >= max, "{bytes}");
        let asked = |host: &str| web.borrow().visits(host).count();
        let hosts = ["one.test", "a.one.test", "b.one.test", "b.a.one.test"];
        let asked_in_all: usize = hosts.iter().map(|host| asked(host)).sum();
        assert!(asked_in_all < 40, "{asked_in_all} requests at the servers");
        assert!(asked("two.test") > 0);
        let beyond = lines.iter();
        let beyond = beyond.filter(|line| line.end() == "filtered.max_bytes_per_domain");
        assert!(beyond.count() > 0);
    }
}

#[test]
fn links_are_followed_as_deep_as_allowed() {
    let mut web = PoliteWeb::default();
    let site = web.site("one.test", address(1));
    for depth in 0..8 {
        site.page(&format!("/{depth}"), &[&format!("/{}", depth + 1)]);
    }
    let web = web.shared();
    Plan::new(&["http://one.test/0"])
        .set("DEPTH_LIMIT", 3)
        .run(&web);
    let asked = |path: &str| web.borrow().asked("one.test", path);
    assert_eq!([asked("/3"), asked("/4")], [1, 0]);
}

#[test]
fn twenty_redirects_are_followed_and_the_next_ends_the_url() {
    let mut web = PoliteWeb::default();
    let site = web.site("one.test", address(1));
    for hop in 0..25 {
        let to = Reply::Redirect(302, format!("/{}", hop + 1));
        site.path(&format!("/{hop}"), [Step::new(to)]);
    }
    let web = web.shared();
    let run = Plan::new(&["http://one.test/0"]).run(&web);
    run.check_lines();
    assert_eq!(run.ends("http://one.test/20"), ["redirect.limit"]);
    assert_eq!(web.borrow().asked("one.test", "/21"), 0);
}

#[test]
fn a_redirect_loop_ends_at_its_start() {
    let mut web = PoliteWeb::default();
    let site = web.site("one.test", address(1));
    for (from, to) in [("/a", "/b"), ("/b", "/c"), ("/c", "/a"), ("/self", "/self")] {
        site.path(from, [Step::new(Reply::Redirect(307, to.to_owned()))]);
    }
    let web = web.shared();
    let run = Plan::new(&["http://one.test/a", "http://one.test/self"]).run(&web);
    run.check_lines();
    assert_eq!(run.ends("http://one.test/c"), ["redirect.loop"]);
    assert_eq!(run.ends("http://one.test/self"), ["redirect.loop"]);
}

#[test]
fn the_target_of_a_seeds_redirect_counts_as_a_seed() {
    let mut web = PoliteWeb::default();
    let to = Reply::Redirect(301, "http://www.one.test/".to_owned());
    web.site("one.test", address(1)).path("/", [Step::new(to)]);
    let links = ["/on", "http://one.test/back", "http://other.test/"];
    web.site("www.one.test", address(2))
        .page("/", &links)
        .page("/on", &[]);
    web.site("other.test", address(3)).page("/", &[]);
    let web = web.shared();
    let run = Plan::new(&["http://one.test/"]).run(&web);
    let asked = |host: &str, path: &str| web.borrow().asked(host, path);
    assert_eq!(asked("www.one.test", "/on"), 1);
    assert_eq!(asked("one.test", "/back"), 1);
    assert_eq!(asked("other.test", "/"), 0);
    let lines = run.lines();
    let target = lines
        .iter()
        .find(|line| line.url() == "http://www.one.test/");
    assert_eq!(target.expect("it was fetched").0["seed"], true);
}
