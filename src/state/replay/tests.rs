//! Single rules of what is left.

mod histories;
mod rewriting;
mod seen_set;

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::base::keys::Keys;
use crate::base::rng::Rng;
use crate::frontier::job::Job;
use crate::frontier::request::PageKind;
use crate::state::compaction::{Compaction, Counted, Unreadable};
use crate::state::journal::{Framer, Reader};
use crate::state::outline::Outline;
use crate::state::record::{About, BlockAdmission, Entry, Fact, RunRecord, SpilledBlock};
use crate::wire::url::CrawlUrl;

const KEYS: [u8; 16] = [7; 16];

fn begin() -> Record {
    Record::Begin {
        keys: KEYS,
        settings: "{}".to_owned(),
    }
}

/// A page of its own URL.
fn entry(id: u64, replaces: u64) -> Entry {
    let url = CrawlUrl::parse(&format!("http://a.test/{id}")).expect("a URL");
    Entry {
        job: Job::seed(id, url),
        replaces,
        not_before: None,
    }
}

fn admitted(id: u64, replaces: u64) -> Record {
    Record::Admitted(entry(id, replaces))
}

fn offered(id: u64, replaces: u64) -> Record {
    Record::Offered(entry(id, replaces))
}

fn commit_record(epoch: u64) -> CommitRecord {
    CommitRecord {
        epoch,
        files: vec![("results.jsonl".to_owned(), epoch)],
        next_number: 0,
        at: epoch,
    }
}

fn commit(epoch: u64) -> [Record; 2] {
    [
        Record::EpochEnd(epoch),
        Record::Commit(commit_record(epoch)),
    ]
}

fn key_of(url: &str) -> u64 {
    Keys::from_bytes(KEYS).url(url).0
}

fn replay(records: impl IntoIterator<Item = Record>) -> Result<Restored, ReplayError> {
    let mut replay = Replay::new();
    for record in records {
        replay.push(record)?;
    }
    replay.finish()
}

/// What is left after a `Begin`, these records, and a commit.
fn committed(records: impl IntoIterator<Item = Record>) -> Restored {
    let records = [begin()].into_iter().chain(records).chain(commit(1));
    replay(records).expect("a journal")
}

fn numbers(entries: &OrderedEntries) -> Vec<u64> {
    entries.numbers().collect()
}

fn check_left(records: impl IntoIterator<Item = Record>, left: &[u64], offers: &[u64]) {
    let restored = committed(records);
    assert_eq!(numbers(&restored.admitted), left);
    assert_eq!(numbers(&restored.offered), offers);
}

#[test]
fn attempts_that_have_not_ended_are_left_and_all_leave_their_keys() {
    let restored = committed([
        admitted(2, 0),
        admitted(1, 0),
        admitted(3, 0),
        Record::Ended(2),
        Record::Ended(99),
    ]);
    assert_eq!(numbers(&restored.admitted), [1, 3]);
    let keys = [2, 1, 3].map(|id| key_of(&format!("http://a.test/{id}")));
    assert_eq!(restored.seen.into_vec(), keys);
    let host = Keys::from_bytes(KEYS).host("a.test").0;
    let seed_hosts = restored.seed_hosts.iter();
    assert!(seed_hosts.eq([(host, host)]), "it was a seed");
    assert_eq!((restored.keys, restored.settings.as_str()), (KEYS, "{}"));
    assert_eq!(restored.commit, Some(commit_record(1)));
}

#[test]
fn an_offer_waits_until_it_is_admitted_or_dropped() {
    let offers = || [offered(1, 0), offered(2, 0), offered(3, 0)];
    check_left(offers(), &[], &[1, 2, 3]);
    let answers = [admitted(2, 0), Record::Dropped(3), Record::Dropped(9)];
    check_left(offers().into_iter().chain(answers), &[2], &[1]);
    let end = [Record::Ended(1)];
    check_left(offers().into_iter().chain(end), &[], &[2, 3]);
}

