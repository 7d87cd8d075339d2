//! Random webs with random values of all settings, with pauses, full sinks, full disks and outages, and with settings
//! that change while the crawl runs. Results go to a file or to standard output, or are pulled.
//!
//! Bugs appear in combinations, such as a bound reached during a pause. Each setting has a line in
//! [`value_of`], or a reason in [`LEFT_OUT`]; a new setting without either fails a test.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use argiope::base::disk::{DiskDone, DiskJob};
use argiope::base::rng::Rng;
use argiope::base::shared::Shared;
use argiope::base::time::{Instant, Wall};
use argiope::crawl::Parts;
use argiope::io::sim::{Answer, FullDisk};
use argiope::settings::{SettingSource, all};
use argiope::sink::files::{FileSink, FileSinkOptions, Results, Rotation, WarcOptions};
use argiope::sink::page::Page;
use argiope::sink::reply::{BodyMode, Flow, Reply};
use argiope::throttle::decision::Decision;
use argiope::{Config, CrawlUrl, DiskSink, Preparation, WriteError};
use argiope::{Epoch, FileLength, Filtered, FinishReason, ReloadError, State};
use data_encoding::BASE64;
use serde_json::{Value, json};

use super::crawl::{Line, Output, Pulled, RUNS, Run};
use super::many_seeds::each_seed;
use super::random::{Case, NAMES, case, pick};
use super::web::{Names, Outage, OwnFields};

/// How many there are; some seconds for all.
const SEEDS: u64 = 300;

/// Settings that cannot vary here, and why.
const LEFT_OUT: [(&str, &str); 19] = [
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
    ("PROXY", "there is none"),
    ("PROXY_HTTPS", "there is none"),
    ("NO_PROXY", "there is none"),
    (
        "ROBOTSTXT_IGNORED_HOSTS_MAX",
        "the names of all hosts are reserved, not public",
    ),
    ("THROTTLING_MANAGER", "none is registered"),
    ("THROTTLING_SCOPE_MANAGER", "none is registered"),
    (
        "DOWNLOAD_SLOTS",
        "the same as THROTTLING_SCOPES, which varies",
    ),
];

/// A value of a setting; `None` leaves it as it is.
fn value_of(name: &str, rng: &mut Rng) -> Option<Value> {
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
        "HOST_HOLD_FAILURES" => count(rng, &[1, 2, 5, 255]),
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
        "DISK_FREE_MIN" => count(rng, &[0, 1, 20_000, 1 << 30]),
        other => panic!("{other} has no values here: give it some, or a reason in LEFT_OUT"),
    })
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

/// What an entry of a host sets, or else that of all hosts below its domain.
fn of_host<'a>(
    said: &'a BTreeMap<&'static str, Value>,
    host: &str,
    key: &str,
) -> Option<&'a Value> {
    let hosts = said.get("HOSTS")?;
    let below = hosts.get(BELOW).filter(|_| host.ends_with(&BELOW[1..]));
    let entries = hosts.get(host).into_iter().chain(below);
    entries.filter_map(|entry| entry.get(key)).next()
}

/// The fields that each host gets and no other.
fn own_fields(said: &BTreeMap<&'static str, Value>) -> BTreeMap<String, OwnFields> {
    let own = |host: &str| OwnFields {
        mark: of_host(said, host, "headers").map(|lines| {
            let line = lines[0].as_str().expect("a line");
            line.strip_prefix("X-Own: ").expect("the name").to_owned()
        }),
        authorization: of_host(said, host, "user").map(authorization),
    };
    let fields = NAMES.into_iter().map(|host| (host.to_owned(), own(host)));
    fields.collect()
}

fn authorization(user: &Value) -> String {
    let user = user.as_str().expect("text");
    format!("Basic {}", BASE64.encode(user.as_bytes()))
}

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

/// A sink that is full for a while, now and then.
struct FullNowAndThen {
    inner: FileSink,
    is_full: Shared<bool>,
}

impl DiskSink for FullNowAndThen {
    fn on_head(&mut self, reply: &Reply<'_>) -> BodyMode {
        self.inner.on_head(reply)
    }

    fn on_body(&mut self, id: u64, piece: &[u8]) -> Flow {
        self.inner.on_body(id, piece)
    }

    fn keeps_codings(&self) -> bool {
        self.inner.keeps_codings()
    }

