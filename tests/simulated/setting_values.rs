//! Values of settings, by chance.
//!
//! Each setting has a line in [`value_of`], or a reason in [`LEFT_OUT`]; a new setting without either fails a test.

use argiope::base::rng::Rng;
use argiope::settings::all;
use serde_json::{Value, json};

use super::proxies::PROXIES;
use super::random::{NAMES, pick};

/// Settings that cannot vary here, and why.
pub const LEFT_OUT: [(&str, &str); 15] = [
    ("ALLOW", "what is expected goes by it"),
    ("DENY", "what is expected goes by it"),
    ("EXCLUDE", "what is expected goes by it"),
    ("DROP_QUERY_PARAMETERS", "what is expected goes by it"),
    ("FOLLOW", "the case says it"),
    ("ALLOW_NET", "the plan says it"),
    ("RESOLVE", "the plan says it"),
    ("DNS_SERVERS", "the plan says it"),
    ("RANDOM_SEED", "the plan says it"),
    ("IO", "there is one simulated back end"),
    ("CA_FILE", "there is no TLS"),
    ("COOKIES_FILE", "there is no file"),
    ("THROTTLING_MANAGER", "none is registered"),
    ("THROTTLING_SCOPE_MANAGER", "none is registered"),
    (
        "DOWNLOAD_SLOTS",
        "the same as THROTTLING_SCOPES, which varies",
    ),
];

