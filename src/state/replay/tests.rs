//! Single rules, and random histories against the definition of what is left.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::base::rng::Rng;
use crate::state::compaction::{Compaction, Unreadable};
use crate::state::journal::{Framer, Reader};
use crate::state::outline::Outline;
use crate::state::record::SpilledBlock;
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
    assert_eq!(restored.seen, keys);
    let host = Keys::from_bytes(KEYS).host("a.test").0;
    assert_eq!(restored.seed_hosts, [(host, host)], "it was a seed");
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
    assert_eq!(restored.seen, [key_of("http://a.test/1")]);
    assert_eq!(restored.seed_hosts.len(), 1);
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
    assert_eq!(restored.seen, [1, 2, 3]);
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
    assert_eq!(restored.seen, [key_of("http://a.test/1")]);
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
    let mut keys = committed(end(3)).seen;
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
    assert_eq!(before.seen, [key_of("http://a.test/1")]);
    assert_eq!(before.commit, Some(commit_record(4)));
    // Its epochs may begin anew.
    records.extend(commit(1));
    let after = replay(records).expect("a journal");
    assert_eq!(numbers(&after.admitted), [6]);
    let seen = [5, key_of("http://a.test/6")];
    assert_eq!((after.seen.as_slice(), after.seeds_taken), (&seen[..], 0));
    assert_eq!(after.commit, Some(commit_record(1)));
}

fn run(number: u64) -> RunRecord {
    RunRecord {
        number,
        keys: 1,
        length: 1,
    }
}

#[test]
fn keys_of_a_run_are_left_out_once_it_is_named() {
    let keys = |records: &[Record]| committed(records.to_vec()).seen;
    let key = |id: u64| key_of(&format!("http://a.test/{id}"));
    let mut records = vec![
        admitted(1, 0),
        Record::Seen(vec![5]),
        Record::SeenFrozen(7),
        admitted(2, 0),
    ];
    let mut found = keys(&records);
    found.sort_unstable();
    let mut all = [key(1), 5, key(2)];
    all.sort_unstable();
    assert_eq!(found, all, "it is not complete");
    records.push(Record::SeenRuns(vec![run(3)]));
    assert_eq!(keys(&records).len(), 3, "that is another run");
    records.push(Record::SeenRuns(vec![run(3), run(7)]));
    assert_eq!(keys(&records), [key(2)]);
    records.push(Record::SeenRuns(vec![run(8)]));
    records.push(Record::Ended(1));
    assert_eq!(keys(&records), [key(2)], "they were merged");
    assert_eq!(committed(records).runs, [run(8)]);
}

#[test]
fn requests_that_are_read_from_a_block_leave_no_second_key() {
    let block = SpilledBlock {
        file: 0,
        offset: 0,
        length: 9,
        origin: 0,
        priority: 0,
        requests: 2,
        first: 1,
    };
    let restored = committed([
        admitted(1, 0),
        admitted(2, 0),
        Record::Spill {
            block,
            numbers: vec![1, 2],
        },
        Record::Unspilled { file: 0, offset: 0 },
        admitted(1, 0),
        admitted(2, 0),
        admitted(3, 0),
    ]);
    let keys = [1, 2, 3].map(|id| key_of(&format!("http://a.test/{id}")));
    assert_eq!(restored.seen, keys);
}

#[test]
fn a_reset_of_the_seen_set_leaves_what_follows_it() {
    let restored = committed([
        admitted(1, 0),
        Record::SeenFrozen(1),
        Record::SeenUndone(vec![9]),
        admitted(2, 0),
        Record::SeenRuns(vec![run(4)]),
        Record::SeenReset,
        Record::SeenRuns(vec![run(5)]),
        Record::Seen(vec![6]),
    ]);
    assert_eq!((restored.seen, restored.runs), (vec![6], vec![run(5)]));
    assert!(restored.undone.is_empty());
    assert_eq!(numbers(&restored.admitted), [1, 2]);
}

