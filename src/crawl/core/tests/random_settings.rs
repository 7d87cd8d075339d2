//! Settings that an operator of a random crawl changes at random: limits, a configuration that is read anew, and the
//! level of the log.

use std::sync::Mutex;

use crate::base::rng::Rng;
use crate::crawl::Crawler;
use crate::crawl::config::Config;
use crate::io::sim::Sim;

/// From now on each reload finds another configuration, an error, or nothing. None allows more requests in flight than
/// the one with which the crawl begins.
pub fn change_at_random(crawler: &mut Crawler<Sim>, seed: u64) {
    let begun = crawler.config().clone();
    let rng = Mutex::new(Rng::from_seed(seed));
    crawler.reload_from(move |answer| {
        let mut rng = rng.lock().expect("it is not poisoned");
        let most = begun.throttle().concurrent_requests as u64;
        let changed = match rng.below(7) {
            0 => Ok(begun.clone()),
            1 => begun.clone().with("METRICS_SCOPES_MAX", rng.below(100)),
            2 => begun
                .clone()
                .with("CONCURRENT_REQUESTS", 1 + rng.below(most)),
            3 => begun.clone().with("WARC", rng.chance(0.5)),
            4 => begun.clone().with("STOP_GRACE", rng.below(9)),
            5 => begun.clone().with("STOP_GRACE", "never"),
            _ => return,
        };
        answer.give(changed.map_err(|error| error.to_string()));
    });
}

/// A request that changes settings, or is refused.
pub fn request(rng: &mut Rng) -> String {
    let put = |path: &str, body: &str| {
        let length = body.len();
        format!("PUT {path} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    let count = 1 + rng.below(4);
    match rng.below(10) {
        0 | 1 => put(
            "/v1/limits",
            &format!("{{\"CONCURRENT_REQUESTS\": {count}}}"),
        ),
        2 => put("/v1/limits", "{\"concurrent_requests\": null}"),
        3 => put("/v1/limits", "{\"PAGES_PER_DOMAIN_MAX\": \"x\"}"),
        8 => put("/v1/limits", "{\"BYTES_PER_SECOND_MAX\": 50000}"),
        9 => put("/v1/limits", "{\"BYTES_PER_SECOND_MAX\": null}"),
        4 => put("/v1/log", "{\"level\": \"trace\"}"),
        5 => "DELETE /v1/scopes/10.0.0.1 HTTP/1.1\r\n\r\n".to_owned(),
        6 => "DELETE /v1/scopes/default HTTP/1.1\r\n\r\nGET /v1/limits HTTP/1.1\r\n\r\n".to_owned(),
        _ => "POST /v1/reload HTTP/1.1\r\n\r\n".to_owned(),
    }
}

/// Whether the limits of a crawl are those of its configuration, but for what was ordered.
pub fn check(crawler: &Crawler<Sim>, begun: &Config) {
    let changes = begun.changes_to(crawler.config());
    let changed: Vec<&str> = changes.iter().map(|change| change.setting.name).collect();
    let may = [
        "CONCURRENT_REQUESTS",
        "BYTES_PER_SECOND_MAX",
        "METRICS_SCOPES_MAX",
        "STOP_GRACE",
    ];
    assert!(changed.iter().all(|name| may.contains(name)), "{changed:?}");
}
