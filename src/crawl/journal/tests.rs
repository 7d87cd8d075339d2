//! The journal on files in memory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::base::disk::{FileId, Written};
use crate::base::rng::Rng;
use crate::crawl::journal::seen::SeenStart;
use crate::crawl::journal::state::{State, path_of};
use crate::crawl::journal::writer::REWRITE_MIN;
use crate::crawl::spill::SpillStart;
use crate::state::journal::Reader;
use crate::state::record::{RunRecord, SpilledBlock};
use crate::state::replay::{Replay, Restored};
use crate::wire::url::CrawlUrl;

/// Length of the path of each URL.
const PATH: usize = 100;

/// A journal, and the files that it is in.
struct Trial {
    journal: Journal,
    files: BTreeMap<PathBuf, Vec<u8>>,
    open: BTreeMap<FileId, PathBuf>,
    now: Instant,
    /// Where its departures are.
    memory: Arc<[AtomicU64]>,
}

impl Trial {
    fn new() -> Self {
        let start = JournalStart {
            folder: PathBuf::from("out"),
            path: path_of(Path::new("out"), 1),
            segment: 1,
            crawl: 7,
            epoch: 0,
            keys: Keys::from_bytes([3; 16]),
            settings: "{}".to_owned(),
            seeds_taken: 0,
            continues: None,
            seen: SeenStart::default(),
        };
        let memory: Arc<[AtomicU64]> = (0..departures::WORDS).map(|_| AtomicU64::new(0)).collect();
        let mut journal = Journal::new(start, Duration::ZERO, Instant::START);
        journal.set_memory(SharedMemory::Simulated(Arc::clone(&memory)));
        Trial {
            journal,
            files: BTreeMap::new(),
            open: BTreeMap::new(),
            now: Instant::START,
            memory,
        }
    }

    /// A later run, which continues at the last commit.
    fn resumed(&self) -> Self {
        let mut files = self.files.clone();
        let state = State::load_from(Path::new("out"), &files).expect("it can be read");
        state.beginning().write_to(&mut files);
        Trial {
            journal: Journal::new(state.start, Duration::ZERO, self.now),
            files,
            open: BTreeMap::new(),
            now: self.now,
            memory: Arc::clone(&self.memory),
        }
    }

    fn perform(&mut self, mut job: DiskJob) {
        let is_reported = !matches!(
            job,
            DiskJob::Create { .. } | DiskJob::Open { .. } | DiskJob::Allocate { .. }
        );
        match &mut job {
            DiskJob::Create { file, path } => {
                self.files.insert(path.clone(), Vec::new());
                self.open.insert(*file, path.clone());
            }
            DiskJob::Open { file, path, length } => {
                assert_eq!(self.files[path].len() as u64, *length);
                self.open.insert(*file, path.clone());
            }
            DiskJob::Append { file, bytes, .. } => {
                let path = &self.open[file];
                self.files.get_mut(path).expect("a file").extend(&*bytes);
            }
            DiskJob::Finish { file, rename } => {
                let path = self.open.remove(file).expect("it is open");
                if let Some(name) = rename {
                    let bytes = self.files.remove(&path).expect("a file");
                    self.files.insert(name.clone(), bytes);
                }
            }
            DiskJob::Read {
                path,
                offset,
                bytes,
                ..
            } => {
                let start = *offset as usize;
                let end = start + bytes.len();
                bytes.copy_from_slice(&self.files[path][start..end]);
            }
            DiskJob::Remove { path, .. } => drop(self.files.remove(path)),
            _ => {}
        }
        if is_reported {
            self.journal.handle_disk(&job.done(Ok(Written::default())));
        }
    }

    /// A turn, as that of the core.
    fn turn(&mut self) {
        self.now += Duration::from_millis(30);
        if self.journal.next_timeout().is_some() {
            self.journal.begin_commit();
            self.journal.handle_prepared(Vec::new());
        }
        self.journal.record_commit(1 << 40, Wall(0));
        self.journal.advance_rewrite();
        self.journal.poll_committed(self.now);
        for job in self.journal.poll_jobs(self.now) {
            self.perform(job);
        }
    }

    fn record(&mut self, record: &Record) {
        let open = self.journal.open.as_mut().expect("it is on");
        open.record(|out| record.encode(out));
    }

    fn admit(&mut self, numbers: Range<u64>) {
        for number in numbers {
            self.journal.record_admitted(&job(number), 0, None);
        }
    }

    fn end(&mut self, numbers: Range<u64>) {
        for number in numbers {
            self.journal.record_ended(&job(number));
        }
    }

    fn is_held(&self) -> bool {
        self.journal
            .open
            .as_ref()
            .expect("it is on")
            .writer
            .is_held()
    }

