//! Segments are read whole, cut, damaged and while they are written.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::crawl::journal::progress::WATCHED;
use crate::crawl::journal::state::{State, StateError};
use crate::frontier::job::Job;
use crate::state::record::{About, CommitRecord, Entry, Fact, Resumption};
use crate::wire::url::CrawlUrl;

/// The journal of a crawl, with the bytes at which each frame begins.
struct Journal {
    bytes: Vec<u8>,
    frames: Vec<(u64, Record)>,
    framer: Framer,
}

impl Journal {
    fn new() -> Self {
        let framer = Framer::new(1, 77);
        let mut journal = Journal {
            bytes: framer.header(),
            frames: Vec::new(),
            framer,
        };
        journal.push(Record::Begin {
            keys: [7; 16],
            settings: "{}".to_owned(),
        });
        journal.push(Record::SeedsTaken(0));
        journal
    }

    fn push(&mut self, record: Record) {
        self.frames.push((self.bytes.len() as u64, record.clone()));
        self.framer.frame(&mut self.bytes, |out| record.encode(out));
    }

    fn admit(&mut self, id: u64) {
        let url = CrawlUrl::parse(&format!("http://a.test/{id}")).expect("a URL");
        self.push(Record::Admitted(Entry {
            job: Job::seed(id, url),
            replaces: 0,
            not_before: None,
        }));
    }

    /// A fact about one of three hosts.
    fn learn(&mut self, host: u64, at: u64) {
        self.push(Record::Fact(Fact {
            about: [About::Scope, About::Counts][(at % 4 / 3) as usize],
            name: format!("{}.test", host % 3),
            at,
            value: vec![at as u8; at as usize % 7],
        }));
    }

    /// Three epochs, and records after the last commit. Records of the next epoch come before a commit.
    fn of_three_epochs() -> Self {
        let mut journal = Journal::new();
        let mut id = 0;
        for epoch in 1..=3 {
            for _ in 0..4 {
                id += 1;
                journal.admit(id);
            }
            journal.push(Record::Ended(id - 1));
            journal.push(Record::EpochEnd(epoch));
            id += 1;
            journal.admit(id);
            journal.push(Record::Commit(CommitRecord {
                epoch,
                files: vec![("results.jsonl".to_owned(), epoch)],
                next_number: id + 1,
                at: epoch,
            }));
        }
        id += 1;
        journal.admit(id);
        journal.push(Record::Ended(1));
        journal
    }

    /// What is queued at the last commit of these bytes.
    fn queued(&self, until: u64) -> BTreeSet<u64> {
        self.restored(until).admitted.numbers().collect()
    }

    /// What the frames that begin before this offset leave.
    fn restored(&self, until: u64) -> Restored {
        let mut replay = Replay::new();
        for (_, record) in self.frames.iter().filter(|(at, _)| *at < until) {
            replay.push(record.clone()).expect("they are in order");
        }
        replay.finish().expect("it has a beginning")
    }
}

fn read(bytes: &[u8], on_damage: OnDamage) -> Result<State, StateError> {
    let beginning = Framer::new(0, 77);
    let mut first = beginning.header();
    let begin = Record::Begin {
        keys: [7; 16],
        settings: "{}".to_owned(),
    };
    for record in [begin, Record::SeedsTaken(0)] {
        beginning.frame(&mut first, |out| record.encode(out));
    }
    let files = BTreeMap::from([
        (PathBuf::from("out/state/journal-00000000"), first),
        (PathBuf::from("out/state/journal-00000001"), bytes.to_vec()),
    ]);
    State::read_files("out".as_ref(), &files, on_damage)
}

fn numbers(state: &State) -> BTreeSet<u64> {
    let restored = state.restored.as_ref().expect("it was read");
    restored.admitted.numbers().collect()
}

