//! Configurations that are read anew while a crawl runs, in virtual time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::crawl::config::Config;
use crate::crawl::core::tests::operated::Trial;
use crate::crawl::core::tests::spilled;
use crate::crawl::core::tests::trial::{finish, get, run_for};
use crate::crawl::{Crawler, FinishReason, ReloadAnswer, ReloadError};
use crate::io::sim::Sim;
use crate::io::sim::web::{Reply, Web};
use crate::throttle::settings::ScopePatch;

/// What a source of configurations gives next: a configuration, an error, or no answer yet.
#[derive(Clone)]
enum Given {
    Config(Box<Config>),
    Error(&'static str),
    Later,
}

struct Source {
    next: Arc<Mutex<Given>>,
    late: Arc<Mutex<Vec<ReloadAnswer>>>,
}

impl Source {
    fn of(trial: &mut Trial) -> Source {
        let next = Arc::new(Mutex::new(Given::Error("nothing is set")));
        let late = Arc::<Mutex<Vec<ReloadAnswer>>>::default();
        let (given, kept) = (Arc::clone(&next), Arc::clone(&late));
        trial.crawler.reload_from(move |answer| {
            let given = given.lock().expect("it is not poisoned").clone();
            match given {
                Given::Config(config) => answer.give(Ok(*config)),
                Given::Error(error) => answer.give(Err(error.to_owned())),
                Given::Later => kept.lock().expect("it is not poisoned").push(answer),
            }
        });
        Source { next, late }
    }

    fn set(&self, given: Given) {
        *self.next.lock().expect("it is not poisoned") = given;
    }

    fn set_config(&self, config: &Config) {
        self.set(Given::Config(Box::new(config.clone())));
    }

