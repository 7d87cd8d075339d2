//! A crawl of a real web on loopback: nginx serves many sites, with and without TLS, and its log shows
//! whether the crawl was polite; unbound or dnsmasq resolves names; warcio reads the WARC files.
#![cfg(feature = "cli")]

mod peers;
mod terminal;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use peers::crawl::{self, text, wall};
use peers::nginx::{Nginx, Served};
use peers::warc::{self, Record};
use peers::web::Web;
use peers::{folder, names, signal, tell};

/// The configured delay of the crawls, in seconds.
const DELAY: f64 = 0.3;
const JITTER_OFF: &str = "RANDOMIZE_DOWNLOAD_DELAY=false";
/// In seconds. nginx's times have the resolution of its event loop, a millisecond.
const TOLERANCE: f64 = 0.003;

#[test]
fn nginx_gets_exactly_the_expected_requests() {
    let Some(crawled) = with_unbound() else {
        return;
    };
    crawled.check_what_was_asked();
}

#[test]
fn gaps_at_nginx_respect_delay_and_crawl_delay() {
    let Some(crawled) = with_unbound() else {
        return;
    };
    crawled.check_gaps(DELAY);
}

#[test]
fn nginx_gets_one_request_per_host_at_a_time() {
    let Some(crawled) = with_unbound() else {
        return;
    };
    for (host, served) in crawled.by_host() {
        for two in served.windows(2) {
            let over = two[1].arrived() - two[0].done();
            assert!(over > -TOLERANCE, "{host:?}: {two:?}");
        }
    }
}

#[test]
fn nginx_and_the_result_lines_agree_on_every_request() {
    let Some(crawled) = with_unbound() else {
        return;
    };
    crawled.check_agreement();
}

#[test]
fn connections_are_kept_and_tls_sessions_resumed() {
    let Some(crawled) = with_unbound() else {
        return;
    };
    let by_host = crawled.by_host();
    let of = |name: &str| -> Vec<&Served> {
        let all = by_host.iter().filter(|((host, _), _)| host == name);
        all.flat_map(|(_, served)| served).copied().collect()
    };
    let connections = |name: &str| -> usize {
        let all: BTreeSet<u64> = of(name).iter().map(|served| served.connection).collect();
        all.len()
    };
    for name in ["plain.test", "slow.test", "free.test"] {
        assert_eq!(connections(name), 1, "{name} lets connections stay");
        assert!(of(name).iter().any(|served| served.connection_requests > 3));
    }
    // A redirect may lead to it when its host has nothing else queued, which takes a second connection.
    assert!(connections("secure.test") <= 2);
    // One for robots.txt, and one for each of five pages.
    assert_eq!(connections("remade.test"), 6);
    assert_eq!(connections("short.test"), 2);
    for name in ["secure.test", "remade.test", "short.test"] {
        let all = of(name);
        let first = all.iter().filter(|served| served.connection_requests == 1);
        for (before, served) in first.enumerate() {
            assert_eq!(served.protocol, "TLSv1.3", "{served:?}");
            let expected = if before == 0 { "." } else { "r" };
            assert_eq!(served.session_reused, expected, "{served:?}");
        }
    }
}

#[test]
fn result_lines_are_consistent_in_every_field() {
    let Some(crawled) = with_unbound() else {
        return;
    };
    for line in &crawled.results {
        check_line(line);
    }
    let ids: BTreeSet<u64> = crawled
        .results
        .iter()
        .map(|line| line["id"].as_u64().unwrap())
        .collect();
    assert_eq!(ids.len(), crawled.results.len(), "an id is used once");
    for line in &crawled.results {
        let parent = line["parent"].as_u64();
        assert!(parent.is_none_or(|parent| ids.contains(&parent)), "{line}");
    }
    let of = |short: &str| crawled.line(&crawled.web.url(short));
    assert_eq!(of("http://closed.test/")["error"]["kind"], "robots");
    assert_eq!(of("http://plain.test/private/x.html")["sent"], Value::Null);
    assert_eq!(
        of("http://moved.test/loop")["error"]["code"],
        "redirect.loop"
    );
    let landing = crawled.web.url("http://moved.test/new");
    assert_eq!(of("http://moved.test/old")["redirect"], landing.as_str());
    assert_eq!(of("http://broken.test/")["error"]["kind"], "robots");
    assert_eq!(of("http://plain.test/gone")["status"], 404);
    let plain = of("http://plain.test/");
    assert_eq!(plain["links"], 8, "one is there twice");
    assert_eq!(plain["seed"], true);
    assert!(plain["digest"].is_string());
}

