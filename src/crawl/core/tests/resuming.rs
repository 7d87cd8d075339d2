//! Crawls that end at any turn and are continued from their journal, in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::base::rng::Rng;
use crate::base::shared::Shared;
use crate::base::time::Instant;
use crate::crawl::core::tests::trial::{config, run_for, web_resolver};
use crate::crawl::finish::FinishReason;
use crate::crawl::journal::state::{State, StateError};
use crate::crawl::{Crawler, Parts, Turn};
use crate::frontier::request::{PageKind, Request};
use crate::frontier::settings::Follow;
use crate::io::IoSettings;
use crate::io::sim::web::{Asked, Reply, Web};
use crate::io::sim::{Faults, Sim};
use crate::sink::Sink;
use crate::sink::commit::Epoch;
use crate::sink::directory::{QUEUE, SEEN, UNFINISHED};
use crate::sink::page::Page;
use crate::state::journal::Reader;
use crate::state::record::Record;
use crate::throttle::settings::ScopePatch;

const HOSTS: u64 = 5;
const PAGES: u64 = 30;
/// Crawls that are tried.
const SEEDS: u64 = 40;
/// Turns of a run that ends by itself.
const ALL_TURNS: usize = 1_000_000;

/// A page that links to others and to the next host; some redirect, some fail for a while or for ever.
fn answer(asked: &Asked, rng: &mut Rng) -> Reply {
    let number = asked.target.trim_start_matches('/').parse().unwrap_or(0);
    let after = Duration::from_millis(rng.below(40));
    match number % 10 {
        3 => Reply::status(302).field("location", format!("/{}", (number + 1) % PAGES)),
        5 => Reply::status(404),
        6 if number == 6 => Reply::reset(),
        7 => Reply::status(503),
        _ => {
            let host: u64 = asked
                .host
                .trim_start_matches('h')
                .trim_end_matches(".test")
                .parse()
                .unwrap_or(0);
            let links =
                [1, 2, 13].map(|step| format!("<a href=/{}>x</a>", (number + step) % PAGES));
            let next = format!("<a href=http://h{}.test/{number}>y</a>", (host + 1) % HOSTS);
            Reply::page(links.concat() + &next)
        }
    }
    .after(after)
}

/// A line, as far as a law is about it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    id: u64,
    /// The first attempt of its chain.
    root: u64,
    url: String,
    is_final: bool,
    is_robots: bool,
}

/// Lines that are committed in epochs.
#[derive(Clone, Default)]
struct Lines {
    open: Shared<Vec<Line>>,
    /// Those of the epoch under way.
    prepared: Shared<Option<(Epoch, Vec<Line>)>>,
    committed: Shared<Vec<Line>>,
}

impl Sink for Lines {
    fn put(&mut self, page: &mut Page) {
        self.open.borrow_mut().push(Line {
            id: page.id,
            root: page.root,
            url: page.url.clone(),
            is_final: page.is_final,
            is_robots: page.kind == PageKind::Robots,
        });
    }

    fn prepare(&mut self, epoch: Epoch) {
        let lines = std::mem::take(&mut *self.open.borrow_mut());
        *self.prepared.borrow_mut() = Some((epoch, lines));
    }

    fn committed(&mut self, epoch: Epoch) {
        let (prepared, lines) = self.prepared.borrow_mut().take().expect("it was prepared");
        assert_eq!(epoch, prepared);
        self.committed.borrow_mut().extend(lines);
    }
}

impl Lines {
    /// The crawl ended, and its last recorded epoch was this: later lines are gone.
    fn cut(&self, last: Option<Epoch>) {
        self.open.borrow_mut().clear();
        if let Some((epoch, lines)) = self.prepared.borrow_mut().take()
            && Some(epoch) == last
        {
            self.committed.borrow_mut().extend(lines);
        }
    }
}

fn out() -> &'static Path {
    Path::new("out")
}