#[test]
fn a_successor_whose_key_is_in_a_run_is_undone_until_it_is_admitted_again() {
    let key = key_of("http://a.test/2");
    let mut records = vec![
        admitted(1, 0),
        admitted(2, 1),
        Record::SeenFrozen(1),
        Record::SeenRuns(vec![run(1)]),
    ];
    let restored = committed(records.clone());
    assert_eq!((restored.seen, restored.undone), (Vec::new(), vec![key]));
    let ended = records.iter().cloned().chain([Record::Ended(1)]);
    assert!(committed(ended).undone.is_empty());
    // The run that resumes the crawl records it, and admits the URL under another number.
    records = vec![
        Record::SeenRuns(vec![run(1)]),
        Record::SeenUndone(vec![key]),
    ];
    assert_eq!(committed(records.clone()).undone, [key]);
    let mut again = entry(9, 0);
    again.job.url = CrawlUrl::parse("http://a.test/2").expect("a URL");
    records.push(Record::Admitted(again));
    let restored = committed(records);
    assert_eq!((restored.seen, restored.undone), (vec![key], Vec::new()));
}

#[test]
fn runs_and_keys_beside_them_are_the_admitted_urls_of_random_histories() {
    let mut rng = Rng::from_seed(22);
    let mut undone = 0;
    for round in 0..500 {
        let (mut records, mut number, mut open) = (Vec::new(), 0, Vec::new());
        let (mut memory, mut frozen, mut in_runs) = (Vec::new(), None, BTreeSet::new());
        let mut runs = Vec::new();
        for _ in 0..40 {
            match rng.below(8) {
                0..3 => {
                    number += 1;
                    let replaces = match open.is_empty() {
                        false if rng.chance(0.5) => open[rng.below(open.len() as u64) as usize],
                        _ => 0,
                    };
                    records.push(admitted(number, replaces));
                    memory.push(key_of(&format!("http://a.test/{number}")));
                    open.push(number);
                }
                3 if !open.is_empty() => {
                    let at = rng.below(open.len() as u64) as usize;
                    records.push(Record::Ended(open.swap_remove(at)));
                }
                4 if frozen.is_none() => {
                    number += 1;
                    records.push(Record::SeenFrozen(number));
                    frozen = Some((number, std::mem::take(&mut memory)));
                }
                5 => {
                    if let Some((number, keys)) = frozen.take() {
                        in_runs.extend(keys);
                        // The others are merged into one, by chance.
                        if rng.chance(0.5) {
                            runs = vec![run(1000 + number)];
                        }
                        runs.push(run(number));
                        records.push(Record::SeenRuns(runs.clone()));
                    }
                }
                _ => {}
            }
        }
        let restored = committed(records.clone());
        let mut found: BTreeSet<u64> = in_runs.iter().copied().collect();
        assert!(restored.undone.iter().all(|key| found.remove(key)));
        undone += restored.undone.len();
        let beside = restored
            .seen
            .iter()
            .filter(|key| found.insert(**key))
            .count();
        assert_eq!(
            beside,
            restored.seen.len(),
            "{round}: none is in memory twice"
        );
        // Without runs, all are in memory.
        let is_of_runs =
            |record: &Record| matches!(record, Record::SeenFrozen(_) | Record::SeenRuns(_));
        records.retain(|record| !is_of_runs(record));
        let expected: BTreeSet<u64> = committed(records).seen.into_iter().collect();
        assert_eq!(found, expected, "{round}");
    }
    assert!(undone > 100, "{undone}");
}

/// What is left, in a form that can be compared.
#[derive(Debug, PartialEq, Eq)]
struct Summary {
    admitted: Vec<(u64, u64)>,
    offered: Vec<(u64, u64)>,
    spilled: Vec<SpilledBlock>,
    seen: Vec<u64>,
    seed_hosts: Vec<(u64, u64)>,
    crawl_delays: Vec<(String, u64)>,
    commit: Option<CommitRecord>,
    seeds_taken: u64,
    next_number: u64,
}

impl Summary {
    fn of(restored: Restored) -> Self {
        let (mut seen, mut seed_hosts) = (restored.seen, restored.seed_hosts);
        seen.sort_unstable();
        seed_hosts.sort_unstable();
        Summary {
            admitted: pairs(&restored.admitted),
            offered: pairs(&restored.offered),
            seen,
            seed_hosts,
            spilled: restored.spilled.iter().collect(),
            crawl_delays: restored.crawl_delays,
            commit: restored.commit,
            seeds_taken: restored.seeds_taken,
            next_number: restored.next_number,
        }
    }

    /// By definition: the committed records as a whole are looked at once for each question.
    fn by_definition(records: &[Record]) -> Option<Self> {
        let (summary, _) = Summary::and_dropped(&without_voids(records))?;
        Some(summary)
    }

