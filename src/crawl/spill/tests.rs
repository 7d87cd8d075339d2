//! Requests go to files and come back: each once, in turns, within the memory that is allowed.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::base::disk::Written;
use crate::base::rng::Rng;
use crate::wire::url::CrawlUrl;

/// A disk that does each job at once.
#[derive(Default)]
struct Disk {
    files: BTreeMap<PathBuf, Vec<u8>>,
    open: PathBuf,
}

impl Disk {
    fn work(&mut self, spill: &mut Spill) {
        let jobs = spill.poll_jobs();
        self.finish(jobs, spill);
    }

    fn finish(&mut self, jobs: Vec<DiskJob>, spill: &mut Spill) {
        for job in jobs {
            let result = match &job {
                DiskJob::Create { path, .. } => {
                    self.open.clone_from(path);
                    let old = self.files.insert(path.clone(), Vec::new());
                    assert!(old.is_none(), "a file is made once");
                    Ok(Written::default())
                }
                DiskJob::Append { bytes, .. } => {
                    let file = self.files.get_mut(&self.open).expect("it is open");
                    file.extend_from_slice(bytes);
                    Ok(Written::default())
                }
                DiskJob::Sync { .. } | DiskJob::Finish { .. } => Ok(Written::default()),
                DiskJob::Read {
                    path,
                    offset,
                    bytes,
                    tag,
                    ..
                } => {
                    if tag & SEARCH != 0 && !self.files.contains_key(path) {
                        let error = io::Error::from(io::ErrorKind::NotFound);
                        spill.handle_disk(&job.done(Err(error)));
                        continue;
                    }
                    let file = &self.files[path][*offset as usize..];
                    let read = file[..bytes.len()].to_vec();
                    spill.handle_disk(&DiskDone {
                        read,
                        ..job.done(Ok(Written::default()))
                    });
                    continue;
                }
                DiskJob::Remove { path, .. } => {
                    self.files.remove(path).expect("it is there");
                    Ok(Written::default())
                }
                other => panic!("no job of these files: {other:?}"),
            };
            spill.handle_disk(&job.done(result));
        }
    }
}

fn spill(memory_max: u64) -> Spill {
    Spill::new(SpillStart::new(Path::new("out"), 5), memory_max)
}

fn job(number: u64, origin: u64, priority: i32) -> Job {
    let url = format!("http://h{origin}.test/{number}");
    Job {
        priority,
        ..Job::seed(number, CrawlUrl::parse(&url).expect("a URL"))
    }
}

/// Numbers of requests that come back.
fn numbers(read: &SpilledRequests) -> Vec<u64> {
    read.entries.iter().map(|entry| entry.job.id).collect()
}

#[test]
fn without_a_state_or_with_memory_left_nothing_goes_to_a_file() {
    let job = job(1, 1, 0);
    assert!(!Spill::none().takes(|| 1, &job, u64::MAX));
    assert!(!spill(1000).takes(|| 1, &job, 999));
    assert!(spill(1000).takes(|| 1, &job, 1000));
}

#[test]
fn what_continues_an_attempt_or_is_awaited_stays_in_memory() {
    let spill = spill(0);
    let check = |change: fn(&mut Job), takes: bool| {
        let mut job = job(1, 1, 0);
        change(&mut job);
        assert_eq!(spill.takes(|| 1, &job, 1), takes);
    };
    check(|_| (), true);
    check(|job| job.attempt = 2, false);
    check(|job| job.redirects = 1, false);
    check(|job| job.awaited = true, false);
    check(|job| job.kind = PageKind::Sitemap, false);
    check(|job| job.kind = PageKind::Robots, false);
}

#[test]
fn a_request_stays_behind_older_ones_of_its_origin_unless_its_priority_is_higher() {
    let mut spill = spill(1000);
    spill.put(7, &job(1, 7, 5));
    let takes = |spill: &Spill, origin, priority| spill.takes(|| origin, &job(2, 7, priority), 0);
    assert!(takes(&spill, 7, 9), "it is in the tail");
    spill.advance(0);
    assert!(takes(&spill, 7, 5) && takes(&spill, 7, 4));
    assert!(!takes(&spill, 7, 6) && !takes(&spill, 8, 5));
}