#[test]
fn records_after_the_end_of_the_committed_epoch_do_not_count() {
    let restored = replay([
        begin(),
        admitted(1, 0),
        Record::SeedsTaken(5),
        Record::EpochEnd(1),
        admitted(2, 0),
        Record::Ended(1),
        Record::SeedsTaken(6),
        Record::Seen(vec![1]),
        Record::EpochEnd(2),
        admitted(3, 0),
        Record::Commit(commit_record(1)),
        admitted(4, 0),
    ]);
    let restored = restored.expect("a journal");
    assert_eq!(numbers(&restored.admitted), [1]);
    assert_eq!(restored.seen.into_vec(), [key_of("http://a.test/1")]);
    assert_eq!(restored.seed_hosts.iter().count(), 1);
    assert_eq!((restored.seeds_taken, restored.next_number), (5, 2));
}

#[test]
fn a_commit_covers_earlier_epochs_too() {
    let restored = replay([
        begin(),
        admitted(1, 0),
        Record::EpochEnd(1),
        admitted(2, 0),
        Record::EpochEnd(2),
        Record::Commit(commit_record(2)),
    ]);
    assert_eq!(numbers(&restored.expect("a journal").admitted), [1, 2]);
}

#[test]
fn without_a_commit_the_beginning_and_what_follows_it_directly_count() {
    let restored = replay([
        begin(),
        Record::SeedsTaken(7),
        Record::Seen(vec![1, 2]),
        Record::Seen(vec![3]),
        admitted(1, 0),
        Record::Seen(vec![4]),
        Record::SeedsTaken(2),
        Record::EpochEnd(1),
    ]);
    let restored = restored.expect("a journal");
    assert_eq!(restored.seen.into_vec(), [1, 2, 3]);
    assert!(restored.admitted.is_empty() && restored.commit.is_none());
    assert_eq!((restored.seeds_taken, restored.next_number), (7, 1));
}

#[test]
fn a_journal_begins_with_begin() {
    let check = |records: Vec<Record>, expected: ReplayError| {
        assert_eq!(replay(records).expect_err("not a journal"), expected);
    };
    check(vec![], ReplayError::NoBegin);
    check(vec![admitted(1, 0)], ReplayError::NoBegin);
    check(commit(1).into(), ReplayError::NoBegin);
    assert_eq!(ReplayError::NoBegin.code(), "journal.no_begin");
}

#[test]
fn epochs_end_in_order_and_are_committed_once() {
    let check = |records: Vec<Record>, expected: ReplayError| {
        let records = [begin()].into_iter().chain(records);
        assert_eq!(replay(records).expect_err("not a journal"), expected);
    };
    let order = ReplayError::EpochOrder { epoch: 2, last: 2 };
    check(vec![Record::EpochEnd(2), Record::EpochEnd(2)], order);
    let unknown = ReplayError::UnknownEpoch { epoch: 2 };
    check(
        vec![Record::EpochEnd(1), Record::Commit(commit_record(2))],
        unknown,
    );
    let [end, first] = commit(2);
    check(vec![end, first.clone(), first], unknown);
}

#[test]
fn a_successor_of_an_attempt_that_has_not_ended_is_dropped() {
    check_left([admitted(1, 0), admitted(2, 1)], &[1], &[]);
    check_left([admitted(1, 0), admitted(2, 1), admitted(3, 2)], &[1], &[]);
    check_left([admitted(1, 0), offered(2, 1)], &[1], &[]);
    let restored = committed([admitted(1, 0), admitted(2, 1)]);
    // It is offered again: its URL does not count as seen.
    assert_eq!(restored.seen.into_vec(), [key_of("http://a.test/1")]);
    assert_eq!(restored.next_number, 3);
}

#[test]
fn a_successor_of_an_ended_or_unknown_attempt_is_left() {
    let chain = || [admitted(1, 0), admitted(2, 1)];
    check_left(chain().into_iter().chain([Record::Ended(1)]), &[2], &[]);
    check_left([admitted(2, 1), offered(4, 3)], &[2], &[4]);
    let offer = [admitted(1, 0), offered(2, 1), Record::Ended(1)];
    check_left(offer, &[], &[2]);
}

