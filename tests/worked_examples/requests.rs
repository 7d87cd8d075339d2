//! Scopes set by a request, in code and in a seeds line.

use std::io::Write;
use std::process::{Command, Stdio};

use argiope::serde_json::{Value, json};
use argiope::{Config, Request};

use crate::loopback::{Reply, Server, peak};
use crate::{assert_apart, assert_gaps, crawl_under, get, millis, set};

/// Runs the same crawl in code and, from its requests' lines, by the command; what the server saw
/// of it is for `check`.
fn both_ways(scopes: &Value, delay: &str, requests: &[Request], check: &dyn Fn(&Server)) {
    let page = || Server::start(|_| Reply::page("a page").after(millis(50)));
    let server = page();
    let config: Config = set(server.config(), "THROTTLING_SCOPES", scopes.clone());
    let config = set(config, "DOWNLOAD_DELAY", delay);
    let config = set(config, "CONCURRENT_REQUESTS", 3);
    crawl_under(config, requests.iter().cloned());
    assert_eq!(server.asked().len(), requests.len());
    check(&server);
    let server = page();
    by_command(&server, scopes, delay, requests);
    assert_eq!(server.asked().len(), requests.len());
    check(&server);
}

fn by_command(server: &Server, scopes: &Value, delay: &str, requests: &[Request]) {
    let settings = [
        format!("THROTTLING_SCOPES={scopes}"),
        format!("DOWNLOAD_DELAY={delay}"),
        "CONCURRENT_REQUESTS=3".to_owned(),
        "RANDOMIZE_DOWNLOAD_DELAY=false".to_owned(),
        "ROBOTSTXT_OBEY=false".to_owned(),
    ];
    let mut child = Command::new(env!("CARGO_BIN_EXE_argiope"))
        .args(["crawl", "--seeds", "-", "--results", "-", "--quiet"])
        .args(["--no-warc", "--follow", "none", "--allow-net", "loopback"])
        .args(["--resolve", &server.here()])
        .args(settings.iter().flat_map(|setting| ["-s", setting]))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("the command runs");
    let mut seeds = child.stdin.take().expect("it reads");
    for request in requests {
        // A single scope may be written as a string, too.
        let line = request.to_line().replace(r#"["api"]"#, r#""api""#);
        writeln!(seeds, "{line}").expect("it takes its seeds");
    }
    drop(seeds);
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn f15_two_hosts_under_one_scope_share_its_pace() {
    let requests: Vec<_> = (0..4)
        .map(|number| get(format!("http://h{number}.test/")).scope("api"))
        .collect();
    let scopes = json!({"api": {"delay": 0.2}});
    both_ways(&scopes, "0", &requests, &|server| {
        assert_gaps(&server.asked(), millis(200));
    });
}

#[test]
fn f16_the_slower_of_two_scopes_delays_only_its_own_requests() {
    let of_users = |number| {
        get(format!("http://a.test/users/{number}"))
            .scope("api")
            .scope("users")
    };
    let of_api = |number| get(format!("http://a.test/{number}")).scope("api");
    let requests: Vec<_> = (0..3).map(of_users).chain((0..4).map(of_api)).collect();
    let scopes = json!({
        "api": {"delay": 0.08, "concurrency": 2},
        "users": {"delay": 0.5},
    });
    both_ways(&scopes, "0", &requests, &|server| {
        let users = server.asked_of(|asked| asked.target.starts_with("/users"));
        let others = server.asked_of(|asked| !asked.target.starts_with("/users"));
        assert_gaps(&server.asked(), millis(80));
        assert_gaps(&users, millis(500));
        assert!(others[3].at < users[2].at, "the others need not wait");
    });
}

#[test]
fn f17_expected_costs_are_charged_to_the_quota_of_their_scope() {
    let requests: Vec<_> = (0..9)
        .map(|number| get(format!("http://h{number}.test/")).scope_cost("cost", 2.5))
        .collect();
    let scopes = json!({"cost": {"quota": 10.0, "window": 1.0}});
    both_ways(&scopes, "0", &requests, &|server| {
        let asked = server.asked();
        assert_apart(&asked[0], &asked[4], millis(1000));
        assert_apart(&asked[4], &asked[8], millis(1000));
        // Four in a window, not one after the other.
        assert!(asked[3].at - asked[0].at < millis(900));
    });
}

#[test]
fn f18_without_scopes_only_the_global_cap_holds() {
    let requests: Vec<_> = (0..30)
        .map(|number| get(format!("http://a.test/{number}")).without_scopes())
        .collect();
    both_ways(&json!({}), "1s", &requests, &|server| {
        let asked = server.asked();
        assert_eq!(peak(&asked), 3);
        // A second between each would make 29.
        assert!(asked[29].at - asked[0].at < millis(10_000));
    });
}
