//! Random webs and crawls of them under random values of all settings, with full disks, outages and settings that
//! change while the crawl runs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use argiope::base::rng::Rng;
use argiope::base::time::Instant;
use argiope::io::sim::{Answer, FullDisk};
use argiope::settings::{SettingSource, all};
use argiope::{Config, CrawlUrl};
use data_encoding::BASE64;
use serde_json::{Value, json};

use super::many_seeds::FOUND;
use super::random::{Case, NAMES, case, pick};
use super::routes::{ROUTES, add_proxies, add_proxies_of_hosts, fail_proxies, has_proxies};
use super::setting_values::{LEFT_OUT, value_of};
use super::web::{Names, Outage, OwnFields, Promise, Reply, address};
use super::words::add_words;

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
    "NO_PROXY",
    "PROXY",
    "PROXY_HTTPS",
    "RESULTS_COMPRESSION",
    "ROBOTSTXT_IGNORED_HOSTS_MAX",
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
        let is_route = ROUTES.contains(&setting.name);
        if LEFT_OUT.iter().any(|(name, _)| *name == setting.name) || is_route && !has_proxies(seed)
        {
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
    if has_proxies(seed) {
        add_proxies_of_hosts(seed, &mut said);
    }
    bound_bodies(&mut said);
    let mut of_words = Rng::from_seed(seed).fork("pages of words");
    if !FOUND.contains(&seed) && of_words.chance(0.4) {
        add_words(&mut of_words, &mut case.web);
    }
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
    case.web.promise.own = own_fields(&said, str::to_owned);
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
        .map(|user| (authorization(user.as_str().expect("text")), allowed));
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
    let mut of_names = Rng::from_seed(seed).fork("public names");
    if !FOUND.contains(&seed) && of_names.chance(0.3) {
        if of_names.chance(0.5) {
            said.remove("CONTACT");
        }
        make_public(&mut case, &mut said);
        if of_names.chance(0.6) {
            add_public_hosts(&mut case, &mut of_names);
        }
    }
    if has_proxies(seed) {
        add_proxies(seed, &mut case, &said);
        fail_proxies(seed, &mut case);
    }
    (case, said)
}

/// Gives all hosts names and addresses that count as public. Nothing but the simulated web has them.
fn make_public(case: &mut Case, said: &mut Said) {
    let web = &mut case.web;
    web.promise.own = own_fields(said, renamed);
    if let Some((_, hosts)) = &mut web.promise.login {
        *hosts = hosts.iter().map(|host| renamed(host)).collect();
    }
    let deaf = std::mem::take(&mut web.deaf).into_iter();
    web.deaf = deaf.map(|(to, answer)| (public(to), answer)).collect();
    for (name, mut site) in std::mem::take(&mut web.sites) {
        site.address = public(site.address);
        site.decided_by.0 = renamed(&site.decided_by.0);
        let steps = site.paths.values_mut().flatten();
        steps.for_each(|step| step.rename(renamed));
        web.sites.insert(renamed(&name), site);
    }
    for value in said.values_mut() {
        let text = renamed(&value.to_string());
        *value = serde_json::from_str(&text).expect("it was JSON before");
    }
    let follow = case.plan.settings.pop().expect("FOLLOW is the last");
    case.plan.settings = said.clone().into_iter().chain([follow]).collect();
    let seeds = case.plan.seeds.iter_mut();
    seeds.for_each(|url| *url = renamed(url));
}

