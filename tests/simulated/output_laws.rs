//! What holds of the files of a crawl, whatever its settings.

use std::collections::{BTreeMap, BTreeSet};

use argiope::settings::SettingSource;
use argiope::sink::files::Rotation;
use argiope::{BodyPart, Config, Filtered, FinishReason, State};

use super::crawl::{Line, Output, Run};
use super::varied::Said;
use super::words::{Label, read_of};

/// What robots.txt leaves out has a line in `filtered.jsonl`, too, beside its result.
pub const DISALLOWED: &str = "disallowed";

/// No file of result lines is larger, but for one line.
pub fn check_sizes(run: &Run, size_max: usize) {
    let files = run.crawler.io().files().iter();
    for (path, bytes) in files.filter(|(path, _)| path.starts_with("out")) {
        let name = path.file_name().expect("a name").to_string_lossy();
        let is_text = name.ends_with(".jsonl") || name.ends_with(".jsonl.open");
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        let is_one_line = if is_text {
            lines == 1
        } else {
            bytes.len() < 2000
        };
        assert!(
            !name.starts_with("results") || bytes.len() <= size_max || is_one_line,
            "seed {}: {name} has {} bytes, not {size_max}",
            run.seed,
            bytes.len()
        );
    }
}

/// Under `CLOSESPIDER_BYTECOUNT` a crawl ends when so many bytes were received, and not before.
pub fn check_total(lines: &[Line], reason: FinishReason, said: &Said, reloads: &[Said]) {
    let maps = std::iter::once(said).chain(reloads);
    let limit_in = |map: &Said| map.get("CLOSESPIDER_BYTECOUNT")?.as_u64();
    let limits: Vec<u64> = maps.map(|map| limit_in(map).unwrap_or(0)).collect();
    let received = lines
        .iter()
        .filter_map(|line| line.0["bytes_wire"].as_u64());
    let received: u64 = received.sum();
    let least = limits.iter().filter(|limit| **limit > 0).min();
    let most = (!limits.contains(&0))
        .then(|| limits.iter().max())
        .flatten();
    match reason {
        FinishReason::ByteCount => assert!(
            least.is_some_and(|least| received >= *least),
            "{received} bytes were received under {limits:?}"
        ),
        FinishReason::Finished => assert!(
            most.is_none_or(|most| received < *most),
            "{received} bytes were received under {limits:?}, and it went on"
        ),
        _ => {}
    }
}

/// Each closed WARC file has an index unless the disk was full, and none if they are switched off.
pub fn check_indexes(run: &Run, are_made: bool, has_full_disk: bool) {
    let names = |ending: &str| -> BTreeSet<String> {
        let files = run.crawler.io().files().iter();
        let names =
            files.filter_map(|(path, _)| path.to_str()?.strip_suffix(ending).map(str::to_owned));
        names.collect()
    };
    let (warcs, indexes) = (names(".warc.gz"), names(".cdxj"));
    let seed = run.seed;
    assert!(
        indexes.is_subset(&warcs),
        "seed {seed}: an index has no WARC file"
    );
    assert!(
        names(".tmp").is_empty(),
        "seed {seed}: a part of a file is left"
    );
    match are_made {
        true if has_full_disk => {}
        true => assert_eq!(indexes, warcs, "seed {seed}"),
        false => assert!(indexes.is_empty(), "seed {seed}: {indexes:?}"),
    }
}

/// Each page has a line with its links. `are_short`: URLs of links may be too long, and only counted.
pub fn check_links(run: &Run, are_short: bool) {
    let seed = run.seed;
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for line in run.lines_of("links") {
        let id = line["id"].as_u64().expect("a number");
        let links = line["links"].as_array().expect("a list").len() as u64;
        let before = counts.insert(id, links);
        assert_eq!(before, None, "seed {seed}: a page has two lines of links");
    }
    for line in run.lines() {
        let id = line.0["id"].as_u64().expect("a number");
        let written = counts.remove(&id).unwrap_or(0);
        let found = line.0["links"].as_u64().unwrap_or(0);
        assert!(
            written == found || are_short && written < found,
            "seed {seed}: {written} of {found} links of page {id} are written"
        );
    }
    assert!(
        counts.is_empty(),
        "seed {seed}: links without a page: {counts:?}"
    );
}

/// Each link that was counted as left out has a line, except duplicates.
pub fn check_filtered(run: &Run) {
    let mut counts = written_as_filtered(run);
    let lines = run.lines();
    let disallowed = lines
        .iter()
        .filter(|line| line.end() == "robots.disallowed");
    assert_eq!(
        counts.remove(DISALLOWED).unwrap_or(0),
        disallowed.count() as u64,
        "seed {}: what robots.txt disallows",
        run.seed
    );
    let counted = counted_as_filtered(run);
    assert_eq!(counts, counted, "seed {}: what filters left out", run.seed);
}