    fn late(&self) -> ReloadAnswer {
        let mut late = self.late.lock().expect("it is not poisoned");
        late.pop().expect("it was asked")
    }
}

/// The settings of the crawls here.
fn usual() -> Config {
    config(&[("DOWNLOAD_DELAY", json!("100ms"))])
}

fn config(settings: &[(&str, Value)]) -> Config {
    let usual = [
        ("RANDOMIZE_DOWNLOAD_DELAY", json!(false)),
        ("ROBOTSTXT_OBEY", json!(false)),
        ("ALLOW_NET", json!("10.0.0.0/8")),
    ];
    let all = usual.into_iter().chain(settings.iter().cloned());
    all.fold(Config::default(), |config, (name, value)| {
        config.with(name, value).expect("it is valid")
    })
}

fn trial(pages: u32, begun: &Config) -> Trial {
    Trial::thinking(Duration::from_millis(5), pages, |config| {
        *config = begun.clone();
    })
}

/// Requests in the next two seconds.
fn requests(trial: &mut Trial) -> usize {
    let from = trial.now();
    trial.run(2000);
    trial.hits_since(from).len()
}

#[test]
fn a_reload_applies_what_has_changed_and_says_what() {
    let mut trial = trial(300, &usual());
    let source = Source::of(&mut trial);
    trial.run(300);
    source.set_config(&config(&[
        ("DOWNLOAD_DELAY", json!("1s")),
        ("THROTTLING_SCOPES", json!({"10.0.0.2": {"delay": 0.02}})),
    ]));
    let reply = trial.ask_well("POST", "/v1/reload", "");
    let names = |list: &Value| -> Vec<String> {
        let list = list.as_array().into_iter().flatten();
        list.filter_map(|one| one["name"].as_str().map(str::to_owned))
            .collect()
    };
    assert_eq!(
        names(&reply["applied"]),
        ["DOWNLOAD_DELAY", "THROTTLING_SCOPES"]
    );
    assert_eq!(reply["applied"][0]["before"], json!(0.1));
    assert_eq!(reply["applied"][0]["after"], json!(1));
    assert_eq!(reply["refused"], json!([]));
    let total = crate::settings::all().len();
    assert_eq!(reply["unchanged"], json!(total - 2));
    let found = requests(&mut trial);
    assert!(
        (98..=104).contains(&found),
        "one host each second, the other each 20 ms: {found}"
    );
    // The entry of the scope is removed again.
    source.set_config(&config(&[("DOWNLOAD_DELAY", json!("1s"))]));
    trial.ask_well("POST", "/v1/reload", "");
    trial.run(20);
    let found = requests(&mut trial);
    assert!((3..=5).contains(&found), "{found}");
    let orders = trial.orders();
    assert_eq!(orders.len(), 2);
    assert_eq!(orders[0]["order"], json!("reload"));
    assert_eq!(orders[0]["applied"], reply["applied"]);
}

#[test]
fn a_reload_with_a_setting_that_needs_another_run_applies_nothing_and_names_it() {
    let mut trial = trial(300, &usual());
    let source = Source::of(&mut trial);
    trial.run(300);
    source.set_config(&config(&[
        ("DOWNLOAD_DELAY", json!("5s")),
        ("USER_AGENT", json!("other/1.0")),
        ("PROXY", json!("http://me:secret@10.0.0.9:80")),
    ]));
    let (status, reply) = trial.ask("POST", "/v1/reload", "");
    assert_eq!(status, 409, "{reply}");
    let refused = reply["refused"].as_array().expect("a list");
    let names: Vec<&str> = refused
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert_eq!(names, ["USER_AGENT", "PROXY"]);
    assert_eq!(refused[0]["after"], json!("other/1.0"));
    assert!(refused[0]["why"].is_string());
    assert!(!reply.to_string().contains("secret"), "{reply}");
    let why = reply["error"].as_str().expect("a text");
    assert!(
        why.contains("another run is needed for USER_AGENT, PROXY"),
        "{why}"
    );
    assert!((38..=42).contains(&requests(&mut trial)));
    assert_eq!(trial.orders(), [] as [Value; 0]);
}

#[test]
fn a_configuration_that_cannot_be_read_changes_nothing() {
    let mut trial = trial(300, &usual());
    let (status, reply) = trial.ask("POST", "/v1/reload", "");
    assert_eq!(status, 409, "no source: {reply}");
    let source = Source::of(&mut trial);
    source.set(Given::Error(
        "settings.toml:3: download_delay: negative; give 0 or more",
    ));
    let (status, reply) = trial.ask("POST", "/v1/reload", "");
    assert_eq!(status, 409);
    let why = reply["error"].as_str().expect("a text");
    assert!(
        why.starts_with("nothing was applied: settings.toml:3: "),
        "{why}"
    );
    // Two settings contradict each other.
    source.set_config(&config(&[
        ("BACKOFF_MIN_DELAY", json!(9)),
        ("BACKOFF_MAX_DELAY", json!(8)),
    ]));
    let (status, _) = trial.ask("POST", "/v1/reload", "");
    assert_eq!(status, 409);
    let (status, _) = trial.ask("POST", "/v1/reload", "{}");
    assert_eq!(status, 400, "it has no body");
    assert!((38..=42).contains(&requests(&mut trial)));
    assert_eq!(trial.orders(), [] as [Value; 0]);
}

#[test]
fn the_crawl_goes_on_while_the_configuration_is_read_and_one_that_comes_late_is_not_applied() {
    let mut trial = trial(300, &usual());
    let source = Source::of(&mut trial);
    source.set(Given::Later);
    let reload = b"POST /v1/reload HTTP/1.1\r\nContent-Length: 0\r\n\r\n";
    let conn = trial.send(reload);
    trial.run(300);
    assert!((38..=42).contains(&requests(&mut trial)));
    let (status, reply) = trial.ask("POST", "/v1/reload", "");
    assert_eq!(
        (status, &reply["error"]),
        (409, &json!("the configuration is being read already"))
    );
    source
        .late()
        .give(Ok(config(&[("DOWNLOAD_DELAY", json!("1s"))])));
    trial.run(100);
    assert_eq!(trial.reply(conn).map(|(status, _)| status), Some(200));
    let late = trial.send(reload);
    trial.run(12_000);
    let (status, reply) = trial.reply(late).expect("it has an answer in time");
    assert_eq!(status, 503, "{reply}");
    source.late().give(Ok(usual()));
    trial.run(100);
    assert!((3..=5).contains(&requests(&mut trial)), "it is not applied");
    // The next one is, and one without an answer is refused.
    source.set_config(&usual());
    trial.ask_well("POST", "/v1/reload", "");
    assert!((36..=42).contains(&requests(&mut trial)));
    source.set(Given::Later);
    let dropped = trial.send(reload);
    trial.run(10);
    drop(source.late());
    trial.run(10);
    let (status, reply) = trial.reply(dropped).expect("it has an answer");
    assert_eq!(status, 409);
    assert!(reply.contains("was not read"), "{reply}");
}

#[test]
fn settings_of_scopes_by_order_hold_over_a_reload_until_they_are_withdrawn() {
    let mut trial = trial(300, &usual());
    let source = Source::of(&mut trial);
    trial.ask_well("PUT", "/v1/scopes/10.0.0.1", r#"{"delay": 1}"#);
    trial.ask_well("PUT", "/v1/limits", r#"{"CONCURRENT_REQUESTS": 50}"#);
    source.set_config(&config(&[
        (
            "THROTTLING_SCOPES",
            json!({"10.0.0.1": {"delay": 0.02}, "10.0.0.2": {"delay": 1}}),
        ),
        ("CONCURRENT_REQUESTS", json!(60)),
    ]));
    let reply = trial.ask_well("POST", "/v1/reload", "");
    assert_eq!(reply["held"], json!(["CONCURRENT_REQUESTS", "10.0.0.1"]));
    let found = requests(&mut trial);
    assert!((4..=6).contains(&found), "{found}");
    let scope = trial.ask_well("GET", "/v1/scopes/10.0.0.1", "");
    assert_eq!(scope["settings"], json!({"delay": 1}));
    let limits = trial.ask_well("GET", "/v1/limits", "");
    assert_eq!(limits["limits"]["CONCURRENT_REQUESTS"]["value"], json!(50));
    let reply = trial.ask_well("DELETE", "/v1/scopes/10.0.0.1", "");
    assert_eq!(reply["settings"]["delay"], json!(0.02));
    trial.run(1000);
    let found = requests(&mut trial);
    assert!(found > 90, "{found}");
    // An order without a setting is in effect, too: the scope has none of its own.
    trial.ask_well("PUT", "/v1/scopes/10.0.0.1", "{}");
    let reply = trial.ask_well("DELETE", "/v1/scopes/10.0.0.1", "");
    assert_eq!(reply["settings"]["delay"], json!(0.02));
}

#[test]
fn the_default_by_order_holds_over_a_reload_until_it_is_withdrawn() {
    let mut trial = trial(300, &usual());
    let source = Source::of(&mut trial);
    trial.ask_well("PUT", "/v1/scopes/default", r#"{"delay": 1}"#);
    source.set_config(&config(&[("DOWNLOAD_DELAY", json!(0.02))]));
    trial.ask_well("POST", "/v1/reload", "");
    trial.run(200);
    let found = requests(&mut trial);
    assert!((3..=5).contains(&found), "{found}");
    trial.ask_well("DELETE", "/v1/scopes/default", "");
    trial.run(1000);
    assert!(requests(&mut trial) > 180);
}

#[test]
fn a_reload_that_does_not_allow_what_was_ordered_for_a_scope_is_refused() {
    let mut trial = trial(50, &usual());
    let source = Source::of(&mut trial);
    trial.ask_well(
        "PUT",
        "/v1/scopes/10.0.0.1",
        r#"{"backoff": {"min_delay": 200}}"#,
    );
    source.set_config(&config(&[("BACKOFF_MAX_DELAY", json!(100))]));
    let (status, reply) = trial.ask("POST", "/v1/reload", "");
    assert_eq!(status, 409);
    let why = reply["error"].as_str().expect("a text");
    assert!(
        why.contains("10.0.0.1") && why.contains("min_delay"),
        "{why}"
    );
    trial.ask_well("DELETE", "/v1/scopes/10.0.0.1", "");
    trial.ask_well("POST", "/v1/reload", "");
}

#[test]
fn a_signal_reloads_and_its_order_is_recorded() {
    let mut trial = trial(300, &usual());
    let source = Source::of(&mut trial);
    trial.run(100);
    source.set_config(&config(&[("DOWNLOAD_DELAY", json!("1s"))]));
    trial.crawler.stopper().reload();
    trial.run(200);
    assert!((3..=5).contains(&requests(&mut trial)));
    let orders = trial.orders();
    let line = &orders[0];
    assert_eq!(
        (&line["order"], &line["uid"], &line["from"]),
        (&json!("reload"), &Value::Null, &Value::Null)
    );
    assert_eq!(line["applied"][0]["name"], json!("DOWNLOAD_DELAY"));
    source.set(Given::Error("no"));
    trial.crawler.stopper().reload();
    trial.run(200);
    assert_eq!(trial.orders().len(), 1);
}

#[test]
fn a_handle_reloads_and_gets_the_settings_that_need_another_run() {
    let mut trial = trial(300, &usual());
    let handle = trial.crawler.handle();
    trial.run(100);
    let refused = handle.reload(config(&[("WARC", json!(false))]));
    let Err(ReloadError::NeedsRun(settings)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(settings[0].name, "WARC");
    let contradiction = config(&[
        ("BACKOFF_MIN_DELAY", json!(9)),
        ("BACKOFF_MAX_DELAY", json!(8)),
    ]);
    assert!(matches!(
        handle.reload(contradiction),
        Err(ReloadError::Config(_))
    ));
    let scope = ScopePatch::default().delay(Duration::from_millis(20));
    handle.set_scope("10.0.0.2", scope).expect("it is valid");
    handle
        .reload(config(&[("DOWNLOAD_DELAY", json!("1s"))]))
        .expect("it may change");
    trial.run(1100);
    let found = requests(&mut trial);
    assert!((98..=104).contains(&found), "{found}");
    handle.withdraw_scope("10.0.0.2").expect("there is room");
    trial.run(20);
    let found = requests(&mut trial);
    assert!((3..=5).contains(&found), "{found}");
}

#[test]
fn filters_retries_and_bounds_of_a_reload_apply_to_what_is_not_decided_yet() {
    let mut trial = trial(5, &usual());
    let source = Source::of(&mut trial);
    trial.run(100);
    source.set_config(&config(&[
        ("DOWNLOAD_DELAY", json!("100ms")),
        ("DENY", json!(["/7$"])),
        ("STOP_GRACE", json!(3)),
        ("RETRY_TIMES", json!(0)),
        ("DOWNLOAD_TIMEOUT", json!(4)),
    ]));
    trial.ask_well("POST", "/v1/reload", "");
    for page in [6, 7, 8] {
        trial.crawler.submit(get(1, page)).expect("it is a URL");
    }
    assert_eq!(trial.crawler.config().stop_grace(), Duration::from_secs(3));
    assert_eq!(finish(&mut trial.crawler), FinishReason::Finished);
    let pages = trial.record.pages.borrow();
    let denied = pages.iter().filter(|page| page.timings.sent.is_none());
    let denied: Vec<&str> = denied.map(|page| page.url.as_str()).collect();
    assert_eq!(denied, ["http://10.0.0.1/7"]);
}

#[test]
fn hosts_and_networks_that_a_reload_excludes_get_nothing_more() {
    let mut trial = trial(300, &usual());
    let source = Source::of(&mut trial);
    trial.run(300);
    let exclude =
        |list: &[&str]| config(&[("DOWNLOAD_DELAY", json!("100ms")), ("EXCLUDE", json!(list))]);
    source.set_config(&exclude(&["10.0.0.2", "a.test", "*.b.test"]));
    trial.ask_well("PUT", "/v1/exclusions/c.test", "");
    let reply = trial.ask_well("POST", "/v1/reload", "");
    let expected =
        json!({"name": "EXCLUDE", "before": [], "after": ["*.b.test", "10.0.0.2", "a.test"]});
    assert_eq!(reply["applied"], json!([expected]));
    trial.run(10);
    let found = requests(&mut trial);
    assert!((18..=22).contains(&found), "one host is left: {found}");
    for host in ["a.test", "x.b.test", "c.test"] {
        let url = format!("http://{host}/1");
        let id = trial
            .crawler
            .submit(crate::frontier::request::Request::get(url));
        let id = id.expect("it is a URL");
        trial.run(10);
        assert_eq!(
            trial.record.end(id).as_deref(),
            Some("filtered.excluded"),
            "{host}"
        );
    }
    source.set_config(&usual());
    trial.ask_well("POST", "/v1/reload", "");
    for _ in 0..300 {
        trial.crawler.submit(get(3, 1)).expect("it is a URL");
    }
    let excluded = trial.ask_well("GET", "/v1/exclusions", "");
    assert_eq!(excluded, json!({"excluded": ["c.test"]}), "the order holds");
    assert_eq!(finish(&mut trial.crawler), FinishReason::Finished);
}

#[test]
fn what_is_queued_for_a_host_ends_unsent_when_a_reload_excludes_it() {
    let web = Web::new(|_| Reply::text("page"));
    let slow = [("DOWNLOAD_DELAY", json!(1)), ("STATE_SYNC", json!(0.1))];
    let begun = config(&slow);
    let mut crawler = spilled::crawl(&web, |config| *config = begun.clone());
    let handle = crawler.handle();
    for number in 0..100 {
        crawler.submit(spilled::page(number)).expect("it is a URL");
    }
    run_for(&mut crawler, Duration::from_millis(3500));
    let before = web.asked().len();
    let excluding = config(&[
        slow[0].clone(),
        slow[1].clone(),
        ("EXCLUDE", json!("*.test")),
    ]);
    handle.reload(excluding).expect("it may change");
    run_for(&mut crawler, Duration::from_secs(1));
    drop(handle);
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    assert_eq!(web.asked().len(), before);
}

#[test]
fn the_level_of_the_log_is_left_to_the_program_unless_that_allows_it() {
    let mut trial = trial(50, &usual());
    let before = trial.ask_well("GET", "/v1/log", "");
    let (status, reply) = trial.ask("PUT", "/v1/log", r#"{"level": "trace"}"#);
    assert_eq!(status, 409, "{reply}");
    assert_eq!(trial.ask_well("GET", "/v1/log", ""), before);
    assert_eq!(trial.orders(), [] as [Value; 0]);
}

/// A crawl of one host whose configuration was reloaded and whose scope was given a delay, killed after that, and
/// what it sends in ten seconds when it is continued with a configuration.
fn sent_after_resume(ordered: bool, resumed: &Config) -> usize {
    let web = || Web::new(|_| Reply::text("page"));
    let begun = config(&[("DOWNLOAD_DELAY", json!(2))]);
    let mut crawler = spilled::crawl(&web(), |config| *config = begun.clone());
    let handle = crawler.handle();
    for number in 0..200 {
        crawler.submit(spilled::page(number)).expect("it is a URL");
    }
    if ordered {
        let scope = ScopePatch::default().delay(Duration::from_millis(500));
        handle.set_scope("a.test", scope).expect("it is valid");
    }
    let reloaded = reloaded();
    handle.reload(reloaded).expect("it may change");
    run_for(&mut crawler, Duration::from_secs(5));
    let web = web();
    let mut later = spilled::resumed(&crawler, &web, |config| *config = resumed.clone());
    let _handle = later.handle();
    sent_in_ten_seconds(&mut later, &web)
}

fn sent_in_ten_seconds(crawler: &mut Crawler<Sim>, web: &Web) -> usize {
    run_for(crawler, Duration::from_secs(2));
    let before = web.asked().len();
    run_for(crawler, Duration::from_secs(10));
    web.asked().len() - before
}

fn reloaded() -> Config {
    config(&[("THROTTLING_SCOPES", json!({"a.test": {"delay": 0.1}}))])
}

#[test]
fn a_later_run_is_paced_as_it_is_configured_and_orders_hold_unless_it_is_configured_anew() {
    let begun = config(&[("DOWNLOAD_DELAY", json!(2))]);
    let anew = config(&[("THROTTLING_SCOPES", json!({"a.test": {"delay": 1}}))]);
    let expected = [(begun, 5, 20), (reloaded(), 100, 20), (anew, 10, 10)];
    for (again, alone, ordered) in expected {
        for (is_ordered, expected) in [(false, alone), (true, ordered)] {
            let sent = sent_after_resume(is_ordered, &again);
            assert!(sent.abs_diff(expected) <= 2, "{sent}, not {expected}");
        }
    }
}