    /// The same of records without voids, and the numbers of attempts that a resume drops.
    fn and_dropped(records: &[Record]) -> Option<(Self, BTreeSet<u64>)> {
        let is_begin = |record: &Record| matches!(record, Record::Begin { .. });
        let last_commit = records.iter().enumerate().rev().find_map(|(at, record)| {
            let Record::Commit(commit) = record else {
                return None;
            };
            let is_end = |record: &Record| matches!(record, Record::EpochEnd(epoch) if *epoch == commit.epoch);
            let end = records[..at].iter().rposition(is_end).expect("it ended");
            Some((commit.clone(), end + 1))
        });
        let (commit, records) = match last_commit {
            Some((commit, end)) => (Some(commit), &records[..end]),
            None => {
                let start = records.iter().rposition(is_begin)?;
                let valid = records[start + 1..].iter().take_while(|record| {
                    matches!(
                        record,
                        Record::SeedsTaken(_) | Record::Seen(_) | Record::SeedHosts(_)
                    )
                });
                (None, &records[..start + 1 + valid.count()])
            }
        };
        let records = &records[records.iter().rposition(is_begin)?..];
        let mut entries: BTreeMap<u64, &Entry> = BTreeMap::new();
        let (mut admitted, mut offered) = (BTreeSet::new(), BTreeSet::new());
        let (mut over, mut answered) = (BTreeSet::new(), BTreeSet::new());
        let (mut seen, mut seeds_taken, mut greatest) = (Vec::new(), 0, 0);
        let mut seed_hosts: Vec<(u64, u64)> = Vec::new();
        let keys = Keys::from_bytes(KEYS);
        let hosts_of = |url: &CrawlUrl| {
            let [host, domain] = [url.host_str(), url.registrable_domain()];
            (keys.host(host).0, keys.host(domain).0)
        };
        let mut spilled: Vec<(SpilledBlock, &[u64])> = Vec::new();
        let mut crawl_delays = BTreeMap::new();
        for record in records {
            match record {
                Record::Admitted(entry) => {
                    entries.insert(entry.job.id, entry);
                    admitted.insert(entry.job.id);
                    greatest = greatest.max(entry.job.id);
                }
                Record::Offered(entry) => {
                    entries.insert(entry.job.id, entry);
                    offered.insert(entry.job.id);
                    greatest = greatest.max(entry.job.id);
                }
                Record::Dropped(number) => {
                    answered.insert(*number);
                    greatest = greatest.max(*number);
                }
                Record::Ended(number) => {
                    over.insert(*number);
                    greatest = greatest.max(*number);
                }
                Record::Seen(keys) => seen.extend_from_slice(keys),
                Record::SeedHosts(hosts) => seed_hosts.extend_from_slice(hosts),
                Record::CrawlDelay { host, delay } => {
                    crawl_delays.insert(host.clone(), *delay);
                }
                Record::SeedsTaken(lines) => seeds_taken = *lines,
                Record::Spill { block, numbers } => {
                    spilled.push((*block, numbers));
                    greatest = numbers.iter().copied().fold(greatest, u64::max);
                    let jobs = numbers.iter().filter_map(|number| entries.get(number));
                    let jobs = jobs.map(|entry| &entry.job);
                    seed_hosts.extend(jobs.map(|job| hosts_of(&job.url)));
                }
                Record::Unspilled { file, offset } => {
                    spilled.retain(|(block, _)| (block.file, block.offset) != (*file, *offset));
                }
                _ => {}
            }
        }
        greatest = entries
            .values()
            .map(|entry| entry.replaces)
            .fold(greatest, u64::max);
        // An offer may end, too, unless it was dropped.
        let is_known = |number: &u64| {
            admitted.contains(number) || (offered.contains(number) && !answered.contains(number))
        };
        over.retain(is_known);
        // What a successor that is over replaced is over, as often as that adds one.
        loop {
            let before = over.len();
            let replaced: Vec<u64> = over.iter().map(|number| entries[number].replaces).collect();
            over.extend(replaced.iter().filter(|number| is_known(number)));
            if over.len() == before {
                break;
            }
        }
        let mut live: BTreeSet<u64> = admitted.difference(&over).copied().collect();
        let in_blocks = spilled.iter().flat_map(|(_, numbers)| *numbers);
        in_blocks.for_each(|number| _ = live.remove(number));
        let left = |numbers: Vec<u64>| {
            let pairs = numbers
                .iter()
                .map(|number| (*number, entries[number].replaces));
            pairs
                .filter(|(_, replaces)| !live.contains(replaces))
                .collect()
        };
        let is_open = |number: &&u64| {
            !admitted.contains(number) && !answered.contains(number) && !over.contains(number)
        };
        // A successor of one that is left is admitted again.
        let is_undone =
            |number: &u64| live.contains(number) && live.contains(&entries[number].replaces);
        let counts = admitted.union(&over).filter(|number| !is_undone(number));
        seen.extend(counts.map(|number| key_of(entries[number].job.url.as_str())));
        seen.sort_unstable();
        let jobs = admitted.union(&over).map(|number| &entries[number].job);
        let seeds = jobs.filter(|job| job.seed).map(|job| hosts_of(&job.url));
        seed_hosts.extend(seeds);
        seed_hosts.sort_unstable();
        seed_hosts.dedup();
        let open: Vec<u64> = offered.iter().filter(is_open).copied().collect();
        let dropped = live.iter().chain(&open).copied();
        let dropped = dropped.filter(|number| live.contains(&entries[number].replaces));
        let dropped = dropped.collect();
        let summary = Summary {
            admitted: left(live.iter().copied().collect()),
            offered: left(open),
            spilled: spilled.iter().map(|(block, _)| *block).collect(),
            seen,
            seed_hosts,
            crawl_delays: crawl_delays.into_iter().collect(),
            next_number: commit
                .as_ref()
                .map_or(1, |commit| commit.next_number)
                .max(greatest + 1),
            commit,
            seeds_taken,
        };
        Some((summary, dropped))
    }
}

