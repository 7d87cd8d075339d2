//! robots.txt: fetched first and once, and obeyed whatever its result.

use std::time::Duration;

use super::crawl::Plan;
use super::web::{PoliteWeb, Reply, Step, Verdict, address, rules};

const ONE: &str = "one.test";

fn redirect(to: &str) -> Step {
    Step::new(Reply::Redirect(302, to.to_owned()))
}

/// Crawls one page of a site whose robots.txt answers so; how the page ended, and how often the
/// file was asked for.
fn check(verdict: Verdict, steps: &[Step]) -> (Vec<String>, usize) {
    let mut web = PoliteWeb::default();
    let site = web.site(ONE, address(1));
    site.page("/page", &[]).path("/robots.txt", steps);
    site.verdict = verdict;
    site.decided_by.2 = steps.len();
    let web = web.shared();
    let run = Plan::new(&["http://one.test/page"]).run(&web);
    run.check_lines();
    let asked = web.borrow().asked(ONE, "/robots.txt");
    (run.ends("http://one.test/page"), asked)
}

fn ends(code: &str, asked: usize) -> (Vec<String>, usize) {
    (vec![code.to_owned()], asked)
}

#[test]
fn no_page_of_a_new_host_is_requested_before_its_robots_txt() {
    let mut web = PoliteWeb::default();
    web.promise.per_host = 8;
    let slow = Duration::from_secs(3);
    let site = web.site(ONE, address(1));
    site.rules(Duration::ZERO)
        .path("/robots.txt", [rules(Duration::ZERO).after(slow)]);
    let mut plan = Plan::new(&["http://one.test/private/a", "http://one.test/private/b"])
        .set("DOWNLOAD_DELAY", 0)
        .set("CONCURRENT_REQUESTS_PER_DOMAIN", 8);
    for page in 0..8 {
        site.page(&format!("/{page}"), &[]);
        plan.seeds.push(format!("http://one.test/{page}"));
    }
    let web = web.shared();
    let run = plan.run(&web);
    let web = web.borrow();
    assert_eq!(web.asked(ONE, "/robots.txt"), 1);
    let moments = web.moments(ONE);
    assert!(moments[1].saturating_since(moments[0]) >= slow);
    assert_eq!(moments.len(), 9);
    assert_eq!(run.ends("http://one.test/private/a"), ["robots.disallowed"]);
    assert_eq!(run.ends("http://one.test/private/b"), ["robots.disallowed"]);
}

#[test]
fn a_missing_robots_txt_allows_everything() {
    let status = |status| [Step::new(Reply::Status(status))];
    assert_eq!(check(Verdict::Everything, &status(404)), ends("200", 1));
    assert_eq!(check(Verdict::Everything, &status(403)), ends("200", 1));
}

#[test]
fn a_failing_robots_txt_is_retried_and_then_disallows_everything() {
    let fails = [Step::new(Reply::Status(503))];
    let resets = [Step::new(Reply::Reset)];
    let hangs = [Step::new(Reply::Silence)];
    assert_eq!(
        check(Verdict::Nothing, &fails),
        ends("robots.unreachable", 3)
    );
    // No answer at all: the host is held, and given up two minutes after the first failure.
    assert_eq!(
        check(Verdict::Nothing, &resets),
        ends("robots.unreachable", 6)
    );
    let (ended, asked) = check(Verdict::Nothing, &hangs);
    assert_eq!(ended, ["robots.unreachable"]);
    assert!((3..=6).contains(&asked), "{asked}");
    let recovers = [Step::new(Reply::Status(500)), rules(Duration::ZERO)];
    assert_eq!(check(Verdict::NotPrivate, &recovers), ends("200", 2));
}

#[test]
fn a_robots_txt_refused_by_429_is_retried_and_then_disallows_everything() {
    let busy = [Step::new(Reply::Status(429))];
    assert_eq!(
        check(Verdict::Nothing, &busy),
        ends("robots.unreachable", 3)
    );
    let recovers = [Step::new(Reply::Status(429)), rules(Duration::ZERO)];
    assert_eq!(check(Verdict::NotPrivate, &recovers), ends("200", 2));
}