    /// The number of the present segment.
    fn segment(&self) -> u64 {
        self.journal
            .open
            .as_ref()
            .expect("it is on")
            .writer
            .segment()
    }

    /// Checks that the segment has all of these keys.
    fn check(&self, keys: &dyn Fn(u64) -> Vec<u64>, hosts: &[(u64, u64)]) {
        let bytes = &self.files[&path_of(Path::new("out"), self.segment())];
        let restored = replay_of(bytes);
        let sorted = |mut keys: Vec<u64>| {
            keys.sort_unstable();
            keys
        };
        assert!(sorted(restored.seen.into_vec()) == keys(1_000_000));
        assert!(sorted(restored.undone) == keys(2_000_000));
        assert!(sorted(restored.requested) == keys(5_000_000));
        let mut found: Vec<(u64, u64)> = restored.seed_hosts.iter().collect();
        found.sort_unstable();
        assert!(found == hosts);
    }
}

/// What a segment leaves.
fn replay_of(bytes: &[u8]) -> Restored {
    let mut replay = Replay::new();
    for record in Reader::new(bytes).expect("a segment") {
        let record = record.expect("it is intact");
        replay.push(record).expect("they are in order");
    }
    replay.finish().expect("it has a beginning")
}

fn job(number: u64) -> Job {
    let url = format!("http://a.test/{number:0PATH$}");
    Job::seed(number, CrawlUrl::parse(&url).expect("a URL"))
}

#[test]
fn a_segment_is_rewritten_once_half_of_it_is_dead_also_by_a_later_run() {
    let mut trial = Trial::new();
    let turns = |trial: &mut Trial| {
        let first = trial.segment();
        (0..100).for_each(|_| trial.turn());
        trial.segment() > first
    };
    trial.admit(1..1001);
    assert!(!turns(&mut trial), "nothing is dead");
    trial.end(1..201);
    assert!(!turns(&mut trial), "a fifth is dead");
    let mut later = trial.resumed();
    assert!(!turns(&mut later), "it knows that as well");
    later.end(201..801);
    trial.end(201..801);
    assert!(turns(&mut later) && turns(&mut trial), "most of it is dead");
    assert!(!turns(&mut trial), "all that is left is needed");
    let mut later = trial.resumed();
    later.admit(2000..2400);
    assert!(!turns(&mut later));
    later.end(801..1001);
    later.end(2000..2400);
    assert!(turns(&mut later));
}

#[test]
fn records_that_are_held_count_among_what_waits_for_the_disk() {
    let mut trial = Trial::new();
    trial.admit(1..1000);
    trial.end(200..1000);
    for _ in 0..1000 {
        if trial.is_held() {
            break;
        }
        trial.turn();
    }
    assert!(trial.is_held(), "the segment is being rewritten");
    let many = (UNWRITTEN_MAX / PATH) as u64;
    trial.admit(10_000..10_000 + many / 10);
    assert!(!trial.journal.is_behind(), "a tenth of that is not much");
    trial.admit(1_000_000..1_000_000 + many);
    assert!(trial.is_held(), "no job of the disk is done");
    assert!(trial.journal.is_behind());
    for _ in 0..10_000 {
        trial.turn();
    }
    assert!(!trial.is_held() && !trial.journal.is_behind());
    let state = State::load_from(Path::new("out"), &trial.files).expect("it can be read");
    assert_eq!(state.queued() as u64, 199 + many / 10 + many);
}

#[test]
fn departures_are_in_memory_or_in_the_file_while_a_segment_is_rewritten() {
    let mut trial = Trial::new();
    trial.admit(1..1000);
    trial.end(200..1000);
    let keys = Keys::from_bytes([3; 16]);
    let mut departed = Vec::new();
    let mut in_memory = 0;
    let first = trial.segment();
    for _ in 0..1000 {
        if trial.is_held() && departed.is_empty() {
            // Several pieces, which are framed one after another.
            trial.admit(10_000..13_000);
        }
        let number = departed.len() as u64 + 1;
        if (trial.is_held() || number > 1) && number < 200 {
            trial.journal.record_departed(&job(number));
            departed.push(keys.url(job(number).url.as_str()).0);
        }
        trial.turn();
        if departed.is_empty() {
            continue;
        }
        let state = State::load_from(Path::new("out"), &trial.files).expect("it can be read");
        let mut known = state.restored.expect("it has a commit").requested;
        let words = trial.memory.iter();
        let words: Vec<u64> = words.map(|word| word.load(Ordering::Acquire)).collect();
        let left = departures::left_in(&words, 7);
        in_memory += usize::from(left.iter().any(|key| !known.contains(key)));
        known.extend(left);
        for (number, key) in (1..).zip(&departed) {
            assert!(known.contains(key), "{number} of {}", departed.len());
        }
        if departed.len() == 199 {
            break;
        }
    }
    assert!(trial.segment() > first && departed.len() == 199);
    assert!(in_memory > 5, "{in_memory}: records were held");
}

