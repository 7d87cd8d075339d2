//! Hosts that do not answer: held, tried again, given up.

use std::time::Duration;

use argiope::FinishReason;
use argiope::base::time::Instant;
use argiope::frontier::request::Request;
use argiope::io::sim::Answer;

use super::crawl::Plan;
use super::web::{Names, Outage, PoliteWeb, Reply, Step, address};

const MINUTE: Duration = Duration::from_secs(60);

/// A web of one host that refuses every connection, and a crawl of so many of its pages.
fn refusing(pages: usize) -> (PoliteWeb, Plan) {
    let mut web = PoliteWeb::default();
    web.site("dead.test", address(1));
    web.deaf.insert(address(1), Answer::Refuse);
    let mut plan = Plan::new(&[]).set("RETRY_TIMES", 0);
    plan.seeds = (0..pages)
        .map(|page| format!("http://dead.test/{page}"))
        .collect();
    (web, plan)
}

fn calls(web: &PoliteWeb) -> Vec<Instant> {
    web.calls.iter().map(|(at, _)| *at).collect()
}

/// Seconds between the calls.
fn pauses(web: &PoliteWeb) -> Vec<u64> {
    let calls = calls(web);
    let pauses = calls
        .windows(2)
        .map(|pair| pair[1].saturating_since(pair[0]));
    pauses
        .map(|pause| pause.as_secs_f64().round() as u64)
        .collect()
}

#[test]
fn a_refusing_host_is_held_after_five_failures_and_given_up_after_two_minutes() {
    let (web, plan) = refusing(40);
    let web = web.shared();
    let run = plan
        .set("ROBOTSTXT_OBEY", false)
        .set("RETRY_TIMES", 1)
        .set("RANDOMIZE_DOWNLOAD_DELAY", false)
        .run(&web);
    run.check_lines();
    assert_eq!(
        pauses(&web.borrow()),
        [1, 1, 1, 1, 5, 10, 20, 40, 41],
        "the last try is due when its time is over"
    );
    let lines = run.lines();
    let ended = |code: &str| {
        let ended = lines
            .iter()
            .filter(|line| line.is_final() && line.end() == code);
        ended.count()
    };
    assert_eq!(ended("connect.refused"), 1);
    assert_eq!(ended("host_down.gave_up"), 39);
}

#[test]
fn a_host_that_comes_back_within_two_minutes_loses_no_page_and_no_attempt() {
    for (robots, retries, seconds) in [(true, 2, 4), (true, 1, 60), (false, 1, 4), (false, 2, 100)]
    {
        let mut web = PoliteWeb::default();
        web.promise.obeys_robots = robots;
        let mut plan = Plan::new(&[])
            .set("ROBOTSTXT_OBEY", robots)
            .set("RETRY_TIMES", retries)
            .set("DOWNLOAD_DELAY", 0.1)
            .set("CONCURRENT_REQUESTS_PER_DOMAIN", 1);
        for host in 0..20 {
            let name = format!("h{host}.test");
            let site = web.site(&name, address(1 + host));
            for page in 0..30 {
                // Whatever is asked has to connect anew.
                let mut step = Step::new(Reply::Page(Vec::new()));
                step.closes = true;
                site.path(&format!("/{page}"), [step]);
                plan.seeds.push(format!("http://{name}/{page}"));
            }
        }
        // Every connection is refused from the third second on.
        web.outages.push(Outage {
            from: Instant::START + Duration::from_secs(3),
            to: Instant::START + Duration::from_secs(3 + seconds),
            connects: Some(Answer::Refuse),
            names: Names::Answers,
        });
        let web = web.shared();
        let mut run = plan.begin(&web);
        assert_eq!(run.finish(), FinishReason::Finished);
        run.check_lines();
        let lines = run.lines();
        let pages: Vec<_> = lines.iter().filter(|line| line.is_page()).collect();
        let fetched = pages
            .iter()
            .filter(|line| line.is_final() && line.end() == "200");
        assert_eq!(fetched.count(), 600, "robots {robots}, {retries} retries");
        let held = pages.iter().filter(|line| line.end() == "connect.refused");
        assert!(held.clone().all(|line| !line.is_final()));
        assert!(held.count() > 0 || robots);
    }
}