#[test]
fn origins_take_turns_of_a_block_each() {
    let mut spill = spill(u64::MAX);
    let mut disk = Disk::default();
    // The first has most, and came first.
    let requests = (1..=200)
        .map(|number| (number, 1))
        .chain((201..=264).map(|number| (number, 2)));
    for (number, origin) in requests.chain([(265, 3)]) {
        spill.put(origin, &job(number, origin, 0));
    }
    let mut order = Vec::new();
    let mut under_way = VecDeque::new();
    for _ in 0..20 {
        spill.advance(1);
        disk.work(&mut spill);
        while let Some(read) = spill.poll_read() {
            order.push((read.origin, read.entries.len()));
            under_way.extend(read.entries.iter().map(|_| read.origin));
        }
        // All but the last sixteen have ended.
        while under_way.len() > 16 {
            let origin = under_way.pop_front().expect("there are some");
            spill.handle_end(origin);
        }
        let left = under_way.drain(..);
        left.for_each(|origin| spill.handle_end(origin));
    }
    assert_eq!(order, [(1, 64), (2, 64), (3, 1), (1, 64), (1, 64), (1, 8)]);
    assert!(spill.is_empty());
}

#[test]
fn an_origin_with_very_many_requests_takes_one_turn_for_each_of_the_others() {
    const SMALL: u64 = 500;
    let mut spill = spill(u64::MAX);
    let mut disk = Disk::default();
    for number in 1..=20_000 {
        spill.put(0, &job(number, 0, 0));
    }
    for origin in 1..=SMALL {
        spill.put(origin, &job(20_000 + origin, origin, 0));
    }
    let mut blocks_of_large = 0;
    let mut small = 0;
    while small < SMALL {
        spill.advance(1);
        disk.work(&mut spill);
        while let Some(read) = spill.poll_read() {
            match read.origin {
                0 => blocks_of_large += 1,
                _ => small += 1,
            }
            for _ in &read.entries {
                spill.handle_end(read.origin);
            }
        }
    }
    // It waits behind all others for its second turn.
    assert!(blocks_of_large <= 2, "{blocks_of_large}");
}

#[test]
fn an_origin_brings_its_next_block_when_few_of_the_last_are_left() {
    let mut spill = spill(u64::MAX);
    let mut disk = Disk::default();
    for number in 1..=100 {
        spill.put(1, &job(number, 1, 0));
    }
    let mut turn = |spill: &mut Spill| {
        spill.advance(1);
        disk.work(spill);
        spill.poll_read().map(|read| read.entries.len())
    };
    assert_eq!(turn(&mut spill), Some(64));
    for _ in 0..47 {
        spill.handle_end(1);
        assert_eq!(turn(&mut spill), None);
    }
    spill.handle_end(1);
    assert_eq!(turn(&mut spill), Some(36));
    assert!(spill.is_empty());
}

#[test]
fn blocks_are_not_read_without_room_except_when_nothing_else_is_there() {
    let mut spill = spill(1000);
    let mut disk = Disk::default();
    for origin in 0..10 {
        spill.put(origin, &job(1 + origin, origin, 0));
    }
    let mut reads = |spill: &mut Spill, used| {
        spill.advance(used);
        disk.work(spill);
        std::iter::from_fn(|| spill.poll_read()).count()
    };
    assert_eq!(reads(&mut spill, 875), 0);
    assert_eq!(
        reads(&mut spill, 874),
        1,
        "a block may take more than is left"
    );
    assert_eq!(reads(&mut spill, 0), 1);
}