    fn preparation(&mut self, page: &Page, units: &mut u64) -> Option<Box<dyn Preparation>> {
        self.inner.preparation(page, units)
    }

    fn prepared_page(&mut self, id: u64, prepared: Box<dyn Preparation>) {
        self.inner.prepared_page(id, prepared);
    }

    fn put(&mut self, page: &mut Page, disk: &mut Vec<DiskJob>) {
        self.inner.put(page, disk);
    }

    fn decision(&mut self, decision: &Decision, at: Wall, disk: &mut Vec<DiskJob>) {
        self.inner.decision(decision, at, disk);
    }

    fn disk_done(&mut self, done: &DiskDone, disk: &mut Vec<DiskJob>) {
        self.inner.disk_done(done, disk);
    }

    fn is_ready(&self) -> bool {
        !self.is_full.get() && self.inner.is_ready()
    }

    fn flush(&mut self, disk: &mut Vec<DiskJob>) {
        self.inner.flush(disk);
    }

    fn keeps_links(&self) -> bool {
        self.inner.keeps_links()
    }

    fn keeps_filtered(&self) -> bool {
        self.inner.keeps_filtered()
    }

    fn filtered(&mut self, line: &[u8], at: Wall, disk: &mut Vec<DiskJob>) {
        self.inner.filtered(line, at, disk);
    }

    fn on_time(&mut self, now: Wall, disk: &mut Vec<DiskJob>) {
        self.inner.on_time(now, disk);
    }

    fn rotate(&mut self, disk: &mut Vec<DiskJob>) -> Vec<String> {
        self.inner.rotate(disk)
    }

    fn finish(&mut self, disk: &mut Vec<DiskJob>) {
        self.inner.finish(disk);
    }

    fn is_done(&self) -> bool {
        self.inner.is_done()
    }

    fn prepare(&mut self, epoch: Epoch, disk: &mut Vec<DiskJob>) {
        self.inner.prepare(epoch, disk);
    }

    fn prepared(&self, epoch: Epoch) -> Option<Vec<FileLength>> {
        self.inner.prepared(epoch)
    }

    fn committed(&mut self, epoch: Epoch, disk: &mut Vec<DiskJob>) {
        self.inner.committed(epoch, disk);
    }

    fn failure(&self) -> Option<&WriteError> {
        self.inner.failure()
    }
}

/// Settings that came later: each is drawn from numbers of its own, so that cases stay as they were.
const DRAWN_APART: &[&str] = &[
    "CLOSESPIDER_BYTECOUNT",
    "EXTRACT",
    "FILTERED_FILE",
    "FRONTIER_MEMORY",
    "HOST_DOWN_EXCEPTIONS",
    "HOST_DOWN_TIME",
    "HOST_DOWN_TIME_MAX",
    "HOST_HOLD_FAILURES",
    "HOST_HOLD_MAX",
    "HOST_HOLD_MIN",
    "HOSTS",
    "HTTP_USER",
    "LINKS_FILE",
    "METRICS_SCOPES_MAX",
    "RESULTS_COMPRESSION",
    "RESULTS_SIZE_MAX",
    "RESULTS_TIME_MAX",
    "SEEN_MEMORY",
    "WARC_CDXJ",
    "WARC_GZIP_LEVEL",
    "WORKERS",
];