/// Runs the crawl until it is over, or for so many turns; returns its end and what the disk has.
fn run(
    state: State,
    lines: &Lines,
    seed: u64,
    turns: usize,
    earlier: &BTreeMap<PathBuf, Vec<u8>>,
    rng: &mut Rng,
) -> (Option<FinishReason>, BTreeMap<PathBuf, Vec<u8>>) {
    let mut answers = Rng::from_seed(rng.next_u64());
    let web = Web::new(move |asked| answer(asked, &mut answers));
    let mut config = config(seed);
    config.frontier.follow = Follow::All;
    config.frontier.robots_obey = rng.below(2) == 0;
    config.frontier.retry_times = 2;
    // All requests fit into memory, or few, or one block.
    config.frontier.memory_max = [1 << 30, 3000, 1][rng.below(3) as usize];
    config.frontier.seen_memory_max = [1 << 30, 700, 200, 1][rng.below(4) as usize];
    config.state_sync = Duration::from_millis(rng.below(300));
    config.throttle.default.delay = Duration::from_millis(rng.below(30));
    config.throttle.default.concurrency = 3;
    if rng.below(4) == 0 {
        // Its requests leave memory when others wait on disk.
        let slow = ScopePatch {
            delay: Some(Duration::from_secs(61)),
            ..ScopePatch::default()
        };
        config.throttle.scopes.insert("h1.test".to_owned(), slow);
    }
    config.outage_breaker = false;
    config.stop_grace = Duration::from_millis(rng.below(200));
    // Of numbers of its own, so that the crawls stay as they were.
    let mut operator = Rng::from_seed(seed).fork(format!("operator of {turns} turns"));
    let is_last = turns == ALL_TURNS;
    if !is_last && operator.below(2) == 0 {
        config.frontier.pages_max = [0, 1 + operator.below(60)][operator.below(2) as usize];
        config.frontier.errors_max = [0, 1 + operator.below(8)][operator.below(2) as usize];
        let time = Duration::from_millis(1 + operator.below(3000));
        config.max_time = (operator.below(2) == 0).then_some(time);
    }
    let faults = Faults {
        disk_latency_max: Duration::from_millis(rng.below(80)),
        ..Faults::default()
    };
    let resolver = web_resolver();
    let mut io = Sim::with(rng.next_u64(), IoSettings::default(), faults, web.world());
    let mut files = earlier.clone();
    state.beginning().write_to(&mut files);
    io.put_files(files);
    let lacks_seed = state.seeds_taken() == Some(0);
    let mut parts = Parts::new(lines.clone());
    parts.state = Some(state);
    let config = config.finish().expect("a sound config");
    let mut crawler = Crawler::on(io, config, resolver, parts).expect("a crawler");
    if rng.below(3) == 0 {
        crawler.delay_admission(rng.next_u64());
    }
    if lacks_seed {
        let seed = Request::get("http://h0.test/0");
        crawler
            .handle()
            .submit_seed_at(seed, 1)
            .expect("there is room");
    }
    let stops = rng.below(4) == 0;
    let pauses_at = (operator.below(3) == 0).then(|| operator.below(400) as usize);
    let mut pausing = None;
    let mut reason = None;
    for turn in 0..turns {
        if pauses_at == Some(turn) {
            let handle = pausing.insert(crawler.handle());
            handle.pause();
        } else if pauses_at.is_some_and(|at| turn > at + 40) {
            // With its handle the pause is over.
            pausing = None;
        }
        if stops && turn == turns / 2 {
            crawler.stopper().stop();
        }
        if let Turn::Over(over) = crawler.turn(None) {
            reason = Some(over);
            break;
        }
    }
    let kept = crawler.io().files().iter().map(|(path, bytes)| {
        // Of what is not synced any part survives.
        let synced = crawler.io().synced(path);
        let more = rng.below((bytes.len() - synced) as u64 + 1) as usize;
        (path.clone(), bytes[..synced + more].to_vec())
    });
    (reason, kept.collect())
}

/// What of a crawl was in files.
#[derive(Clone, Copy, Debug, Default)]
struct InFiles {
    /// Whether requests waited there.
    has_requests: bool,
    /// Whether runs of the seen set were named by a commit.
    has_runs: bool,
    /// Whether runs were merged.
    has_merged: bool,
}

/// The lines of a crawl that ends `ends` times before it is over, and what was in files.
fn lines_of(seed: u64, ends: usize) -> (Vec<Line>, InFiles) {
    lines_with(seed, ends, |files| State::load_from(out(), files))
}