#[test]
fn random_requests_come_back_once_in_order_also_in_later_runs() {
    let (mut moved, mut admitted, mut recorded) = (0, 0, 0);
    for seed in 0..40 {
        let mut rng = Rng::from_seed(seed);
        let mut disk = Disk::default();
        let mut spill = spill(100_000);
        // As the journal has them.
        let mut blocks: BTreeMap<(u64, u64), SpilledBlock> = BTreeMap::new();
        let mut waiting: BTreeMap<u64, (u64, i32)> = BTreeMap::new();
        // What neither a block nor the journal has.
        let mut new: BTreeMap<u64, u64> = BTreeMap::new();
        let mut last: BTreeMap<(u64, i32), u64> = BTreeMap::new();
        let mut number = 0;
        let mut next_file = 0;
        for step in 0..3000 {
            let goes_on = step < 1500;
            for _ in 0..rng.below(if goes_on { 12 } else { 1 }) {
                number += 1;
                let (origin, priority) = (rng.below(9) * rng.below(3), rng.below(2) as i32);
                let job = job(number, origin, priority);
                match rng.chance(0.7) {
                    true => {
                        spill.admit(origin, &job, number + 1000);
                        new.insert(number, number + 1000);
                    }
                    false => spill.put(origin, &job),
                }
                waiting.insert(number, (origin, priority));
            }
            spill.advance(rng.below(120_000));
            for written in spill.poll_written() {
                let block = written.block;
                match written.origin {
                    BlockOrigin::Block { file, offset } => {
                        blocks.remove(&(file, offset)).expect("it is recorded");
                        moved += 1;
                    }
                    BlockOrigin::Journal { numbers } => {
                        assert_eq!(numbers.len() as u64, block.requests);
                        let are_recorded = numbers.iter().all(|number| !new.contains_key(number));
                        assert!(are_recorded, "{seed}: {numbers:?}");
                    }
                    BlockOrigin::Admitted { requests, .. } => {
                        assert_eq!(requests.len() as u64, block.requests);
                        for (number, key) in requests {
                            assert_eq!(new.remove(&number), Some(key), "{seed}");
                        }
                        admitted += 1;
                    }
                }
                next_file = block.file + 1;
                blocks.insert((block.file, block.offset), block);
            }
            disk.work(&mut spill);
            while let Some(read) = spill.poll_read() {
                blocks
                    .remove(&(read.file, read.offset))
                    .expect("it is recorded");
                let mut previous = 0;
                for id in numbers(&read) {
                    let (origin, priority) = waiting.remove(&id).expect("it waits");
                    assert_eq!((origin, priority), (read.origin, read.priority));
                    let before = last.insert((origin, priority), id);
                    assert!(before.is_none_or(|before| before < id), "{seed}: in order");
                    assert!(previous < id);
                    previous = id;
                    for _ in 0..rng.below(3) {
                        spill.handle_end(origin);
                    }
                }
            }
            for origin in 0..20 {
                spill.handle_end(origin);
            }
            assert_eq!(spill.len(), waiting.len());
            if rng.below(50) == 0 {
                // What no block has is in the journal.
                spill.record_new(|request| {
                    let entry = record::decode_request(request).expect("a request");
                    assert!(new.remove(&entry.job.id).is_some(), "{seed}: once");
                    recorded += 1;
                });
                assert!(new.is_empty(), "{seed}: {new:?}");
                spill.begin_commit();
                spill.handle_committed();
                disk.work(&mut spill);
                let used = blocks
                    .keys()
                    .all(|(file, _)| disk.files.contains_key(&path_of(Path::new("out"), *file)));
                assert!(used, "{seed}: no file with a block is removed");
            }
            if rng.below(200) == 0 && spill.open.as_ref().is_some_and(|open| open.tail.is_empty()) {
                // The next run has the blocks that count.
                let files = disk.files.keys().map(|path| {
                    let name = path.to_string_lossy();
                    name.rsplit('-')
                        .next()
                        .and_then(|n| n.parse().ok())
                        .expect("a number")
                });
                let start = SpillStart {
                    next_file,
                    files: files.collect(),
                    ..SpillStart::new(Path::new("out"), 5)
                };
                spill = Spill::new(start, 100_000);
                let mut all: Vec<&SpilledBlock> = blocks.values().collect();
                all.sort_by_key(|block| block.first);
                all.into_iter().for_each(|block| spill.restore(block));
            }
        }
        let left = spill.drain(|path, offset, bytes| {
            let file = &disk.files[path][offset as usize..];
            bytes.copy_from_slice(&file[..bytes.len()]);
            Ok(())
        });
        let mut left: Vec<u64> = left.map(|job| job.id).collect();
        left.sort_unstable();
        assert!(waiting.keys().eq(&left), "{seed}");
        assert!(number - left.len() as u64 > 1000, "{seed}: most came back");
    }
    assert!(
        moved > 100 && admitted > 1000 && recorded > 1000,
        "{moved} {admitted} {recorded}"
    );
}