/// A random web and crawl of it under random values of every setting; what was set, by name.
fn varied(seed: u64) -> (Case, BTreeMap<&'static str, Value>) {
    let mut case = case(seed);
    let mut rng = Rng::from_seed(seed).fork("every setting");
    // So that the cases stay as they were before there was a state.
    let mut of_state = Rng::from_seed(seed).fork("state");
    let mut of_operator = Rng::from_seed(seed).fork("operator");
    let mut said = BTreeMap::new();
    for setting in all() {
        if LEFT_OUT.iter().any(|(name, _)| *name == setting.name) {
            continue;
        }
        let mut own = Rng::from_seed(seed).fork(setting.name);
        let rng = match setting.name {
            name if name.starts_with("STATE") => &mut of_state,
            "DISK_FREE_MIN" | "PAGES_PER_DOMAIN_MAX" | "BYTES_PER_DOMAIN_MAX" => &mut of_operator,
            name if DRAWN_APART.contains(&name) => &mut own,
            _ => &mut rng,
        };
        if let Some(value) = value_of(setting.name, rng) {
            said.insert(setting.name, value);
        }
    }
    bound_bodies(&mut said);
    // What a Crawl-delay comes to under these settings others judge.
    for site in case.web.sites.values_mut() {
        site.crawl_delay = Duration::ZERO;
    }
    let mut of_workers = Rng::from_seed(seed).fork("faults of workers");
    case.plan.faults.compute_max = Duration::from_millis(pick(&mut of_workers, &[0, 1, 30, 2000]));
    case.plan.faults.compute_panic = pick(&mut of_workers, &[0.0, 0.0, 0.3]);
    // Replies that come faster than they are read.
    let mut of_reading = Rng::from_seed(seed).fork("faults of reading");
    case.plan.faults.chunk_takes = Duration::from_micros(pick(&mut of_reading, &[0, 0, 30, 1000]));
    // Set-up that takes longer than any gap.
    case.web.round_trip = Duration::from_millis(pick(&mut rng, &[1, 20, 150, 900]));
    case.web.promise.own = own_fields(&said);
    let hosts_of_seeds = case.plan.seeds.iter().map(|url| {
        let url = CrawlUrl::parse(url).expect("a URL");
        url.authority().to_owned()
    });
    let named = said
        .get("CREDENTIAL_ORIGINS")
        .map(|_| "one.test".to_owned());
    let allowed = hosts_of_seeds.chain(named).collect();
    let login = said
        .get("HTTP_USER")
        .map(|user| (authorization(user), allowed));
    let follow = case
        .plan
        .settings
        .iter()
        .find(|(name, _)| *name == "FOLLOW");
    let follow = follow.expect("every case says it").clone();
    case.plan.settings = said.clone().into_iter().collect();
    case.plan.settings.push(follow);
    let promise = &mut case.web.promise;
    let number = |name: &str| said.get(name).and_then(Value::as_u64);
    *promise = super::web::Promise {
        in_all: number("CONCURRENT_REQUESTS").unwrap_or(4096) as usize,
        per_address: match number("CONCURRENT_REQUESTS_PER_IP") {
            None | Some(0) => usize::MAX,
            Some(most) => most as usize,
        },
        attempts: usize::MAX,
        obeys_robots: said.get("ROBOTSTXT_OBEY") != Some(&json!(false)),
        robots_lifetime: Duration::ZERO,
        hold_max: Duration::ZERO,
        own: std::mem::take(&mut promise.own),
        login,
        ..super::web::Promise::default()
    };
    for _ in 0..rng.below(3) {
        let from = Instant::START + Duration::from_millis(rng.below(20_000));
        let how = [Answer::NoRoute, Answer::Silence, Answer::Refuse];
        case.web.outages.push(Outage {
            from,
            to: from + Duration::from_millis(rng.below(15_000)),
            connects: rng.chance(0.8).then(|| pick(&mut rng, &how)),
            names: pick(
                &mut rng,
                &[
                    Names::Answers,
                    Names::Silent,
                    Names::Fails,
                    Names::FailsForNew,
                ],
            ),
        });
    }
    // A disk, or a part of it, that has no room for a while.
    let mut rng = Rng::from_seed(seed).fork("full disks");
    for _ in 0..rng.below(3) {
        let from = Duration::from_millis(rng.below(20_000));
        let parts = [
            "out",
            "out/results.jsonl",
            "out/warc",
            "out/stats.json",
            "out/throttle.jsonl",
        ];
        case.plan.faults.disk_full.push(FullDisk {
            below: pick(&mut rng, &parts).into(),
            from,
            until: from + Duration::from_millis(rng.below(30_000)),
            free: pick(&mut of_operator, &[0, 5_000, 50_000]),
        });
    }
    (case, said)
}

/// Of all bodies together there may be more than of one.
fn bound_bodies(said: &mut BTreeMap<&'static str, Value>) {
    let number = |name: &str| said.get(name).and_then(Value::as_u64);
    let buffered = number("BUFFERED_BODIES_MAX").unwrap_or(100_000_000);
    let body = number("DOWNLOAD_MAXSIZE").unwrap_or(10_000_000);
    said.insert("DOWNLOAD_MAXSIZE", json!(body.min(buffered)));
    let hosts = said.get_mut("HOSTS").and_then(Value::as_object_mut);
    for entry in hosts.into_iter().flat_map(|hosts| hosts.values_mut()) {
        if let Some(body) = entry.get("body_max").and_then(Value::as_u64) {
            entry["body_max"] = json!(body.min(buffered));
        }
    }
}