#[test]
fn every_changed_byte_before_the_last_committed_end_is_reported_and_the_rest_is_salvaged() {
    let journal = Journal::of_three_epochs();
    let length = journal.bytes.len() as u64;
    let whole = journal.queued(length);
    let start_of = |wanted: &dyn Fn(&Record) -> bool| {
        let mut found = journal.frames.iter().rev();
        found
            .find(|(_, record)| wanted(record))
            .expect("it is there")
            .0
    };
    let last_end = start_of(&|record| matches!(record, Record::EpochEnd(3)));
    let last_commit = start_of(&|record| matches!(record, Record::Commit(_)));
    let after_commit = start_of(&|record| matches!(record, Record::Admitted(_)));
    let before = journal.queued(last_commit);
    assert_ne!(before, whole);
    for at in 0..length {
        let mut changed = journal.bytes.clone();
        changed[at as usize] ^= 0x20;
        let frame = journal.frames.iter().rev().find(|(start, _)| *start <= at);
        let strict = read(&changed, OnDamage::Refuse);
        let salvaged = read(&changed, OnDamage::Skip).expect("the rest is intact");
        let found = numbers(&salvaged);
        // A frame that is longer now may hide the end of the epoch, but not the commit after it.
        let is_committed = at < last_end + 10;
        if is_committed {
            let error = strict.expect_err("it is damaged");
            let StateError::Damaged(damage) = &error else {
                panic!("byte {at}: {error}");
            };
            assert_eq!(Some(&**damage), salvaged.damages().first());
            assert!(
                damage.ranges.iter().any(|range| range.contains(&at)),
                "byte {at}: {damage:?}"
            );
            assert_eq!(error.code(), "journal.damaged");
            let text = error.to_string();
            assert!(
                text.contains("journal-00000001 is damaged") && text.contains("--salvage"),
                "{text}"
            );
        } else {
            let expected = match at {
                _ if (last_commit..after_commit).contains(&at) => &before,
                _ => &whole,
            };
            assert_eq!(
                numbers(&strict.expect("it is not committed")),
                *expected,
                "byte {at}"
            );
            assert!(salvaged.damages().is_empty());
        }
        // Only what the changed frame held is missing, and what ended in it is made again.
        let lost = match frame {
            Some((_, Record::Admitted(entry))) if is_committed => Some(entry.job.id),
            _ => None,
        };
        let base = if is_committed || at >= after_commit || at < last_commit {
            &whole
        } else {
            &before
        };
        for id in base {
            assert!(
                found.contains(id) || lost == Some(*id),
                "byte {at}: {id} is lost"
            );
        }
    }
}

/// Bytes that count how many of them were read.
struct Counted<'a>(&'a [u8], AtomicUsize);

impl SegmentBytes for Counted<'_> {
    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.1.fetch_add(bytes.len(), Relaxed);
        self.0.read_at(offset, bytes)
    }
}

/// Bytes that other bytes replace after so many reads.
struct Replaced<'a> {
    before: &'a [u8],
    after: &'a [u8],
    reads: AtomicUsize,
}

impl SegmentBytes for Replaced<'_> {
    fn length(&self) -> io::Result<u64> {
        self.now().length()
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.now().read_at(offset, bytes);
        let less = |reads: usize| Some(reads.saturating_sub(1));
        self.reads
            .fetch_update(Relaxed, Relaxed, less)
            .expect("it is less");
        read
    }
}

impl Replaced<'_> {
    fn now(&self) -> &[u8] {
        match self.reads.load(Relaxed) {
            0 => self.after,
            _ => self.before,
        }
    }

    /// Calls `check` with what is read of each of these bytes that others replace, after any number of reads.
    fn each(
        before: &[u8],
        after: &[u8],
        on_damage: OnDamage,
        check: impl Fn(Result<Option<Segment>, ReadError>),
    ) {
        for reads in 0.. {
            let reads = AtomicUsize::new(reads);
            let bytes = Replaced {
                before,
                after,
                reads,
            };
            let path = "journal-00000001".as_ref();
            let hints = Hints::default();
            check(Segment::read(
                path,
                1,
                &bytes,
                &hints,
                on_damage,
                &mut |_| {},
            ));
            if bytes.reads.into_inner() > 0 {
                return;
            }
        }
    }
}