#[test]
fn the_end_of_a_successor_ends_the_attempts_before_it() {
    let chain = || [admitted(1, 0), admitted(2, 1), admitted(3, 2)];
    let end = |number| chain().into_iter().chain([Record::Ended(number)]);
    check_left(end(3), &[], &[]);
    check_left(end(2), &[3], &[]);
    let mut keys = committed(end(3)).seen.into_vec();
    let mut expected = [1, 2, 3].map(|id| key_of(&format!("http://a.test/{id}")));
    keys.sort_unstable();
    expected.sort_unstable();
    assert_eq!(keys, expected);
}

#[test]
fn urls_that_the_seen_set_does_not_hold_leave_no_key() {
    let check = |kind: PageKind, redirects: u8, is_kept: bool| {
        let mut entry = entry(1, 0);
        (entry.job.kind, entry.job.redirects) = (kind, redirects);
        let restored = committed([Record::Admitted(entry), Record::Ended(1)]);
        assert_eq!(restored.seen.len(), usize::from(is_kept), "{kind}");
    };
    check(PageKind::Page, 1, true);
    check(PageKind::Sitemap, 0, true);
    check(PageKind::Sitemap, 1, false);
    check(PageKind::Robots, 0, false);
}

#[test]
fn the_next_number_is_beyond_all_numbers_and_that_of_the_commit() {
    let check = |record: Record, expected: u64| {
        assert_eq!(committed([record]).next_number, expected);
    };
    check(admitted(8, 0), 9);
    check(offered(8, 0), 9);
    check(offered(3, 8), 9);
    check(Record::Dropped(8), 9);
    check(Record::Ended(8), 9);
    check(Record::Ended(u64::MAX), u64::MAX);
    let mut last = commit_record(1);
    last.next_number = 50;
    let records = [
        begin(),
        admitted(8, 0),
        Record::EpochEnd(1),
        Record::Commit(last),
    ];
    assert_eq!(replay(records).expect("a journal").next_number, 50);
}

#[test]
fn a_compacted_journal_replaces_the_state_at_its_first_commit() {
    let mut records = vec![begin(), admitted(1, 0), Record::SeedsTaken(3)];
    records.extend(commit(4));
    records.extend([begin(), Record::Seen(vec![5]), admitted(6, 0)]);
    let before = replay(records.clone()).expect("a journal");
    assert_eq!(numbers(&before.admitted), [1]);
    assert_eq!(before.seen.into_vec(), [key_of("http://a.test/1")]);
    assert_eq!(before.commit, Some(commit_record(4)));
    // Its epochs may begin anew.
    records.extend(commit(1));
    let after = replay(records).expect("a journal");
    assert_eq!(numbers(&after.admitted), [6]);
    let seen = [5, key_of("http://a.test/6")];
    assert_eq!(
        (after.seen.into_vec(), after.seeds_taken),
        (seen.to_vec(), 0)
    );
    assert_eq!(after.commit, Some(commit_record(1)));
}

fn fact(name: &str, at: u64, value: &[u8]) -> Record {
    Record::Fact(Fact {
        about: About::Scope,
        name: name.to_owned(),
        at,
        value: value.to_owned(),
    })
}

#[test]
fn the_newest_fact_counts_also_without_a_commit() {
    let restored = replay(
        [begin(), fact("a", 1, b"x"), fact("b", 2, b"y")]
            .into_iter()
            .chain(commit(1))
            .chain([fact("a", 3, b"z"), admitted(1, 0), fact("b", 4, b"")]),
    )
    .expect("a journal");
    assert!(restored.admitted.is_empty());
    let known: Vec<Fact> = restored.facts.all().collect();
    let known = known.iter().filter(|fact| !fact.value.is_empty());
    let names: Vec<(&str, u64)> = known.map(|fact| (&*fact.name, fact.at)).collect();
    assert_eq!(names, [("a", 3)]);
    // That nothing is known any more is newer than what an older segment knows.
    let Record::Fact(old) = fact("b", 1, b"y") else {
        unreachable!("it was just made");
    };
    let mut facts = Facts::default();
    facts.add(old.about, (&old).into());
    facts.extend(restored.facts);
    assert_eq!(facts.into_known().count(), 1);
}