#[test]
fn every_changed_byte_of_a_block_is_an_error_that_names_the_file() {
    for at in 0..80 {
        let mut spill = spill(u64::MAX);
        let mut disk = Disk::default();
        spill.put(1, &job(1, 1, 0));
        spill.advance(1);
        let mut jobs = spill.poll_jobs();
        for job in &mut jobs {
            if let DiskJob::Append { bytes, .. } = job {
                let length = bytes.len();
                bytes[32 + at % (length - 32)] ^= 0x10;
            }
        }
        disk.finish(jobs, &mut spill);
        assert!(spill.poll_read().is_none());
        let error = spill.failure().expect("it is damaged").to_string();
        assert!(
            error.contains("queue-00000000") && error.contains("byte 32"),
            "{error}"
        );
    }
}

#[test]
fn blocks_are_written_and_origins_looked_at_some_hundred_in_a_turn() {
    const ORIGINS: u64 = 20_000;
    let mut spill = spill(u64::MAX);
    let mut disk = Disk::default();
    let mut written = Vec::new();
    for number in 1..=ORIGINS {
        spill.put(number, &job(number, number, 0));
        written.push(spill.poll_written().len());
    }
    assert!(written.iter().all(|count| *count == 0), "the tail has room");
    // None of them has a turn: each is looked at once.
    let until = Instant::START + Duration::from_secs(60);
    for number in 1..=ORIGINS {
        spill.rest(number, until, ScopeNames::default());
    }
    let mut turns = 0;
    while spill.advance(1) {
        turns += 1;
        disk.work(&mut spill);
        let written = spill.poll_written().len();
        assert!(written <= BLOCKS_PER_TURN, "{written}");
    }
    let least = ORIGINS / BLOCKS_PER_TURN as u64 + ORIGINS / ORIGINS_PER_TURN as u64;
    assert!(turns >= least, "{turns}");
    let mut turns = 0;
    while spill.expire(until) {
        turns += 1;
    }
    assert_eq!(turns, ORIGINS / ORIGINS_PER_TURN as u64);
    let mut read = 0;
    for _ in 0..ORIGINS {
        spill.advance(1);
        disk.work(&mut spill);
        read += std::iter::from_fn(|| spill.poll_read()).count();
    }
    assert_eq!(read as u64, ORIGINS, "and none is forgotten");
}

#[test]
fn origins_whose_rests_are_ended_wait_for_their_turns_unless_they_rest_again() {
    let mut spill = spill(u64::MAX);
    let mut disk = Disk::default();
    for number in 1..=3 {
        spill.put(number, &job(number, number, 0));
    }
    let until = |seconds| Instant::START + Duration::from_secs(seconds);
    let mut scopes = ScopeNames::default();
    scopes.add("a.test");
    (1..=3).for_each(|number| spill.rest(number, until(100), scopes));
    let mut read = |spill: &mut Spill| {
        let mut found: Vec<u64> = Vec::new();
        for _ in 0..9 {
            spill.expire(until(1));
            spill.advance(1);
            disk.work(spill);
            let blocks = std::iter::from_fn(|| spill.poll_read());
            found.extend(blocks.map(|block| block.origin));
        }
        found.sort_unstable();
        found
    };
    assert!(read(&mut spill).is_empty(), "they rest");
    spill.end_rests(ScopeNames::ANY);
    spill.rest(2, until(200), scopes);
    assert_eq!(read(&mut spill), [1, 3]);
    spill.end_rests(ScopeNames::ANY);
    spill.end_rests(ScopeNames::ANY);
    assert_eq!(read(&mut spill), [2]);
}