/// The same, if each run continues with what `load` makes of the files.
fn lines_with(
    seed: u64,
    ends: usize,
    mut load: impl FnMut(&mut BTreeMap<PathBuf, Vec<u8>>) -> Result<State, StateError>,
) -> (Vec<Line>, InFiles) {
    let mut rng = Rng::from_seed(seed);
    let lines = Lines::default();
    let mut segments: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
    let secret = [seed as u8; 16];
    let mut state = State::new(out(), "{}".to_owned(), secret).expect("it is short");
    let mut in_files = InFiles::default();
    for run_number in 0..10_000 {
        let turns = match run_number < ends {
            true => 1 + rng.below(400) as usize,
            false => ALL_TURNS,
        };
        let (reason, files) = run(state, &lines, seed, turns, &segments, &mut rng);
        // A run that is killed leaves some, which the next one removes.
        let mut made = files.keys().filter(|path| !segments.contains_key(*path));
        let unfinished = made.find(|path| path.display().to_string().ends_with(UNFINISHED));
        assert!(
            reason.is_none() || unfinished.is_none(),
            "seed {seed}: {unfinished:?} is left"
        );
        segments = files;
        let mut names = segments
            .keys()
            .filter_map(|path| path.file_name()?.to_str());
        in_files.has_requests |= names.any(|name| name.starts_with(QUEUE));
        state = match load(&mut segments) {
            // It ended before anything was durable.
            Err(StateError::None(_)) => {
                segments.clear();
                State::new(out(), "{}".to_owned(), secret).expect("it is short")
            }
            read => read.expect("it can be read"),
        };
        if let Some(left) = &state.restored {
            in_files.has_runs |= !left.runs.is_empty();
            let sizes = left.runs.iter().map(|run| run.keys);
            let (least, most) = (sizes.clone().min(), sizes.max());
            in_files.has_merged |= most.unwrap_or(0) >= 4 * least.unwrap_or(1 << 60);
        }
        lines.cut(state.commit().map(|commit| commit.epoch));
        if reason == Some(FinishReason::Finished) {
            assert_eq!(state.queued(), 0, "seed {seed}: all has ended");
            return (lines.committed.borrow().clone(), in_files);
        }
    }
    panic!("seed {seed}: the crawl does not end");
}

/// The URLs that have lines; each chain of attempts has one final line, and each URL at most one.
fn check(lines: &[Line], seed: u64) -> BTreeSet<String> {
    let lines: Vec<&Line> = lines.iter().filter(|line| !line.is_robots).collect();
    let finals = || lines.iter().filter(|line| line.is_final);
    let mut urls = BTreeSet::new();
    for line in finals() {
        let is_new = urls.insert(&line.url);
        assert!(is_new, "seed {seed}: {} has two final lines", line.url);
    }
    let roots: BTreeSet<u64> = lines.iter().map(|line| line.root).collect();
    let ended: BTreeSet<u64> = finals().map(|line| line.root).collect();
    assert_eq!(ended, roots, "seed {seed}: each chain has its end");
    assert_eq!(finals().count(), ended.len(), "seed {seed}: and no other");
    let numbers: BTreeSet<u64> = lines.iter().map(|line| line.id).collect();
    assert_eq!(
        numbers.len(),
        lines.len(),
        "seed {seed}: each line has a number"
    );
    lines.iter().map(|line| line.url.clone()).collect()
}

#[test]
fn each_admitted_url_has_one_final_line_whenever_the_crawl_ends() {
    let whole = check(&lines_of(0, 0).0, 0);
    assert!(whole.len() > 100, "{}", whole.len());
    let (mut spilled, mut runs, mut merged) = (0, 0, 0);
    for seed in 1..=SEEDS {
        let (lines, in_files) = lines_of(seed, 1 + seed as usize % 12);
        assert_eq!(check(&lines, seed), whole, "seed {seed}");
        spilled += u64::from(in_files.has_requests);
        runs += u64::from(in_files.has_runs);
        merged += u64::from(in_files.has_merged);
    }
    assert!(spilled > SEEDS / 2, "{spilled}: requests waited in files");
    assert!(runs > SEEDS / 2, "{runs}: keys were in runs");
    assert!(merged > SEEDS / 4, "{merged}: runs were merged");
}