#[test]
fn facts_are_those_of_all_whole_records_wherever_a_segment_ends() {
    let mut journal = Journal::new();
    for at in 1..=40 {
        journal.learn(at * 7 / 3, at);
        if at % 9 == 0 {
            journal.push(Record::EpochEnd(at));
            journal.learn(at, at + 100);
            journal.push(Record::Commit(CommitRecord {
                epoch: at,
                files: Vec::new(),
                next_number: 1,
                at,
            }));
        }
    }
    let facts_of = |restored: &Restored| restored.facts.all().collect::<Vec<Fact>>();
    let is_commit = |record: &Record| matches!(record, Record::Commit(_));
    let commits = journal
        .frames
        .iter()
        .filter(|(_, record)| is_commit(record));
    let (first_commit, _) = commits.clone().next().expect("there are several");
    let mut found = BTreeSet::new();
    for cut in *first_commit as usize + 40..=journal.bytes.len() {
        let bytes = &journal.bytes[..cut];
        let read = Sound::read(&bytes, 1, &mut |_| {}).expect("it can be read");
        let (replayed, outline) = read.expect("it has a commit");
        let restored = replayed.replay.finish().expect("it has a beginning");
        let expected = journal.restored(outline.intact);
        assert_eq!(facts_of(&restored), facts_of(&expected), "cut at {cut}");
        found.insert(facts_of(&restored).len());
    }
    assert!(found.len() > 1 && !found.contains(&0), "{found:?}");
}

#[test]
fn a_fact_that_cannot_be_read_is_named() {
    let mut journal = Journal::of_three_epochs();
    let at = journal.bytes.len() as u64;
    let framer = Framer::at(1, 77, at);
    framer.frame(&mut journal.bytes, |out| {
        Record::Fact(Fact {
            about: About::Scope,
            name: "a.test".to_owned(),
            at: 1,
            value: b"value".to_vec(),
        })
        .encode(out);
        out.push(0);
    });
    let error = read(&journal.bytes, OnDamage::Refuse).expect_err("a byte follows the fact");
    let expected = format!("the record at byte {at} cannot be read");
    assert!(error.to_string().contains(&expected), "{error}");
}

#[test]
fn a_segment_that_becomes_shorter_while_it_is_read_ends_at_its_last_whole_record() {
    let journal = Journal::of_three_epochs();
    let length = journal.bytes.len();
    let (second, _) = journal.frames[journal.frames.len() / 2];
    for cut in (second as usize..=length).rev().step_by(5) {
        let after = &journal.bytes[..cut];
        let starts = journal.frames.iter().map(|(start, _)| *start as usize);
        let whole = starts.chain([length]).filter(|start| *start <= cut).max();
        let whole = whole.expect("there are frames before that");
        let expected = [length, whole].map(|until| journal.queued(until as u64));
        for on_damage in [OnDamage::Refuse, OnDamage::Skip] {
            Replaced::each(&journal.bytes, after, on_damage, |read| {
                let segment = read.expect("nothing is damaged").expect("it has a commit");
                assert_eq!(segment.damage, None);
                let queued = segment.restored.admitted.numbers().collect();
                assert!(expected.contains(&queued), "cut at {cut}: {queued:?}");
            });
        }
    }
}

#[test]
fn a_segment_that_is_damaged_while_it_is_read_is_reported() {
    let journal = Journal::of_three_epochs();
    let mut after = journal.bytes.clone();
    let (third, _) = journal.frames[2];
    after[third as usize + 9] ^= 1;
    let whole = journal.queued(journal.bytes.len() as u64);
    Replaced::each(
        &journal.bytes,
        &after,
        OnDamage::Refuse,
        |read| match read {
            Ok(segment) => {
                let segment = segment.expect("it has a commit");
                // What was damaged had been read.
                let queued: BTreeSet<u64> = segment.restored.admitted.numbers().collect();
                assert_eq!(queued, whole);
            }
            Err(ReadError::Damaged(damage)) => assert_eq!(damage.ranges[0].start, third),
            Err(error) => panic!("{error:?}"),
        },
    );
}

