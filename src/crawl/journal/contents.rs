//! What the state of a crawl holds, read while the crawl may be running.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::base::keys::Keys;
use crate::base::named::NamedValue;
use crate::base::time::{Wall, nanos};
use crate::crawl::config::{Config, DEFAULT_ENTRY, ScopeOrder, patch_text};
use crate::crawl::journal::progress::LoadProgress;
use crate::crawl::journal::seen::runs::{self, file_has};
use crate::crawl::journal::segment::OnDamage;
use crate::crawl::journal::state::{State, StateError, numbers};
use crate::crawl::spill::SpillStart;
use crate::frontier::job::Job;
use crate::frontier::request::{PageKind, Request};
use crate::frontier::saved_hosts::HoldSummary;
use crate::sink::commit::FileLength;
use crate::sink::directory::{QUEUE, SEEN};
use crate::state::record::{About, Entry, SpilledBlock};
use crate::state::replay::is_in_seen_set;
use crate::throttle::decision::DecisionSource;
use crate::throttle::engine::{ForgottenNames, summary_of};
use crate::wire::url::CrawlUrl;

/// What the state of a crawl holds at its last commit.
///
/// It is read without a lock and without any change: the crawl may be running. Damaged parts are left out;
/// [`State::damages`] has them.
#[derive(Debug)]
pub struct StateContents {
    state: State,
    segments: Vec<FileLength>,
    /// The files with requests that do not fit into memory. They can be read after the crawl has removed them.
    spilled: BTreeMap<u64, File>,
    /// The runs of the seen set, likewise, but for those that are missing.
    runs: BTreeMap<u64, File>,
}

/// A request that is still to be fetched.
#[derive(Clone, Debug)]
pub struct QueuedRequest {
    entry: Entry,
    is_offered: bool,
}

/// What the crawl has learned of a throttling scope.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScopeFacts {
    /// Its name.
    pub name: String,
    /// When this was recorded.
    pub at: Wall,
    /// The end of its hold, and why it is held.
    pub held_until: Option<(Wall, DecisionSource)>,
    /// The gap that was learned from refusals.
    pub gap: Option<Duration>,
    /// AutoThrottle's delay.
    pub delay: Option<Duration>,
    /// Number of replies and sends that count in a quota.
    pub costs: usize,
    /// The content of replies is suspected.
    pub is_suspected: bool,
}

/// Settings that were given to scopes while the crawl ran.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OrderedSettings {
    /// The name of a scope, a pattern, or `default`.
    pub scope: String,
    /// When they were recorded.
    pub at: Wall,
    /// The settings, as JSON like an entry of `THROTTLING_SCOPES`: an empty table in place of what the configuration
    /// sets.
    pub settings: String,
}

/// A host that is not asked for now, because it does not answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HostFacts {
    /// Its name, with the port.
    pub name: String,
    /// When this was recorded.
    pub at: Wall,
    /// Until when it is not asked.
    pub held_until: Wall,
    /// Failures since its last success.
    pub failures: u32,
    /// How often it was given up since.
    pub given_up: u32,
}

