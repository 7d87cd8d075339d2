//! Refusals by status and by failure, as seen in the following pace.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use argiope::io::sim::ConnId;
use serde_json::json;

use super::crawl::Plan;
use super::policy::{Mood, page_of};
use super::web::{PoliteWeb, Reply, Step, address};

const SITE: &str = "one.test";

/// The gaps behind the third page, which is answered so; before it there are none to speak of.
fn gaps_behind(step: Step) -> Vec<f64> {
    // The first RST may be a kept connection's end, and no signal on our pace.
    let last = 2 + usize::from(matches!(step.reply, Reply::Reset));
    let mood: Mood = Arc::new(move |visit| match visit.before {
        before if (2..=last).contains(&before) => Some(step.clone()),
        _ => Some(page_of(visit.path)),
    });
    let mut web = PoliteWeb::default();
    web.promise.obeys_robots = false;
    web.round_trip = Duration::from_millis(10);
    web.site(SITE, address(1)).mood(mood);
    let mut plan = Plan::new(&[])
        .set("DOWNLOAD_DELAY", 0)
        .set("DOWNLOAD_TIMEOUT", 2)
        .set("ROBOTSTXT_OBEY", false);
    plan.seeds = (0..6).map(|page| format!("http://{SITE}/{page}")).collect();
    let web = web.shared();
    plan.run(&web);
    let moments = web.borrow().moments(SITE);
    let gaps = moments.windows(2);
    let gaps = gaps.map(|pair| pair[1].saturating_since(pair[0]).as_secs_f64());
    gaps.skip(last).collect()
}

fn check(step: Step, slows: bool) {
    let gaps = gaps_behind(step.clone());
    let slowed = gaps.iter().all(|gap| *gap >= 0.9);
    let unmoved = gaps.iter().all(|gap| *gap < 0.5);
    assert!(
        if slows { slowed } else { unmoved },
        "{gaps:?} after {step:?}"
    );
}

#[test]
fn f30_only_backoff_statuses_slow_a_host_down() {
    for status in [429, 502, 503, 504, 520, 521, 522, 523, 524] {
        check(Step::status(status), true);
    }
    for status in [500, 403, 404, 408, 410, 501, 204] {
        check(Step::status(status), false);
    }
}

#[test]
fn f31_timeouts_resets_and_truncated_bodies_slow_a_host_down() {
    for reply in [
        Reply::Silence,
        Reply::Reset,
        Reply::ResetInside,
        Reply::Truncated,
        Reply::BrokenChunk,
    ] {
        check(Step::new(reply), true);
    }
}

#[test]
fn f31_a_body_that_hangs_slows_a_host_down() {
    check(page_of("/").body_after(Duration::from_secs(60)), true);
}

/// Hosts of one domain share its pace: one is alive, one refuses connections, one has no address.
#[test]
fn f31_dns_failures_and_refused_connections_slow_no_host_down() {
    let mut web = PoliteWeb::default();
    web.promise.obeys_robots = false;
    web.round_trip = Duration::from_millis(10);
    let live = "live.one.test";
    web.site(live, address(1))
        .mood(Arc::new(|visit| Some(page_of(visit.path))));
    web.site("dead.one.test", address(2));
    web.deaf
        .insert(address(2), argiope::io::sim::Answer::Refuse);
    let mut plan = Plan::new(&[])
        .set("DOWNLOAD_DELAY", 0)
        .set("SCOPE_MAP", serde_json::json!(["domain"]))
        .set("ROBOTSTXT_OBEY", false);
    plan.asks_names = true;
    for page in 0..40 {
        plan.seeds.push(format!("http://{live}/{page}"));
    }
    plan.seeds.push("http://dead.one.test/".to_owned());
    plan.seeds.push("http://nowhere.one.test/".to_owned());
    let web = web.shared();
    let run = plan.run(&web);
    let failed = |url: &str| run.ends(url).pop().expect("it ended");
    assert!(failed("http://dead.one.test/").starts_with("conn"));
    assert!(failed("http://nowhere.one.test/").starts_with("dns"));
    let moments = web.borrow().moments(live);
    for pair in moments.windows(2) {
        let gap = pair[1].saturating_since(pair[0]);
        assert!(gap < Duration::from_millis(500), "a gap of {gap:?}");
    }
}

/// How many requests came on each of a host's connections in twenty seconds, where the first
/// connection is refused whatever comes on it.
fn by_connection(per_slot: bool, delay: f64) -> Vec<usize> {
    let mut web = PoliteWeb::default();
    web.promise.obeys_robots = false;
    web.promise.attempts = 100;
    web.round_trip = Duration::from_millis(10);
    let first = Arc::new(OnceLock::new());
    let mood: Mood = Arc::new(
        move |visit| match visit.conn == *first.get_or_init(|| visit.conn) {
            true => Some(Step::status(429).after_ms(100)),
            false => Some(page_of(visit.path).after_ms(100)),
        },
    );
    web.site(SITE, address(1)).mood(mood);
    let own = json!({SITE: {"concurrency": 4, "backoff": {"per_slot": per_slot, "jitter": 0}}});
    let mut plan = Plan::new(&[])
        .set("DOWNLOAD_DELAY", delay)
        .set("RANDOMIZE_DOWNLOAD_DELAY", false)
        .set("RETRY_TIMES", 0)
        .set("ROBOTSTXT_OBEY", false)
        .set("THROTTLING_SCOPES", own);
    plan.seeds = (0..2000).map(|n| format!("http://{SITE}/{n}")).collect();
    let web = web.shared();
    let mut run = plan.begin(&web);
    run.until(Duration::from_secs(20));
    run.check_manners();
    let web = web.borrow();
    let mut connections: Vec<ConnId> = Vec::new();
    let mut counts = Vec::new();
    for visit in web.visits(SITE) {
        let known = connections.iter().position(|conn| *conn == visit.conn);
        let at = known.unwrap_or_else(|| {
            connections.push(visit.conn);
            counts.push(0);
            counts.len() - 1
        });
        counts[at] += 1;
    }
    counts
}

#[test]
fn f38_the_connection_that_is_refused_slows_its_own_slot_down_and_no_other() {
    let counts = by_connection(true, 0.0);
    assert_eq!(counts.len(), 4, "{counts:?}");
    // At 0, 1.1, 3.2, 7.3 and 15.4 s, and the others one after the other.
    assert_eq!(counts[0], 5, "{counts:?}");
    assert!(counts[1..].iter().all(|count| *count >= 170), "{counts:?}");
    // Where connections are idle in between, none is taken for another's slot.
    let counts = by_connection(true, 0.1);
    assert_eq!(counts[0], 5, "{counts:?}");
    assert!(counts.iter().sum::<usize>() >= 195, "{counts:?}");
    // All of it slows down where slots do not back off by themselves.
    let counts = by_connection(false, 0.0);
    assert!(counts.iter().sum::<usize>() < 300, "{counts:?}");
}