/// The records without those that a later run made void, and without what it dropped.
fn without_voids(records: &[Record]) -> Vec<Record> {
    let mut records = records.to_vec();
    let is_resumed = |record: &Record| matches!(record, Record::Resumed(_));
    while let Some(at) = records.iter().position(is_resumed) {
        let mut after = records.split_off(at);
        let Record::Resumed(Resumption {
            commit,
            seeds_taken,
            ..
        }) = after.remove(0)
        else {
            unreachable!("it was just looked for");
        };
        let is_end =
            |record: &Record| matches!(record, Record::EpochEnd(end) if *end == commit.epoch);
        records.truncate(records.iter().rposition(is_end).expect("it ended"));
        records.push(Record::SeedsTaken(seeds_taken));
        records.push(Record::EpochEnd(commit.epoch));
        records.push(Record::Commit(commit));
        let (_, dropped) = Summary::and_dropped(&records).expect("it has a commit");
        for record in &mut records {
            if let Record::Admitted(entry) | Record::Offered(entry) = record
                && dropped.contains(&entry.job.id)
            {
                *record = Record::Dropped(entry.job.id);
            }
        }
        records.append(&mut after);
    }
    records
}

/// The blocks that were written, by offset, each with the numbers of its requests.
fn spills_of(records: &[Record]) -> Vec<(u64, Vec<u64>)> {
    let spills = records.iter().filter_map(|record| match record {
        Record::Spill { block, numbers } => Some((block.offset, numbers.clone())),
        _ => None,
    });
    spills.collect()
}

/// The numbers of entries, each with that of the one it replaces.
fn pairs(entries: &OrderedEntries) -> Vec<(u64, u64)> {
    let pairs = entries.iter().map(|entry| (entry.job.id, entry.replaces));
    pairs.collect()
}