impl StateContents {
    /// Reads the state in an output directory.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn read(out: &Path) -> Result<Self, StateError> {
        StateContents::read_watched(out, |_| {})
    }

    /// As [`StateContents::read`]; it says how far it has come.
    pub(in crate::crawl) fn read_watched(
        out: &Path,
        mut watch: impl FnMut(LoadProgress),
    ) -> Result<Self, StateError> {
        let mut tries = READ_TRIES;
        loop {
            tries -= 1;
            match StateContents::read_once(out, tries == 0, &mut watch) {
                // A crawl that has just been resumed removes the files of its earlier runs, and one that runs
                // those that it has merged.
                Err(StateError::Io { cause, .. })
                    if cause.kind() == io::ErrorKind::NotFound && tries > 0 => {}
                read => return read,
            }
        }
    }

    /// `is_last`: files that are missing now are missing for good.
    fn read_once(
        out: &Path,
        is_last: bool,
        watch: impl FnMut(LoadProgress),
    ) -> Result<Self, StateError> {
        // Before the journal is read, which may take long: the crawl may remove them meanwhile.
        let spill = SpillStart::new(out, 0);
        let queues = numbers(out, QUEUE)?;
        let mut spilled = open_all(queues, |number| spill.path_of(number));
        let mut runs = open_all(numbers(out, SEEN)?, |number| runs::path_of(out, number));
        let mut state = State::read_folder(out, OnDamage::Skip, watch)?;
        let mut segments = Vec::new();
        for path in State::file_paths(out)? {
            match fs::metadata(&path) {
                Ok(metadata) => segments.push(FileLength::new(path, metadata.len())),
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
                Err(cause) => return Err(StateError::Io { path, cause }),
            }
        }
        let mut named = HashSet::new();
        for block in state.blocks() {
            named.insert(block.file);
            if spilled.contains_key(&block.file) {
                continue;
            }
            let path = state.spill.path_of(block.file);
            match File::open(&path) {
                Ok(file) => drop(spilled.insert(block.file, file)),
                Err(cause) if cause.kind() == io::ErrorKind::NotFound && is_last => {}
                Err(cause) => return Err(StateError::Io { path, cause }),
            }
        }
        // Those of missing files are damage.
        state.drop_blocks_unless(|_, block| spilled.contains_key(&block.file));
        spilled.retain(|number, _| named.contains(number));
        let named = state.restored.iter().flat_map(|left| &left.runs);
        for run in named {
            if runs.contains_key(&run.number) {
                continue;
            }
            let path = runs::path_of(out, run.number);
            match File::open(&path) {
                Ok(file) => drop(runs.insert(run.number, file)),
                Err(cause) if cause.kind() == io::ErrorKind::NotFound && is_last => {}
                Err(cause) => return Err(StateError::Io { path, cause }),
            }
        }
        Ok(StateContents {
            state,
            segments,
            spilled,
            runs,
        })
    }

    /// The state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Its files, and their lengths in bytes.
    pub fn segments(&self) -> &[FileLength] {
        &self.segments
    }

    /// When the last commit was recorded; `None` if there was none.
    pub fn committed_at(&self) -> Option<Wall> {
        let restored = self.state.restored.as_ref()?;
        restored.commit.as_ref().map(|commit| Wall(commit.at))
    }

    /// The requests that are still to be fetched, in order of admission; those that wait in files come last,
    /// and are read one block after the other. A block that cannot be read is logged and left out.
    pub fn queued(&self) -> impl Iterator<Item = QueuedRequest> {
        let restored = self.state.restored.iter();
        let in_journal = restored.flat_map(|left| {
            let of = |is_offered| move |entry| QueuedRequest { entry, is_offered };
            let admitted = left.admitted.iter().map(of(false));
            admitted.chain(left.offered.iter().map(of(true)))
        });
        let in_files = (self.state.blocks())
            .flat_map(|block| self.entries_of(&block))
            .map(|entry| QueuedRequest {
                entry,
                is_offered: false,
            });
        in_journal.chain(in_files)
    }

    /// The requests of a block.
    fn entries_of(&self, block: &SpilledBlock) -> Vec<Entry> {
        let mut bytes = vec![0; block.length as usize];
        let file = self.spilled.get(&block.file).expect("it was opened");
        let read = file.read_exact_at(&mut bytes, block.offset);
        let entries = read.and_then(|()| self.state.spill.entries_of(block, &bytes));
        entries.unwrap_or_else(|error| {
            let path = self.state.spill.path_of(block.file);
            log::error!(
                "{}: {error}; its {} requests are left out",
                path.display(),
                block.requests
            );
            Vec::new()
        })
    }

    /// Number of URLs that ended.
    pub fn ended(&self) -> usize {
        let Some(restored) = &self.state.restored else {
            return 0;
        };
        let in_memory: HashSet<u64> = restored.seen.iter().copied().collect();
        let in_runs: u64 = restored.runs.iter().map(|run| run.keys).sum();
        let keys = Keys::from_bytes(restored.keys);
        let queued: HashSet<u64> = (restored.admitted.iter())
            .filter(|entry| is_in_seen_set(&entry.job))
            .map(|entry| keys.url(entry.job.url.as_str()).0)
            .collect();
        let seen = in_memory.len() + in_runs as usize;
        let left = restored.undone.len() + restored.spilled.requests() as usize + queued.len();
        seen.saturating_sub(left)
    }

    /// Whether a request of this URL that is not queued has ended: a link to it is not admitted again.
    pub fn has_ended(&self, url: &CrawlUrl) -> bool {
        let key = self.state.keys().url(url.as_str()).0;
        let Some(left) = &self.state.restored else {
            return false;
        };
        left.seen.iter().any(|seen| *seen == key)
            || !left.undone.contains(&key) && self.has_in_runs(key.max(1))
    }

    /// Whether a run of the seen set has a key. A run that cannot be read is logged.
    fn has_in_runs(&self, key: u64) -> bool {
        let State {
            start, restored, ..
        } = &self.state;
        let mut runs = restored.iter().flat_map(|left| &left.runs);
        runs.any(|run| {
            let read = |_: &Path, offset, bytes: &mut [u8]| {
                let file = self.runs.get(&run.number);
                file.ok_or(io::ErrorKind::NotFound)?
                    .read_exact_at(bytes, offset)
            };
            let found = file_has(run, &start.folder, start.crawl, key, read);
            found.unwrap_or_else(|error| {
                let path = runs::path_of(&start.folder, run.number);
                log::error!("{}: {error}", path.display());
                false
            })
        })
    }

    /// What was learned of throttling scopes and still has an effect, in order of their names. Scopes that are
    /// as new are left out.
    pub fn scopes(&self, now: Wall) -> impl Iterator<Item = ScopeFacts> {
        let restored = self.state.restored.iter();
        let facts = restored.flat_map(|left| left.facts.about(About::Scope));
        let mut forgotten = ForgottenNames::default();
        if let Some(left) = &self.state.restored {
            let orders = left.facts.about(About::Forgotten);
            orders.for_each(|order| forgotten.restore(order.name, Wall(order.at)));
        }
        let mut facts: Vec<NamedValue<'_>> = facts.collect();
        facts.sort_unstable_by_key(|named| named.name);
        facts.into_iter().filter_map(move |named| {
            let NamedValue { name, at, value } = named;
            let at = Wall(at);
            // Which scopes are registrable domains depends on the configuration.
            let is_forgotten = forgotten.has_saved(name, at, || false);
            let summary = summary_of(value, now.saturating_since(at), is_forgotten)?;
            let end_of = |left: Duration| Wall(at.0.saturating_add(nanos(left)));
            let held_until = summary.hold.map(|(left, source)| (end_of(left), source));
            Some(ScopeFacts {
                name: name.to_owned(),
                at,
                held_until: held_until.filter(|(until, _)| *until > now),
                gap: summary.gap,
                delay: summary.delay,
                costs: summary.costs,
                is_suspected: summary.is_suspected,
            })
        })
    }

    /// The settings that were given while the crawl ran and apply to a scope: by its name, by patterns, and by
    /// `default`, the most specific first. `config`: the configuration of the crawl.
    pub fn ordered_settings(&self, scope: &str, config: &Config) -> Vec<OrderedSettings> {
        let restored = self.state.restored.iter();
        let facts = restored.flat_map(|left| left.facts.about(About::ScopeSettings));
        let mut orders: BTreeMap<&str, OrderedSettings> = facts
            .filter_map(|NamedValue { name, at, value }| {
                let order = ScopeOrder::parse(std::str::from_utf8(value).ok()?)?;
                let ordered = OrderedSettings {
                    scope: name.to_owned(),
                    at: Wall(at),
                    settings: patch_text(&order.patch),
                };
                Some((name, ordered))
            })
            .collect();
        let mut settings = config.throttle().clone();
        for name in orders.keys() {
            settings.scopes.entry((*name).to_owned()).or_default();
        }
        let names = settings.entries_of(scope).into_iter();
        let names = names.chain([DEFAULT_ENTRY]);
        names.filter_map(|name| orders.remove(name)).collect()
    }

    /// The hosts that are not asked for now, because they do not answer, in order of their names.
    pub fn held_hosts(&self, now: Wall) -> impl Iterator<Item = HostFacts> {
        let restored = self.state.restored.iter();
        let facts = restored.flat_map(|left| left.facts.about(About::Host));
        let mut facts: Vec<NamedValue<'_>> = facts.collect();
        facts.sort_unstable_by_key(|named| named.name);
        facts.into_iter().filter_map(move |named| {
            let NamedValue { name, at, value } = named;
            let at = Wall(at);
            let summary = HoldSummary::of(value, now.saturating_since(at))?;
            Some(HostFacts {
                name: name.to_owned(),
                at,
                held_until: Wall(now.0.saturating_add(nanos(summary.left))),
                failures: summary.failures.into(),
                given_up: summary.given_up.into(),
            })
        })
    }

    /// When the robots.txt of an origin (`http://a.test:81`) was fetched, if its result is in the state.
    pub fn robots_fetched_at(&self, origin: &str) -> Option<Wall> {
        let left = self.state.restored.as_ref()?;
        let fact = left.facts.kind(About::Robots).get(origin)?;
        (!fact.value.is_empty()).then_some(Wall(fact.at))
    }

    /// The hosts whose robots.txt has a Crawl-delay, with the port if that is not the usual one.
    pub fn crawl_delays(&self) -> impl Iterator<Item = (&str, Duration)> {
        let restored = self.state.restored.iter();
        let delays = restored.flat_map(|left| left.facts.crawl_delays().iter());
        delays.map(|delay| (delay.name, Duration::from_nanos(delay.at)))
    }
}