#[test]
fn keys_of_any_number_are_restored_also_after_a_rewrite() {
    for count in [1, 4096, 4097, 10_000] {
        let keys = |from: u64| (from..from + count).collect::<Vec<u64>>();
        let hosts: Vec<(u64, u64)> = keys(3_000_000).into_iter().zip(keys(4_000_000)).collect();
        let run = RunRecord {
            number: 1,
            keys: 1 << 40,
            length: 1 << 43,
        };
        let mut trial = Trial::new();
        let records = [
            Record::SeenRuns(vec![run]),
            Record::Seen(keys(1_000_000)),
            Record::SeenUndone(keys(2_000_000)),
            Record::SeedHosts(hosts.clone()),
            Record::Requested(keys(5_000_000)),
        ];
        for record in records {
            trial.record(&record);
        }
        // So that half of it is dead.
        let long = vec![0; (REWRITE_MIN + 100 * count) as usize];
        for value in [&long[..], &[]] {
            trial
                .journal
                .record_fact(About::Host, "a.test", Wall(0), value);
        }
        let first = trial.segment();
        for _ in 0..1000 {
            trial.turn();
            if trial.segment() > first && !trial.is_held() {
                break;
            }
            let committed = trial.journal.open.as_ref().expect("it is on").epoch.0;
            if committed < 2 {
                trial.journal.record_seeds_taken(1);
                continue;
            }
            trial.check(&keys, &hosts);
        }
        assert!(trial.segment() > first, "the segment is rewritten");
        trial.check(&keys, &hosts);
    }
}

#[test]
fn what_is_admitted_to_a_block_is_seen_and_its_seed_is_known() {
    let mut trial = Trial::new();
    let block = SpilledBlock {
        file: 0,
        offset: 32,
        length: 100,
        origin: 9,
        priority: 0,
        requests: 2,
        first: 5,
    };
    let requests = vec![(5, 55), (8, 88)];
    let seed_host = Some("www.a.test".to_owned());
    trial.journal.record_block(WrittenBlock {
        block,
        origin: BlockOrigin::Admitted {
            requests,
            seed_host,
        },
    });
    (0..10).for_each(|_| trial.turn());
    let file = SpillStart::new(Path::new("out"), 7).path_of(0);
    trial.files.insert(file, vec![0; 200]);
    let state = State::load_from(Path::new("out"), &trial.files).expect("it can be read");
    let left = state.restored.expect("it has a commit");
    let blocks: Vec<SpilledBlock> = left.spilled.iter().collect();
    assert_eq!(blocks, [block]);
    assert_eq!(left.seen.into_vec(), [55, 88]);
    let keys = Keys::from_bytes([3; 16]);
    let [host, domain] = ["www.a.test", "a.test"].map(|name| keys.host(name).0);
    assert!(left.seed_hosts.iter().eq([(host, domain)]));
}

#[test]
fn segments_are_rewritten_without_the_keys_of_runs() {
    let mut rng = Rng::from_seed(6);
    let mut trial = Trial::new();
    let mut runs = Vec::new();
    let (mut rewritten, mut shorter) = (0, 0);
    for number in 1..=60 {
        let (first, segment) = (1000 * number, trial.segment());
        let turns = |trial: &mut Trial, count: u64| (0..count).for_each(|_| trial.turn());
        trial.record(&Record::Seen((first..first + 400).collect()));
        turns(&mut trial, rng.below(4));
        trial.journal.record_seen_frozen(number);
        turns(&mut trial, rng.below(4));
        trial.record(&Record::Seen((first + 400..first + 500).collect()));
        turns(&mut trial, rng.below(4));
        runs.push(RunRecord {
            number,
            keys: 500,
            length: 1,
        });
        trial.journal.record_runs(&RunsChange {
            runs: Vec::new(),
            records: runs.clone(),
            has_frozen: true,
        });
        turns(&mut trial, 20);
        let bytes = &trial.files[&path_of(Path::new("out"), trial.segment())];
        let mut seen = replay_of(bytes).seen.into_vec();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(first + 400..first + 500), "{number}");
        rewritten += u64::from(trial.segment() > segment);
        shorter += u64::from(trial.segment() > segment && bytes.len() < 4000);
    }
    // Some runs are named in another segment than their keys.
    assert!(rewritten > 20 && shorter > 5, "{shorter} of {rewritten}");
}