/// A random history: admissions, offers and their answers, ends with and without successors, epochs that
/// are committed late or not at all, compactions, resumptions.
fn history(rng: &mut Rng, length: usize) -> Vec<Record> {
    let mut records = vec![begin()];
    let mut next = 1;
    // Numbers of attempts that are under way, and of offers.
    let (mut open, mut offers): (Vec<u64>, Vec<(u64, u64)>) = (Vec::new(), Vec::new());
    let (mut epoch, mut uncommitted) = (0, Vec::new());
    let mut blocks: Vec<(u64, Vec<u64>)> = Vec::new();
    let mut linked = BTreeSet::new();
    // Numbers of the present beginning.
    let mut begun = 1;
    let pick = |rng: &mut Rng, count: usize| rng.below(count as u64) as usize;
    while records.len() < length {
        match rng.below(23) {
            // A run ends, and another continues at the last commit.
            22 if rng.chance(0.3) => {
                let left = replay(records.iter().cloned()).expect("a journal");
                let Some(commit) = left.commit else { continue };
                epoch = commit.epoch;
                uncommitted.clear();
                offers = pairs(&left.offered);
                open = numbers(&left.admitted);
                // What it spilled is still where it was.
                let is_left = |offset: u64| left.spilled.iter().any(|at| at.offset == offset);
                blocks = spills_of(&records);
                blocks.retain(|(offset, _)| is_left(*offset));
                begun = next;
                records.push(Record::Resumed(Resumption {
                    settings: "{}".to_owned(),
                    seeds_taken: rng.below(100),
                    commit,
                }));
            }
            0..4 => {
                records.push(admitted(next, 0));
                open.push(next);
                next += 1;
            }
            // A retry or a redirect, before or after the end of what it replaces.
            4..9 if !open.is_empty() => {
                let replaced = open.swap_remove(pick(rng, open.len()));
                let is_end_first = rng.chance(0.4);
                if is_end_first {
                    records.push(Record::Ended(replaced));
                } else if rng.chance(0.5) {
                    // Its end comes later or never.
                    open.push(replaced);
                }
                linked.extend([next, replaced]);
                match rng.chance(0.3) {
                    true => {
                        records.push(offered(next, replaced));
                        offers.push((next, replaced));
                    }
                    false => {
                        records.push(admitted(next, replaced));
                        open.push(next);
                    }
                }
                next += 1;
            }
            9..12 if !open.is_empty() => {
                records.push(Record::Ended(open.swap_remove(pick(rng, open.len()))));
            }
            12 => {
                records.push(offered(next, 0));
                offers.push((next, 0));
                next += 1;
            }
            13 if !offers.is_empty() => {
                let (number, replaces) = offers.swap_remove(pick(rng, offers.len()));
                records.push(match rng.chance(0.5) {
                    true => Record::Dropped(number),
                    // One that is cancelled ends without having been admitted.
                    false if rng.chance(0.3) => Record::Ended(number),
                    false => {
                        open.push(number);
                        admitted(number, replaces)
                    }
                });
            }
            14 => records.push(Record::SeedsTaken(rng.below(100))),
            15..17 => {
                epoch += 1;
                records.push(Record::EpochEnd(epoch));
                uncommitted.push(epoch);
            }
            17..19 if !uncommitted.is_empty() => {
                let at = pick(rng, uncommitted.len());
                let mut commit = commit_record(uncommitted[at]);
                // A block of numbers is reserved.
                commit.next_number = next + 2;
                uncommitted.drain(..=at);
                records.push(Record::Commit(commit));
            }
            20 if !open.is_empty() => {
                // Only what replaces nothing and is not replaced.
                let is_alone = |number: &u64| {
                    !linked.contains(number) && *number >= begun && !number.is_multiple_of(3)
                };
                let (numbers, rest): (Vec<u64>, Vec<u64>) =
                    open.iter().partition(|number| is_alone(number));
                open = rest;
                let offset = records.len() as u64;
                let block = SpilledBlock {
                    file: 0,
                    offset,
                    length: 1,
                    origin: 1,
                    priority: 0,
                    requests: numbers.len() as u64,
                    first: numbers.first().copied().unwrap_or(0),
                };
                blocks.push((offset, numbers.clone()));
                records.push(Record::Spill { block, numbers });
            }
            21 if !blocks.is_empty() => {
                let (offset, numbers) = blocks.swap_remove(pick(rng, blocks.len()));
                records.push(Record::Unspilled { file: 0, offset });
                records.extend(numbers.iter().map(|number| admitted(*number, 0)));
                open.extend(numbers);
            }
            // Numbers of before the compaction end as well: they are unknown then.
            19 if rng.chance(0.3) => {
                begun = next;
                blocks.clear();
                records.push(begin());
                records.push(Record::Seen(vec![rng.next_u64()]));
            }
            _ => {}
        }
    }
    records
}

fn outline_of(bytes: &[u8]) -> Option<Outline> {
    Outline::of(Reader::new(bytes).expect("a segment"))
}