#[test]
fn warcio_accepts_every_file_and_finds_each_reply_where_its_result_line_says() {
    let Some(crawled) = with_unbound() else {
        return;
    };
    crawled.check_warc();
}

#[test]
fn warc_payloads_match_the_files_of_nginx() {
    let Some(crawled) = with_unbound() else {
        return;
    };
    crawled.check_payloads();
}

#[test]
fn a_crawl_with_dnsmasq_has_the_same_result() {
    let folder = folder("peers-dnsmasq");
    let Some(nginx) = Nginx::start(&folder, Web::of_many_kinds) else {
        return;
    };
    let Some((names, dns)) = names::dnsmasq(&folder, &nginx.web) else {
        return;
    };
    let crawled = Crawled::new(folder, nginx, dns);
    names.end();
    crawled.check_what_was_asked();
    crawled.check_gaps(DELAY);
    crawled.check_agreement();
    crawled.check_payloads();
}

#[test]
fn a_stopped_crawl_leaves_complete_files_and_loses_no_url() {
    let folder = folder("peers-stopped");
    let Some(nginx) = Nginx::start(&folder, Web::of_many_pages) else {
        return;
    };
    let Some((names, dns)) = names::unbound(&folder, &nginx.web) else {
        return;
    };
    fs::write(folder.join("seeds"), nginx.web.seeds()).expect("writable");
    let dns = dns.to_string();
    let seeds = folder.join("seeds").to_str().expect("text").to_owned();
    let common = [
        "--dns",
        &dns,
        "-s",
        "DOWNLOAD_DELAY=0.05",
        "-s",
        JITTER_OFF,
        "-s",
        "WARC_SIZE_MAX=20000",
    ];
    let out = folder.join("out");
    let child = crawl::start(&out, &[&common[..], &["--seeds", &seeds]].concat());
    sleep(Duration::from_millis(1200));
    signal(&child, libc::SIGTERM);
    let (code, said) = crawl::finish(child, &out);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("stopped after"), "{said}");

    let results = crawl::lines(&out.join("results.jsonl"));
    for line in &results {
        check_line(line);
    }
    // The crawl waited for requests in flight.
    let slow = nginx.web.url("http://slow.test/");
    let slow = results
        .iter()
        .find(|line| text(line, "url") == slow)
        .expect("it was asked for");
    assert_eq!(slow["bytes_body"], 400_000, "{slow}");
    let files = warc::files(&out);
    assert!(files.len() > 2, "{files:?}");
    for file in &files {
        check_with_warcio(file);
    }
    let pending: BTreeSet<String> = crawl::pending(&out.join("pending.jsonl"));
    let finished: BTreeSet<String> = results
        .iter()
        .filter(|line| line["kind"] == "page" && line["final"] == true)
        .map(|line| text(line, "url").to_owned())
        .collect();
    assert_eq!(pending.intersection(&finished).next(), None);
    let all: BTreeSet<String> = nginx.web.asked().into_keys().collect();
    let known: BTreeSet<String> = pending.union(&finished).cloned().collect();
    assert_eq!(known, all, "each root was read, so every page was known");
    assert!(pending.len() > 20, "it was ended midway: {}", pending.len());

    // The pending requests are a list of seeds: a second crawl fetches the rest, and nothing twice.
    let rest = folder.join("rest");
    let left = out.join("pending.jsonl");
    let left = left.to_str().expect("text");
    let child = crawl::start(
        &rest,
        &[&common[..], &["--seeds", left, "--follow", "none"]].concat(),
    );
    let (code, said) = crawl::finish(child, &rest);
    assert_eq!(code, Some(0), "{said}");
    names.end();
    let (web, served) = nginx.end();
    let mut asked: BTreeMap<String, usize> = BTreeMap::new();
    for served in served.iter().filter(|served| served.uri != "/robots.txt") {
        *asked.entry(served.url()).or_default() += 1;
    }
    let mut expected = web.asked();
    expected.retain(|_, times| *times > 0);
    assert_eq!(asked, expected);
}