/// A value of a setting; `None` leaves it as it is.
pub fn value_of(name: &str, rng: &mut Rng) -> Option<Value> {
    let seconds = |rng: &mut Rng, from: &[f64]| json!(pick(rng, from));
    let count = |rng: &mut Rng, from: &[u64]| json!(pick(rng, from));
    let flag = |rng: &mut Rng| json!(rng.chance(0.5));
    let choice = |rng: &mut Rng, from: &[&str]| json!(pick(rng, from));
    let jitter = |rng: &mut Rng| pick(rng, &[json!(true), json!(false), json!([-0.1, 0.9])]);
    // Most are left as they are now and then, so that any few of them may meet.
    if rng.chance(0.3) {
        return None;
    }
    Some(match name {
        "CONCURRENT_REQUESTS" => count(rng, &[1, 2, 3, 6, 100]),
        "CONCURRENT_REQUESTS_PER_DOMAIN" => count(rng, &[1, 2, 5, 16]),
        "CONCURRENT_REQUESTS_PER_IP" => count(rng, &[0, 0, 1, 3]),
        "DOWNLOAD_DELAY" => seconds(rng, &[0.0, 0.001, 0.05, 0.3, 2.0]),
        "DOWNLOAD_DELAY_PER_SLOT" => seconds(rng, &[0.0, 0.1, 1.0]),
        "RANDOMIZE_DOWNLOAD_DELAY" => jitter(rng),
        "SCOPE_MAP" => {
            let maps: [&[&str]; 5] = [
                &["host"],
                &["domain"],
                &["hierarchy"],
                &["host", "ip"],
                &["domain", "host", "ip"],
            ];
            json!(pick(rng, &maps))
        }
        "THROTTLING_SCOPES" => scopes(rng),
        "DOMAIN_SCOPE_DEFAULTS" => json!({"concurrency": 1 + rng.below(4), "delay": 0.05}),
        "ADDRESS_SCOPE_DEFAULTS" => json!({"concurrency": 1 + rng.below(4), "delay": 0.01}),
        "BACKOFF_ENABLED" => flag(rng),
        "BACKOFF_HTTP_CODES" => json!([429, 503]),
        "BACKOFF_EXCEPTIONS" => json!(["timeout", "reset", "connect"]),
        "BACKOFF_DELAY_FACTOR" => seconds(rng, &[1.2, 2.0, 10.0]),
        "BACKOFF_MAX_DELAY" => seconds(rng, &[1.0, 20.0, 300.0]),
        "BACKOFF_MIN_DELAY" => seconds(rng, &[0.05, 1.0]),
        "BACKOFF_JITTER" => json!(0.1),
        "BACKOFF_WINDOW" => seconds(rng, &[1.0, 10.0, 60.0]),
        "BACKOFF_CONCURRENCY_FACTOR" => seconds(rng, &[0.1, 0.5, 0.9]),
        "BACKOFF_PER_SLOT" => flag(rng),
        "RATELIMIT_HEADERS" => choice(rng, &["always", "backoff", "off"]),
        "RETRY_AFTER_OBEY" => flag(rng),
        "REDIRECT_MAX_DELAY" => seconds(rng, &[0.0, 5.0]),
        "RAMPUP_BACKOFF_TARGET" => json!([1, 3]),
        "THROTTLING_WINDOW" => seconds(rng, &[1.0, 10.0]),
        "THROTTLING_WINDOW_KIND" => choice(rng, &["fixed", "sliding"]),
        "QUOTA_OVERSIZE" => choice(rng, &["alone", "refuse"]),
        "AUTOTHROTTLE_ENABLED" => flag(rng),
        "AUTOTHROTTLE_MODE" => choice(rng, &["robust", "scrapy"]),
        "AUTOTHROTTLE_START_DELAY" => seconds(rng, &[0.05, 1.0, 5.0]),
        "AUTOTHROTTLE_MAX_DELAY" => seconds(rng, &[5.0, 60.0]),
        "AUTOTHROTTLE_TARGET_CONCURRENCY" => seconds(rng, &[0.5, 1.0, 4.0]),
        "LATENCY_FROM" => choice(rng, &["send", "connect"]),
        "AUTOTHROTTLE_DEBUG" => flag(rng),
        "DELAYED_REQUESTS_WARN_THRESHOLD" => count(rng, &[0, 1, 500]),
        "THROTTLING_ROBOTSTXT_OBEY" => flag(rng),
        "THROTTLING_ROBOTSTXT_MAX_DELAY" => seconds(rng, &[0.1, 60.0]),
        "THROTTLING_ROBOTSTXT_KEEP_CONCURRENCY" => flag(rng),
        "USER_AGENT" => json!("bot/2.0"),
        "CONTACT" => json!("https://example.com/bot"),
        "DEFAULT_REQUEST_HEADERS" => json!(["Accept-Language: en"]),
        "CREDENTIAL_ORIGINS" => json!(["http://one.test"]),
        "PRIVATE_HEADERS" => json!(["X-Key"]),
        "ACCEPT_ZSTD" => flag(rng),
        "HTTP_USER" => json!("seeds:secret"),
        "HOSTS" => hosts(rng),
        "COOKIES_ENABLED" => flag(rng),
        "ROBOTSTXT_OBEY" => flag(rng),
        "ROBOTSTXT_IGNORED_HOSTS_MAX" => count(rng, &[0, 1, 2, 4]),
        "ROBOTSTXT_USER_AGENT" => json!("bot"),
        "ROBOTSTXT_CACHE_TIME" => seconds(rng, &[20.0, 700.0, 86_400.0]),
        "ROBOTS_MEMORY" => count(rng, &[1, 500, 1_000_000]),
        "WORKERS" => count(rng, &[0, 1, 3]),
        "TLS_SESSIONS_MEMORY" => count(rng, &[0, 9_000, 1_000_000]),
        "SITEMAP_DEPTH_LIMIT" => count(rng, &[0, 1, 3]),
        "SITEMAPS_PER_HOST_MAX" => count(rng, &[0, 1, 1000]),
        "OUTAGE_BREAKER" => flag(rng),
        "HOST_DOWN_AFTER" => seconds(rng, &[0.0, 5.0, 120.0]),
        "HOST_DOWN_EXCEPTIONS" => pick(
            rng,
            &[
                json!([]),
                json!(["dns"]),
                json!(["connect.refused", "timeout"]),
                json!(["connect", "dns", "timeout", "reset", "truncated"]),
            ],
        ),
        // With the longest backoff, 255 failures of a dead host take a day.
        "HOST_HOLD_FAILURES" => count(rng, &[1, 2, 5, 30]),
        "HOST_HOLD_MIN" => seconds(rng, &[0.01, 1.0, 5.0]),
        "HOST_HOLD_MAX" => seconds(rng, &[5.0, 30.0, 900.0]),
        "HOST_DOWN_TIME" => seconds(rng, &[0.5, 10.0, 900.0]),
        "HOST_DOWN_TIME_MAX" => seconds(rng, &[900.0, 86_400.0]),
        "DEPTH_LIMIT" => count(rng, &[0, 1, 3]),
        "BYTES_PER_SECOND_MAX" => count(rng, &[0, 0, 0, 500, 20_000]),
        "CLOSESPIDER_PAGECOUNT" => count(rng, &[0, 0, 0, 7]),
        "CLOSESPIDER_ERRORCOUNT" => count(rng, &[0, 0, 0, 3]),
        "CLOSESPIDER_BYTECOUNT" => count(rng, &[0, 0, 0, 1, 5_000]),
        "CLOSESPIDER_TIMEOUT" => seconds(rng, &[0.0, 0.0, 0.0, 20.0]),
        "PAGES_PER_HOST_MAX" => count(rng, &[0, 0, 3]),
        "PAGES_PER_DOMAIN_MAX" => count(rng, &[0, 0, 1, 5]),
        "BYTES_PER_DOMAIN_MAX" => count(rng, &[0, 0, 1, 3000]),
        "URLLENGTH_LIMIT" => count(rng, &[40, 8192]),
        "PATH_REPEAT_LIMIT" => count(rng, &[1, 5]),
        "LINKS_PER_PAGE_MAX" => count(rng, &[0, 2, 10_000]),
        "FOLLOW_NOFOLLOW" => flag(rng),
        "FOLLOW_RESOURCES" => flag(rng),
        "FOLLOW_SITEMAPS" => flag(rng),
        "FRONTIER_MAX" => count(rng, &[1, 5, 1000]),
        "SEEN_MEMORY" => count(rng, &[1, 200, 2000, 1 << 30]),
        "FRONTIER_MEMORY" => count(rng, &[1, 2000, 1 << 30]),
        "RETRY_TIMES" => count(rng, &[0, 1, 2, 5]),
        "RETRY_HTTP_CODES" => json!([500, 503]),
        "RETRY_EXCEPTIONS" => pick(
            rng,
            &[json!([]), json!(["timeout"]), json!(["connect", "reset"])],
        ),
        "REDIRECT_MAX_TIMES" => count(rng, &[0, 2, 20]),
        "DOWNLOAD_TIMEOUT" => seconds(rng, &[3.0, 30.0]),
        "CONNECT_TIMEOUT" => seconds(rng, &[1.0, 10.0]),
        "TLS_TIMEOUT" => seconds(rng, &[1.0]),
        "FIRST_BYTE_TIMEOUT" => seconds(rng, &[2.0, 30.0]),
        "IDLE_TIMEOUT" => seconds(rng, &[1.0, 20.0]),
        "DOWNLOAD_MAXSIZE" => count(rng, &[100, 10_000_000]),
        "DOWNLOAD_MIN_RATE" => count(rng, &[0, 100]),
        "DECODED_RATIO_MAX" => count(rng, &[1, 200]),
        "KEEPALIVE_TIMEOUT" => seconds(rng, &[0.0, 0.5, 30.0]),
        "KEEPALIVE_MAX" => count(rng, &[0, 1, 100]),
        "INSECURE" => flag(rng),
        "SOCKETS_MAX" => count(rng, &[8, 30, 1000]),
        "READ_BUDGET" => count(rng, &[512, 65_536]),
        "TIMER_SLACK" => seconds(rng, &[0.0, 0.001]),
        "SPIN" => seconds(rng, &[0.0]),
        "BUFFERED_BODIES_MAX" => count(rng, &[1, 2000, 100_000_000]),
        "STOP_GRACE" => seconds(rng, &[0.0, 25.0]),
        "METRICS_SCOPES_MAX" => count(rng, &[0, 1, 100]),
        "WARC" => flag(rng),
        "WARC_GZIP_LEVEL" => count(rng, &[0, 1, 4, 12]),
        "WARC_SIZE_MAX" => count(rng, &[1, 100_000]),
        "WARC_CDXJ" => flag(rng),
        "LINKS_FILE" | "FILTERED_FILE" => flag(rng),
        "EXTRACT" => {
            let fields: [&[&str]; 3] = [&[], &["title"], &["a=a::attr(href)", "title", "b=b + p"]];
            json!(pick(rng, &fields))
        }
        "RESULTS_SIZE_MAX" => count(rng, &[1, 2000, 20_000]),
        "RESULTS_TIME_MAX" => seconds(rng, &[0.0, 0.5, 20.0]),
        "RESULTS_COMPRESSION" => choice(rng, &["none", "gzip", "zstd"]),
        "STATE" => flag(rng),
        "STATE_SYNC" => seconds(rng, &[0.0, 0.05, 1.0, 60.0]),
        "PROXY" => choice(rng, &PROXIES),
        "PROXY_HTTPS" => choice(rng, &[&PROXIES[..], &["direct"]].concat()),
        "NO_PROXY" => {
            let hosts: [&[&str]; 5] = [
                &["one.test"],
                &["shop.one.test", ".three.test"],
                &["10.0.0.0/8", "two.test", "*.four.test"],
                &["test.", "other.test"],
                &["*"],
            ];
            json!(pick(rng, &hosts))
        }
        "DISK_FREE_MIN" => count(rng, &[0, 1, 20_000, 1 << 30]),
        other => panic!("{other} has no values here: give it some, or a reason in LEFT_OUT"),
    })
}

