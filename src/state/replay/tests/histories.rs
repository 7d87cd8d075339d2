//! Random histories against the definition of what is left.

use super::*;

/// What is left, in a form that can be compared.
#[derive(Debug, PartialEq, Eq)]
pub struct Summary {
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
    pub fn of(mut restored: Restored) -> Self {
        let mut seen = restored.seen.into_vec();
        let mut seed_hosts: Vec<(u64, u64)> = restored.seed_hosts.iter().collect();
        seen.sort_unstable();
        seed_hosts.sort_unstable();
        let delays = restored.facts.take_crawl_delays().into_values();
        let mut crawl_delays: Vec<(String, u64)> =
            delays.map(|(host, delay, _)| (host, delay)).collect();
        crawl_delays.sort_unstable();
        Summary {
            admitted: pairs(&restored.admitted),
            offered: pairs(&restored.offered),
            seen,
            seed_hosts,
            spilled: restored.spilled.iter().collect(),
            crawl_delays,
            commit: restored.commit,
            seeds_taken: restored.seeds_taken,
            next_number: restored.next_number,
        }
    }

    /// By definition: the committed records as a whole are looked at once for each question.
    fn by_definition(records: &[Record]) -> Option<Self> {
        let (summary, _) = Summary::and_dropped(&without_voids(records))?;
        // These need no commit.
        let delays = records.iter().filter_map(|record| match record {
            Record::CrawlDelay { host, delay } => Some((host.clone(), *delay)),
            _ => None,
        });
        let newest: BTreeMap<String, u64> = delays.collect();
        Some(Summary {
            crawl_delays: newest.into_iter().collect(),
            ..summary
        })
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
        let mut entries: BTreeMap<u64, Entry> = BTreeMap::new();
        let (mut admitted, mut offered) = (BTreeSet::new(), BTreeSet::new());
        let (mut over, mut answered) = (BTreeSet::new(), BTreeSet::new());
        let (mut seen, mut seeds_taken, mut greatest) = (Vec::new(), 0, 0);
        let mut seed_hosts: Vec<(u64, u64)> = Vec::new();
        let keys = Keys::from_bytes(KEYS);
        let hosts_of = |url: &CrawlUrl| {
            let [host, domain] = [url.host_str(), url.registrable_domain()];
            (keys.host(host).0, keys.host(domain).0)
        };
        let mut spilled: Vec<(SpilledBlock, Vec<u64>)> = Vec::new();
        for record in records {
            match record {
                Record::Admitted(entry) => {
                    entries.insert(entry.job.id, entry.clone());
                    admitted.insert(entry.job.id);
                    greatest = greatest.max(entry.job.id);
                }
                Record::Offered(entry) => {
                    entries.insert(entry.job.id, entry.clone());
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
                Record::SeedsTaken(lines) => seeds_taken = *lines,
                Record::Spill { block, numbers } => {
                    spilled.push((*block, numbers.clone()));
                    greatest = numbers.iter().copied().fold(greatest, u64::max);
                    let jobs = numbers.iter().filter_map(|number| entries.get(number));
                    let jobs = jobs.map(|entry| &entry.job);
                    seed_hosts.extend(jobs.map(|job| hosts_of(&job.url)));
                }
                Record::AdmittedToBlock { block, admission } => {
                    let numbers = numbers_of(admission);
                    for number in &numbers {
                        entries.insert(*number, entry(*number, 0));
                        admitted.insert(*number);
                        greatest = greatest.max(*number);
                    }
                    spilled.push((*block, numbers));
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
        let in_blocks = spilled.iter().flat_map(|(_, numbers)| numbers);
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
            crawl_delays: Vec::new(),
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
        Record::AdmittedToBlock { block, admission } => Some((block.offset, numbers_of(admission))),
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
pub fn history(rng: &mut Rng, length: usize) -> Vec<Record> {
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
        match rng.below(24) {
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
                let block = block_of(&numbers, records.len() as u64);
                blocks.push((block.offset, numbers.clone()));
                records.push(Record::Spill { block, numbers });
            }
            // Some of them were offered.
            23 => {
                let is_offered =
                    |(number, replaces): &(u64, u64)| *replaces == 0 && !number.is_multiple_of(3);
                let at = offers.iter().position(is_offered);
                let mut numbers: Vec<u64> = at.map(|at| offers.remove(at).0).into_iter().collect();
                numbers.extend(next..next + 2);
                next += 2;
                let block = block_of(&numbers, records.len() as u64);
                blocks.push((block.offset, numbers.clone()));
                let key = |id| key_of(&format!("http://a.test/{id}"));
                let admission = BlockAdmission {
                    requests: numbers.into_iter().map(|id| (id, key(id))).collect(),
                    seed_host: Some((key_of_host(), key_of_host())),
                };
                records.push(Record::AdmittedToBlock { block, admission });
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

fn block_of(numbers: &[u64], offset: u64) -> SpilledBlock {
    SpilledBlock {
        file: 0,
        offset,
        length: 1,
        origin: 1,
        priority: 0,
        requests: numbers.len() as u64,
        first: numbers.first().copied().unwrap_or(0),
    }
}

fn numbers_of(admission: &BlockAdmission) -> Vec<u64> {
    let numbers = admission.requests.iter().map(|(number, _)| *number);
    numbers.collect()
}

fn key_of_host() -> u64 {
    Keys::from_bytes(KEYS).host("a.test").0
}

pub fn outline_of(bytes: &[u8]) -> Option<Outline> {
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
