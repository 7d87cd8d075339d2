//! Scraping APIs: refusals by the target, refusals by the API, and retries.

use std::collections::HashMap;
use std::sync::Mutex;

use argiope::serde_json::{Value, json};
use argiope::{Config, Crawler, Page};

use crate::api_retry_policy::{TRIES, policy, with_policy};
use crate::loopback::{Asked, Reply, Server, gaps};
use crate::scraping_api::{Upstream, WithTarget, paces};
use crate::{
    LATE, assert_apart, assert_gaps, crawl, get, kept, millis, scopes_of, set, to_the_end,
};

const API: &str = "api.toscrape.com";

/// Crawls these URLs through the scraping API of the example.
fn through_api(config: Config, urls: impl IntoIterator<Item = String>) -> Vec<Page> {
    let builder = Crawler::builder(config)
        .scope_map(WithTarget)
        .classify(Upstream);
    crawl(builder, urls.into_iter().map(get))
}

fn about(target: &str, number: usize) -> String {
    format!("http://{API}/?url=http%3A%2F%2F{target}%2F{number}")
}

fn is_about(target: &'static str) -> impl Fn(&Asked) -> bool {
    move |asked| {
        asked
            .target
            .contains(&format!("url=http%3A%2F%2F{target}%2F"))
    }
}

#[test]
fn f25_the_api_and_each_site_behind_it_keep_their_paces() {
    let server = Server::start(|_| Reply::page("a page").after(millis(200)));
    let config = paces(set(server.config(), "DOWNLOAD_DELAY", "300ms")).expect("settings");
    let targets = (0..4).flat_map(|n| [about("t1.test", n), about("t2.test", n)]);
    let bare = [
        "?",
        "?url=",
        "?url=not+a+site",
        "?url=ftp%3A%2F%2Ft1.test%2F",
    ];
    let bare = bare.map(|query| format!("http://{API}/{query}"));
    let pages = through_api(config, targets.chain(bare.clone()));
    assert_gaps(&server.asked(), millis(80));
    let of = |target| server.asked_of(is_about(target));
    let (t1, t2) = (of("t1.test"), of("t2.test"));
    assert_gaps(&t1, millis(300));
    assert_gaps(&t2, millis(300));
    assert!(
        t2[0].at < t1[1].at && t1[2].at < t2[3].at,
        "they take turns"
    );
    for page in pages {
        let expected = match page.url.contains("%2Ft") && !page.url.contains("ftp") {
            true => vec![
                API,
                if page.url.contains("t1.test") {
                    "t1.test"
                } else {
                    "t2.test"
                },
            ],
            false => vec![API],
        };
        assert_eq!(scopes_of(&page), expected, "{}", page.url);
    }
}

#[test]
fn f26_a_refusal_by_the_target_slows_only_the_target() {
    let server = Server::start(|asked| {
        let refused = asked.target.contains("t1.test%2F0");
        let status = if refused { "429" } else { "200" };
        let garbled = is_about("t2.test")(asked);
        let status = if garbled { "429, they say" } else { status };
        Reply::page("a page").field("X-Upstream-Status-Code", status)
    });
    let config = set(server.config(), "DOWNLOAD_DELAY", "50ms");
    let config = set(config, "BACKOFF_MIN_DELAY", "1500ms");
    let config = paces(set(config, "BACKOFF_JITTER", false)).expect("settings");
    let urls = ["t1.test", "t2.test", "t3.test"].into_iter();
    let urls = urls.flat_map(|target| {
        (0..if target == "t1.test" { 2 } else { 4 }).map(move |n| about(target, n))
    });
    through_api(config, urls);
    let of = |target| server.asked_of(is_about(target));
    let t1 = of("t1.test");
    assert_gaps(&t1, millis(1500));
    for other in ["t2.test", "t3.test"] {
        let other = of(other);
        assert_eq!(other.len(), 4);
        assert!(other[3].at < t1[1].at, "no other scope waits");
    }
}

