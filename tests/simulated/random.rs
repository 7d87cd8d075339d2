//! Random webs and settings from a seed, and the expected results.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use argiope::base::rng::Rng;
use argiope::io::sim::{Answer, Faults};

use super::crawl::Plan;
use super::web::{PoliteWeb, Promise, Reply, Site, Step, Verdict, address, rules};

/// Which links are followed, as a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    None,
    Host,
    Domain,
    All,
}

/// A web, a crawl of it, and what it must find.
pub struct Case {
    pub web: PoliteWeb,
    pub plan: Plan,
    pub follow: Follow,
    /// Every URL that must have its result.
    pub expected: BTreeSet<String>,
}

pub const NAMES: [&str; 6] = [
    "one.test",
    "www.one.test",
    "shop.one.test",
    "two.test",
    "three.test:8080",
    "four.test",
];

pub fn case(seed: u64) -> Case {
    let mut rng = Rng::from_seed(seed);
    let follow = pick(
        &mut rng,
        &[
            Follow::None,
            Follow::Host,
            Follow::Domain,
            Follow::All,
            Follow::All,
        ],
    );
    let names = &NAMES[..1 + rng.below(NAMES.len() as u64) as usize];
    let mut web = PoliteWeb::default();
    web.round_trip = Duration::from_micros(rng.below(120_000));
    for (index, name) in names.iter().enumerate() {
        let site = site(&mut rng, name, names, index, follow);
        if rng.chance(0.08) {
            let how = [Answer::Refuse, Answer::Unreachable, Answer::Silence];
            web.deaf.insert(site.address, pick(&mut rng, &how));
        }
        web.sites.insert((*name).to_owned(), site);
    }
    lead_robots_elsewhere(&mut rng, &mut web);
    let plan = plan(&mut rng, seed, &mut web, names, follow);
    let expected = reachable(&web, &plan.seeds, follow);
    Case {
        web,
        plan,
        follow,
        expected,
    }
}

fn site(rng: &mut Rng, name: &str, names: &[&str], index: usize, follow: Follow) -> Site {
    let mut at = address(1 + index as u16);
    if index > 0 && rng.chance(0.4) {
        at = address(1);
    }
    at.set_port(
        name.split_once(':')
            .map_or(80, |(_, port)| port.parse().expect("a port")),
    );
    let mut site = Site::new(name, at);
    if rng.chance(0.3) {
        site.patience = Some(Duration::from_millis(1 + rng.below(1500)));
    }
    robots(rng, &mut site, name);
    for number in 0..1 + rng.below(10) {
        let steps = steps(rng, name, names, follow);
        site.path(&format!("/p{number}"), steps);
    }
    for path in ["/private/p0", "/private/p1"] {
        site.page(path, &[]);
    }
    site
}

fn robots(rng: &mut Rng, site: &mut Site, name: &str) {
    let robots = "/robots.txt";
    let slow = Duration::from_millis(rng.below(3000));
    match rng.below(12) {
        0..=2 => {
            site.rules(Duration::ZERO);
        }
        3 => {
            site.rules(Duration::from_millis(200 + rng.below(2000)));
        }
        4 => {
            site.rules(Duration::ZERO);
            site.path(robots, [rules(Duration::ZERO).after(slow)]);
        }
        5 => {
            site.verdict = Verdict::Nothing;
            let status = pick(rng, &[500, 501, 503, 429]);
            site.path(robots, [Step::new(Reply::Status(status))]);
        }
        6 => {
            site.verdict = Verdict::Nothing;
            site.path(robots, [Step::new(Reply::Reset)]);
        }
        7 => {
            site.rules(Duration::ZERO);
            let busy = [Reply::Status(503), Reply::Status(429)];
            let first = pick(
                rng,
                &[&busy[..], &[Reply::Reset, Reply::Truncated]].concat(),
            );
            site.path(robots, [Step::new(first), rules(Duration::ZERO)]);
            site.decided_by.2 = 2;
        }
        8 => {
            // Five redirects lead somewhere, six do not.
            let hops = 1 + rng.below(6);
            site.path(robots, [redirect("/robots-1.txt")]);
            for hop in 1..hops {
                let to = format!("/robots-{}.txt", hop + 1);
                site.path(&format!("/robots-{hop}.txt"), [redirect(&to)]);
            }
            let last = format!("/robots-{hops}.txt");
            site.path(&last, [rules(Duration::ZERO)]);
            site.decided_by.1 = last;
            site.verdict = Verdict::NotPrivate;
            if hops == 6 {
                site.verdict = Verdict::Everything;
                site.decided_by.1 = "/robots-5.txt".to_owned();
            }
        }
        _ => {}
    }
    site.decided_by.0 = name.to_owned();
}