/// What is left, where it is known before which records count.
fn replay_known(bytes: &[u8], outline: &Outline) -> Restored {
    let mut reader = Reader::new(bytes).expect("a segment");
    let mut replay = Replay::with_committed(outline.committed, &outline.voids);
    while let Some((offset, payload)) = reader.next_payload() {
        replay
            .push_bytes(offset, payload)
            .expect("they are in order");
    }
    replay.finish().expect("a journal")
}

#[test]
fn what_is_left_of_random_histories_is_by_definition() {
    let mut rng = Rng::from_seed(21);
    let (mut superseded, mut restored_after_begin, mut void) = (0, 0, 0);
    for round in 0..400 {
        let records = history(&mut rng, 60);
        let framer = Framer::new(round, 1);
        let mut bytes = framer.header();
        let mut ends = vec![bytes.len()];
        for record in &records {
            framer.frame(&mut bytes, |out| record.encode(out));
            ends.push(bytes.len());
        }
        for cut in 0..60 {
            // At every border of two frames, and anywhere.
            let cut = match round % 2 {
                0 => ends[cut],
                _ => ends[0] + rng.below((bytes.len() - ends[0]) as u64) as usize,
            };
            let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
            let expected = Summary::by_definition(&records[..whole]);
            let reader = Reader::new(&bytes[..cut]).expect("a segment");
            let restored = replay(reader.map(|record| record.expect("a record")));
            assert_eq!(restored.ok().map(Summary::of), expected, "{round}: {cut}");
            let Some(left) = expected else { continue };
            if let Some(outline) = outline_of(&bytes[..cut]) {
                let known = replay_known(&bytes[..cut], &outline);
                assert_eq!(Summary::of(known), left, "{round}: {cut}");
                void += usize::from(!outline.voids.is_empty());
            }
            superseded += usize::from(left.next_number > 20 && left.admitted.len() < 3);
            restored_after_begin += usize::from(left.commit.is_some() && !left.seen.is_empty());
        }
    }
    assert!(
        superseded > 100 && restored_after_begin > 100 && void > 1000,
        "the histories have all cases"
    );
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
    let known: Vec<Fact> = restored.facts.clone().into_known().collect();
    let names: Vec<(&str, u64)> = known.iter().map(|fact| (&*fact.name, fact.at)).collect();
    assert_eq!(names, [("a", 3)]);
    // That nothing is known any more is newer than what an older segment knows.
    let Record::Fact(old) = fact("b", 1, b"y") else {
        unreachable!("it was just made");
    };
    let mut facts = Facts::default();
    facts.add(old);
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
fn old_facts_about_robots_are_dropped_beyond_their_bound() {
    let mut facts = Facts::default();
    let fact = |about, number: u64| Fact {
        about,
        name: format!("{number:04}"),
        at: number,
        value: vec![1; 96],
    };
    for number in 0..1000 {
        facts.add_within(fact(About::Scope, number), 10_000);
        facts.add_within(fact(About::Robots, number % 500), 10_000);
        assert!(facts.robots_bytes <= 10_000);
    }
    let known: Vec<Fact> = facts.into_known().collect();
    let of = |about| known.iter().filter(move |fact| fact.about == about);
    assert_eq!(of(About::Scope).count(), 1000);
    let robots: Vec<u64> = of(About::Robots).map(|fact| fact.at).collect();
    assert!((50..=100).contains(&robots.len()), "{robots:?}");
    assert_eq!(robots.last(), Some(&499));
}

/// The records in a segment, and the offsets at which frames end.
fn segment_of(number: u64, records: &[Record]) -> (Vec<u8>, Vec<usize>) {
    let framer = Framer::new(number, 1);
    let mut bytes = framer.header();
    let mut ends = vec![bytes.len()];
    for record in records {
        framer.frame(&mut bytes, |out| record.encode(out));
        ends.push(bytes.len());
    }
    (bytes, ends)
}

/// Passes bytes on in pieces of any length.
fn in_pieces(bytes: &[u8], rng: &mut Rng, mut take: impl FnMut(&[u8])) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let most = 1 + rng.below(300) as usize;
        let (piece, after) = rest.split_at(most.min(rest.len()));
        take(piece);
        rest = after;
    }
}

