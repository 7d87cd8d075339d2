//! A crawl of many hosts, one after another, that kept all limits; and violations planted into it.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use argiope::audit::{Kind, Time};
use argiope::base::rng::Rng;
use serde_json::{Value, json};

/// The files of a crawl.
pub struct Files {
    attempts: Vec<Attempt>,
    runs: Vec<(u64, Value)>,
    orders: Vec<(u64, Value)>,
    robots: Vec<(u64, Value)>,
    /// The violations that were planted: kinds, and numbers of attempts.
    pub planted: Vec<(Kind, u64)>,
}

/// A request, with times in milliseconds after the beginning of the crawl.
#[derive(Clone)]
struct Attempt {
    id: u64,
    parent: Option<u64>,
    kind: &'static str,
    host: String,
    path: String,
    scopes: Vec<String>,
    remote: String,
    sent: u64,
    /// How much earlier throttling allowed it; negative: later.
    due: i64,
    took: u64,
    hold: Value,
}

/// Milliseconds from the beginning of one host to that of the next.
const HOST: u64 = 40_000;
/// The beginning of the crawl: milliseconds since 1970.
const BEGIN: u64 = 1_795_219_200_000;
/// When the pages of a host depart, after its robots.txt.
const PAGES: [u64; 5] = [2_000, 4_000, 6_000, 8_000, 10_000];

fn wall(millis: u64) -> String {
    Time((BEGIN + millis) * 1_000_000).to_string()
}

/// The domain whose settings the plants of a kind need.
fn domain(kind: Kind) -> &'static str {
    match kind {
        Kind::SlotGap => "slots",
        Kind::PerMinute => "minute",
        Kind::TotalConcurrency => "wide",
        _ => "plain",
    }
}

fn entry(changes: Value) -> Value {
    let mut entry = json!({
        "concurrency": 2, "delay": 1.0, "delay_per_slot": 0.0, "jitter": [-0.5, 0.5],
        "backoff_jitter": [-0.1, 0.1], "hold_until": null, "hold_max": 300.0, "rampup_min_delay": null,
        "requests_per_minute": null, "managed": false, "own_delay": false, "own_concurrency": false
    });
    for (key, value) in changes.as_object().expect("an object") {
        entry[key] = value.clone();
    }
    entry
}

fn settings(scopes: Value) -> Value {
    let mut entries = json!({
        "*.slots.test": entry(json!({
            "concurrency": 3, "delay": 0.0, "delay_per_slot": 4.0, "jitter": [0.0, 0.0], "own_delay": true
        })),
        "*.minute.test": entry(json!({"requests_per_minute": 6.0})),
        "*.wide.test": entry(json!({"concurrency": 16})),
    });
    for (name, own) in scopes.as_object().expect("an object") {
        entries[name] = own.clone();
    }
    json!({
        "user_agent": "argiope-test", "concurrent_requests": 4, "concurrent_requests_per_ip": 3,
        "scope_map": ["host"], "default": entry(json!({})), "scopes": entries,
        "robots": {
            "obeyed": true, "agent": "argiope", "crawl_delay": true, "crawl_delay_max": 60.0,
            "keeps_concurrency": false
        },
        "holds": {"ratelimit_headers": "always", "obeyed_fully": false, "redirect_max": 120.0},
        "allow_net": [], "exclude_nets": ["93.200.0.0/16"], "exclude_hosts": ["*.excluded.test"],
        "excluded": [], "proxied": false
    })
}

fn start(at: u64, committed: Option<u64>, scopes: Value) -> (u64, Value) {
    let line = json!({
        "event": "start", "at": wall(at), "version": "test", "resumed": committed.is_some(),
        "committed": committed.map(wall), "paused": false, "settings": settings(scopes)
    });
    (at, line)
}

impl Files {
    /// A crawl without a violation, of `hosts` hosts.
    pub fn clean(hosts: u64) -> Files {
        Files::new(hosts, |_, _| {})
    }

    /// The same with a violation at each host, of each kind in turn.
    pub fn violated(hosts: u64, seed: u64) -> Files {
        let mut rng = Rng::from_seed(seed);
        Files::new(hosts, |files, host| files.plant(host, &mut rng))
    }