#[test]
fn a_hold_is_seen_in_the_progress_and_in_stats() {
    let (web, plan) = refusing(3);
    let web = web.shared();
    let mut run = plan.begin(&web);
    run.until(Duration::from_secs(7));
    let progress = run.crawler.progress();
    assert_eq!(progress.hosts_held, 1);
    let next = progress
        .hosts_held_next
        .expect("it is held for ten seconds");
    assert!(
        next > Duration::from_secs(7) && next <= Duration::from_secs(10),
        "{next:?}"
    );
    let stats = run
        .crawler
        .stats()
        .to_json(&progress, &run.crawler.pacing());
    let stats: serde_json::Value = stats.parse().expect("stats are JSON");
    assert_eq!(stats["hosts_held"], 1);
    assert!(stats["hosts_held_next"].is_number());
    run.finish();
    assert_eq!(run.crawler.progress().hosts_held, 0);
}

#[test]
fn calls_to_a_refusing_host_keep_its_gap() {
    let (web, plan) = refusing(5);
    let web = web.shared();
    plan.set("ROBOTSTXT_OBEY", false)
        .set("DOWNLOAD_DELAY", 2)
        .set("RANDOMIZE_DOWNLOAD_DELAY", false)
        .run(&web);
    let calls = calls(&web.borrow());
    assert_eq!(calls.len(), 5);
    for pair in calls.windows(2) {
        assert!(pair[1].saturating_since(pair[0]) >= Duration::from_secs(2));
    }
}

#[test]
fn a_host_whose_robots_txt_gets_no_answer_is_held_after_each_try_and_then_given_up() {
    let (web, plan) = refusing(200);
    let web = web.shared();
    let run = plan.set("RETRY_TIMES", 2).run(&web);
    run.check_lines();
    assert_eq!(pauses(&web.borrow()), [5, 10, 20, 40, 45]);
    let lines = run.lines();
    let pages = lines.iter().filter(|line| line.is_page());
    let unreachable = pages.filter(|line| line.end() == "robots.unreachable");
    assert_eq!(unreachable.count(), 200);
}

#[test]
fn a_refusing_host_whose_urls_keep_coming_for_two_days_is_called_ever_more_seldom() {
    let (web, plan) = refusing(1);
    let web = web.shared();
    let plan = plan.set("RETRY_TIMES", 2);
    let mut run = plan.begin(&web);
    let handle = run.crawler.handle();
    for quarter in 1..192 {
        run.until(quarter * 15 * MINUTE);
        let url = format!("http://dead.test/later/{quarter}");
        run.crawler
            .submit(Request::get(url))
            .expect("a sound request");
    }
    drop(handle);
    assert_eq!(run.finish(), FinishReason::Finished);
    run.check_lines();
    run.check_manners();
    let calls = calls(&web.borrow()).len();
    assert!((12..=16).contains(&calls), "{calls}");
    let lines = run.lines();
    let ended = lines
        .iter()
        .filter(|line| line.is_page() && line.is_final());
    assert_eq!(ended.count(), 192);
}

#[test]
fn without_a_bound_for_hosts_that_are_down_each_page_has_its_tries_and_ends() {
    let (web, plan) = refusing(10);
    let web = web.shared();
    let run = plan
        .set("ROBOTSTXT_OBEY", false)
        .set("RETRY_TIMES", 2)
        .set("HOST_DOWN_AFTER", 0)
        .run(&web);
    run.check_lines();
    assert_eq!(calls(&web.borrow()).len(), 30);
}

#[test]
fn errors_that_do_not_count_against_a_host_cost_attempts_and_hold_nothing() {
    let (web, plan) = refusing(10);
    let web = web.shared();
    let plan = plan
        .set("ROBOTSTXT_OBEY", false)
        .set("RETRY_TIMES", 2)
        .set("HOST_DOWN_EXCEPTIONS", "dns,timeout,connect.unreachable");
    let mut run = plan.begin(&web);
    while run.turn().is_none() {
        assert_eq!(run.crawler.progress().hosts_held, 0);
    }
    run.check_lines();
    run.check_manners();
    assert_eq!(calls(&web.borrow()).len(), 30);
}

