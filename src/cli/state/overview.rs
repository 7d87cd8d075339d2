//! A summary of a crawl's state.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use argiope::{Damage, ScopeFacts, StateContents, Wall};
use serde::Serialize;

use super::Crawl;
use crate::cli::progress::{bytes, span};
use crate::cli::resume::{STDOUT, committed_lines};

/// A summary of a crawl's state.
#[derive(Serialize)]
pub struct Overview {
    directory: String,
    /// The process that writes it: `process 4711 on crawler.test, since …`.
    running: Option<String>,
    commit: Option<LastCommit>,
    requests: Counts,
    /// URLs that ended.
    ended: usize,
    hosts: usize,
    longest_queues: Vec<HostQueue>,
    seeds: Seeds,
    holds: Holds,
    files: Vec<OutputFile>,
    state_bytes: u64,
    damage: Vec<DamagedFile>,
}

/// The last commit.
#[derive(Serialize)]
pub struct LastCommit {
    epoch: u64,
    at: Option<String>,
    /// Seconds since then.
    age: Option<f64>,
    /// The last line on standard output that it covers; null if lines go to a file.
    seq: Option<u64>,
}

/// Requests that are still to be fetched.
#[derive(Default, Serialize)]
struct Counts {
    total: usize,
    /// Admitted, and to be sent at any time.
    queued: usize,
    /// Waiting for a delayed redirect.
    delayed: usize,
    /// Without a decision on their admission.
    offered: usize,
    seeds: usize,
    retries: usize,
    kinds: BTreeMap<&'static str, usize>,
}

/// The requests of a host.
#[derive(Serialize)]
struct HostQueue {
    host: String,
    requests: usize,
    crawl_delay: Option<f64>,
}

/// Scopes that are held.
#[derive(Serialize)]
struct Holds {
    scopes: usize,
    /// The one that was recorded first.
    oldest: Option<Hold>,
    /// Hosts that are not asked for now, because they do not answer.
    hosts: usize,
}

/// A hold of a scope.
#[derive(Serialize)]
pub struct Hold {
    scope: String,
    recorded: String,
    until: String,
    /// Seconds from now.
    left: f64,
    source: &'static str,
}

/// How much of the list of seeds was taken.
#[derive(Serialize)]
struct Seeds {
    /// URLs and lines, from its start; null if all were.
    taken: Option<u64>,
    all: bool,
}

/// An output file or a segment of the journal.
#[derive(Serialize)]
struct OutputFile {
    name: String,
    /// Its length; null if there is no such file.
    bytes: Option<u64>,
    /// Length at the last commit; null for a segment.
    committed: Option<u64>,
}

/// A damaged segment.
#[derive(Serialize)]
pub struct DamagedFile {
    file: String,
    /// Damaged bytes, each from the first to the one after the last.
    ranges: Vec<(u64, u64)>,
    bytes: u64,
    records_before: u64,
    records_after: u64,
    unknown_ends: u64,
    requests: u64,
    #[serde(skip)]
    text: String,
}

