//! A rewritten segment leaves what the whole one leaves.

use super::histories::{Summary, history, outline_of};
use super::*;

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
        7 => Record::StartUndone(number),
        2 => Record::Requested(vec![rng.next_u64()]),
        3 => fact(&format!("h{}", rng.below(3)), number, b"x"),
        4 => fact("h0", number, b""),
        5 => Record::SeenRuns(runs.clone()),
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

/// Keys that no longer count as seen; some of them are in runs.
fn undone(rng: &mut Rng) -> Record {
    let urls = (0..rng.below(4)).map(|_| format!("http://a.test/{}", 1 + rng.below(30)));
    Record::SeenUndone(urls.map(|url| key_of(&url)).collect())
}

#[test]
fn a_compacted_journal_leaves_what_the_whole_one_leaves() {
    let mut rng = Rng::from_seed(22);
    let (mut shorter, mut passing, mut salvaged) = (0, 0, 0);
    for round in 0..600 {
        let records = history(&mut rng, 80);
        // A running crawl has one beginning.
        let is_of_one = |record: &&Record| !matches!(record, Record::Begin { .. });
        let rest = records.iter().filter(is_of_one).cloned();
        let mut records = vec![begin(), undone(&mut rng)];
        let mut runs = Vec::new();
        for record in rest {
            let is_resumed = matches!(record, Record::Resumed(_));
            records.push(record);
            if is_resumed {
                records.push(undone(&mut rng));
                salvaged += 1;
            }
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
        let known = Counted {
            epoch: known,
            voids: &outline.voids,
            dead_keys: dead_keys_of(&records, &ends, known),
        };
        let is_passing = known.voids.is_empty() && known.dead_keys > 0;
        passing += usize::from(is_passing);
        let mut compaction = Compaction::new(1, 3, 4, known);
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
    assert!(passing > 30, "{passing}");
    assert!(salvaged > 100, "{salvaged}");
}

/// The offset before which keys are in runs at the end of this epoch.
fn dead_keys_of(records: &[Record], ends: &[usize], epoch: u64) -> u64 {
    let (mut frozen, mut dead) = (None, 0);
    for (record, offset) in records.iter().zip(ends) {
        match record {
            Record::SeenFrozen(run) => frozen = Some((*run, *offset)),
            Record::SeenRuns(runs) => {
                let is_named = |(run, _): &(u64, usize)| runs.iter().any(|is| is.number == *run);
                dead = frozen
                    .take_if(|run| is_named(run))
                    .map_or(dead, |(_, offset)| offset);
            }
            Record::EpochEnd(end) if *end == epoch => return dead as u64,
            _ => {}
        }
    }
    0
}

/// The first epoch is committed, and no run resumed the crawl.
const ONE_EPOCH: Counted<'_> = Counted {
    epoch: 1,
    voids: &[],
    dead_keys: 0,
};

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
    let mut compaction = Compaction::new(1, 3, 4, ONE_EPOCH);
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
        let known = Counted {
            epoch: rng.below(2),
            ..Counted::default()
        };
        let mut compaction = Compaction::new(1, 3, 4, known);
        let mut out = Vec::new();
        let taken = take(&mut compaction, &changed[ends[0]..], &mut out);
        let read = taken.and_then(|()| compaction.end_reading());
        let error = read.expect_err("a byte is changed");
        assert!(error.offset <= at as u64, "{at}: {error:?}");
    }
}

#[test]
fn a_rewriting_holds_few_keys_unless_the_crawl_was_resumed() {
    const KEYS: u64 = 100_000;
    let keys = (1..=KEYS).map(|key| Record::Seen(vec![key]));
    let mut records = vec![begin()];
    records.extend(keys);
    records.insert(KEYS as usize / 2, Record::SeenFrozen(5));
    let named = Record::SeenRuns(vec![RunRecord {
        number: 5,
        keys: KEYS / 2,
        length: 1,
    }]);
    records.insert(KEYS as usize / 2 + 9, named);
    records.extend(commit(1));
    let (bytes, ends) = segment_of(3, &records);
    let frozen_at = ends[KEYS as usize / 2] as u64;
    // Half of them are dead, which is known, or not.
    for dead_keys in [0, frozen_at] {
        let mut replay = Replay::with_committed(1, &[]).pass_keys(dead_keys);
        let mut passed = Vec::new();
        for (record, offset) in records.iter().zip(&ends) {
            let pushed = replay.push_at(*offset as u64, record.clone());
            pushed.expect("they are in order");
            passed.extend(std::iter::from_fn(|| replay.poll_passed()));
            let committed = replay.committed.as_ref();
            assert!(committed.is_none_or(|all| all.seen.len() <= 4096));
        }
        let count = |records: &[Record]| -> u64 {
            let keys = records.iter().map(|record| match record {
                Record::Seen(keys) => keys.len() as u64,
                _ => 0,
            });
            keys.sum()
        };
        assert!(matches!(passed[0], Record::Begin { .. }));
        passed.extend(replay.into_left().expect("a commit"));
        let expected = match dead_keys {
            0 => KEYS,
            _ => KEYS / 2 + 1,
        };
        assert_eq!(count(&passed), expected);
        let left = super::replay(passed).expect("a journal");
        assert_eq!(left.seen.len() as u64, KEYS / 2 + 1, "those after the run");
    }
    // With a void the keys wait for the end.
    let void = 9..9;
    let known = Counted {
        voids: std::slice::from_ref(&void),
        ..ONE_EPOCH
    };
    let mut compaction = Compaction::new(1, 3, 4, known);
    let mut out = Vec::new();
    let read = take(&mut compaction, &bytes[ends[0]..], &mut out);
    read.expect("a sound segment");
    assert!(out.is_empty());
}