#[test]
fn the_holds_of_a_refusing_host_are_those_of_the_settings() {
    let (web, plan) = refusing(20);
    let web = web.shared();
    let run = plan
        .set("RETRY_TIMES", 2)
        .set("HOST_HOLD_MIN", 2)
        .set("HOST_HOLD_MAX", 6)
        .set("HOST_DOWN_AFTER", 20)
        .run(&web);
    run.check_lines();
    assert_eq!(pauses(&web.borrow()), [2, 4, 6, 6, 2]);
}

#[test]
fn a_redirected_robots_txt_that_gets_no_answer_does_not_hold_the_host_it_leads_to() {
    let mut web = PoliteWeb::default();
    web.promise.obeys_robots = false;
    let mut plan = Plan::new(&["http://evil.test/"]).set("RETRY_TIMES", 2);
    let victim = web.pages("victim.test", 1, 30, Duration::ZERO);
    let site = web.site("victim.test", address(1));
    site.path("/dead", [Step::new(Reply::Reset)]);
    let evil = web.site("evil.test", address(2));
    let leads = Reply::Redirect(301, "http://victim.test/dead".to_owned());
    evil.path("/robots.txt", [Step::new(leads)]).page("/", &[]);
    plan.seeds.extend(victim.clone());
    let web = web.shared();
    let mut run = plan.begin(&web);
    while run.turn().is_none() {
        assert_eq!(run.crawler.progress().hosts_held, 0);
    }
    run.check_lines();
    run.check_manners();
    assert_eq!(web.borrow().asked("victim.test", "/dead"), 3);
    assert_eq!(run.ends("http://evil.test/"), ["robots.unreachable"]);
    for url in victim {
        assert_eq!(run.ends(&url), ["200"]);
    }
}

#[test]
fn a_kept_connection_that_ends_under_a_robots_txt_does_not_hold_its_host() {
    let mut web = PoliteWeb::default();
    web.promise.robots_lifetime = MINUTE;
    let site = web.site("one.test", address(1));
    let page = || Step::status(404);
    site.path("/robots.txt", [page(), Step::new(Reply::Reset), page()]);
    let mut plan = Plan::new(&[]).set("ROBOTSTXT_CACHE_TIME", 60);
    for page in 0..150 {
        site.page(&format!("/{page}"), &[]);
        plan.seeds.push(format!("http://one.test/{page}"));
    }
    let web = web.shared();
    let mut run = plan.begin(&web);
    while run.turn().is_none() {
        assert_eq!(run.crawler.progress().hosts_held, 0);
    }
    run.check_lines();
    let asked = web.borrow().asked("one.test", "/robots.txt");
    assert!(asked >= 3, "{asked}");
}

/// Crawls a web in which a host refuses connections until the 330th second, and the crawl stands still
/// from the 4th to the 304th; how its page ended.
fn ends_after_standing_still(is_paused: bool) -> Vec<String> {
    let mut web = PoliteWeb::default();
    let mut plan = Plan::new(&["http://late.test/"]);
    web.site("late.test", address(1)).page("/", &[]);
    web.deaf.insert(address(1), Answer::Refuse);
    for number in 0..400_u32 {
        let name = format!("host{number}.test");
        let [_, b, c, d] = (number << 8 | 1).to_be_bytes();
        let address = std::net::SocketAddr::from(([10, 1 + b, c, d], 80));
        web.site(&name, address).page("/", &[]);
        plan.seeds.push(format!("http://{name}/"));
    }
    if !is_paused {
        web.outages.push(Outage {
            from: Instant::START + Duration::from_secs(4),
            to: Instant::START + Duration::from_secs(304),
            connects: Some(Answer::NoRoute),
            names: Names::Answers,
        });
    }
    let web = web.shared();
    let mut run = plan.set("CONCURRENT_REQUESTS", 16).begin(&web);
    let handle = run.crawler.handle();
    run.until(Duration::from_secs(4));
    if is_paused {
        handle.pause();
    }
    run.until(Duration::from_secs(304));
    handle.resume();
    run.until(Duration::from_secs(330));
    web.borrow_mut().deaf.clear();
    drop(handle);
    assert_eq!(run.finish(), FinishReason::Finished);
    run.check_lines();
    run.ends("http://late.test/")
}

