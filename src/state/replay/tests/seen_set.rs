//! Which URLs the seen set has: keys, runs, and what is undone.

use super::*;

fn run(number: u64) -> RunRecord {
    RunRecord {
        number,
        keys: 1,
        length: 1,
    }
}

#[test]
fn keys_of_a_run_are_left_out_once_it_is_named() {
    let keys = |records: &[Record]| committed(records.to_vec()).seen.into_vec();
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
    assert_eq!(restored.seen.into_vec(), keys);
}

#[test]
fn undone_keys_in_memory_do_not_count_as_seen_nor_as_keys_of_runs_also_in_a_rewritten_segment() {
    let records = || {
        let records = [
            begin(),
            Record::SeenRuns(vec![run(3)]),
            Record::Seen(vec![1, 2, 2, 5, 6]),
            Record::SeenUndone(vec![2, 6, 9]),
            Record::SeenUndone(vec![5]),
            Record::Seen(vec![6]),
        ];
        records.into_iter().chain(commit(1))
    };
    let check = |records: &mut dyn Iterator<Item = Record>| {
        let restored = replay(records).expect("a journal");
        let mut seen = restored.seen.into_vec();
        seen.sort_unstable();
        assert_eq!((seen, restored.undone), (vec![1, 6], vec![9]));
    };
    check(&mut records());
    let mut rewritten = Replay::new();
    for record in records() {
        rewritten.push(record).expect("they are in order");
    }
    check(&mut rewritten.into_left().expect("a commit"));
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
    assert_eq!(
        (restored.seen.into_vec(), restored.undone),
        (Vec::new(), vec![key])
    );
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
    assert_eq!(
        (restored.seen.into_vec(), restored.undone),
        (vec![key], Vec::new())
    );
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
        let expected: BTreeSet<u64> = committed(records).seen.into_vec().into_iter().collect();
        assert_eq!(found, expected, "{round}");
    }
    assert!(undone > 100, "{undone}");
}