/// Now and then a robots.txt lies with a neighbour.
fn lead_robots_elsewhere(rng: &mut Rng, web: &mut PoliteWeb) {
    let names: Vec<String> = web.sites.keys().cloned().collect();
    for (number, name) in names.iter().enumerate() {
        let neighbour = &names[(number + 1) % names.len()];
        let is_deaf = |name: &String| web.deaf.contains_key(&web.sites[name].address);
        if name == neighbour || !rng.chance(0.15) || is_deaf(neighbour) {
            continue;
        }
        let path = format!("/robots-of-{number}.txt");
        let site = web.sites.get_mut(name).expect("it has a name");
        site.path(
            "/robots.txt",
            [redirect(&format!("http://{neighbour}{path}"))],
        );
        site.verdict = Verdict::NotPrivate;
        site.crawl_delay = Duration::ZERO;
        site.decided_by = (neighbour.clone(), path.clone(), 1);
        let there = web.sites.get_mut(neighbour).expect("it has a name");
        there.path(&path, [rules(Duration::ZERO)]);
    }
}

fn steps(rng: &mut Rng, name: &str, names: &[&str], follow: Follow) -> Vec<Step> {
    let links = links(rng, name, names);
    let think = Duration::from_millis(rng.below(400));
    let good = match rng.below(4) {
        0 => Reply::Chunked(links),
        1 => Reply::UntilEnd(links),
        _ => Reply::Page(links),
    };
    let mut good = Step::new(good).after(think);
    good.closes = rng.chance(0.2);
    let bad = [
        Reply::Status(503),
        Reply::Status(429),
        Reply::Reset,
        Reply::ResetInside,
        Reply::Truncated,
    ];
    match rng.below(12) {
        0 => vec![Step::new(pick(rng, &bad)).after(think), good],
        1 => vec![Step::new(pick(rng, &bad)).after(think)],
        2 => vec![Step::new(Reply::Status(404)).after(think)],
        3 | 4 => {
            // A redirect out of a seed's host would widen what may be followed while the crawl
            // goes on: what it finds would depend on the order.
            let out = matches!(follow, Follow::None | Follow::All);
            let host = if out { pick(rng, names) } else { name };
            let to = format!("http://{host}/p{}", rng.below(10));
            let status = pick(rng, &[301, 302, 303, 307, 308]);
            vec![Step::new(Reply::Redirect(status, to)).after(think)]
        }
        5 if rng.chance(0.2) => vec![Step::new(Reply::Silence)],
        _ => vec![good],
    }
}

fn links(rng: &mut Rng, name: &str, names: &[&str]) -> Vec<String> {
    (0..rng.below(7))
        .map(|_| match rng.below(6) {
            0 => format!("/private/p{}", rng.below(3)),
            1 => format!("p{}#part", rng.below(12)),
            2 => format!("http://{name}/p{}", rng.below(12)),
            _ => format!("http://{}/p{}", pick(rng, names), rng.below(12)),
        })
        .collect()
}

fn plan(rng: &mut Rng, seed: u64, web: &mut PoliteWeb, names: &[&str], follow: Follow) -> Plan {
    let seeds: Vec<String> = (0..1 + rng.below(6))
        .map(|_| format!("http://{}/p{}", pick(rng, names), rng.below(10)))
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let delay = pick(rng, &[0.0, 0.1, 1.0]);
    let jitter = rng.chance(0.5);
    let per_host = pick(rng, &[1u64, 2, 8]);
    let per_address = pick(rng, &[0u64, 0, 1, 2]);
    let in_all = pick(rng, &[1u64, 3, 100]);
    let obeys = rng.chance(0.9);
    let mut plan = Plan::new(&[]);
    plan.seed = seed;
    plan.seeds = seeds;
    plan.asks_names = names.len() < 5 && rng.chance(0.3);
    plan.admits_late = seed.is_multiple_of(3);
    // Links to the host of a seed are followed once that is submitted: what is found before would be lost.
    let hosts = plan.seeds.iter().map(|url| split(url).0);
    let sites: BTreeSet<String> = match follow {
        Follow::Host => hosts.map(|host| bare(host).to_owned()).collect(),
        Follow::Domain => hosts.map(domain).collect(),
        Follow::None | Follow::All => BTreeSet::new(),
    };
    if sites.len() <= 1 {
        plan.ahead = [None, Some(1), Some(2), Some(5)][(seed / 3 % 4) as usize];
    }
    plan.faults = Faults {
        datagram_loss: 0.05,
        piece_bytes_max: 1 + rng.below(400) as usize,
        send_max: Duration::from_millis(2 * (seed % 2)),
        chunk_takes: Duration::from_micros(300 * u64::from(seed % 4 == 3)),
        ..Faults::default()
    };
    let plan = plan
        .set("WORKERS", [0, 2][(seed / 2 % 2) as usize])
        .set("DOWNLOAD_DELAY", delay)
        .set("RANDOMIZE_DOWNLOAD_DELAY", jitter)
        .set("CONCURRENT_REQUESTS_PER_DOMAIN", per_host)
        .set("CONCURRENT_REQUESTS_PER_IP", per_address)
        .set("CONCURRENT_REQUESTS", in_all)
        .set("AUTOTHROTTLE_ENABLED", rng.chance(0.3))
        .set("ROBOTSTXT_OBEY", obeys)
        .set(
            "FOLLOW",
            match follow {
                Follow::None => "none",
                Follow::Host => "host",
                Follow::Domain => "domain",
                Follow::All => "all",
            },
        );
    let share = if jitter { 0.5 } else { 1.0 };
    web.promise = Promise {
        gap_min: Duration::from_secs_f64(delay * share),
        per_host: per_host as usize,
        per_address: if per_address == 0 {
            usize::MAX
        } else {
            per_address as usize
        },
        in_all: in_all as usize,
        obeys_robots: obeys,
        ..Promise::default()
    };
    plan
}