/// A record of a kind that random histories lack. `runs`: of the seen set, so far.
fn extra(rng: &mut Rng, runs: &mut Vec<RunRecord>) -> Record {
    let number = 1 + rng.below(30);
    match rng.below(8) {
        0 => Record::Departed(number),
        1 => Record::Started(number),
        2 => Record::Requested(vec![rng.next_u64()]),
        3 => fact(&format!("h{}", rng.below(3)), number, b"x"),
        4 => fact("h0", number, b""),
        5 => Record::SeenUndone(vec![key_of(&format!("http://a.test/{number}"))]),
        6 => Record::SeenRuns(runs.clone()),
        _ => {
            let number = runs.len() as u64;
            runs.push(RunRecord {
                number,
                keys: 1,
                length: 1,
            });
            Record::SeenFrozen(number)
        }
    }
}

#[test]
fn a_compacted_journal_leaves_what_the_whole_one_leaves() {
    let mut rng = Rng::from_seed(22);
    let mut shorter = 0;
    for round in 0..400 {
        let records = history(&mut rng, 80);
        // A running crawl has one beginning.
        let is_of_one = |record: &&Record| !matches!(record, Record::Begin { .. });
        let rest = records.iter().filter(is_of_one).cloned();
        let mut records = vec![begin()];
        let mut runs = Vec::new();
        for record in rest {
            records.push(record);
            if rng.chance(0.3) {
                records.push(extra(&mut rng, &mut runs));
            }
        }
        let (bytes, ends) = segment_of(3, &records);
        let read = 1 + rng.below(records.len() as u64 - 1) as usize;
        let commits = records[..read].iter().filter_map(|record| match record {
            Record::Commit(commit) => Some(commit.epoch),
            _ => None,
        });
        let commits: Vec<u64> = commits.collect();
        let Some(last) = commits.last() else {
            continue;
        };
        // The last commit may be known, or one before it, or none.
        let known = match rng.below(4) {
            0 => 0,
            1 => commits[rng.below(commits.len() as u64) as usize],
            _ => *last,
        };
        let outline = outline_of(&bytes[..ends[read]]).expect("it has a commit");
        let mut compaction = Compaction::new(1, 3, 4, (known, &outline.voids));
        let mut out = compaction.header();
        in_pieces(&bytes[ends[0]..ends[read]], &mut rng, |piece| {
            take(&mut compaction, piece, &mut out).expect("a sound segment");
        });
        compaction.end_reading().expect("it has a commit");
        let mut whole = Vec::new();
        while !compaction.write(1 + rng.below(500) as usize, &mut whole) {
            out.append(&mut whole);
        }
        out.append(&mut whole);
        let compacted = out.len();
        assert_eq!(compaction.position(), ends[read] as u64);
        in_pieces(&bytes[ends[read]..], &mut rng, |piece| {
            take(&mut compaction, piece, &mut out).expect("a sound segment");
        });
        assert_eq!(compaction.into_framer().length(), out.len() as u64);
        let summary = |bytes: &[u8]| {
            let reader = Reader::new(bytes).expect("a segment");
            let restored = replay(reader.map(|record| record.expect("a record")));
            let mut restored = restored.expect("a journal");
            let facts: Vec<Fact> = std::mem::take(&mut restored.facts).into_known().collect();
            restored.requested.sort_unstable();
            let others = (
                std::mem::take(&mut restored.runs),
                std::mem::take(&mut restored.undone),
                std::mem::take(&mut restored.started),
                std::mem::take(&mut restored.requested),
            );
            let all = format!("{others:?} {facts:?}");
            (Summary::of(restored), all)
        };
        assert_eq!(summary(&out), summary(&bytes), "{round}");
        shorter += usize::from(compacted < ends[read]);
    }
    assert!(shorter > 100, "{shorter}");
}

/// Takes a piece, step by step.
fn take(compaction: &mut Compaction, piece: &[u8], out: &mut Vec<u8>) -> Result<(), Unreadable> {
    compaction.take(piece);
    while compaction.step(out)? {}
    Ok(())
}

#[test]
fn records_of_an_epoch_that_is_known_to_be_committed_wait_for_no_commit() {
    const ENTRIES: u64 = 1000;
    let mut replay = Replay::with_committed(1, &[]);
    let of_epoch = (1..=ENTRIES).map(|id| admitted(id, 0));
    for record in [begin()].into_iter().chain(of_epoch) {
        replay.push(record).expect("they are in order");
        assert_eq!(replay.pending.len(), 0);
    }
    let [end, commit] = commit(1);
    replay.push(end).expect("they are in order");
    replay.push(admitted(ENTRIES + 1, 0)).expect("it is later");
    assert_eq!(replay.pending.len(), 1, "of the next epoch");
    replay.push(commit).expect("it is that of the epoch");
    let restored = replay.finish().expect("a journal");
    assert_eq!(restored.admitted.len() as u64, ENTRIES);
}