#[test]
fn a_block_of_new_requests_names_the_host_if_one_is_a_seed() {
    let mut spill = spill(u64::MAX);
    for number in 1..=4_u64 {
        let origin = number.div_ceil(2);
        let seed = number == 2;
        let job = Job {
            seed,
            ..job(number, origin, 0)
        };
        spill.admit(origin, &job, number);
    }
    spill.advance(1);
    let written = spill.poll_written().into_iter();
    let hosts = written.map(|written| match written.origin {
        BlockOrigin::Admitted { seed_host, .. } => (written.block.origin, seed_host),
        other => panic!("they are new: {other:?}"),
    });
    let hosts: BTreeMap<u64, Option<String>> = hosts.collect();
    assert_eq!(hosts, [(1, Some("h1.test".to_owned())), (2, None)].into());
}

#[test]
fn a_request_that_stays_here_is_found_while_blocks_are_written_read_and_moved() {
    let (mut found, mut failed, mut most_off) = (0, 0, 0);
    for seed in 0..300 {
        let mut rng = Rng::from_seed(seed);
        let mut spill = spill(20_000);
        let mut disk = Disk::default();
        let mut here = BTreeMap::new();
        let mut number = 0;
        let mut wanted: Option<(u32, Job, usize)> = None;
        for step in 0..400 {
            if step < 250 || wanted.is_none() {
                for _ in 0..rng.below(6) {
                    number += 1;
                    let origin = 1 + rng.below(3);
                    let job = job(number, origin, rng.below(2) as i32);
                    spill.put(origin, &job);
                    here.insert(number, (origin, job));
                }
            }
            if rng.chance(0.3) {
                // Only a little room.
                spill.advance(rng.below(2) * 20_000);
            }
            if rng.chance(0.3) {
                disk.work(&mut spill);
            }
            spill.poll_written();
            if rng.chance(0.3) {
                spill.begin_commit();
                disk.work(&mut spill);
                spill.handle_committed();
            }
            let read = (rng.chance(0.2)).then(|| spill.poll_read()).flatten();
            for entry in read.iter().flat_map(|read| &read.entries) {
                let (origin, _) = here.remove(&entry.job.id).expect("it was here");
                spill.handle_end(origin);
            }
            let Some((search, job, waited)) = &mut wanted else {
                let any = here
                    .values()
                    .nth(rng.below(here.len().max(1) as u64) as usize);
                wanted = any.map(|(_, job)| (step + 1, job.clone(), 0));
                continue;
            };
            let origin: u64 = job.url.host_str()[1..2].parse().expect("a number");
            *waited += 1;
            assert!(*waited < 300, "seed {seed}: the search does not end");
            match spill.search(*search, &job.url, origin) {
                Searched::Unfinished { .. } => continue,
                Searched::Found(one) => {
                    assert_eq!(one.job.id, job.id);
                    assert!(here.contains_key(&job.id), "seed {seed}: it is in memory");
                    let of_origin = here.values().filter(|(of, _)| *of == origin);
                    most_off = most_off.max(one.ahead.saturating_sub(of_origin.count() as u64));
                    found += 1;
                }
                Searched::Failed(_) => failed += 1,
                Searched::Nothing => {
                    assert!(
                        !here.contains_key(&job.id),
                        "seed {seed}: {} is here",
                        job.id
                    );
                }
            }
            wanted = None;
        }
        spill.end_searches(|_| false);
    }
    assert!(found > 1000 && failed > 10, "{found} {failed}");
    assert!(most_off <= 64, "{most_off}");
}