    fn new(hosts: u64, mut change: impl FnMut(&mut Files, u64)) -> Files {
        let mut files = Files {
            attempts: Vec::new(),
            runs: vec![start(0, None, json!({}))],
            orders: Vec::new(),
            robots: Vec::new(),
            planted: Vec::new(),
        };
        for host in 0..hosts {
            files.add_host(host);
            change(&mut files, host);
        }
        let end = hosts * HOST + HOST;
        let line = json!({"event": "end", "at": wall(end), "reason": "finished"});
        files.runs.push((end, line));
        files
    }

    fn kind_of(host: u64) -> Kind {
        Kind::ALL[host as usize % Kind::ALL.len()]
    }

    /// Six requests to a host: robots.txt, and five pages.
    fn add_host(&mut self, host: u64) {
        let kind = Files::kind_of(host);
        let begin = HOST + host * HOST;
        let name = format!("h{host}.{}.test", domain(kind));
        let first = host * 10 + 1;
        let robots = "User-agent: *\nDisallow: /private/\n";
        let robots = match kind {
            Kind::CrawlDelay | Kind::CrawlDelayConcurrency => format!("{robots}Crawl-delay: 1.8\n"),
            _ => robots.to_owned(),
        };
        self.add_robots(&name, first, begin + 50, &robots);
        let times = [0].into_iter().chain(PAGES);
        for (id, after) in (first..).zip(times) {
            let address = match kind {
                // Otherwise too many would be in flight to one address.
                Kind::TotalConcurrency => format!("93.100.{}.{}", id / 250 % 250, id % 250),
                _ => {
                    let (high, low) = (host / 250 % 250, host % 250);
                    format!("93.{}.{high}.{low}", 101 + host / 62_500)
                }
            };
            let is_robots = id == first;
            self.attempts.push(Attempt {
                id,
                parent: None,
                kind: if is_robots { "robots" } else { "page" },
                path: match is_robots {
                    true => "/robots.txt".to_owned(),
                    false => format!("/p{id}?q=%7ex"),
                },
                scopes: vec![name.clone(), format!("ip/{address}")],
                host: name.clone(),
                remote: format!("{address}:80"),
                sent: begin + after,
                due: 1,
                took: 40,
                hold: Value::Null,
            });
        }
        // Each is kept by what follows.
        match kind {
            Kind::RetryAfter => self.hold(first + 1, "retry-after", 1.0, 1.0),
            Kind::RateLimit => self.hold(first + 1, "ratelimit", 1.0, 1.0),
            Kind::RedirectWait => {
                let redirect = self.attempt(first + 1);
                let from = wall(redirect.sent + 100);
                redirect.hold = json!({
                    "from": from, "seconds": 3.0, "source": "retry-after", "scopes": {}, "redirect": 3.0
                });
                self.attempt(first + 3).parent = Some(first + 1);
            }
            Kind::ExcludedHost => {
                let other = format!("h{host}.excluded.test");
                self.add_robots(&other, first, begin + 60, &robots);
            }
            _ => {}
        }
    }

    fn add_robots(&mut self, host: &str, id: u64, at: u64, body: &str) {
        let line = json!({
            "at": wall(at), "until": wall(at + 86_400_000), "origin": format!("http://{host}"), "id": id,
            "url": format!("http://{host}/robots.txt"), "status": 200, "meaning": "rules",
            "digest": format!("sha1:{}", body.len()), "bytes": body.len(), "body": body
        });
        self.robots.push((at, line));
    }

    fn attempt(&mut self, id: u64) -> &mut Attempt {
        let attempts = &mut self.attempts;
        attempts
            .iter_mut()
            .rev()
            .find(|attempt| attempt.id == id)
            .expect("it was added")
    }

    fn hold(&mut self, id: u64, source: &str, asked: f64, held: f64) {
        let attempt = self.attempt(id);
        let mut scopes = json!({});
        scopes[&attempt.host] = held.into();
        attempt.hold = json!({
            "from": wall(attempt.sent + 100), "seconds": asked, "source": source, "scopes": scopes,
            "redirect": null
        });
    }