/// Random values of some settings that a running crawl applies, for several reloads in half of all crawls.
fn reloads_of(
    seed: u64,
    said: &BTreeMap<&'static str, Value>,
) -> Vec<BTreeMap<&'static str, Value>> {
    let mut rng = Rng::from_seed(seed).fork("reloads");
    let count = pick(&mut rng, &[0, 0, 1, 3]);
    let is_limit_of_host = |name: &str| {
        [
            "PAGES_PER_HOST_MAX",
            "PAGES_PER_DOMAIN_MAX",
            "BYTES_PER_DOMAIN_MAX",
        ]
        .contains(&name)
    };
    let mut reload = || {
        let mut changed = said.clone();
        for setting in all().iter().filter(|setting| setting.is_live) {
            let name = setting.name;
            // Without such a limit nothing was counted, and it needs another run.
            let is_counted = said.get(name).is_some_and(|value| *value != json!(0));
            if LEFT_OUT.iter().any(|(other, _)| *other == name)
                || rng.chance(0.6)
                || is_limit_of_host(name) && !is_counted
            {
                continue;
            }
            let value = value_of(name, &mut rng);
            match value.filter(|value| !is_limit_of_host(name) || *value != json!(0)) {
                Some(value) => changed.insert(name, value),
                None => None,
            };
        }
        bound_bodies(&mut changed);
        changed
    };
    (0..count).map(|_| reload()).collect()
}

/// The configuration of a running crawl with other values.
fn reloaded(begun: &Config, values: &BTreeMap<&'static str, Value>) -> Config {
    let mut config = begun.clone();
    for (name, value) in values {
        config
            .set(name, value, SettingSource::Program)
            .unwrap_or_else(|error| panic!("{error}"));
    }
    config
}