#[test]
fn a_crawl_is_quiet_if_a_commit_follows_and_nothing_else() {
    let check = |more: Vec<Record>, expected: bool| {
        let records = [begin(), fact("a", 1, b"x"), Record::Quiet];
        let restored = replay(records.into_iter().chain(more)).expect("a journal");
        assert_eq!(restored.is_quiet, expected);
    };
    check(Vec::new(), false);
    check(vec![Record::EpochEnd(1)], false);
    check(commit(1).into(), true);
    let after = |record| commit(1).into_iter().chain([record]).collect();
    check(after(admitted(1, 0)), false);
    check(after(fact("a", 2, b"y")), false);
    let between = |record| [record].into_iter().chain(commit(1)).collect();
    check(between(admitted(1, 0)), false);
    check(between(Record::Ended(1)), false);
}

#[test]
fn old_facts_about_robots_are_dropped_beyond_their_bound_a_few_at_a_time() {
    let mut before = 0;
    let mut facts = Facts::default();
    let fact = |about, number: u64| Fact {
        about,
        name: format!("{number:04}"),
        at: number,
        value: vec![1; 96],
    };
    for number in 0..1000 {
        for fact in [
            fact(About::Scope, number),
            fact(About::Robots, number % 500),
        ] {
            facts.add_within(fact.about, (&fact).into(), 10_000);
        }
        let robots = facts.kind(About::Robots);
        assert!(robots.bytes() <= 10_000);
        assert!(robots.len() + 8 >= before, "{before} {}", robots.len());
        before = robots.len();
    }
    let known: Vec<Fact> = facts.into_known().collect();
    let of = |about| known.iter().filter(move |fact| fact.about == about);
    assert_eq!(of(About::Scope).count(), 1000);
    let robots: Vec<u64> = of(About::Robots).map(|fact| fact.at).collect();
    assert!((90..=100).contains(&robots.len()), "{robots:?}");
    // They are the newest.
    assert!(robots.iter().copied().eq(500 - robots.len() as u64..500));
}

#[test]
fn counts_and_cancelled_requests_belong_to_their_epoch_also_in_a_rewritten_segment() {
    for about in [About::Counts, About::Cancelled, About::CancelledScope] {
        check_of_epoch(about);
    }
}

fn check_of_epoch(about: About) {
    let counts = |value: &[u8]| {
        Record::Fact(Fact {
            about,
            name: String::new(),
            at: 1,
            value: value.to_owned(),
        })
    };
    let records = || {
        let committed = [begin(), counts(b"old"), counts(b"new")].into_iter();
        committed.chain(commit(1)).chain([counts(b"lost")])
    };
    let check = |records: Vec<Record>| {
        let restored = replay(records).expect("a journal");
        let known: Vec<Vec<u8>> = restored.facts.into_known().map(|fact| fact.value).collect();
        assert_eq!(known, [b"new"]);
    };
    check(records().collect());
    let mut rewritten = Replay::new();
    for record in records() {
        rewritten.push(record).expect("they are in order");
    }
    check(rewritten.into_left().expect("a commit").collect());
}

#[test]
fn admissions_are_undone_in_steps_when_a_segment_that_was_resumed_is_rewritten() {
    const ENTRIES: u64 = 40_000;
    // The second is a retry of the first, which has not ended.
    let entries = [admitted(1, 0), admitted(2, 1)].into_iter();
    let entries = entries.chain((3..=ENTRIES).map(|id| admitted(id, 0)));
    let mut records: Vec<Record> = [begin()].into_iter().chain(entries).collect();
    let [end, last] = commit(1);
    let Record::Commit(resumed) = last.clone() else {
        panic!("it is a commit");
    };
    records.extend([end, last]);
    records.push(Record::Resumed(Resumption {
        settings: "{}".to_owned(),
        seeds_taken: 0,
        commit: resumed,
    }));
    let mut replay = Replay::with_committed(2, &[]);
    for record in records {
        replay.push(record).expect("they are in order");
    }
    let mut steps = 0;
    while replay.has_step() {
        replay.step();
        steps += 1;
    }
    assert!(steps >= ENTRIES / 4096, "{steps}");
    for record in commit(2) {
        replay.push(record).expect("they are in order");
    }
    let restored = replay.finish().expect("a journal");
    assert_eq!(restored.seen.len() as u64, ENTRIES - 1);
    assert_eq!(restored.admitted.len() as u64, ENTRIES - 1);
}