/// Adds public hosts to a web that has them only: with those it has, more than a crawl without a contact may ask. Some
/// are seeds, the others are found.
fn add_public_hosts(case: &mut Case, rng: &mut Rng) {
    let (web, plan) = (&mut case.web, &mut case.plan);
    for number in 0..6 + rng.below(12) as u16 {
        let name = format!("more{number}{PUBLIC}");
        let url = format!("http://{name}/p0");
        match rng.chance(0.5) {
            true => {
                if let Some((_, hosts)) = &mut web.promise.login {
                    hosts.insert(name.clone());
                }
                plan.seeds.push(url);
            }
            false => {
                let paths = web
                    .sites
                    .values_mut()
                    .flat_map(|site| site.paths.values_mut());
                let replies = paths.flatten().map(|step| &mut step.reply);
                let mut pages: Vec<&mut Vec<String>> = replies.filter_map(links_mut).collect();
                if !pages.is_empty() {
                    let page = rng.below(pages.len() as u64) as usize;
                    pages[page].push(url);
                }
            }
        }
        web.site(&name, public(address(100 + number)))
            .page("/p0", &[]);
    }
}

/// The links of a page.
fn links_mut(reply: &mut Reply) -> Option<&mut Vec<String>> {
    match reply {
        Reply::Page(links) | Reply::Chunked(links) | Reply::UntilEnd(links) => Some(links),
        _ => None,
    }
}

/// The names of hosts in a text as public ones.
fn renamed(text: &str) -> String {
    text.replace(".test", PUBLIC)
}

/// How the names of public hosts end.
const PUBLIC: &str = ".com";

/// The public address in place of a private one.
fn public(mut address: SocketAddr) -> SocketAddr {
    if let IpAddr::V4(ip) = address.ip() {
        let [_, _, high, low] = ip.octets();
        address.set_ip([93, 184, high, low].into());
    }
    address
}

/// The public hosts among these, without ports.
pub fn public_hosts<'a>(hosts: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
    let bare = hosts.map(|host| host.split(':').next().unwrap_or(host));
    bare.filter(|host| host.ends_with(PUBLIC)).collect()
}

/// How many public hosts may get requests at most, by the settings; `None`: any number.
pub fn public_hosts_max(said: &Said) -> Option<usize> {
    let is_ignored = said.get("ROBOTSTXT_OBEY") == Some(&json!(false));
    let ignored = said
        .get("ROBOTSTXT_IGNORED_HOSTS_MAX")
        .and_then(Value::as_u64);
    let ignored = ignored.filter(|most| is_ignored && *most > 0);
    let without_contact = (!said.contains_key("CONTACT")).then_some(WITHOUT_CONTACT);
    ignored
        .into_iter()
        .chain(without_contact)
        .min()
        .map(|most| most as usize)
}

/// The most public hosts of a crawl that names no contact. None of the user agents here names one.
const WITHOUT_CONTACT: u64 = 10;

/// Of all bodies together there may be more than of one.
pub fn bound_bodies(said: &mut Said) {
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
pub fn of_host<'a>(
    said: &'a BTreeMap<&'static str, Value>,
    host: &str,
    key: &str,
) -> Option<&'a Value> {
    let hosts = said.get("HOSTS")?;
    let is_below = |name: &str| {
        name.strip_prefix('*')
            .is_some_and(|end| host.ends_with(end))
    };
    let below = hosts.as_object()?.iter();
    let below = below
        .filter(|(name, _)| is_below(name))
        .map(|(_, entry)| entry);
    let entries = hosts.get(host).into_iter().chain(below);
    entries.filter_map(|entry| entry.get(key)).next()
}

/// The fields that each host gets and no other. Its name is another.
fn own_fields(said: &Said, renamed: impl Fn(&str) -> String) -> BTreeMap<String, OwnFields> {
    let text = |value: &Value| renamed(value.as_str().expect("text"));
    let own = |host: &str| OwnFields {
        mark: of_host(said, host, "headers").map(|lines| {
            let line = text(&lines[0]);
            line.strip_prefix("X-Own: ").expect("the name").to_owned()
        }),
        authorization: of_host(said, host, "user").map(|user| authorization(&text(user))),
    };
    let fields = NAMES.into_iter().map(|host| (renamed(host), own(host)));
    fields.collect()
}

fn authorization(user: &str) -> String {
    format!("Basic {}", BASE64.encode(user.as_bytes()))
}
