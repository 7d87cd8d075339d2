//! Random crawls by proxies that settings, entries of `HOSTS` and single requests name. Each request arrives the way
//! that is due, no login goes elsewhere, and a proxy that fails costs no other request.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::net::SocketAddr;
use std::time::Duration;

use argiope::CrawlUrl;
use argiope::base::rng::Rng;
use argiope::base::time::Instant;
use argiope::io::sim::Answer;
use serde_json::{Value, json};

use super::book::Arrival;
use super::crawl::{Line, Run};
use super::many_seeds::{FOUND, check_sent, each_seed};
use super::proxies::{Failure, How, PROXIES, Proxy, Way, way_of};
use super::random::{Case, askable, case, pick, split};
use super::random_throttling::throttled;
use super::reply::{Reply, rules};
use super::setting_values::{proxies_of_hosts, value_of};
use super::varied::{Said, of_host};

/// How many random webs there are; a few seconds for all.
const SEEDS: u64 = 80;

/// The settings that name proxies.
pub const ROUTES: [&str; 3] = ["PROXY", "PROXY_HTTPS", "NO_PROXY"];

/// Whether a random crawl under every setting has proxies. Those that once showed a fault stay as they were.
pub fn has_proxies(seed: u64) -> bool {
    let mut rng = Rng::from_seed(seed).fork("proxies");
    !FOUND.contains(&seed) && rng.chance(0.6)
}

/// Gives some hosts proxies of their own.
pub fn add_proxies_of_hosts(seed: u64, said: &mut Said) {
    let mut rng = Rng::from_seed(seed).fork("proxies of hosts");
    if rng.chance(0.5) {
        return;
    }
    let hosts = said.entry("HOSTS").or_insert_with(|| json!({}));
    for (name, entry) in proxies_of_hosts(&mut rng) {
        hosts[&name]["proxy"] = entry["proxy"].clone();
    }
}

/// Adds the proxies to a web, gives some seeds routes of their own, and promises the ways that are due.
pub fn add_proxies(seed: u64, case: &mut Case, said: &Said) {
    let mut rng = Rng::from_seed(seed).fork("routes");
    case.web.proxies = Proxy::all();
    if rng.chance(0.3) {
        for url in &case.plan.seeds {
            let route = pick(&mut rng, &[&PROXIES[..], &["direct"]].concat());
            if rng.chance(0.5) {
                case.plan.routes.insert(url.clone(), route);
            }
        }
    }
    if !case.plan.routes.is_empty() {
        drop_crawl_delays(case);
    }
    promise_ways(case, said);
    let hosts = case.plan.seeds.iter().map(|url| split(url).0.to_owned());
    for host in hosts.collect::<BTreeSet<_>>() {
        let host = host.split(':').next().expect("a name");
        let url = format!("https://{host}/s");
        let own = rng.chance(0.2).then(|| pick(&mut rng, &PROXIES));
        let way = own.map_or_else(|| usual_way(said, host, true), way_of);
        if way.is_some() && rng.chance(0.4) {
            case.plan.routes.extend(own.map(|own| (url.clone(), own)));
            case.plan.requests.push(case.plan.request(&url));
            let promised = &mut case.web.promise.secure_ways;
            promised.insert(format!("{host}:443"), way);
        }
    }
}

/// Each way has a robots.txt of its own: what one asks for is not known to requests that go another way.
fn drop_crawl_delays(case: &mut Case) {
    for site in case.web.sites.values_mut() {
        site.crawl_delay = Duration::ZERO;
        for step in site.paths.values_mut().flatten() {
            if let (Reply::Text(text), Reply::Text(without)) =
                (&mut step.reply, rules(Duration::ZERO).reply)
            {
                *text = without;
            }
        }
    }
}

fn promise_ways(case: &mut Case, said: &Said) {
    let own: BTreeSet<Way> = case.plan.routes.values().map(|it| way_of(it)).collect();
    let hosts = case.web.sites.keys();
    let ways = hosts.map(|host| {
        let mut ways = own.clone();
        ways.insert(usual_way(said, host, false));
        (host.clone(), ways)
    });
    case.web.promise.ways = ways.collect();
}