#[test]
fn what_a_segment_knows_of_others_is_read_from_its_beginning() {
    let journal = Journal::of_three_epochs();
    let bytes = Counted(&journal.bytes, AtomicUsize::new(0));
    let mut hints = Hints::default();
    hints.add(&bytes).expect("it can be read");
    assert_eq!(hints.crawl, Some(77));
    assert!(matches!(hints.begin, Some(Record::Begin { keys, .. }) if keys == [7; 16]));
    assert!(journal.bytes.len() > 500, "there is more");
    let read = bytes.1.into_inner();
    assert!(read < 200, "{read} bytes are read");
}

#[test]
fn a_reader_says_how_far_it_has_come_some_hundred_times() {
    let mut journal = Journal::new();
    for id in 1..=10_000 {
        journal.admit(id);
    }
    journal.push(Record::EpochEnd(1));
    journal.push(Record::Commit(CommitRecord {
        epoch: 1,
        files: Vec::new(),
        next_number: 10_001,
        at: 1,
    }));
    let watched = |bytes: &[u8], on_damage| {
        let mut seen: Vec<LoadProgress> = Vec::new();
        let path = "out/state/journal-00000001".as_ref();
        let hints = Hints::default();
        let watch = &mut |progress| seen.push(progress);
        let read = Segment::read(path, 1, &bytes, &hints, on_damage, watch);
        assert!(read.is_ok_and(|segment| segment.is_some()));
        seen
    };
    let check = |seen: &[LoadProgress], phases: &[LoadPhase]| {
        assert!(seen.len() <= phases.len() * WATCHED as usize);
        let of_phase: Vec<&[LoadProgress]> =
            seen.chunk_by(|one, next| one.phase == next.phase).collect();
        let found: Vec<LoadPhase> = of_phase.iter().map(|seen| seen[0].phase).collect();
        assert_eq!(found, phases);
        for seen in of_phase {
            assert!((200..=WATCHED as usize).contains(&seen.len()));
            let is_of_all = |at: &LoadProgress| at.length == journal.bytes.len() as u64;
            assert!(seen.iter().all(is_of_all));
            assert!(seen.is_sorted_by(|one, next| one.read < next.read));
            assert!(seen.iter().all(|at| at.read <= at.length));
        }
    };
    let whole = watched(&journal.bytes, OnDamage::Refuse);
    check(&whole, &[LoadPhase::Check, LoadPhase::Records]);
    let mut changed = journal.bytes.clone();
    let (last, _) = journal.frames[9_000];
    changed[last as usize + 9] ^= 1;
    let salvaged = watched(&changed, OnDamage::Skip);
    check(&salvaged, &[LoadPhase::Check, LoadPhase::Records]);
}

#[test]
fn a_damaged_commit_is_reported_where_the_next_epoch_has_ended() {
    let mut journal = Journal::new();
    let commit = |epoch| {
        Record::Commit(CommitRecord {
            epoch,
            files: Vec::new(),
            next_number: 2,
            at: 1,
        })
    };
    for epoch in 1..=2 {
        journal.admit(epoch);
        journal.push(Record::EpochEnd(epoch));
        journal.push(commit(epoch));
    }
    let (second, _) = journal.frames[journal.frames.len() - 1];
    journal.admit(3);
    let changed = |journal: &Journal| {
        let mut bytes = journal.bytes.clone();
        bytes[second as usize + 9] ^= 1;
        read(&bytes, OnDamage::Refuse)
    };
    // The crawl may have ended while it was written.
    let state = changed(&journal).expect("it is undone");
    assert_eq!(numbers(&state), [1].into());
    // It was durable before the next epoch ended.
    journal.push(Record::EpochEnd(3));
    let error = changed(&journal).expect_err("it is damaged");
    assert!(matches!(&error, StateError::Damaged(damage) if damage.ranges[0].start == second));
}