/// The files of these numbers that can be opened: others may be gone, and it is not known whether the state names
/// them.
fn open_all(numbers: Vec<u64>, path_of: impl Fn(u64) -> PathBuf) -> BTreeMap<u64, File> {
    let open = |number| Some((number, File::open(path_of(number)).ok()?));
    numbers.into_iter().filter_map(open).collect()
}

impl QueuedRequest {
    fn job(&self) -> &Job {
        &self.entry.job
    }

    /// The number of its attempt.
    pub fn id(&self) -> u64 {
        self.job().id
    }

    /// The number of the request, which is that of its first attempt: [`Handle::cancel`](crate::Handle::cancel) takes
    /// it.
    pub fn root(&self) -> u64 {
        self.job().root()
    }

    /// The number of the attempt that led to it; `None` if there was none.
    pub fn parent(&self) -> Option<u64> {
        Some(self.job().parent).filter(|parent| *parent != 0)
    }

    /// Its URL.
    pub fn url(&self) -> &CrawlUrl {
        &self.job().url
    }

    /// Its purpose.
    pub fn kind(&self) -> PageKind {
        self.job().kind
    }

    /// Whether it is a seed, or the target of a seed's redirect.
    pub fn is_seed(&self) -> bool {
        self.job().seed
    }

    /// Number of the attempt at this URL, from 1.
    pub fn attempt(&self) -> u32 {
        self.job().attempt.into()
    }

    /// Number of redirects that led to it.
    pub fn redirects(&self) -> u32 {
        self.job().redirects.into()
    }

    /// Whether its admission is not decided.
    pub fn is_offered(&self) -> bool {
        self.is_offered
    }

    /// Wall-clock time before which it is not sent: of a delayed redirect.
    pub fn not_before(&self) -> Option<Wall> {
        self.entry.not_before.map(Wall)
    }

    /// The request that has it fetched by another crawl.
    pub fn request(&self) -> Request {
        self.job().to_request()
    }

    /// Whether both wait in one queue, if their URLs have the same scopes.
    pub fn shares_queue_with(&self, other: &QueuedRequest) -> bool {
        let (one, other) = (self.job(), other.job());
        let names = |job: &Job| job.extra.as_ref()?.own_named_scopes();
        one.url.origin() == other.url.origin()
            && one.route() == other.route()
            && names(one).map(|(names, _)| names) == names(other).map(|(names, _)| names)
    }

    /// Whether it is fetched before another of its queue.
    pub fn is_before(&self, other: &QueuedRequest) -> bool {
        self.job().rank() > other.job().rank()
    }
}

/// How often the files are listed again because one was removed before it was read.
const READ_TRIES: u32 = 10;