#[test]
fn a_crawl_stopped_twice_ends_at_once_with_complete_files() {
    let folder = folder("peers-stopped-twice");
    let Some(nginx) = Nginx::start(&folder, Web::of_many_pages) else {
        return;
    };
    let Some((names, dns)) = names::unbound(&folder, &nginx.web) else {
        return;
    };
    fs::write(folder.join("seeds"), nginx.web.seeds()).expect("writable");
    let seeds = folder.join("seeds").to_str().expect("text").to_owned();
    let out = folder.join("out");
    let dns = dns.to_string();
    let child = crawl::start(
        &out,
        &[
            "--dns",
            &dns,
            "--seeds",
            &seeds,
            "-s",
            "DOWNLOAD_DELAY=0.05",
        ],
    );
    sleep(Duration::from_millis(1000));
    signal(&child, libc::SIGTERM);
    sleep(Duration::from_millis(300));
    let stopped = std::time::Instant::now();
    signal(&child, libc::SIGTERM);
    let (code, said) = crawl::finish(child, &out);
    assert!(
        stopped.elapsed() < Duration::from_secs(1),
        "{:?}",
        stopped.elapsed()
    );
    assert_eq!(code, Some(3), "{said}");
    names.end();
    let (web, _) = nginx.end();
    let results = crawl::lines(&out.join("results.jsonl"));
    let slow = web.url("http://slow.test/");
    let cut = results
        .iter()
        .find(|line| text(line, "url") == slow)
        .expect("it was asked for");
    assert_eq!(cut["status"], 200, "{cut}");
    assert_eq!(cut["error"]["kind"], "cancelled", "{cut}");
    let place = &cut["warc"];
    let record = Record::read(&member(&out, place));
    assert!(record.field("warc-truncated").is_some());
    let pending = crawl::pending(&out.join("pending.jsonl"));
    assert!(
        pending.contains(&slow),
        "what was cut is still to be fetched"
    );
    for file in warc::files(&out) {
        check_with_warcio(&file);
    }
}

#[test]
fn sigstop_and_sigcont_do_not_bunch_requests() {
    let folder = folder("peers-continued");
    let Some(nginx) = Nginx::start(&folder, Web::of_many_pages) else {
        return;
    };
    fs::write(folder.join("seeds"), nginx.web.seeds()).expect("writable");
    let seeds = folder.join("seeds").to_str().expect("text").to_owned();
    let resolve = |name: &str, last: u8| format!("{name}:{}:127.0.0.{last}", nginx.web.http);
    let (slow, others) = (resolve("slow.test", 2), resolve("*", 1));
    let out = folder.join("out");
    let arguments = ["--seeds", &seeds, "--resolve", &slow, "--resolve", &others];
    let pace = ["-s", "DOWNLOAD_DELAY=0.05", "-s", JITTER_OFF];
    let child = crawl::start(&out, &[&arguments[..], &pace].concat());
    nginx.wait_until(|served| served.len() >= 20);
    signal(&child, libc::SIGSTOP);
    sleep(Duration::from_millis(1000));
    signal(&child, libc::SIGCONT);
    let (code, said) = crawl::finish(child, &out);
    assert_eq!(code, Some(0), "{said}");
    let crawled = Crawled::of(nginx, out);
    crawled.check_gaps(0.05);
    let stop = crawled.served.windows(2);
    let stop = stop.map(|two| two[1].arrived() - two[0].arrived());
    assert!(
        stop.fold(0.0, f64::max) > 0.9,
        "it stood still for a second"
    );
}