/// Lets some proxies fail for a while, or for good.
pub fn fail_proxies(seed: u64, case: &mut Case) {
    let mut rng = Rng::from_seed(seed).fork("failures of proxies");
    for proxy in &mut case.web.proxies {
        for _ in 0..pick(&mut rng, &[0, 0, 1, 2]) {
            let from = Instant::START + Duration::from_millis(rng.below(20_000));
            let millis = match rng.chance(0.15) {
                true => 1 << 40,
                false => rng.below(15_000),
            };
            proxy.failures.push(Failure {
                from,
                to: from + Duration::from_millis(millis),
                how: pick(&mut rng, &FAILURES),
            });
        }
    }
}

/// All that can become of a proxy.
const FAILURES: [How; 9] = [
    How::Connect(Answer::Refuse),
    How::Connect(Answer::Unreachable),
    How::Connect(Answer::Silence),
    How::Login,
    How::Gateway,
    How::Rules,
    How::Reset,
    How::Close,
    How::Silence,
];

/// The way of requests to a host that name none.
fn usual_way(said: &Said, host: &str, is_https: bool) -> Way {
    if let Some(own) = of_host(said, host, "proxy") {
        return way_of(own.as_str().expect("text"));
    }
    let of_https = said.get("PROXY_HTTPS").filter(|_| is_https);
    let proxy = of_https.or(said.get("PROXY"))?.as_str().expect("text");
    let bare = host.split(':').next().unwrap_or(host);
    let covers = |entry: &Value| {
        let name = entry.as_str().expect("text");
        let domain = name.trim_start_matches('*').trim_matches('.');
        name == "*"
            || bare
                .strip_suffix(domain)
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    let mut direct = exceptions(said).iter();
    match direct.any(covers) {
        true => None,
        false => way_of(proxy),
    }
}

fn exceptions(said: &Said) -> &[Value] {
    let direct = said.get("NO_PROXY").and_then(Value::as_array);
    direct.map_or(&[], Vec::as_slice)
}

/// The route of the request that a line follows from, if it named one. `None`: lines are missing between them.
fn own_route<'a>(
    line: &Line,
    lines: &BTreeMap<u64, &Line>,
    routes: &BTreeMap<String, &'a str>,
) -> Option<Option<&'a str>> {
    let mut first = line;
    while let Some(parent) = first.0["parent"].as_u64() {
        first = lines.get(&parent)?;
    }
    let is_seed = first.0["seed"] == true;
    is_seed.then(|| routes.get(first.url()).copied())
}

/// Each line has the way that is due, and its request arrived that way. `earlier`: lines of other runs.
pub fn check_routes(
    run: &Run,
    said: &Said,
    routes: &BTreeMap<String, &'static str>,
    earlier: &BTreeSet<u64>,
) {
    let (seed, lines, web) = (run.seed, run.lines(), run.web.borrow());
    if web.proxies.is_empty() {
        return;
    }
    let by_id: BTreeMap<u64, &Line> = lines.iter().map(|line| (line.id(), line)).collect();
    let mut arrivals: BTreeMap<(u64, String), Vec<&Arrival>> = BTreeMap::new();
    for arrival in &web.arrivals {
        let url = format!("http://{}{}", arrival.host, arrival.path);
        let port = 32_768 + arrival.conn.0 % 28_232;
        arrivals.entry((port, url)).or_default().push(arrival);
    }
    let is_varied = said.contains_key("PROXY_HTTPS")
        || said.contains_key("PROXY") && !exceptions(said).is_empty();
    for line in &lines {
        let Some(own) = own_route(line, &by_id, routes) else {
            continue;
        };
        let url = CrawlUrl::parse(line.url()).expect("a URL");
        let host = url.authority();
        let way = match own {
            Some(own) => way_of(own),
            None => usual_way(said, host, url.is_https()),
        };
        let is_shown = is_varied || own.is_some() || of_host(said, host, "proxy").is_some();
        assert_eq!(
            line.0["proxied"].as_bool(),
            is_shown.then_some(way.is_some()),
            "seed {seed}: way {way:?}, own route {own:?}: {}",
            line.0
        );
        if let Some(remote) = line.0["remote"].as_str() {
            let remote: SocketAddr = remote.parse().expect("an address");
            let by = web.proxies.iter().position(|it| it.address == remote);
            assert_eq!(by, way, "seed {seed}: {}", line.0);
        }
        check_failure(seed, line, way);
        let local = line.0["local"]
            .as_str()
            .filter(|_| !line.0["sent"].is_null());
        let port = local.and_then(|local| local.rsplit_once(':')?.1.parse().ok());
        if let Some(port) = port.filter(|_| !earlier.contains(&line.id())) {
            let key = (port, line.url().to_owned());
            let arrived = arrivals.get(&key).map_or(&[][..], Vec::as_slice);
            let is_due = |arrival: &&Arrival| arrival.way == way;
            assert!(
                // What is sent in an outage is lost.
                arrived.iter().all(is_due) && (!arrived.is_empty() || !web.outages.is_empty()),
                "seed {seed}: not by {way:?} but {arrived:?}: {}",
                line.0
            );
        }
    }
}