fn check(seed: u64) {
    let (mut case, said) = varied(seed);
    let reloads = reloads_of(seed, &said);
    let values_of = |name: &str| -> Vec<u64> {
        let maps = std::iter::once(&said).chain(&reloads);
        let values = maps.filter_map(|map| map.get(name)?.as_u64());
        values.collect()
    };
    let most = values_of("CONCURRENT_REQUESTS").into_iter().max();
    let promised = &mut case.web.promise.in_all;
    *promised = (*promised).max(most.unwrap_or(0) as usize);
    let mut rng = Rng::from_seed(seed).fork("events");
    let seeds = std::mem::take(&mut case.plan.seeds);
    let has_full_disk = !case.plan.faults.disk_full.is_empty();
    let web = case.web.shared();
    let is_full = Shared::new(false);
    let is_on = |name: &str| said.get(name) == Some(&json!(true));
    let mut options = FileSinkOptions::new("out");
    options.decisions = is_on("AUTOTHROTTLE_DEBUG");
    options.robots = true;
    options.rotation = rotation_of(&said);
    options.links = is_on("LINKS_FILE");
    options.filtered = is_on("FILTERED_FILE");
    options.warc = is_on("WARC").then(|| {
        let mut warc = WarcOptions::new("a.test", [7; 16]);
        warc.cdxj = said.get("WARC_CDXJ") != Some(&json!(false));
        warc
    });
    let has_state = said.get("STATE") != Some(&json!(false));
    options.commits = has_state;
    // Of numbers of its own, so that the cases stay as they were.
    let mut own = Rng::from_seed(seed).fork("output");
    let output = match own.below(4) {
        0 => Output::Stdout,
        1 => Output::Pulled(Pulled {
            is_full: Shared::clone(&is_full),
            most: 1 + own.below(8) as usize,
            is_slow: own.chance(0.5),
            ..Pulled::default()
        }),
        _ => Output::File,
    };
    if let Output::Stdout = output {
        options.results = Results::Stdout;
    }
    let mut parts = match &output {
        Output::Pulled(_) => Parts::pulled(pick(&mut own, &[1, 3, 256])),
        Output::File | Output::Stdout => Parts::new(FullNowAndThen {
            inner: FileSink::new(options),
            is_full: Shared::clone(&is_full),
        }),
    };
    let new_state = || State::new("out".as_ref(), String::new(), [seed as u8; 16]);
    parts.state = has_state.then(|| new_state().expect("it is short"));
    parts.stats_path = Some("out/stats.json".into());
    let mut run = case.plan.begin_with(&web, parts);
    if !matches!(output, Output::Pulled(_)) {
        // What it promised, for the audit of its files.
        run.crawler.log_runs(RUNS, 0);
    }
    run.output = output;
    let handle = run.crawler.handle();
    for url in &seeds {
        let request = argiope::Request::get(url.as_str());
        handle
            .submit(request)
            .unwrap_or_else(|error| panic!("seed {seed}: {url}: {error}"));
    }
    // Pauses and full sinks, at random moments, for a while.
    let mut ended = None;
    let mut reloads_left = reloads.iter();
    let begun = run.crawler.config().clone();
    for _ in 0..rng.below(6) {
        if let Some(values) = reloads_left.next() {
            match handle.reload(reloaded(&begun, values)) {
                // A crawl that has ended takes no commands.
                Ok(()) | Err(ReloadError::Control(_)) => {}
                Err(error) => panic!("seed {seed}: {error} of {values:?} after {said:?}"),
            }
        }
        let at = run.crawler.elapsed() + Duration::from_millis(rng.below(6_000));
        ended = ended.or_else(|| run.until(at));
        if has_state && let Ok(state) = State::load_from("out".as_ref(), run.crawler.io().files()) {
            check_commit(&run, &state);
        }
        let pauses = rng.chance(0.5);
        if own.chance(0.5) {
            // A crawl that has ended takes no commands.
            let _ = handle.rotate();
        }
        match pauses {
            true => handle.pause(),
            false => is_full.set(true),
        }
        let at = run.crawler.elapsed() + Duration::from_millis(rng.below(12_000));
        ended = ended.or_else(|| run.until(at));
        match pauses {
            true => handle.resume(),
            false => is_full.set(false),
        }
        if ended.is_some() {
            break;
        }
    }
    drop(handle);
    let reason = ended.unwrap_or_else(|| run.finish());
    // Some may be left to be pulled.
    let mut lines = None;
    while lines != Some(run.bytes().len()) {
        lines = Some(run.bytes().len());
        run.pull(false);
    }
    let known = [
        FinishReason::Finished,
        FinishReason::PageCount,
        FinishReason::ErrorCount,
        FinishReason::ByteCount,
        FinishReason::Timeout,
    ];
    assert!(
        known.contains(&reason),
        "seed {seed}: {reason} under {said:?}"
    );
    run.check_manners();
    if reason == FinishReason::Finished {
        run.check_lines();
    }
    if reason == FinishReason::Finished {
        let are_made = said.get("WARC_CDXJ") != Some(&json!(false));
        check_indexes(&run, are_made, has_full_disk);
    }
    let lines = run.lines();
    if let Some(size_max) = said.get("RESULTS_SIZE_MAX").and_then(Value::as_u64) {
        check_sizes(&run, size_max as usize);
    }
    if is_on("LINKS_FILE") && !matches!(run.output, Output::Pulled(_)) {
        check_links(&run, values_of("URLLENGTH_LIMIT").contains(&40));
    }
    let has_titles = said
        .get("EXTRACT")
        .is_some_and(|fields| *fields != json!([]));
    run.check_titles(has_titles, reason);
    let is_whole = reason == FinishReason::Finished && !matches!(run.output, Output::Pulled(_));
    if is_on("FILTERED_FILE") && is_whole {
        check_filtered(&run);
    }
    let done: BTreeSet<&str> = lines
        .iter()
        .filter(|line| line.is_page() && line.is_final())
        .map(|line| line.url())
        .collect();
    check_total(&lines, reason, &said, &reloads);
    for host in NAMES {
        let limit = of_host(&said, host, "pages_max").and_then(Value::as_u64);
        let Some(limit) = limit.filter(|limit| *limit > 0) else {
            continue;
        };
        let counted = lines.iter().filter(|line| {
            let url = CrawlUrl::parse(line.url()).expect("a URL");
            let is_fetched = !line.0["status"].is_null() && line.is_final();
            line.is_page() && is_fetched && url.host_str() == host
        });
        let count = counted.count() as u64;
        assert!(
            count <= limit,
            "seed {seed}: {count} pages of {host} under {said:?}"
        );
    }
    let limits = values_of("PAGES_PER_DOMAIN_MAX");
    if let (Some(limit), false) = (limits.iter().max(), limits.contains(&0)) {
        let mut pages: BTreeMap<String, u64> = BTreeMap::new();
        let counted = lines
            .iter()
            .filter(|line| line.is_page() && line.is_final());
        for line in counted.filter(|line| !line.0["status"].is_null()) {
            let url = CrawlUrl::parse(line.url()).expect("a URL");
            *pages
                .entry(url.registrable_domain().to_owned())
                .or_default() += 1;
        }
        assert!(
            pages.values().all(|count| count <= limit),
            "seed {seed}: {pages:?} under {said:?}"
        );
    }
    let pending: BTreeSet<String> = run.crawler.take_pending().map(|p| p.request.url).collect();
    for url in &seeds {
        let is_there = done.contains(url.as_str()) || pending.contains(url);
        // A redirect to it or from it may have been the one to end.
        let is_redirected = lines
            .iter()
            .any(|line| line.url() == url && !line.is_final());
        assert!(
            is_there || is_redirected,
            "seed {seed}: {url} was lost ({reason}) under {said:?}"
        );
    }
    if reason == FinishReason::Finished {
        let left = run.crawler.progress();
        let busy = left.queued + left.in_flight + left.buffered + left.scopes_waiting;
        assert_eq!(busy, 0, "seed {seed}: {left:?} under {said:?}");
        assert_eq!(pending.len(), 0, "seed {seed}: {pending:?} under {said:?}");
    }
    if has_state {
        // What a resume would fetch is what is pending.
        let state = State::load_from("out".as_ref(), run.crawler.io().files());
        let state = state.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let uncommitted = check_commit(&run, &state);
        if let Output::Stdout = run.output {
            let lines = run.lines().len() as u64;
            assert_eq!(lines_of(&state), lines, "seed {seed}: all are committed");
        }
        for url in state.queued_urls(run.crawler.io().files()) {
            assert!(
                pending.contains(&url) || uncommitted.contains(&url),
                "seed {seed}: {url} is not pending ({reason}) under {said:?}"
            );
        }
    }
}