impl Overview {
    /// Of this crawl, with so many of its longest queues.
    pub fn of(crawl: &Crawl, top: usize) -> Self {
        let contents = &crawl.contents;
        let mut requests = Counts::default();
        let mut queues: HashMap<String, usize> = HashMap::new();
        for queued in contents.queued() {
            requests.total += 1;
            *match (queued.is_offered(), queued.not_before()) {
                (true, _) => &mut requests.offered,
                (false, Some(at)) if at > crawl.now => &mut requests.delayed,
                (false, _) => &mut requests.queued,
            } += 1;
            requests.seeds += usize::from(queued.is_seed());
            requests.retries += usize::from(queued.attempt() > 1);
            *requests.kinds.entry(queued.kind().as_str()).or_default() += 1;
            let host = queued.url().scope_key();
            match queues.get_mut(host) {
                Some(count) => *count += 1,
                None => drop(queues.insert(host.to_owned(), 1)),
            }
        }
        let hosts = queues.len();
        let mut longest: Vec<(String, usize)> = queues.into_iter().collect();
        longest.sort_unstable_by(|(a, of_a), (b, of_b)| of_b.cmp(of_a).then(a.cmp(b)));
        longest.truncate(top);
        let delays: HashMap<&str, f64> = contents
            .crawl_delays()
            .map(|(host, delay)| (host, delay.as_secs_f64()))
            .collect();
        let taken = contents.state().seeds_taken();
        Overview {
            directory: crawl.folder.display().to_string(),
            running: crawl.owner.as_ref().map(ToString::to_string),
            commit: LastCommit::of(crawl),
            requests,
            ended: contents.ended(),
            hosts,
            longest_queues: (longest.into_iter())
                .map(|(host, requests)| HostQueue {
                    crawl_delay: delays.get(host.as_str()).copied(),
                    host,
                    requests,
                })
                .collect(),
            seeds: Seeds {
                taken,
                all: taken.is_none(),
            },
            holds: Holds::of(crawl),
            files: files(contents, &crawl.folder),
            state_bytes: contents.segments().iter().map(|file| file.length).sum(),
            damage: damages(contents),
        }
    }

    /// As lines.
    pub fn to_text(&self) -> String {
        let mut out = format!("the state of the crawl in {}\n", self.directory);
        let mut line = |name: &str, text: String| {
            writeln!(out, "  {name:<13} {text}").expect("a text takes all");
        };
        line("running", running_text(self.running.as_deref()));
        line("last commit", commit_text(self.commit.as_ref()));
        let counts = &self.requests;
        let kinds = counts.kinds.iter();
        let kinds: Vec<String> = kinds
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect();
        line(
            "requests",
            format!(
                "{} on {} hosts ({}): {} queued, {} delayed redirects, {} not decided; {} seeds, {} retries",
                counts.total,
                self.hosts,
                match kinds.is_empty() {
                    true => "none".to_owned(),
                    false => kinds.join(", "),
                },
                counts.queued,
                counts.delayed,
                counts.offered,
                counts.seeds,
                counts.retries
            ),
        );
        line("ended", format!("{} URLs", self.ended));
        line(
            "seeds",
            match self.seeds.taken {
                Some(taken) => format!("{taken} URLs and lines taken, and not all"),
                None => "all taken".to_owned(),
            },
        );
        line(
            "holds",
            match &self.holds.oldest {
                Some(hold) => format!(
                    "{} scopes; the oldest: {}",
                    self.holds.scopes,
                    hold.to_text()
                ),
                None if self.holds.hosts > 0 => "no scopes".to_owned(),
                None => "none".to_owned(),
            },
        );
        if self.holds.hosts > 0 {
            let count = self.holds.hosts;
            line(
                "no answer",
                format!("{count} hosts, which are not asked for now"),
            );
        }
        for file in &self.files {
            let length = match file.bytes {
                Some(length) => bytes(length),
                None => "moved away".to_owned(),
            };
            let committed = match file.committed {
                Some(committed) => format!(", {} committed", bytes(committed)),
                None => String::new(),
            };
            line("file", format!("{}: {length}{committed}", file.name));
        }
        for damaged in &self.damage {
            line("damage", damaged.as_text().to_owned());
        }
        for queue in &self.longest_queues {
            let delay = match queue.crawl_delay {
                Some(delay) => format!(", Crawl-delay {delay} s"),
                None => String::new(),
            };
            line(
                "queue",
                format!("{}: {}{delay}", queue.host, queue.requests),
            );
        }
        out.pop();
        out
    }
}

impl Holds {
    fn of(crawl: &Crawl) -> Self {
        let scopes = crawl.contents.scopes(crawl.now);
        let held = scopes.filter(|scope| scope.held_until.is_some());
        let mut count = 0;
        let oldest = held.inspect(|_| count += 1).min_by_key(|scope| scope.at);
        Holds {
            oldest: oldest.and_then(|scope| Hold::of(&scope, crawl.now)),
            scopes: count,
            hosts: crawl.contents.held_hosts(crawl.now).count(),
        }
    }
}