/// A failure of a proxy is shown as one, and only where there is a proxy.
fn check_failure(seed: u64, line: &Line, way: Way) {
    assert_ne!(line.0["status"], 407, "seed {seed}: {}", line.0);
    let end = line.end();
    let detail = line.0["error"]["detail"].as_str().unwrap_or("");
    let code_of_connect = end.strip_prefix("connect.");
    let is_proxys = code_of_connect.is_some_and(|code| code.starts_with("proxy_"));
    let is_proxys = is_proxys || end == "timeout.proxy";
    let names_proxy = detail.starts_with("the proxy ");
    assert!(
        way.is_some() || !is_proxys && !names_proxy,
        "seed {seed}: there is no proxy: {}",
        line.0
    );
    let is_unreached = [
        "connect.refused",
        "connect.unreachable",
        "connect.timed_out",
        "timeout.connect",
        "dns.timeout",
        "dns.servfail",
    ];
    assert!(
        way.is_none() || names_proxy || !is_unreached.contains(&&*end),
        "seed {seed}: the proxy is what was not reached: {}",
        line.0
    );
}

/// No file but the state has the password of a proxy.
pub fn check_secrets(run: &Run) {
    let web = run.web.borrow();
    let fields = web.proxies.iter().filter_map(Proxy::authorization);
    let secrets: Vec<String> = fields.chain([PASSWORD.to_owned()]).collect();
    for (path, bytes) in run.crawler.io().files() {
        let is_state = path.components().any(|part| part.as_os_str() == "state");
        let name = path.to_string_lossy();
        if is_state || name.contains("pending") {
            continue;
        }
        let mut content = Vec::new();
        // The last member or frame may be unfinished.
        let _ = match () {
            () if name.contains(".gz") => {
                flate2::read::MultiGzDecoder::new(&**bytes).read_to_end(&mut content)
            }
            () if name.contains(".zst") => {
                let decoder = zstd::Decoder::new(&**bytes);
                decoder.and_then(|mut decoder| decoder.read_to_end(&mut content))
            }
            () => (&**bytes).read_to_end(&mut content),
        };
        let text = String::from_utf8_lossy(&content);
        for secret in &secrets {
            assert!(
                !text.contains(secret.trim_start_matches("Basic ")),
                "seed {}: {name} has {secret}",
                run.seed
            );
        }
    }
}

/// How the passwords of proxies begin.
const PASSWORD: &str = "Sesam";

/// Hosts and proxies are asked for no host but these.
pub fn check_hosts(run: &Run, askable: &BTreeSet<String>) {
    let web = run.web.borrow();
    let of_proxies = web.proxies.iter().flat_map(|proxy| &proxy.asked);
    for host in web.hosts.keys().chain(of_proxies) {
        let seed = run.seed;
        let is_there = match host.strip_suffix(":443") {
            Some(bare) => askable.iter().any(|it| it.split(':').next() == Some(bare)),
            None => askable.contains(host),
        };
        assert!(is_there, "seed {seed}: {host} was asked, not {askable:?}");
    }
}