/// The first requests to two hosts in a run of a minute, by host, and what the disk has then. It had `earlier`.
fn first_requests(
    state: State,
    mut earlier: BTreeMap<PathBuf, Vec<u8>>,
) -> (BTreeMap<String, Duration>, BTreeMap<PathBuf, Vec<u8>>) {
    let web = Web::new(|asked: &Asked| match (&*asked.host, &*asked.target) {
        ("slow.test", "/robots.txt") => Reply::text("user-agent: *\ncrawl-delay: 10\n"),
        _ => {
            let links = (0..30).map(|page| format!("<a href=/{page}>x</a>"));
            Reply::page(links.collect::<String>())
        }
    });
    let mut config = config(1);
    config.frontier.robots_obey = true;
    config.throttle.default.delay = Duration::from_secs(2);
    let resolver = web_resolver();
    let mut io = Sim::with(1, IoSettings::default(), Faults::default(), web.world());
    state.beginning().write_to(&mut earlier);
    io.put_files(earlier);
    let lacks_seeds = state.seeds_taken() == Some(0);
    let mut parts = Parts::new(Lines::default());
    parts.state = Some(state);
    let config = config.finish().expect("a sound config");
    let mut crawler = Crawler::on(io, config, resolver, parts).expect("a crawler");
    if lacks_seeds {
        for (position, host) in (1..).zip(["slow.test", "quick.test"]) {
            let seed = Request::get(format!("http://{host}/"));
            crawler
                .handle()
                .submit_seed_at(seed, position)
                .expect("there is room");
        }
    }
    run_for(&mut crawler, Duration::from_secs(15));
    let mut first = BTreeMap::new();
    for asked in web.asked() {
        let at = asked.at.saturating_since(Instant::START);
        first.entry(asked.host).or_insert(at);
    }
    (first, crawler.io().files().clone())
}

#[test]
fn each_scope_waits_for_a_full_gap_after_a_resume() {
    let new = State::new(out(), String::new(), [1; 16]).expect("it is short");
    let (_, files) = first_requests(new, BTreeMap::new());
    let state = State::load_from(out(), &files).expect("it can be read");
    let (first, _) = first_requests(state, files);
    assert!(first["quick.test"] >= Duration::from_secs(2), "{first:?}");
    assert!(first["quick.test"] < Duration::from_secs(3), "{first:?}");
    // Its robots.txt, too, waits for the delay that the earlier run found in it.
    assert!(first["slow.test"] >= Duration::from_secs(10), "{first:?}");
    assert!(first["slow.test"] < Duration::from_secs(11), "{first:?}");
}

/// The run that continues a crawl is killed before its first commit.
#[test]
fn what_a_run_was_given_is_kept_though_it_never_committed() {
    let new = State::new(out(), "first".to_owned(), [1; 16]).expect("it is short");
    let (_, mut files) = first_requests(new, BTreeMap::new());
    let mut state = State::load_from(out(), &files).expect("it can be read");
    let left = state.queued();
    assert_eq!((state.settings(), state.seeds_taken()), ("first", Some(2)));
    state
        .set_inputs("second".to_owned(), 1)
        .expect("it is short");
    state.beginning().write_to(&mut files);
    let again = State::load_from(out(), &files).expect("it can be read");
    assert_eq!((again.settings(), again.seeds_taken()), ("second", Some(1)));
    assert_eq!(again.queued(), left);
}

/// The files that two runs leave: the journal of the second has what the first one left.
fn files_of_two_runs(seed: u64, rng: &mut Rng) -> BTreeMap<PathBuf, Vec<u8>> {
    let lines = Lines::default();
    let mut files = BTreeMap::new();
    for _ in 0..2 {
        let state = match State::load_from(out(), &files) {
            Err(StateError::None(_)) => State::new(out(), "{}".to_owned(), [1; 16]),
            read => read,
        };
        let state = state.expect("it can be read");
        let turns = 300 + rng.below(500) as usize;
        (_, files) = run(state, &lines, seed, turns, &files, rng);
        lines.cut(None);
    }
    files
}

/// The path of the last journal.
fn journal_of(files: &BTreeMap<PathBuf, Vec<u8>>) -> PathBuf {
    let is_journal = |path: &&PathBuf| path.display().to_string().contains("journal-");
    let journals = files.keys().filter(is_journal);
    journals.max().expect("there is one").clone()
}