    /// Lets a host violate the limit of its kind.
    fn plant(&mut self, host: u64, rng: &mut Rng) {
        let kind = Files::kind_of(host);
        let begin = HOST + host * HOST;
        let first = host * 10 + 1;
        let name = self.attempt(first).host.clone();
        let page = |number: u64| first + number;
        let some = |rng: &mut Rng, from: u64, to: u64| begin + from + rng.below(to - from);
        let mut ids = vec![page(2)];
        match kind {
            Kind::Gap => self.attempt(page(2)).sent = some(rng, 2_001, 2_499),
            Kind::SlotGap => {
                self.attempt(page(2)).sent = begin + 2_500;
                self.attempt(page(3)).sent = some(rng, 2_600, 3_599);
                ids = vec![page(3)];
            }
            Kind::PerMinute => {
                let mut more = self.attempt(page(5)).clone();
                (more.id, more.sent) = (page(6), some(rng, 11_000, 30_000));
                self.attempts.push(more);
                ids = vec![page(6)];
            }
            Kind::Concurrency => {
                self.attempt(page(1)).took = 4_001 + rng.below(1_500);
                self.attempt(page(2)).took = 3_000;
                ids = vec![page(3)];
            }
            Kind::TotalConcurrency => {
                for number in 1..5 {
                    let attempt = self.attempt(page(number));
                    attempt.took = begin + 10_500 - attempt.sent;
                }
                ids = vec![page(5)];
            }
            Kind::RetryAfter | Kind::RateLimit => {
                self.attempt(page(2)).sent = some(rng, 2_501, 3_099);
            }
            Kind::HoldUntil => {
                let at = begin - 1_000;
                let until = begin + 1_000 + rng.below(1_000);
                let own = entry(json!({"hold_until": wall(until)}));
                let line =
                    json!({"event": "scope", "at": wall(at), "scope": name, "settings": own});
                self.runs.push((at, line));
                ids = vec![first];
            }
            Kind::RedirectWait => {
                self.attempt(page(3)).sent = some(rng, 4_600, 5_099);
                ids = vec![page(3)];
            }
            Kind::ShortHold => {
                let asked = 2.0 + rng.below(1_000) as f64;
                self.hold(page(1), "retry-after", asked, 1.0);
                ids = vec![page(1)];
            }
            Kind::CrawlDelay => self.attempt(page(2)).sent = some(rng, 2_501, 3_799),
            Kind::CrawlDelayConcurrency => self.attempt(page(1)).took = 2_001 + rng.below(1_900),
            Kind::RobotsNotFetched => {
                self.attempt(page(1)).sent = begin - 600 - rng.below(5_000);
                ids = vec![page(1)];
            }
            Kind::RobotsExpired => {
                let (_, line) = self.robots.last_mut().expect("it was added");
                line["until"] = wall(begin + 8_100 + rng.below(1_800)).into();
                ids = vec![page(5)];
            }
            Kind::RobotsUnreachable => {
                let (_, line) = self.robots.last_mut().expect("it was added");
                (line["meaning"], line["digest"]) = ("unreachable".into(), Value::Null);
                line.as_object_mut().expect("an object").remove("body");
                ids = (1..=5).map(page).collect();
            }
            Kind::RobotsDisallowed => {
                let path = ["/private/", "/private/x?y", "/%70rivate/z"][rng.below(3) as usize];
                self.attempt(page(2)).path = path.to_owned();
            }
            Kind::Address | Kind::ExcludedNetwork => {
                let of = match kind {
                    Kind::Address => ["10.0.0.1", "127.0.0.1", "169.254.169.254", "100.64.3.4"],
                    _ => ["93.200.0.0", "93.200.1.2", "93.200.77.3", "93.200.255.255"],
                };
                let address = of[rng.below(4) as usize];
                let attempt = self.attempt(page(2));
                attempt.remote = format!("{address}:80");
                attempt.scopes[1] = format!("ip/{address}");
            }
            Kind::AddressScope => drop(self.attempt(page(2)).scopes.pop()),
            Kind::ExcludedHost => {
                let other = format!("h{host}.excluded.test");
                let attempt = self.attempt(page(2));
                (attempt.host, attempt.scopes[0]) = (other.clone(), other);
            }
            Kind::ExcludedByOrder => {
                let address = self.attempt(page(1)).remote.replace(":80", "/32");
                let what = match rng.below(3) {
                    0 => ("host", name),
                    1 => ("network", address),
                    _ => ("pattern", format!("re:^http://h{host}\\.plain")),
                };
                self.order(
                    begin + 3_000,
                    "exclude",
                    json!({what.0: what.1, "after": true}),
                );
                ids = (2..=5).map(page).collect();
            }
            Kind::Paused => {
                self.order(
                    begin + 3_000,
                    "pause",
                    json!({"before": false, "after": true}),
                );
                self.order(
                    begin + 5_000,
                    "resume",
                    json!({"before": true, "after": false}),
                );
            }
            Kind::Cancelled => {
                let until = page(3 + rng.below(2));
                self.order(
                    begin + 5_000,
                    "cancel",
                    json!({"scope": name, "until": until}),
                );
                ids = (page(3)..=until).collect();
            }
            Kind::Stopped => {
                self.order(begin + 9_000, "stop", json!({"grace": 5.0}));
                let kept = self.changed_scopes();
                self.runs
                    .push(start(begin + 20_000, Some(begin + 19_000), kept));
                ids = vec![page(5)];
            }
            Kind::OutsideRun => {
                let line = json!({"event": "end", "at": wall(begin + 9_000), "reason": "shutdown"});
                self.runs.push((begin + 9_000, line));
                let kept = self.changed_scopes();
                self.runs
                    .push(start(begin + 11_000, Some(begin + 9_000), kept));
                ids = vec![page(5)];
            }
            Kind::Early => self.attempt(page(2)).due = -1 - rng.below(500) as i64,
            other => panic!("no violation of {other} is planted"),
        }
        self.planted.extend(ids.into_iter().map(|id| (kind, id)));
    }