#[test]
fn concurrency_at_nginx_is_as_configured() {
    let folder = folder("peers-parallel");
    let Some(nginx) = Nginx::start(&folder, Web::of_slow_pages) else {
        return;
    };
    let url = nginx.web.url("http://slow.test/");
    let resolve = format!("*:{}:127.0.0.1", nginx.web.http);
    let out = folder.join("out");
    let arguments = [&url, "--resolve", &resolve, "-s", JITTER_OFF];
    let pace = [
        "-s",
        "DOWNLOAD_DELAY=0.05",
        "-s",
        "CONCURRENT_REQUESTS_PER_DOMAIN=3",
    ];
    let child = crawl::start(&out, &[&arguments[..], &pace].concat());
    let (code, said) = crawl::finish(child, &out);
    assert_eq!(code, Some(0), "{said}");
    let crawled = Crawled::of(nginx, out);
    let mut changes: Vec<(f64, i32)> = Vec::new();
    for served in &crawled.served {
        changes.push((served.arrived() + TOLERANCE, 1));
        changes.push((served.done(), -1));
    }
    changes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut in_flight = 0;
    let mut peak = 0;
    for (_, change) in changes {
        in_flight += change;
        peak = peak.max(in_flight);
    }
    assert_eq!(peak, 3);
    assert_eq!(crawled.served.len(), 14, "robots.txt, the root, its pages");
}