/// The URLs that a crawl of a web must fetch, in any order.
pub fn reachable(web: &PoliteWeb, seeds: &[String], follow: Follow) -> BTreeSet<String> {
    let mut found: BTreeSet<String> = seeds.iter().cloned().collect();
    let mut queue: VecDeque<String> = seeds.iter().cloned().collect();
    let mut add = |url: String, queue: &mut VecDeque<String>| {
        if found.insert(url.clone()) {
            queue.push_back(url);
        }
    };
    let within = is_within(seeds, follow);
    while let Some(url) = queue.pop_front() {
        let (host, path) = split(&url);
        let site = &web.sites[host];
        let obeys = web.promise.obeys_robots;
        let is_allowed = match site.verdict {
            Verdict::NotPrivate => !path.starts_with("/private"),
            Verdict::Everything => true,
            Verdict::Nothing => false,
        };
        if (obeys && !is_allowed) || web.deaf.contains_key(&site.address) {
            continue;
        }
        let Some(step) = site.paths.get(path).and_then(|steps| steps.last()) else {
            continue;
        };
        match &step.reply {
            Reply::Page(links) | Reply::Chunked(links) | Reply::UntilEnd(links) => {
                for link in links {
                    let url = absolute(link, host);
                    if within(split(&url).0) {
                        add(url, &mut queue);
                    }
                }
            }
            Reply::Redirect(_, to) => add(to.clone(), &mut queue),
            _ => {}
        }
    }
    found
}

/// The hosts that a crawl may ask for something, whatever they answer.
pub fn askable(web: &PoliteWeb, seeds: &[String], follow: Follow) -> BTreeSet<String> {
    let mut found: BTreeSet<String> = seeds.iter().cloned().collect();
    let mut queue: VecDeque<String> = seeds.iter().cloned().collect();
    let mut hosts = BTreeSet::new();
    let within = is_within(seeds, follow);
    while let Some(url) = queue.pop_front() {
        let (host, path) = split(&url);
        let site = &web.sites[host];
        hosts.insert(host.to_owned());
        // Of another host it may need no more than the rules that a robots.txt leads to.
        for step in site.paths.get("/robots.txt").into_iter().flatten() {
            if let Reply::Redirect(_, to) = &step.reply
                && let Some(("", rest)) = to.split_once("http://")
            {
                hosts.extend(rest.split_once('/').map(|(host, _)| host.to_owned()));
            }
        }
        for step in site.paths.get(path).into_iter().flatten() {
            let to = match &step.reply {
                Reply::Page(links) | Reply::Chunked(links) | Reply::UntilEnd(links) => {
                    let links = links.iter().map(|link| absolute(link, host));
                    links.filter(|url| within(split(url).0)).collect()
                }
                Reply::Redirect(_, to) => vec![to.clone()],
                _ => Vec::new(),
            };
            queue.extend(to.into_iter().filter(|url| found.insert(url.clone())));
        }
    }
    hosts
}

/// Whether links to a host are followed.
fn is_within(seeds: &[String], follow: Follow) -> impl Fn(&str) -> bool {
    move |host| {
        seeds.iter().any(|seed| {
            let (seed, _) = split(seed);
            match follow {
                Follow::None => false,
                // Ports make no other host.
                Follow::Host => bare(seed) == bare(host),
                Follow::Domain => domain(seed) == domain(host),
                Follow::All => true,
            }
        })
    }
}

/// The URL of a link of a page of this host.
pub fn absolute(link: &str, host: &str) -> String {
    let link = link.split('#').next().unwrap_or("");
    if link.starts_with("http://") {
        link.to_owned()
    } else if link.starts_with('/') {
        format!("http://{host}{link}")
    } else {
        // Only pages of the top folder link like this.
        format!("http://{host}/{link}")
    }
}

/// The host of a URL, with its port, and the path.
pub fn split(url: &str) -> (&str, &str) {
    let rest = url.strip_prefix("http://").expect("all here is http");
    rest.split_at(rest.find('/').expect("all here has a path"))
}

fn bare(host: &str) -> &str {
    host.split(':').next().unwrap_or("")
}

fn domain(host: &str) -> String {
    let labels: Vec<&str> = bare(host).split('.').collect();
    labels[labels.len() - 2..].join(".")
}

fn redirect(to: &str) -> Step {
    Step::new(Reply::Redirect(301, to.to_owned()))
}

pub fn pick<T: Clone>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize].clone()
}