#[test]
fn a_changed_byte_of_a_journal_is_reported_wherever_it_loses_a_request() {
    let (mut reported, mut kept) = (0, 0);
    for seed in 0..12 {
        let mut rng = Rng::from_seed(seed);
        let files = files_of_two_runs(seed, &mut rng);
        let Ok(whole) = State::load_from(out(), &files) else {
            continue;
        };
        let epoch = whole.commit().map(|commit| commit.epoch);
        let urls = |state: &State| BTreeSet::from_iter(state.queued_urls(&files));
        let whole = urls(&whole);
        let journal = journal_of(&files);
        for _ in 0..60 {
            let at = rng.below(files[&journal].len() as u64) as usize;
            let mut changed = files.clone();
            changed.get_mut(&journal).expect("it is there")[at] ^= 1 << rng.below(8);
            let context = format!("seed {seed}, byte {at} of {}", journal.display());
            match State::load_from(out(), &changed) {
                Ok(state) => {
                    // Of the last commit all is kept, or it is undone as a whole.
                    let is_undone = state.commit().map(|commit| commit.epoch) < epoch;
                    assert!(is_undone || urls(&state) == whole, "{context}");
                    kept += 1;
                }
                Err(StateError::Damaged(damage)) => {
                    // What the journal says of a file of requests may be undone, too.
                    let is_there = |range: &std::ops::Range<u64>| range.contains(&(at as u64));
                    let is_named = damage.path != journal || damage.ranges.iter().any(is_there);
                    assert!(is_named, "{context}: {damage}");
                    let salvaged = State::salvage_from(out(), &changed);
                    let salvaged = salvaged.unwrap_or_else(|error| panic!("{context}: {error}"));
                    let lost = whole.difference(&urls(&salvaged)).count();
                    assert!(lost <= 64, "{context}: {lost} requests are lost");
                    assert!(!salvaged.damages().is_empty(), "{context}");
                    reported += 1;
                }
                // Without its last commit the journal names runs that were removed after it.
                Err(StateError::Io { path, .. }) if path.display().to_string().contains(SEEN) => {
                    assert!(State::salvage_from(out(), &changed).is_ok(), "{context}");
                    reported += 1;
                }
                Err(error) => panic!("{context}: {error}"),
            }
        }
    }
    assert!(reported > 100 && kept > 0, "{reported} {kept}");
}

/// Changes the record of a block that was read, and some of the requests that follow it, if one is in this
/// journal. The block still has them.
fn damage_a_read_block(files: &mut BTreeMap<PathBuf, Vec<u8>>, rng: &mut Rng) {
    let journal = journal_of(files);
    let Ok(mut reader) = Reader::new(&files[&journal]) else {
        return;
    };
    let mut frames = Vec::new();
    while let Some((offset, payload)) = reader.next_payload() {
        frames.push((offset as usize, Record::decode(payload)));
    }
    let is_there = |file: &u64| {
        let name = format!("{QUEUE}{file:08}");
        files.keys().any(|path| path.ends_with(&name))
    };
    let blocks = frames.iter().filter_map(|(_, record)| match record {
        Ok(Record::Spill { block, .. } | Record::AdmittedToBlock { block, .. }) => {
            Some(((block.file, block.offset), block.requests as usize))
        }
        _ => None,
    });
    let blocks: BTreeMap<(u64, u64), usize> = blocks.collect();
    let read = frames.iter().enumerate().filter_map(|(at, (_, record))| {
        let Ok(Record::Unspilled { file, offset }) = record else {
            return None;
        };
        let requests = blocks.get(&(*file, *offset)).copied();
        let requests = requests.filter(|_| is_there(file));
        let is_request = |(_, record): &&(usize, _)| matches!(record, Ok(Record::Admitted(_)));
        let most = frames[at + 1..].iter().take_while(is_request).count();
        Some((at, requests.unwrap_or(0).min(most)))
    });
    let mut read: Vec<(usize, usize)> = read.collect();
    if rng.below(4) > 0 && read.iter().any(|(_, requests)| *requests > 0) {
        read.retain(|(_, requests)| *requests > 0);
    }
    if read.is_empty() {
        return;
    }
    let (at, requests) = read[rng.below(read.len() as u64) as usize];
    let more = rng.below(requests as u64 + 1) as usize;
    // Either the first of them is intact, or the last.
    let damaged = match rng.below(2) {
        0 => at..=at + more,
        _ => at + more..=at + requests,
    };
    let bytes = files.get_mut(&journal).expect("it is there");
    for (offset, _) in &frames[damaged] {
        bytes[offset + 9] ^= 1;
    }
}