impl Hold {
    /// Of this scope, if it is held.
    pub fn of(scope: &ScopeFacts, now: Wall) -> Option<Self> {
        let (until, source) = scope.held_until?;
        Some(Hold {
            scope: scope.name.clone(),
            recorded: scope.at.to_string(),
            until: until.to_string(),
            left: until.saturating_since(now).as_secs_f64(),
            source: source.as_str(),
        })
    }

    /// In words.
    pub fn to_text(&self) -> String {
        let left = span(Duration::from_secs_f64(self.left));
        format!(
            "{} until {} ({}), {left} from now",
            self.scope, self.until, self.source
        )
    }
}

impl LastCommit {
    /// Of this crawl, if there was one.
    pub fn of(crawl: &Crawl) -> Option<Self> {
        let contents = &crawl.contents;
        let last = contents.state().commit()?;
        let epoch = last.epoch.0;
        let at = contents.committed_at();
        Some(LastCommit {
            epoch,
            at: at.map(|at| at.to_string()),
            age: at.map(|at| crawl.now.saturating_since(at).as_secs_f64()),
            seq: committed_lines(Some(last), &crawl.folder),
        })
    }
}

/// Whether it runs, in words.
pub fn running_text(owner: Option<&str>) -> String {
    match owner {
        Some(owner) => format!("yes: {owner}"),
        None => "no".to_owned(),
    }
}

/// The last commit, in words.
pub fn commit_text(commit: Option<&LastCommit>) -> String {
    let Some(commit) = commit else {
        return "none".to_owned();
    };
    let LastCommit {
        epoch,
        at,
        age,
        seq,
        ..
    } = commit;
    let lines = seq.map_or_else(String::new, |seq| {
        format!(", {seq} lines on standard output")
    });
    match (at, age) {
        (Some(at), Some(age)) => {
            let age = Duration::from_secs_f64(*age);
            format!("number {epoch} at {at}, {} ago{lines}", span(age))
        }
        _ => format!("number {epoch}{lines}"),
    }
}

/// The damaged files of a state.
pub fn damages(contents: &StateContents) -> Vec<DamagedFile> {
    let of = |damage: &Damage| DamagedFile {
        file: damage.path.display().to_string(),
        ranges: (damage.ranges.iter())
            .map(|range| (range.start, range.end))
            .collect(),
        bytes: damage.bytes(),
        records_before: damage.records_before,
        records_after: damage.records_after,
        unknown_ends: damage.unknown_ends,
        requests: damage.requests,
        text: damage.to_string(),
    };
    contents.state().damages().iter().map(of).collect()
}

impl DamagedFile {
    /// As a line.
    pub fn as_text(&self) -> &str {
        &self.text
    }
}

fn files(contents: &StateContents, folder: &Path) -> Vec<OutputFile> {
    let name = |path: &Path| {
        let name = path.strip_prefix(folder).unwrap_or(path);
        name.display().to_string()
    };
    let segments = contents.segments().iter().map(|file| OutputFile {
        name: name(&file.path),
        bytes: Some(file.length),
        committed: None,
    });
    let commit = contents.state().commit();
    let outputs = commit.into_iter().flat_map(|commit| &commit.files);
    let outputs = outputs.filter(|file| file.path != folder.join(STDOUT));
    let outputs = outputs.map(|file| {
        // A WARC file that is being written has another name.
        let mut open = file.path.clone().into_os_string();
        open.push(".open");
        let there = fs::metadata(&file.path).or_else(|_| fs::metadata(open));
        OutputFile {
            name: name(&file.path),
            bytes: there.ok().map(|there| there.len()),
            committed: Some(file.length),
        }
    });
    outputs.chain(segments).collect()
}
