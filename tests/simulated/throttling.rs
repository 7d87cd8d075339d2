//! Throttling as people see it: what is told of decisions and paces is what the servers saw.

use std::time::Duration;

use argiope::sink::files::{FileSink, FileSinkOptions};
use serde_json::Value;

use super::crawl::{Plan, Run};
use super::web::{PoliteWeb, Reply, Step, address};

/// Pages of a host, each as slow as this, and their URLs.
fn host(web: &mut PoliteWeb, name: &str, number: u8, pages: usize, think: Duration) -> Vec<String> {
    let site = web.site(name, address(number));
    (0..pages)
        .map(|page| {
            let path = format!("/{page}");
            site.path(&path, [Step::new(Reply::Page(Vec::new())).after(think)]);
            format!("http://{name}{path}")
        })
        .collect()
}

/// Crawls to the end with `throttle.jsonl`; gives its lines too.
fn run_debugged(plan: &Plan, web: PoliteWeb) -> (Run, Vec<Value>) {
    let mut options = FileSinkOptions::new("out");
    options.decisions = true;
    let mut run = plan.begin_into(&web.shared(), FileSink::new(options));
    assert_eq!(run.finish(), "finished");
    run.check_manners();
    let lines = run.decisions();
    (run, lines)
}

#[test]
fn f79_each_response_has_its_decision_which_says_what_the_server_saw() {
    let mut web = PoliteWeb::default();
    let mut plan = Plan::new(&[])
        .set("AUTOTHROTTLE_ENABLED", true)
        .set("AUTOTHROTTLE_DEBUG", true)
        .set("AUTOTHROTTLE_MODE", "scrapy");
    plan.seeds = host(&mut web, "one.test", 1, 30, Duration::from_millis(200));
    plan.seeds
        .extend(host(&mut web, "two.test", 2, 10, Duration::from_millis(50)));
    let (run, decisions) = run_debugged(&plan, web);
    let results = run.lines();
    let decisions: Vec<&Value> = decisions
        .iter()
        .filter(|line| line["event"] == "autothrottle")
        .collect();
    assert_eq!(decisions.len(), run.web.borrow().arrivals.len());
    for name in ["one.test", "two.test"] {
        let of_scope = |line: &&&Value| line["scope"] == name;
        let moments = run.web.borrow().moments(name);
        let mut before: Option<&Value> = None;
        for (decision, _arrival) in decisions.iter().filter(of_scope).zip(&moments) {
            let result = results.iter().find(|line| line.0["id"] == decision["id"]);
            let result = &result.expect("a decision has its result line").0;
            for key in ["status", "latency"] {
                assert_eq!(decision[key], result[key], "{key} of {decision}");
            }
            assert_eq!(decision["size"], result["bytes_body"], "{decision}");
            assert_eq!(decision["source"], "autothrottle");
            // Each begins where the one before it ended.
            if let Some(before) = before {
                assert_eq!(decision["delay"][0], before["delay"][1], "{decision}");
            }
            before = Some(decision);
        }
        assert_eq!(decisions.iter().filter(of_scope).count(), moments.len());
    }
}

#[test]
fn without_the_setting_nothing_is_decided_aloud() {
    let mut web = PoliteWeb::default();
    let mut plan = Plan::new(&[]).set("AUTOTHROTTLE_ENABLED", true);
    plan.seeds = host(&mut web, "one.test", 1, 5, Duration::from_millis(20));
    let (_, decisions) = run_debugged(&plan, web);
    assert_eq!(decisions, [] as [Value; 0]);
}