#[test]
fn each_admitted_url_has_one_final_line_where_the_record_of_a_read_block_is_damaged() {
    let whole = check(&lines_of(0, 0).0, 0);
    let mut salvaged = 0;
    for seed in 1..=SEEDS {
        let mut damage = Rng::from_seed(seed).fork("damaged blocks");
        let (lines, _) = lines_with(seed, 1 + seed as usize % 12, |files| {
            damage_a_read_block(files, &mut damage);
            match State::load_from(out(), files) {
                Err(StateError::Damaged(_)) => {
                    salvaged += 1;
                    State::salvage_from(out(), files)
                }
                read => read,
            }
        });
        assert_eq!(check(&lines, seed), whole, "seed {seed}");
    }
    assert!(salvaged > SEEDS / 2, "{salvaged}");
}

#[test]
fn a_state_with_several_damaged_places_is_salvaged() {
    let (mut salvaged, mut refused) = (0, 0);
    for seed in 0..12 {
        let mut rng = Rng::from_seed(seed).fork("several places");
        let files = files_of_two_runs(seed, &mut rng);
        for _ in 0..60 {
            let mut changed = files.clone();
            for _ in 0..1 + rng.below(6) {
                let which = rng.below(changed.len() as u64) as usize;
                let bytes = changed.values_mut().nth(which).expect("it is there");
                let at = rng.below(bytes.len() as u64 + 1) as usize;
                let count = (1 + rng.below(300) as usize).min(bytes.len() - at);
                match rng.below(4) {
                    0 => bytes.truncate(at),
                    1 => bytes[at..at + count].fill(0),
                    2 => drop(bytes.drain(at..at + count)),
                    _ => (bytes[at..at + count].iter_mut())
                        .for_each(|byte| *byte = rng.next_u64() as u8),
                }
            }
            match State::salvage_from(out(), &changed) {
                Ok(state) => {
                    let mut again = changed.clone();
                    state.beginning().write_to(&mut again);
                    drop(state.queued_urls(&again));
                    salvaged += 1;
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(salvaged > 9 * refused, "{salvaged} {refused}");
}

#[test]
fn each_of_several_damaged_places_is_named_and_costs_few_requests() {
    let mut several = 0;
    for seed in 0..12 {
        let mut rng = Rng::from_seed(seed).fork("several changed bytes");
        let files = files_of_two_runs(seed, &mut rng);
        let Ok(whole) = State::load_from(out(), &files) else {
            continue;
        };
        let urls = |state: &State| BTreeSet::from_iter(state.queued_urls(&files));
        let whole = urls(&whole);
        let journal = journal_of(&files);
        for _ in 0..40 {
            let mut changed = files.clone();
            let bytes = changed.get_mut(&journal).expect("it is there");
            let places = 2 + rng.below(4);
            let mut at: Vec<u64> = Vec::new();
            for _ in 0..places {
                let place = rng.below(bytes.len() as u64);
                bytes[place as usize] ^= 1 << rng.below(8);
                at.push(place);
            }
            let context = format!("seed {seed}, bytes {at:?} of {}", journal.display());
            let Err(StateError::Damaged(damage)) = State::load_from(out(), &changed) else {
                continue;
            };
            if damage.path != journal {
                continue;
            }
            // What comes after the last commit was being written.
            let end = damage.ranges.last().expect("there is one").end;
            let is_named = |at: &u64| damage.ranges.iter().any(|range| range.contains(at));
            let unnamed = at.iter().find(|at| **at < end && !is_named(at));
            assert_eq!(unnamed, None, "{context}: {damage}");
            let salvaged = State::salvage_from(out(), &changed);
            let salvaged = salvaged.unwrap_or_else(|error| panic!("{context}: {error}"));
            let found = urls(&salvaged);
            let lost = whole.difference(&found).count() as u64;
            assert!(lost <= 64 * places, "{context}: {lost} requests are lost");
            several += u64::from(damage.ranges.len() > 1);
        }
    }
    assert!(several > 100, "{several}");
}