#[test]
fn f27_a_refusal_by_the_api_slows_only_the_api() {
    let server = Server::start(|asked| match asked.target.contains("t0.test") {
        true => Reply::status("429 Too Many Requests"),
        false => Reply::page("a page"),
    });
    let config = set(server.config(), "DOWNLOAD_DELAY", "50ms");
    let config = set(config, "BACKOFF_MIN_DELAY", "1200ms");
    let config = set(config, "BACKOFF_JITTER", false);
    // One at a time: the answer to the first is known before the second leaves.
    let scopes = json!({API: {"concurrency": 1, "delay": 0.0}});
    let config = set(config, "THROTTLING_SCOPES", scopes);
    let through = ["t0.test", "t1.test", "t2.test"].map(|target| about(target, 0));
    let direct = ["t0.test", "t1.test"].into_iter();
    let direct = direct.flat_map(|host| (0..4).map(move |n| format!("http://{host}/{n}")));
    through_api(config, through.into_iter().chain(direct));
    let through = server.asked_of(|asked| asked.host == API);
    assert_eq!(through.len(), 3);
    assert!(through[0].target.contains("t0.test"));
    assert_gaps(&through, millis(1200));
    for host in ["t0.test", "t1.test"] {
        let direct = server.asked_of(|asked| asked.host == host);
        assert_gaps(&direct, millis(50));
        assert!(direct[3].at < through[1].at, "{host} is asked itself, too");
    }
}

/// A server whose API answers with these statuses to the first requests for each path.
fn refusing(statuses: &'static [(&str, &[&str])]) -> Server {
    let asked_for: Mutex<HashMap<String, usize>> = Mutex::default();
    Server::start(move |asked| {
        let mut asked_for = asked_for.lock().expect("no server panics");
        let times = asked_for.entry(asked.target.clone()).or_default();
        *times += 1;
        let of = statuses.iter().find(|(path, _)| *path == asked.target);
        match of.and_then(|(_, statuses)| statuses.get(*times - 1)) {
            Some(status) => Reply::status(*status),
            None => Reply::page("a page"),
        }
    })
}

/// The example's policy, a hundred times as fast.
fn quick_policy(server: &Server) -> Crawler {
    let config = policy(server.config()).expect("settings");
    let mut scopes = Value::from(config.get("THROTTLING_SCOPES").expect("a setting"));
    let scope = &mut scopes[API];
    scope["concurrency"] = json!(1);
    scope["manager"]["first"] = json!(0.1);
    scope["manager"]["most"] = json!(0.3);
    let config = config.with("THROTTLING_SCOPES", scopes).expect("scopes");
    let (_, crawler) = kept(with_policy(Crawler::builder(config)));
    crawler
}

#[test]
fn f72_failures_are_tried_four_times_and_refusals_without_limit() {
    const LATER: &[&str] = &[
        "429 Later",
        "503 Busy",
        "429 Later",
        "429 Later",
        "503 Busy",
        "429 Later",
        "429 Later",
    ];
    let server = refusing(&[
        ("/failed", &["520 Failed"; 9]),
        ("/almost", &["520 Failed"; 3]),
        ("/later", LATER),
    ]);
    let mut crawler = quick_policy(&server);
    for path in ["failed", "almost", "later"] {
        crawler
            .submit(get(format!("http://{API}/{path}")))
            .expect("a URL");
    }
    to_the_end(&mut crawler);
    let of = |path: &'static str| server.asked_of(move |asked| asked.target == path);
    assert_eq!(of("/failed").len(), TRIES as usize);
    assert_eq!(of("/almost").len(), 4, "the fourth went well");
    assert_eq!(of("/later").len(), LATER.len() + 1);
}

#[test]
fn f40_a_named_strategy_sets_delays_by_its_arguments() {
    let server = refusing(&[("/", &["429 Later", "503 Busy", "429 Later", "520 Failed"])]);
    let mut crawler = quick_policy(&server);
    crawler
        .submit(get(format!("http://{API}/")))
        .expect("a URL");
    to_the_end(&mut crawler);
    let asked = server.asked();
    assert_eq!(asked.len(), 5);
    for (gap, least) in gaps(&asked).into_iter().zip([100, 200, 300, 0]) {
        assert!(gap + LATE >= millis(least), "{:?}", gaps(&asked));
    }
    assert!(
        gaps(&asked)[3] < millis(280),
        "a page that failed is no refusal"
    );
    assert_apart(&asked[0], &asked[3], millis(600));
}
