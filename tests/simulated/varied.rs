//! Random webs and crawls of them under random values of all settings, with full disks, outages and settings that
//! change while the crawl runs.

use std::collections::BTreeMap;
use std::time::Duration;

use argiope::base::rng::Rng;
use argiope::base::time::Instant;
use argiope::io::sim::{Answer, FullDisk};
use argiope::settings::{SettingSource, all};
use argiope::{Config, CrawlUrl};
use data_encoding::BASE64;
use serde_json::{Value, json};

use super::random::{Case, NAMES, case, pick};
use super::setting_values::{BELOW, LEFT_OUT, value_of};
use super::web::{Names, Outage, OwnFields, Promise};

/// What is set, by name.
pub type Said = BTreeMap<&'static str, Value>;

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
pub fn varied(seed: u64) -> (Case, Said) {
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
    *promise = Promise {
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
        ..Promise::default()
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
fn bound_bodies(said: &mut Said) {
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
pub fn reloads_of(seed: u64, said: &Said) -> Vec<Said> {
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
pub fn reloaded(begun: &Config, values: &Said) -> Config {
    let mut config = begun.clone();
    for (name, value) in values {
        config
            .set(name, value, SettingSource::Program)
            .unwrap_or_else(|error| panic!("{error}"));
    }
    config
}

/// What an entry of a host sets, or else that of all hosts below its domain.
pub fn of_host<'a>(said: &'a Said, host: &str, key: &str) -> Option<&'a Value> {
    let hosts = said.get("HOSTS")?;
    let below = hosts.get(BELOW).filter(|_| host.ends_with(&BELOW[1..]));
    let entries = hosts.get(host).into_iter().chain(below);
    entries.filter_map(|entry| entry.get(key)).next()
}

/// The fields that each host gets and no other.
fn own_fields(said: &Said) -> BTreeMap<String, OwnFields> {
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