#[test]
fn a_closed_terminal_shuts_a_crawl_down_unless_hup_is_ignored() {
    let folder = folder("peers-hung-up");
    let Some(nginx) = Nginx::start(&folder, Web::of_many_pages) else {
        return;
    };
    let url = nginx.web.url("http://one.test/");
    let resolve = format!("*:{}:127.0.0.1", nginx.web.http);
    let arguments = [&url, "--resolve", &resolve, "-s", "DOWNLOAD_DELAY=0.05"];
    let hung_up = folder.join("hung-up");
    let (_shown, written) = terminal::terminal();
    let mut minding = Command::new(crawl::BINARY);
    terminal::control_by(&mut minding, &written);
    let child = crawl::start_by(minding, &hung_up, &arguments);
    let mut nohup = Command::new("nohup");
    nohup.arg(crawl::BINARY);
    let minding_not = folder.join("minding-not");
    let other = crawl::start_by(nohup, &minding_not, &arguments);
    // At that point each crawl has 40 pages left.
    nginx.wait_until(|served| served.iter().filter(|one| one.uri == "/").count() == 2);
    signal(&child, libc::SIGHUP);
    signal(&other, libc::SIGHUP);
    let (code, said) = crawl::finish(child, &hung_up);
    assert_eq!(code, Some(3), "{said}");
    assert!(!crawl::pending(&hung_up.join("pending.jsonl")).is_empty());
    warc::files(&hung_up);
    let (code, said) = crawl::finish(other, &minding_not);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_closed_reader_ends_the_crawl_quietly() {
    let folder = folder("peers-reader-gone");
    let Some(nginx) = Nginx::start(&folder, Web::of_many_pages) else {
        return;
    };
    let url = nginx.web.url("http://one.test/");
    let resolve = format!("*:{}:127.0.0.1", nginx.web.http);
    let mut child = Command::new(crawl::BINARY)
        .args(["crawl", &url, "--resolve", &resolve, "--results", "-"])
        .args(["--allow-net", "loopback", "-s", "DOWNLOAD_DELAY=0.05"])
        .args(["--quiet"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut line = String::new();
    let out = child.stdout.take().expect("it is piped");
    BufReader::new(out).read_line(&mut line).expect("a line");
    assert!(line.starts_with("{\"id\""), "{line}");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!((output.status.code(), said.as_str()), (Some(0), ""));
}

/// The crawl that most tests check.
fn with_unbound() -> Option<&'static Crawled> {
    static CRAWLED: OnceLock<Option<Crawled>> = OnceLock::new();
    CRAWLED
        .get_or_init(|| {
            let folder = folder("peers-unbound");
            let nginx = Nginx::start(&folder, Web::of_many_kinds)?;
            let (names, dns) = names::unbound(&folder, &nginx.web)?;
            let crawled = Crawled::new(folder, nginx, dns);
            names.end();
            Some(crawled)
        })
        .as_ref()
}

/// The records of a crawl that has ended, from both sides.
struct Crawled {
    web: Web,
    out: PathBuf,
    /// In order of arrival.
    served: Vec<Served>,
    /// In order of finishing.
    results: Vec<Value>,
}

impl Crawled {
    fn new(folder: PathBuf, nginx: Nginx, dns: std::net::SocketAddr) -> Self {
        fs::write(folder.join("seeds"), nginx.web.seeds()).expect("writable");
        let path = |name: &str| folder.join(name).to_str().expect("text").to_owned();
        let (seeds, ca, dns) = (path("seeds"), path("ca.pem"), dns.to_string());
        let delay = format!("DOWNLOAD_DELAY={DELAY}");
        let out = folder.join("out");
        let child = crawl::start(
            &out,
            &[
                "--seeds",
                &seeds,
                "--dns",
                &dns,
                "--ca-file",
                &ca,
                "-s",
                &delay,
                "-s",
                JITTER_OFF,
                "--contact",
                "crawl@plain.test",
            ],
        );
        let (code, said) = crawl::finish(child, &out);
        assert_eq!(code, Some(0), "{said}");
        Crawled::of(nginx, out)
    }

    /// Ends nginx after a crawl, and reads the records of both sides.
    fn of(nginx: Nginx, out: PathBuf) -> Self {
        let (web, served) = nginx.end();
        let results = crawl::lines(&out.join("results.jsonl"));
        Crawled {
            web,
            out,
            served,
            results,
        }
    }

    /// The requests to each host, by name and port, in order of arrival.
    fn by_host(&self) -> BTreeMap<(String, u16), Vec<&Served>> {
        let mut hosts: BTreeMap<_, Vec<&Served>> = BTreeMap::new();
        for served in &self.served {
            let host = (served.host.clone(), served.port);
            hosts.entry(host).or_default().push(served);
        }
        hosts
    }

    /// The only line of a URL's page.
    fn line(&self, url: &str) -> &Value {
        let mut found = self
            .results
            .iter()
            .filter(|line| line["url"] == url && line["kind"] == "page");
        let line = found.next().unwrap_or_else(|| panic!("no line of {url}"));
        assert!(found.next().is_none(), "two lines of {url}");
        line
    }

    fn check_what_was_asked(&self) {
        let mut asked: BTreeMap<String, usize> =
            self.web.asked().into_keys().map(|url| (url, 0)).collect();
        let mut robots: BTreeMap<String, usize> = BTreeMap::new();
        for served in &self.served {
            let counts = if served.uri == "/robots.txt" {
                &mut robots
            } else {
                &mut asked
            };
            *counts.entry(served.url()).or_default() += 1;
            if let Some(page) = self.web.page(&served.url()) {
                assert_eq!(served.status, page.status, "{served:?}");
            }
        }
        assert_eq!(asked, self.web.asked());
        for (url, times) in robots {
            let expected = match url.as_str() {
                // It is answered with 503, and retried as a page is.
                url if url.contains("//broken.") => 3,
                // Requested again, because one of its pages links to it.
                url if url.contains("//plain.") => 2,
                // Requested for its host, and as the target of a redirect from the host without TLS.
                url if url.starts_with("https://upgrade.") => 2,
                _ => 1,
            };
            assert_eq!(times, expected, "{url}");
        }
    }

    /// Checks the gaps as nginx records them. If its process had to wait for the processor, its stamp is
    /// late and the next gap looks short; the times of our sends show by how much.
    fn check_gaps(&self, delay_set: f64) {
        let sent = self.sent();
        let mut excused = 0;
        let mut gaps = 0;
        for ((host, port), served) in self.by_host() {
            let mut delay = delay_set;
            for two in served.windows(2) {
                if two[0].uri == "/robots.txt" && two[0].status == 200 {
                    delay = delay_set.max(self.web.crawl_delay(&host));
                }
                gaps += 1;
                let gap = two[1].arrived() - two[0].arrived();
                if gap >= delay - TOLERANCE {
                    continue;
                }
                let stamped_late = two[0].arrived() - sent[&exchange_of(two[0])];
                assert!(
                    gap + stamped_late >= delay - TOLERANCE,
                    "{host}:{port}: {gap:.4} s for {delay}: {two:?}"
                );
                excused += 1;
            }
            let spans = served.len().saturating_sub(1) as f64;
            let (first, last) = (served[0], served[served.len() - 1]);
            let shortest = spans * delay_set - TOLERANCE - 0.02;
            assert!(last.arrived() - first.arrived() >= shortest, "{host}");
        }
        assert!(gaps > 50, "only {gaps} gaps");
        // On a busy machine nginx's stamps alone are not reliable. Gaps that look short are then compared
        // with our sends, and the test reports their number.
        assert!(excused * 2 <= gaps, "{excused} of {gaps} gaps looked short");
        if excused * 10 > gaps {
            tell(&format!(
                "the machine is busy: nginx stamped {excused} of {gaps} requests late"
            ));
        }
    }

    /// Departure time of each request.
    fn sent(&self) -> HashMap<Exchange, f64> {
        let lines = self.lines_sent().into_iter();
        lines
            .map(|(exchange, line)| (exchange, wall(line, "sent")))
            .collect()
    }

    /// The lines of all requests that were sent, each with its exchange.
    fn lines_sent(&self) -> Vec<(Exchange, &Value)> {
        let mut lines: Vec<&Value> = self
            .results
            .iter()
            .filter(|line| line["sent"].is_string())
            .collect();
        lines.sort_by(|a, b| wall(a, "sent").total_cmp(&wall(b, "sent")));
        let mut numbers: HashMap<(&str, &str), u64> = HashMap::new();
        let exchange_of = |line| {
            let ends = (text(line, "local"), text(line, "remote"));
            let number = numbers.entry(ends).or_default();
            *number = if line["reused"] == true {
                *number + 1
            } else {
                1
            };
            let exchange = (ends.0.to_owned(), ends.1.to_owned(), *number);
            (exchange, line)
        };
        lines.into_iter().map(exchange_of).collect()
    }

    fn check_agreement(&self) {
        let mut by_exchange: HashMap<Exchange, &Served> = HashMap::new();
        for served in &self.served {
            let before = by_exchange.insert(exchange_of(served), served);
            assert!(before.is_none(), "{served:?}");
            assert_eq!(served.agent, "argiope/0.1.0 (+crawl@plain.test)");
        }
        let lines = self.lines_sent();
        assert_eq!(lines.len(), self.served.len());
        let mut late = Vec::new();
        for (exchange, line) in lines {
            let served = by_exchange[&exchange];
            assert_eq!(text(line, "url"), served.url(), "{line}");
            assert_eq!(line["status"], served.status, "{line}");
            assert_eq!(line["bytes_wire"], served.bytes, "{line}");
            assert_eq!(line["reused"], served.connection_requests > 1, "{line}");
            if !served.protocol.is_empty() {
                assert_eq!(text(&line["tls"], "version"), served.protocol, "{line}");
                let resumed = served.session_reused == "r";
                assert_eq!(line["tls"]["resumed"], resumed, "{line}");
                assert_eq!(line["tls"]["verified"], true, "{line}");
            }
            late.push(served.arrived() - wall(line, "sent"));
        }
        late.sort_by(f64::total_cmp);
        let median = late[late.len() / 2];
        assert!(
            late[0] > -0.01,
            "nginx saw one {:.4} s before it was sent",
            -late[0]
        );
        assert!(
            median < 0.005,
            "nginx sees requests {median:.4} s after we sent them"
        );
    }

    fn check_warc(&self) {
        let mut index: HashMap<(String, u64), Value> = HashMap::new();
        let mut responses = 0;
        for file in warc::files(&self.out) {
            check_with_warcio(&file);
            let path = file.to_str().expect("text");
            let fields = "offset,length,warc-type,warc-target-uri,http:status,warc-ip-address";
            let Some((accepted, reported)) = warc::warcio(&["index", "-f", fields, path]) else {
                continue;
            };
            let reported = String::from_utf8(reported).expect("warcio prints JSON");
            assert!(accepted, "{reported}");
            let name = format!("warc/{}", file.file_name().unwrap().to_str().unwrap());
            for line in reported.lines() {
                let entry: Value = serde_json::from_str(line).expect("JSON");
                let offset = text(&entry, "offset").parse().expect("a number");
                responses += usize::from(entry["warc-type"] == "response");
                index.insert((name.clone(), offset), entry);
            }
        }
        for line in &self.results {
            let place = &line["warc"];
            assert_eq!(place.is_null(), line["status"].is_null(), "{line}");
            if place.is_null() || index.is_empty() {
                continue;
            }
            let at = (
                text(place, "file").to_owned(),
                place["offset"].as_u64().unwrap(),
            );
            let entry = &index[&at];
            assert_eq!(entry["warc-type"], "response", "{line}");
            assert_eq!(entry["warc-target-uri"], line["url"]);
            assert_eq!(text(entry, "length"), place["length"].to_string());
            assert_eq!(text(entry, "http:status"), line["status"].to_string());
            let address = text(line, "remote").rsplit_once(':').unwrap().0;
            assert_eq!(text(entry, "warc-ip-address"), address);
            responses -= 1;
        }
        assert_eq!(responses, 0, "a response record has its result line");
        for short in [
            "http://pieces.test/",
            "http://big.test/packed.html",
            "https://secure.test/",
        ] {
            let line = self.line(&self.web.url(short));
            let file = self.out.join(text(&line["warc"], "file"));
            let offset = line["warc"]["offset"].to_string();
            let arguments = [
                "extract",
                "--payload",
                file.to_str().expect("text"),
                &offset,
            ];
            if let Some((accepted, payload)) = warc::warcio(&arguments) {
                assert!(accepted, "{}", String::from_utf8_lossy(&payload));
                let page = self.web.page(text(line, "url")).expect("it is ours");
                let expected = self
                    .web
                    .fill_in(page.served.as_ref().expect("it has a body"));
                assert!(payload == expected, "{short}");
            }
        }
    }

    fn check_payloads(&self) {
        let mut ways = BTreeSet::new();
        for line in self.results.iter().filter(|line| !line["warc"].is_null()) {
            let record = Record::read(&member(&self.out, &line["warc"]));
            assert_eq!(record.field("warc-type"), Some("response"));
            assert_eq!(record.field("warc-target-uri"), line["url"].as_str());
            assert_eq!(record.block.len() as u64, line["bytes_wire"], "{line}");
            let reply = record.reply();
            let status = format!("HTTP/1.1 {}", line["status"]);
            assert!(reply.status_line.starts_with(&status), "{line}");
            assert_eq!(text(line, "digest"), reply.digest, "{line}");
            let reported = record.field("warc-payload-digest");
            let expected = (!reply.chunked).then_some(reply.digest.as_str());
            assert_eq!(reported, expected, "{line}");
            assert_eq!(line["bytes_body"], reply.decoded.len(), "{line}");
            ways.insert((reply.chunked, reply.gzipped));
            let Some(page) = self.web.page(text(line, "url")) else {
                continue;
            };
            if let Some(served) = &page.served {
                assert!(reply.decoded == self.web.fill_in(served), "{line}");
            }
        }
        // Chunked and gzipped, chunked, and with a length.
        let expected = [(true, true), (true, false), (false, false)];
        assert_eq!(ways, BTreeSet::from(expected));
    }
}

/// Checks what is true of every result line.
fn check_line(line: &Value) {
    let keys: Vec<&str> = line
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect();
    for key in KEYS {
        assert!(keys.contains(key), "{key} is missing: {line}");
    }
    assert!(
        !line["scopes"].as_array().expect("a list").is_empty(),
        "{line}"
    );
    let seconds = |key: &str| line[key].as_f64();
    let phases = [
        "dns",
        "connect",
        "tls_handshake",
        "request",
        "first_byte",
        "headers",
        "body",
    ];
    let ends: Vec<f64> = phases.iter().filter_map(|phase| seconds(phase)).collect();
    assert!(ends.is_sorted(), "{line}");
    assert!(ends.first().is_none_or(|first| *first >= 0.0), "{line}");
    if line["sent"].is_null() {
        assert!(line["status"].is_null(), "{line}");
        assert!(line["error"].is_object(), "{line}");
        assert!(
            line["lateness"].is_null() && line["latency"].is_null(),
            "{line}"
        );
        return;
    }
    assert!(wall(line, "sent") >= wall(line, "due"), "{line}");
    assert!(wall(line, "sent") >= wall(line, "started"), "{line}");
    assert!(
        seconds("lateness").is_some_and(|lateness| lateness >= 0.0),
        "{line}"
    );
    let latency = seconds("latency").expect("there was a head");
    let server_latency = seconds("server_latency").expect("there was a head");
    assert!(server_latency > 0.0 && latency >= server_latency, "{line}");
    assert_eq!(line["clock"], "kernel", "{line}");
    assert_eq!(line["version"], "HTTP/1.1", "{line}");
    let is_tls = text(line, "url").starts_with("https:");
    assert_eq!(line["tls"].is_object(), is_tls, "{line}");
    let is_new = line["reused"] == false;
    assert_eq!(line["connect"].is_number(), is_new, "{line}");
    assert_eq!(
        line["tls_handshake"].is_number(),
        is_new && is_tls,
        "{line}"
    );
    assert!(seconds("delay").is_some(), "{line}");
}

fn check_with_warcio(file: &std::path::Path) {
    if let Some((accepted, reported)) = warc::warcio(&["check", file.to_str().expect("text")]) {
        assert!(accepted, "{}", String::from_utf8_lossy(&reported));
    }
}

/// The gzip member that a result line points to.
fn member(out: &std::path::Path, place: &Value) -> Vec<u8> {
    let file = fs::read(out.join(text(place, "file"))).expect("it is there");
    let number = |key: &str| place[key].as_u64().expect("a number") as usize;
    file[number("offset")..][..number("length")].to_vec()
}

/// Both ends of a connection, and the request's number on it.
type Exchange = (String, String, u64);

fn exchange_of(served: &Served) -> Exchange {
    let ends = (served.from.clone(), served.at.clone());
    (ends.0, ends.1, served.connection_requests)
}

/// Keys that every line has, whatever happened.
const KEYS: &[&str] = &[
    "id",
    "parent",
    "seed",
    "final",
    "kind",
    "url",
    "method",
    "depth",
    "attempt",
    "scopes",
    "status",
    "error",
    "truncated",
    "redirect",
    "version",
    "content_type",
    "remote",
    "local",
    "reused",
    "tls",
    "bytes_wire",
    "bytes_body",
    "digest",
    "links",
    "robots",
    "warc",
    "started",
    "due",
    "sent",
    "dns",
    "connect",
    "tls_handshake",
    "request",
    "first_byte",
    "headers",
    "body",
    "ended",
    "latency",
    "server_latency",
    "clock",
    "lateness",
    "delay",
    "hold",
    "meta",
];