    /// The scopes that orders have given settings of their own.
    fn changed_scopes(&self) -> Value {
        let mut scopes = json!({});
        for (_, line) in self
            .runs
            .iter()
            .filter(|(_, line)| line["event"] == "scope")
        {
            scopes[line["scope"].as_str().expect("a name")] = line["settings"].clone();
        }
        scopes
    }

    fn order(&mut self, at: u64, order: &str, facts: Value) {
        let mut line = json!({"at": wall(at), "uid": 1000, "from": null, "order": order});
        for (key, value) in facts.as_object().expect("an object") {
            line[key] = value.clone();
        }
        self.orders.push((at, line));
    }

    /// Writes the files.
    pub fn write(&self, folder: &Path) {
        let write = |name: &str, mut lines: Vec<(u64, Value)>| {
            lines.sort_by_key(|(at, _)| *at);
            let text: String = lines.iter().map(|(_, line)| format!("{line}\n")).collect();
            fs::write(folder.join(name), text).expect("it can be written");
        };
        write("runs.jsonl", self.runs.clone());
        write("orders.jsonl", self.orders.clone());
        write("robots.jsonl", self.robots.clone());
        // There may be a million.
        let mut attempts: Vec<&Attempt> = self.attempts.iter().collect();
        attempts.sort_by_key(|attempt| attempt.sent + attempt.took);
        let file = File::create(folder.join("results.jsonl")).expect("it can be made");
        let mut file = BufWriter::new(file);
        for attempt in attempts {
            writeln!(file, "{}", attempt.line()).expect("it can be written");
        }
        file.flush().expect("it can be written");
    }
}

impl Attempt {
    fn line(&self) -> Value {
        let millis = |millis: u64| millis as f64 / 1000.0;
        let started = self.sent - 10;
        json!({
            "id": self.id, "parent": self.parent, "seed": false, "final": true, "kind": self.kind,
            "url": format!("http://{}{}", self.host, self.path), "method": "GET", "depth": 0, "attempt": 1,
            "scopes": self.scopes, "status": 200, "error": null, "redirect": null, "remote": self.remote,
            "bytes_wire": 100, "started": wall(started), "due": wall((self.sent as i64 - self.due) as u64),
            "sent": wall(self.sent), "headers": millis(20), "body": millis(10 + self.took),
            "ended": millis(10 + self.took), "delay": 1.0, "hold": self.hold, "meta": null
        })
    }
}