/// A random crawl by proxies, and the settings that name them.
fn proxied(seed: u64, mut case: Case) -> (Case, Said) {
    let mut said = Said::new();
    for name in ROUTES {
        let mut rng = Rng::from_seed(seed).fork(name);
        if let Some(value) = value_of(name, &mut rng) {
            said.insert(name, value);
        }
    }
    add_proxies_of_hosts(seed, &mut said);
    add_proxies(seed, &mut case, &said);
    case.plan.settings.extend(said.clone());
    (case, said)
}

#[test]
fn random_webs_are_crawled_by_proxies_completely_and_politely() {
    each_seed(SEEDS, |seed| {
        let (case, said) = proxied(seed, case(seed));
        let askable = askable(&case.web, &case.plan.seeds, case.follow);
        let web = case.web.shared();
        let run = case.plan.run(&web);
        run.check_lines();
        check_hosts(&run, &askable);
        check_routes(&run, &said, &case.plan.routes, &BTreeSet::new());
        check_secrets(&run);
        let lines = run.lines();
        check_sent(seed, &lines, &web.borrow().arrivals.len());
        let found = found(&lines);
        assert_eq!(found, case.expected, "seed {seed}");
    });
}

#[test]
fn random_webs_are_crawled_politely_by_proxies_that_fail() {
    each_seed(SEEDS, |seed| {
        let (mut case, said) = proxied(seed, throttled(seed));
        let askable = askable(&case.web, &case.plan.seeds, case.follow);
        fail_proxies(seed, &mut case);
        let web = case.web.shared();
        let run = case.plan.run(&web);
        run.check_lines();
        check_hosts(&run, &askable);
        check_routes(&run, &said, &case.plan.routes, &BTreeSet::new());
        check_secrets(&run);
        let lines = run.lines();
        check_sent(seed, &lines, &web.borrow().arrivals.len());
        let found = found(&lines);
        let uncalled: Vec<_> = found.difference(&case.expected).collect();
        assert!(
            uncalled.is_empty(),
            "seed {seed}: {uncalled:?} were nowhere"
        );
        for url in &case.plan.seeds {
            assert!(found.contains(url), "seed {seed}: {url} was lost");
        }
    });
}

/// The pages with a line, but for those of https.
fn found(lines: &[Line]) -> BTreeSet<String> {
    let pages = lines.iter().filter(|line| line.is_page());
    let urls = pages.map(|line| line.url().to_owned());
    urls.filter(|url| url.starts_with("http:")).collect()
}

/// How the last request for each of these URLs ended.
fn ends(run: &Run, seeds: &[String]) -> BTreeMap<String, Option<String>> {
    let ends = seeds
        .iter()
        .map(|url| (url.clone(), run.ends(url).last().cloned()));
    ends.collect()
}

#[test]
fn a_proxy_that_fails_costs_no_request_that_does_not_use_it() {
    each_seed(SEEDS, |seed| {
        let mut rng = Rng::from_seed(seed).fork("dead proxies");
        let mut case = case(seed);
        case.plan.ahead = None;
        // What is found does not depend on which request comes first.
        case.plan.settings.push(("FOLLOW", json!("none")));
        let mut alone = case.plan.clone();
        let seeds = case.plan.seeds.clone();
        for url in &seeds {
            if rng.chance(0.5) {
                continue;
            }
            case.plan
                .routes
                .insert(url.clone(), pick(&mut rng, &PROXIES));
            alone.seeds.retain(|seed| seed != url);
        }
        case.web.proxies = Proxy::all();
        drop_crawl_delays(&mut case);
        promise_ways(&mut case, &Said::new());
        for proxy in &mut case.web.proxies {
            proxy.failures.push(Failure {
                from: Instant::START,
                to: Instant::START + Duration::from_secs(1 << 30),
                how: pick(&mut rng, &FAILURES),
            });
        }
        let web = case.web.shared();
        let run = case.plan.run(&web);
        let routes = &case.plan.routes;
        check_routes(&run, &Said::new(), routes, &BTreeSet::new());
        let mut case = super::random::case(seed);
        drop_crawl_delays(&mut case);
        let without = alone.run(&case.web.shared());
        let both = [&run, &without].map(|run| ends(run, &alone.seeds));
        assert_eq!(both[0], both[1], "seed {seed}");
    });
}