/// Proxies of some hosts, and of all hosts below a domain, as entries of `HOSTS`.
pub fn proxies_of_hosts(rng: &mut Rng) -> serde_json::Map<String, Value> {
    let names = NAMES.into_iter().chain([BELOW]);
    let entries = names.filter_map(|name| {
        let proxy = pick(rng, &[&PROXIES[..], &["direct"]].concat());
        rng.chance(0.3)
            .then(|| (name.to_owned(), json!({"proxy": proxy})))
    });
    entries.collect()
}

/// Settings of some hosts, and of all hosts below a domain.
fn hosts(rng: &mut Rng) -> Value {
    let mut own = serde_json::Map::new();
    for name in NAMES.into_iter().chain([BELOW]) {
        if rng.chance(0.5) {
            continue;
        }
        let mut entry = serde_json::Map::new();
        let values = [
            ("headers", json!([format!("X-Own: {name}")])),
            ("user", json!(format!("{}:secret", name.replace(':', "-")))),
            ("user_agent", json!("own/1.0")),
            ("body_max", json!(pick(rng, &[1, 100, 1_000_000]))),
            ("depth_limit", json!(pick(rng, &[0, 1, 2]))),
            ("pages_max", json!(pick(rng, &[0, 1, 4]))),
        ];
        for (key, value) in values {
            let is_possible = key != "pages_max" || !name.contains(':');
            if rng.chance(0.5) && is_possible {
                entry.insert(key.to_owned(), value);
            }
        }
        own.insert(name.to_owned(), entry.into());
    }
    Value::Object(own)
}