/// No file of result lines is larger, but for one line.
fn check_sizes(run: &Run, size_max: usize) {
    let files = run.crawler.io().files().iter();
    for (path, bytes) in files.filter(|(path, _)| path.starts_with("out")) {
        let name = path.file_name().expect("a name").to_string_lossy();
        let is_text = name.ends_with(".jsonl") || name.ends_with(".jsonl.open");
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        let is_one_line = if is_text {
            lines == 1
        } else {
            bytes.len() < 2000
        };
        assert!(
            !name.starts_with("results") || bytes.len() <= size_max || is_one_line,
            "seed {}: {name} has {} bytes, not {size_max}",
            run.seed,
            bytes.len()
        );
    }
}

/// Under `CLOSESPIDER_BYTECOUNT` a crawl ends when so many bytes were received, and not before.
fn check_total(
    lines: &[Line],
    reason: FinishReason,
    said: &BTreeMap<&'static str, Value>,
    reloads: &[BTreeMap<&'static str, Value>],
) {
    let maps = std::iter::once(said).chain(reloads);
    let limit_in = |map: &BTreeMap<&'static str, Value>| map.get("CLOSESPIDER_BYTECOUNT")?.as_u64();
    let limits: Vec<u64> = maps.map(|map| limit_in(map).unwrap_or(0)).collect();
    let received = lines
        .iter()
        .filter_map(|line| line.0["bytes_wire"].as_u64());
    let received: u64 = received.sum();
    let least = limits.iter().filter(|limit| **limit > 0).min();
    let most = (!limits.contains(&0))
        .then(|| limits.iter().max())
        .flatten();
    match reason {
        FinishReason::ByteCount => assert!(
            least.is_some_and(|least| received >= *least),
            "{received} bytes were received under {limits:?}"
        ),
        FinishReason::Finished => assert!(
            most.is_none_or(|most| received < *most),
            "{received} bytes were received under {limits:?}, and it went on"
        ),
        _ => {}
    }
}

/// Each closed WARC file has an index unless the disk was full, and none if they are switched off.
fn check_indexes(run: &Run, are_made: bool, has_full_disk: bool) {
    let names = |ending: &str| -> BTreeSet<String> {
        let files = run.crawler.io().files().iter();
        let names =
            files.filter_map(|(path, _)| path.to_str()?.strip_suffix(ending).map(str::to_owned));
        names.collect()
    };
    let (warcs, indexes) = (names(".warc.gz"), names(".cdxj"));
    let seed = run.seed;
    assert!(
        indexes.is_subset(&warcs),
        "seed {seed}: an index has no WARC file"
    );
    assert!(
        names(".tmp").is_empty(),
        "seed {seed}: a part of a file is left"
    );
    match are_made {
        true if has_full_disk => {}
        true => assert_eq!(indexes, warcs, "seed {seed}"),
        false => assert!(indexes.is_empty(), "seed {seed}: {indexes:?}"),
    }
}

/// Each page has a line with its links. `are_short`: URLs of links may be too long, and only counted.
fn check_links(run: &Run, are_short: bool) {
    let seed = run.seed;
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for line in run.lines_of("links") {
        let id = line["id"].as_u64().expect("a number");
        let links = line["links"].as_array().expect("a list").len() as u64;
        let before = counts.insert(id, links);
        assert_eq!(before, None, "seed {seed}: a page has two lines of links");
    }
    for line in run.lines() {
        let id = line.0["id"].as_u64().expect("a number");
        let written = counts.remove(&id).unwrap_or(0);
        let found = line.0["links"].as_u64().unwrap_or(0);
        assert!(
            written == found || are_short && written < found,
            "seed {seed}: {written} of {found} links of page {id} are written"
        );
    }
    assert!(
        counts.is_empty(),
        "seed {seed}: links without a page: {counts:?}"
    );
}

/// Each link that was counted as left out has a line, except duplicates.
fn check_filtered(run: &Run) {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for line in run.lines_of("filtered") {
        let filter = line["filter"].as_str().expect("a name").to_owned();
        *counts.entry(filter).or_default() += line["count"].as_u64().expect("a number");
    }
    let lines = run.lines();
    let disallowed = lines
        .iter()
        .filter(|line| line.end() == "robots.disallowed");
    assert_eq!(
        counts.remove("disallowed").unwrap_or(0),
        disallowed.count() as u64,
        "seed {}: what robots.txt disallows",
        run.seed
    );
    let counted = run.crawler.progress().filtered;
    let counted = counted
        .iter()
        .filter(|(filter, _)| **filter != Filtered::Duplicate);
    let counted: BTreeMap<String, u64> = counted
        .map(|(filter, count)| (filter.to_string(), *count))
        .collect();
    assert_eq!(counts, counted, "seed {}: what filters left out", run.seed);
}

/// How files of result lines are closed and compressed.
fn rotation_of(said: &BTreeMap<&'static str, Value>) -> Rotation {
    let mut config = Config::default();
    for (name, value) in said.iter().filter(|(name, _)| name.starts_with("RESULTS_")) {
        config
            .set(name, value, SettingSource::Program)
            .unwrap_or_else(|error| panic!("{error}"));
    }
    config.rotation()
}

/// Number of the last line on standard output that the last commit has.
fn lines_of(state: &State) -> u64 {
    let mut files = state.commit().into_iter().flat_map(|commit| &commit.files);
    let stdout = files.find(|file| file.path.ends_with("-"));
    stdout.map_or(0, |file| file.length)
}

/// The last commit has lines that are on standard output, or results that were acknowledged. Returns the URLs
/// of results that were pulled and are not in it.
fn check_commit(run: &Run, state: &State) -> BTreeSet<String> {
    let seed = run.seed;
    match &run.output {
        Output::File => BTreeSet::new(),
        Output::Stdout => {
            let lines = run.lines();
            let numbers = lines.iter().map(|line| line.0["seq"].as_u64());
            assert!(
                numbers.eq((1..=lines.len() as u64).map(Some)),
                "seed {seed}: lines are numbered in order"
            );
            assert!(
                lines_of(state) <= lines.len() as u64,
                "seed {seed}: a commit has lines that were written"
            );
            BTreeSet::new()
        }
        Output::Pulled(pulled) => {
            let last = state.commit().map_or(0, |commit| commit.epoch.0);
            let mut committed = pulled.of_epochs.range(..=last).flat_map(|(_, of)| of);
            assert!(
                committed.all(|(id, _)| pulled.acknowledged.contains(id)),
                "seed {seed}: a commit has what was acknowledged"
            );
            let others = pulled.of_epochs.range(last + 1..).flat_map(|(_, of)| of);
            others.map(|(_, url)| url.clone()).collect()
        }
    }
}

#[test]
fn random_webs_under_every_setting_at_once_are_crawled_to_their_end() {
    each_seed(SEEDS, check);
}

#[test]
fn every_excluded_setting_exists() {
    for (name, _) in LEFT_OUT {
        assert!(all().iter().any(|setting| setting.name == name), "{name}");
    }
}