/// A block of the requests 2 and 3.
fn block_at(offset: u64) -> SpilledBlock {
    SpilledBlock {
        file: 0,
        offset,
        length: 9,
        origin: 1,
        priority: 0,
        requests: 2,
        first: 2,
    }
}

#[test]
fn requests_of_a_block_between_two_gaps_are_left_once() {
    let admitted_to_block = |offset| Record::AdmittedToBlock {
        block: block_at(offset),
        admission: BlockAdmission {
            requests: [2, 3]
                .map(|id| (id, key_of(&format!("http://a.test/{id}"))))
                .to_vec(),
            seed_host: None,
        },
    };
    let unspilled = |offset| Record::Unspilled { file: 0, offset };
    let moved_to = |offset| Record::Spill {
        block: block_at(offset),
        numbers: Vec::new(),
    };
    let check = |records: Vec<Record>, admitted: &[u64], blocks: &[u64]| {
        let mut replay = Replay::new();
        let push = |replay: &mut Replay, record| replay.push(record).expect("it may follow");
        for record in [begin()].into_iter().chain(commit(1)) {
            push(&mut replay, record);
        }
        replay.skip();
        records
            .into_iter()
            .for_each(|record| push(&mut replay, record));
        replay.skip();
        push(&mut replay, Record::Commit(commit_record(2)));
        let left = replay.finish().expect("a journal");
        let offsets: Vec<u64> = left.spilled.iter().map(|block| block.offset).collect();
        assert_eq!(
            (numbers(&left.admitted).as_slice(), &offsets[..]),
            (admitted, blocks)
        );
    };
    let read = [
        admitted_to_block(32),
        unspilled(32),
        admitted(2, 0),
        admitted(3, 0),
    ];
    check(read.to_vec(), &[2, 3], &[]);
    check(
        vec![admitted_to_block(32), unspilled(32), moved_to(64)],
        &[],
        &[64],
    );
    // One of them is in the gap.
    check(read[..3].to_vec(), &[2], &[32]);
}

#[test]
fn a_block_is_left_where_records_of_its_requests_are_missing() {
    let check = |before: Vec<Record>, after: Vec<Record>, is_left: bool, alone: Option<&[u64]>| {
        let mut replay = Replay::new();
        let block = Record::Spill {
            block: block_at(32),
            numbers: Vec::new(),
        };
        for record in [begin(), block].into_iter().chain(before) {
            replay.push(record).expect("it may follow");
        }
        replay.skip();
        for record in after.into_iter().chain(commit(1)) {
            replay.push(record).expect("it may follow");
        }
        let mut left = replay.finish().expect("a journal");
        assert_eq!(left.spilled.iter().count(), usize::from(is_left));
        let mut known = left.take_known().expect("it is damaged");
        let taken = known.take_block(&[entry(2, 0), entry(3, 0)]);
        let taken = taken.map(|entries| Vec::from_iter(entries.iter().map(|entry| entry.job.id)));
        assert_eq!(taken.as_deref(), alone);
    };
    let unspilled = || Record::Unspilled {
        file: 0,
        offset: 32,
    };
    // Nothing is missing, one is, or all are.
    let all = vec![unspilled(), admitted(2, 0), admitted(3, 0)];
    check(all.clone(), vec![], false, Some(&[]));
    check(all[..2].to_vec(), vec![], true, Some(&[3]));
    check(all[..1].to_vec(), vec![], true, None);
    // What shows that it was read is missing, and what became of one is there.
    check(vec![], vec![admitted(3, 0)], true, Some(&[2]));
    check(vec![], vec![Record::Ended(3)], true, Some(&[2]));
    check(vec![], vec![admitted(7, 3)], true, Some(&[2, 3]));
    check(vec![], vec![offered(7, 3)], true, Some(&[2, 3]));
    check(
        vec![],
        vec![admitted(7, 3), Record::Ended(7)],
        true,
        Some(&[2]),
    );
}