/// How many links each filter has left out in a run, by its counts. Duplicates have no lines, and are not among them.
pub fn counted_as_filtered(run: &Run) -> BTreeMap<String, u64> {
    let counted = run.crawler.progress().filtered;
    let counted = counted
        .iter()
        .filter(|(filter, _)| **filter != Filtered::Duplicate);
    counted
        .map(|(filter, count)| (filter.to_string(), *count))
        .collect()
}

/// How many links each filter has left out, by the lines of `filtered.jsonl`.
pub fn written_as_filtered(run: &Run) -> BTreeMap<String, u64> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for line in run.lines_of("filtered") {
        let filter = line["filter"].as_str().expect("a name").to_owned();
        *counts.entry(filter).or_default() += line["count"].as_u64().expect("a number");
    }
    counts
}

/// How files of result lines are closed and compressed.
pub fn rotation_of(said: &Said) -> Rotation {
    let mut config = Config::default();
    for (name, value) in said.iter().filter(|(name, _)| name.starts_with("RESULTS_")) {
        config
            .set(name, value, SettingSource::Program)
            .unwrap_or_else(|error| panic!("{error}"));
    }
    config.rotation()
}

/// Number of the last line on standard output that the last commit has.
pub fn lines_of(state: &State) -> u64 {
    let mut files = state.commit().into_iter().flat_map(|commit| &commit.files);
    let stdout = files.find(|file| file.path.ends_with("-"));
    stdout.map_or(0, |file| file.length)
}

/// The last commit has lines that are on standard output, or results that were acknowledged. Returns the URLs
/// of results that were pulled and are not in it.
pub fn check_commit(run: &Run, state: &State) -> BTreeSet<String> {
    let seed = run.seed;
    match &run.output {
        Output::File => BTreeSet::new(),
        Output::Stdout(_) => {
            let lines = run.lines();
            let numbers = lines.iter().map(|line| line.0["seq"].as_u64());
            assert!(
                numbers.eq((1..=lines.len() as u64).map(Some)),
                "seed {seed}: lines are numbered in order"
            );
            assert!(
                lines_of(state) <= lines.len() as u64,
                "seed {seed}: a commit has lines that were written"
            );
            BTreeSet::new()
        }
        Output::Pulled(pulled) => {
            let last = state.commit().map_or(0, |commit| commit.epoch.0);
            let mut committed = pulled.of_epochs.range(..=last).flat_map(|(_, of)| of);
            assert!(
                committed.all(|(id, _)| pulled.acknowledged.contains(id)),
                "seed {seed}: a commit has what was acknowledged"
            );
            let others = pulled.of_epochs.range(last + 1..).flat_map(|(_, of)| of);
            others.map(|(_, url)| url.clone()).collect()
        }
    }
}

/// Each reply whose words are in the part of the body that is read has their verdict, and no other has one.
/// `streamed`: the attempts whose bodies the sink did not keep.
pub fn check_verdicts(lines: &[Line], part: Option<BodyPart>, streamed: &BTreeSet<u64>) {
    for line in lines {
        let judged = line.0["judged"].as_u64();
        let Some(label) = Label::of(&line.0) else {
            assert_eq!(judged, None, "no words: {}", line.0);
            continue;
        };
        let octets = line.0["bytes_body"].as_u64().expect("a number");
        let is_sound = line.0["error"].is_null();
        if is_sound && line.0["truncated"].is_null() {
            assert_eq!(octets, label.size, "all of the body: {}", line.0);
        }
        let read = read_of(part, octets, !streamed.contains(&line.id()));
        if is_sound || judged.is_some() {
            // Of a body that is at fault less is kept than was decoded.
            let read = if is_sound {
                read
            } else {
                read_of(part, label.size, true)
            };
            assert_eq!(
                judged,
                label.verdict(read),
                "{part:?} reads {read}: {}",
                line.0
            );
        }
        let leads = line.0["links"].as_u64().unwrap_or(0);
        assert!(
            judged.is_none() || leads == 0,
            "it leads nowhere: {}",
            line.0
        );
    }
}

/// A verdict is retried like the status that it names.
pub fn check_retries(lines: &[Line], said: &Said, reloads: &[Said]) {
    let maps = || std::iter::once(said).chain(reloads);
    let times = maps().map(|map| {
        map.get("RETRY_TIMES")
            .map_or(2, |times| times.as_u64().unwrap_or(0))
    });
    let (least, most) = (times.clone().min(), times.max());
    let names = |map: &Said, status: u64| match map.get("RETRY_HTTP_CODES") {
        Some(codes) => codes
            .as_array()
            .is_some_and(|codes| codes.contains(&status.into())),
        None => true,
    };
    let whole = lines
        .iter()
        .filter(|line| line.is_page() && line.0["error"].is_null());
    for line in whole {
        let Some(judged) = line.0["judged"].as_u64() else {
            continue;
        };
        let attempt = line.0["attempt"].as_u64();
        if maps().all(|map| names(map, judged)) && attempt <= least {
            assert!(!line.is_final(), "it is retried: {}", line.0);
        }
        if !maps().any(|map| names(map, judged)) || attempt > most {
            assert!(line.is_final(), "it is not retried: {}", line.0);
        }
    }
}