#[test]
fn a_damaged_resumption_is_reported_and_the_rest_is_salvaged() {
    let mut journal = Journal::new();
    (1..=4).for_each(|id| journal.admit(id));
    journal.push(Record::Ended(1));
    journal.push(Record::EpochEnd(1));
    let commit = |epoch| CommitRecord {
        epoch,
        files: Vec::new(),
        next_number: 5,
        at: epoch,
    };
    journal.push(Record::Commit(commit(1)));
    // The crawl ended while this epoch was committed.
    journal.admit(5);
    journal.push(Record::Ended(2));
    journal.push(Record::EpochEnd(2));
    journal.admit(6);
    let start = journal.bytes.len();
    journal.push(Record::Resumed(Resumption {
        settings: "{}".to_owned(),
        seeds_taken: 0,
        commit: commit(1),
    }));
    let end = journal.bytes.len();
    journal.admit(5);
    journal.push(Record::Ended(3));
    journal.push(Record::EpochEnd(2));
    journal.push(Record::Commit(commit(2)));
    let whole = read(&journal.bytes, OnDamage::Refuse).expect("it is intact");
    assert_eq!(numbers(&whole), [2, 4, 5].into());
    for at in start..end {
        let mut changed = journal.bytes.clone();
        changed[at] ^= 0x20;
        let error = read(&changed, OnDamage::Refuse).expect_err("it is damaged");
        assert!(
            matches!(error, StateError::Damaged(_)),
            "byte {at}: {error}"
        );
        let salvaged = read(&changed, OnDamage::Skip).expect("the rest is intact");
        assert_eq!(numbers(&salvaged), numbers(&whole), "byte {at}");
    }
}

#[test]
fn what_a_segment_without_a_commit_knows_to_be_over_stays_so_in_the_next_one() {
    let fact = |value: &[u8]| {
        Record::Fact(Fact {
            about: About::Host,
            name: "a.test".to_owned(),
            at: 1,
            value: value.to_owned(),
        })
    };
    let mut journal = Journal::new();
    journal.push(fact(b"down"));
    journal.push(Record::EpochEnd(1));
    journal.push(Record::Commit(CommitRecord {
        epoch: 1,
        files: Vec::new(),
        next_number: 2,
        at: 1,
    }));
    let newer = Framer::new(2, 77);
    let mut bytes = newer.header();
    let begin = journal.frames[0].1.clone();
    for record in [begin, Record::SeedsTaken(0), fact(b"")] {
        newer.frame(&mut bytes, |out| record.encode(out));
    }
    let mut files = BTreeMap::from([
        (PathBuf::from("out/state/journal-00000001"), journal.bytes),
        (PathBuf::from("out/state/journal-00000002"), bytes),
    ]);
    for run in 0..3 {
        let state = State::load_from("out".as_ref(), &files).expect("it can be read");
        let restored = state.restored.as_ref().expect("it was read");
        assert_eq!(restored.facts.about(About::Host).count(), 0, "run {run}");
        state.beginning().write_to(&mut files);
    }
}

#[test]
fn a_hole_after_the_last_committed_end_is_what_a_power_cut_leaves() {
    let mut journal = Journal::new();
    journal.admit(1);
    journal.push(Record::EpochEnd(1));
    let hole = journal.bytes.len();
    journal.admit(2);
    let commit = journal.bytes.len();
    journal.push(Record::Commit(CommitRecord {
        epoch: 1,
        files: Vec::new(),
        next_number: 2,
        at: 1,
    }));
    journal.bytes[hole..commit].fill(0);
    let state = read(&journal.bytes, OnDamage::Refuse).expect("nothing of it was synced");
    assert_eq!(numbers(&state), [1].into());
}