/// The hosts below a domain.
const BELOW: &str = "*.one.test";

fn scopes(rng: &mut Rng) -> Value {
    let mut own = serde_json::Map::new();
    for name in NAMES {
        if rng.chance(0.5) {
            continue;
        }
        let entry = match rng.below(7) {
            0 => json!({"quota": 1 + rng.below(5), "window": pick(rng, &[2, 10])}),
            1 => json!({"rampup": true}),
            2 => json!({
                "requests_per_minute": pick(rng, &[20, 60]),
                "bytes_per_second": pick(rng, &[1000, 100_000]),
            }),
            3 => json!({"concurrency": 2 + rng.below(6), "delay": pick(rng, &[0.0, 0.02, 0.5])}),
            5 => json!({"hold_until": "2026-01-01T00:00:20Z", "delay": 0.1}),
            4 => json!({"delay_per_slot": 0.3, "concurrency": 3, "delay": 0.05}),
            _ => json!({"autothrottle": true, "backoff": {"per_slot": true}}),
        };
        own.insert(name.to_owned(), entry);
    }
    Value::Object(own)
}

#[test]
fn every_excluded_setting_exists() {
    for (name, _) in LEFT_OUT {
        assert!(all().iter().any(|setting| setting.name == name), "{name}");
    }
}