#[test]
fn time_in_which_the_crawl_is_paused_does_not_count_against_a_host_that_failed_before() {
    assert_eq!(ends_after_standing_still(true), ["200"]);
}

#[test]
fn an_outage_of_ours_does_not_count_against_a_host_that_failed_before() {
    assert_eq!(ends_after_standing_still(false), ["200"]);
}

#[test]
fn a_host_that_has_only_ipv6_ends_at_once_where_ipv4_works_and_ipv6_has_no_route() {
    for (hosts, pages, robots) in [
        (3_u16, 60, true),
        (12, 60, true),
        (12, 0, true),
        (3, 60, false),
        (12, 0, false),
    ] {
        let mut web = PoliteWeb::default();
        let mut plan = Plan::new(&["http://four.test/"]);
        plan.preset = Some("broad");
        let four = std::net::SocketAddr::from(([93, 184, 1, 1], 80));
        let site = web.site("four.test", four);
        site.page("/", &[]);
        for page in 0..pages {
            site.page(&format!("/{page}"), &[]);
            plan.seeds.push(format!("http://four.test/{page}"));
        }
        let mut dead = Vec::new();
        for host in 0..hosts {
            let name = format!("six{host}.test");
            let six = std::net::SocketAddr::from(([0x2606, 0x4700, host, 0, 0, 0, 0, 1], 80));
            web.site(&name, six).page("/", &[]);
            web.deaf.insert(six, Answer::NoRoute);
            dead.extend((0..3).map(|page| format!("http://{name}/{page}")));
        }
        plan.seeds.extend(dead.clone());
        web.promise.obeys_robots = robots;
        let web = web.shared();
        let plan = plan.set("CONTACT", "mailto:me@example.com");
        let run = plan.set("ROBOTSTXT_OBEY", robots).run(&web);
        run.check_lines();
        for url in dead {
            assert_eq!(run.ends(&url), ["connect.unreachable"]);
        }
        let lines = run.lines();
        let fetched = lines.iter().filter(|line| line.text("kind") == "robots");
        let ended = fetched.filter(|line| line.is_final() && line.end() == "connect.unreachable");
        assert_eq!(ended.count(), usize::from(hosts) * usize::from(robots));
        let took = run.crawler.elapsed();
        assert!(took < 2 * MINUTE, "{hosts} hosts, {pages} pages: {took:?}");
    }
}

#[test]
fn a_dead_host_is_given_up_while_an_address_family_does_not_work() {
    let mut web = PoliteWeb::default();
    let mut plan = Plan::new(&["http://dead.test/"]).set("CONCURRENT_REQUESTS", 16);
    web.round_trip = Duration::from_millis(100);
    web.site("dead.test", address(1)).page("/", &[]);
    web.deaf.insert(address(1), Answer::Refuse);
    let mut six = Vec::new();
    for number in 0..200_u16 {
        let ip = std::net::Ipv6Addr::new(0x2606, 0x4700, number, 0, 0, 0, 0, 1);
        six.push(std::net::SocketAddr::from((ip, 80)));
        let name = format!("six{number}.test");
        web.site(&name, six[usize::from(number)]).page("/", &[]);
        plan.seeds.push(format!("http://{name}/"));
    }
    let web = web.shared();
    let mut run = plan.set("CONTACT", "mailto:me@example.com").begin(&web);
    run.until(Duration::from_secs(2));
    for address in &six {
        web.borrow_mut().deaf.insert(*address, Answer::Silence);
    }
    run.until(Duration::from_secs(300));
    assert!(run.crawler.progress().outage_open.is_some());
    assert_eq!(run.ends("http://dead.test/"), ["robots.unreachable"]);
    web.borrow_mut().deaf.clear();
    assert_eq!(run.finish(), FinishReason::Finished);
    run.check_lines();
    let lines = run.lines();
    let fetched = lines.iter().filter(|l| l.is_page() && l.end() == "200");
    assert_eq!(fetched.count(), 200);
}