#[test]
fn the_retry_after_of_a_robots_txt_delays_its_retry_and_then_the_pages_are_fetched() {
    let mut web = PoliteWeb::default();
    let wait = Step::status(429).with("Retry-After: 20");
    let site = web.site(ONE, address(1));
    site.rules(Duration::ZERO)
        .path("/robots.txt", [wait, rules(Duration::ZERO)]);
    site.decided_by.2 = 2;
    let mut plan = Plan::new(&["http://one.test/private/a"]);
    plan.seeds.extend(web.pages(ONE, 1, 3, Duration::ZERO));
    let web = web.shared();
    let run = plan.run(&web);
    run.check_lines();
    let web = web.borrow();
    assert_eq!(web.asked(ONE, "/robots.txt"), 2);
    let moments = web.moments(ONE);
    assert!(moments[1].saturating_since(moments[0]) >= Duration::from_secs(20));
    for page in 0..3 {
        assert_eq!(run.ends(&format!("http://one.test/{page}")), ["200"]);
    }
    assert_eq!(run.ends("http://one.test/private/a"), ["robots.disallowed"]);
}

#[test]
fn five_redirects_of_a_robots_txt_are_followed_and_a_sixth_is_not() {
    for (hops, private) in [(5, "robots.disallowed"), (6, "200")] {
        let mut web = PoliteWeb::default();
        let site = web.site(ONE, address(1));
        site.page("/private", &[])
            .path("/robots.txt", [redirect("/robots-1")]);
        for hop in 1..hops {
            let to = format!("/robots-{}", hop + 1);
            site.path(&format!("/robots-{hop}"), [redirect(&to)]);
        }
        site.path(&format!("/robots-{hops}"), [rules(Duration::ZERO)]);
        site.decided_by.1 = "/robots-5".to_owned();
        if hops == 5 {
            site.verdict = Verdict::NotPrivate;
        }
        let web = web.shared();
        let run = Plan::new(&["http://one.test/private"]).run(&web);
        assert_eq!(run.ends("http://one.test/private"), [private]);
        assert_eq!(web.borrow().asked(ONE, "/robots-6"), 0);
    }
}

#[test]
fn one_slot_for_the_whole_crawl_suffices() {
    let mut web = PoliteWeb::default();
    web.promise.in_all = 1;
    let mut plan = Plan::new(&[])
        .set("CONCURRENT_REQUESTS", 1)
        .set("DOWNLOAD_DELAY", 0.1);
    for (number, name) in ["one.test", "two.test", "three.test"].iter().enumerate() {
        let site = web.site(name, address(1 + number as u16));
        let slow = rules(Duration::ZERO).after(Duration::from_millis(300));
        site.rules(Duration::ZERO).path("/robots.txt", [slow]);
        for page in 0..3 {
            site.page(&format!("/{page}"), &[]);
            plan.seeds.push(format!("http://{name}/{page}"));
        }
    }
    let web = web.shared();
    let run = plan.run(&web);
    assert_eq!(web.borrow().arrivals.len(), 12);
    assert_eq!(web.borrow().all.peak, 1);
    run.check_lines();
}

#[test]
fn a_robots_txt_is_fetched_again_after_a_day() {
    const HOUR: Duration = Duration::from_secs(3600);
    let mut web = PoliteWeb::default();
    web.promise.gap_min = 2 * HOUR;
    let site = web.site(ONE, address(1));
    site.rules(Duration::ZERO);
    let mut plan = Plan::new(&[])
        .set("DOWNLOAD_DELAY", "2h")
        .set("RANDOMIZE_DOWNLOAD_DELAY", false);
    for page in 0..15 {
        site.page(&format!("/{page}"), &[]);
        plan.seeds.push(format!("http://one.test/{page}"));
    }
    let web = web.shared();
    plan.run(&web);
    let web = web.borrow();
    let is_robots = |path: &str| path == "/robots.txt";
    let asked: Vec<_> = web.arrivals.iter().filter(|a| is_robots(&a.path)).collect();
    assert_eq!(asked.len(), 2);
    assert!(asked[1].at.saturating_since(asked[0].at) >= 24 * HOUR);
    let after = web.arrivals.iter();
    let mut after = after.filter(|a| a.at.saturating_since(asked[0].at) > 24 * HOUR);
    let first = after.next().expect("the crawl took longer than a day");
    assert!(
        is_robots(&first.path),
        "{} came on an old verdict",
        first.path
    );
}