#[test]
fn facts_without_content_are_left_out_of_a_rewritten_segment() {
    let facts = [
        fact("known", 1, b"x"),
        fact("over", 1, b"x"),
        fact("over", 2, b""),
    ];
    let mut replay = Replay::new();
    for record in [begin()].into_iter().chain(facts).chain(commit(1)) {
        replay.push(record).expect("they are in order");
    }
    let left: Vec<Record> = replay.into_left().expect("a commit").collect();
    let facts = left.iter().filter_map(|record| match record {
        Record::Fact(fact) => Some((fact.name.as_str(), fact.value.as_slice())),
        _ => None,
    });
    assert_eq!(facts.collect::<Vec<_>>(), [("known", &b"x"[..])]);
}

#[test]
fn a_segment_is_rewritten_in_steps_of_some_hundred_records() {
    const ENTRIES: u64 = 20_000;
    const NUMBERS: u64 = 50;
    let spill = |first: u64| {
        let block = SpilledBlock {
            file: 1,
            offset: first,
            length: 100,
            origin: 7,
            priority: 0,
            requests: NUMBERS,
            first,
        };
        let numbers = (first..first + NUMBERS).collect();
        Record::Spill { block, numbers }
    };
    let entries = (1..=ENTRIES).map(|id| admitted(id, 0));
    let spilled = (1..=ENTRIES / 2).step_by(NUMBERS as usize).map(spill);
    let facts = (0..ENTRIES).map(|number| fact(&format!("{number}"), 1, b""));
    let records = [begin()].into_iter().chain(entries).chain(spilled);
    let mut records: Vec<Record> = records.chain(facts).chain(commit(1)).collect();
    let read = records.len();
    records.extend((1..=ENTRIES).map(Record::Departed));
    let (bytes, ends) = segment_of(3, &records);
    let mut compaction = Compaction::new(1, 3, 4, (1, &[]));
    let mut out = compaction.header();
    let take = |compaction: &mut Compaction, piece: &[u8], out: &mut Vec<u8>| {
        compaction.take(piece);
        let mut steps = 1;
        while compaction.step(out).expect("a sound segment") {
            steps += 1;
        }
        steps
    };
    let steps = take(&mut compaction, &bytes[ends[0]..ends[read]], &mut out);
    // Each entry is admitted, half of them go to blocks, and there are as many facts.
    assert!(steps >= 5 * ENTRIES / 2 / 320, "{steps}");
    compaction.end_reading().expect("it has a commit");
    let mut steps = 1;
    while !compaction.write(usize::MAX, &mut out) {
        steps += 1;
    }
    assert!(steps >= 3 * ENTRIES / 2 / 256, "{steps}");
    let steps = take(&mut compaction, &bytes[ends[read]..], &mut out);
    assert!(steps >= ENTRIES / 2048, "{steps}");
    let reader = Reader::new(&out).expect("a segment");
    let restored = replay(reader.map(|record| record.expect("a record")));
    let left = restored.expect("a journal").admitted.len() as u64;
    assert_eq!(left, ENTRIES / 2);
}

#[test]
fn no_segment_is_made_from_a_damaged_one() {
    let records: Vec<Record> = [begin(), admitted(1, 0)]
        .into_iter()
        .chain(commit(1))
        .collect();
    let mut rng = Rng::from_seed(23);
    let (bytes, ends) = segment_of(3, &records);
    for at in ends[0]..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        let mut compaction = Compaction::new(1, 3, 4, (rng.below(2), &[]));
        let mut out = Vec::new();
        let taken = take(&mut compaction, &changed[ends[0]..], &mut out);
        let read = taken.and_then(|()| compaction.end_reading());
        let error = read.expect_err("a byte is changed");
        assert!(error.offset <= at as u64, "{at}: {error:?}");
    }
}

#[test]
fn counts_belong_to_their_epoch_also_in_a_rewritten_segment() {
    let counts = |value: &[u8]| {
        Record::Fact(Fact {
            about: About::Counts,
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
