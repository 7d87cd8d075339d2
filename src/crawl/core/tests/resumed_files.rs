//! Output files on the real disk that are committed often, torn by crashes, and continued.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::base::derive::{Derive, DeriveFiles};
use crate::base::disk::DiskJob;
use crate::base::gzip::gunzip_members;
use crate::base::rng::Rng;
use crate::base::time::Wall;
use crate::io::{Epoll, Event, Io, IoSettings};
use crate::sink::DiskSink;
use crate::sink::cdxj::{DeriveIndex, index_path};
use crate::sink::commit::{Commit, Epoch};
use crate::sink::directory::{self, LineEnd, LineFile, LineReader};
use crate::sink::files::{Compression, FileSink, FileSinkOptions, Rotation, WarcOptions};
use crate::sink::page::samples;
use crate::throttle::decision::{Decision, sample};

/// A crawl's output over several runs.
struct Output {
    folder: tempfile::TempDir,
    rng: Rng,
    /// Ids of the pages put so far in this run, and before it.
    put: Vec<u64>,
    /// The last commit that was recorded, and the pages that it has.
    last: Option<Commit>,
    committed: Vec<u64>,
    next_id: u64,
}

/// A run of the crawl.
struct Run {
    io: Epoll,
    sink: FileSink,
    jobs: Vec<DiskJob>,
    /// The epoch that is being committed, and the number of its pages.
    preparing: Option<(Epoch, usize)>,
}

#[test]
fn each_committed_line_and_record_is_there_once_after_any_crash() {
    for seed in 0..8 {
        let mut output = Output {
            folder: tempfile::tempdir().unwrap(),
            rng: Rng::from_seed(seed),
            put: Vec::new(),
            last: None,
            committed: Vec::new(),
            next_id: 1,
        };
        for _ in 0..8 {
            let mut run = output.resume();
            for _ in 0..output.rng.below(80) {
                if !output.step(&mut run) {
                    break;
                }
            }
            output.crash(run);
        }
        let mut run = output.resume();
        (0..5).for_each(|_| output.put(&mut run));
        while run.preparing.is_some() {
            output.advance(&mut run);
        }
        run.sink.finish(&mut run.jobs);
        output.prepare(&mut run);
        while run.preparing.is_some() || !run.sink.is_done() {
            output.advance(&mut run);
        }
        drop(run);
        output.check();
        let names = warcs(output.folder.path()).into_iter();
        let open = names.filter(|path| path.extension() == Some("open".as_ref()));
        assert_eq!(open.count(), 0, "seed {seed}");
    }
}

impl Output {
    fn resume(&mut self) -> Run {
        let lock = directory::lock(self.folder.path()).unwrap();
        for _ in 0..2 {
            directory::resume(&lock, self.last.as_ref()).unwrap();
            self.check();
        }
        self.put.clone_from(&self.committed);
        let mut warc = WarcOptions::new("a.test", [self.next_id as u8; 16]);
        // One page a file, or several.
        warc.size_max = [3000, 12_000][self.rng.below(2) as usize];
        let mut own = Rng::from_seed(self.next_id).fork("rotation");
        let compressions = [None, None, Some(Compression::Gzip), Some(Compression::Zstd)];
        let rotation = Rotation {
            size_max: [None, Some(1), Some(5000)][own.below(3) as usize],
            compression: compressions[own.below(4) as usize].filter(|c| c.is_built()),
            ..Rotation::default()
        };
        let mut sink = FileSink::new(FileSinkOptions {
            warc: Some(warc),
            decisions: true,
            robots: true,
            rotation,
            commits: true,
            ..FileSinkOptions::new(self.folder.path())
        });
        let mut jobs = Vec::new();
        sink.resumed(self.last.as_ref(), &mut jobs);
        Run {
            io: Epoll::new(IoSettings::default()).unwrap(),
            sink,
            jobs,
            preparing: None,
        }
    }

    fn put(&mut self, run: &mut Run) {
        let id = self.next_id;
        self.next_id += 1;
        let decision = Decision {
            id: Some(id),
            ..sample()
        };
        run.sink.decision(&decision, Wall(0), &mut run.jobs);
        let mut page = samples::page(id);
        page.robots = Some(Box::new(samples::robots()));
        run.sink.put(&mut page, &mut run.jobs);
        self.put.push(id);
    }

    fn prepare(&mut self, run: &mut Run) {
        let epoch = Epoch(self.last.as_ref().map_or(1, |last| last.epoch.0 + 1));
        run.sink.prepare(epoch, &mut run.jobs);
        run.preparing = Some((epoch, self.put.len()));
    }

    /// Something happens; `false` for a crash.
    fn step(&mut self, run: &mut Run) -> bool {
        match self.rng.below(6) {
            0..=2 => self.put(run),
            3 if self.put.len().is_multiple_of(5) => drop(run.sink.rotate(&mut run.jobs)),
            3 => run.sink.flush(&mut run.jobs),
            4 if run.preparing.is_none() => self.prepare(run),
            _ => return self.advance(run) || self.rng.below(4) > 0,
        }
        true
    }

    /// Records the epoch if it is prepared, and does jobs otherwise; `false` if the crawl may end before
    /// its sink is told.
    fn advance(&mut self, run: &mut Run) -> bool {
        if let Some((epoch, count)) = run.preparing
            && let Some(files) = run.sink.prepared(epoch)
        {
            self.last = Some(Commit { epoch, files });
            self.committed = self.put[..count].to_vec();
            let is_told = self.rng.below(8) > 0;
            if is_told {
                run.sink.committed(epoch, &mut run.jobs);
                run.preparing = None;
            }
            return is_told;
        }
        run.jobs.drain(..).for_each(|job| run.io.disk(job));
        run.io.submit();
        let mut events = Vec::new();
        let until = run.io.now() + Duration::from_millis(2);
        run.io.wait(Some(until), &mut events);
        for event in events {
            if let Event::Disk(done) = event {
                done.result.as_ref().expect("the disk works");
                run.sink.disk_done(&done, &mut run.jobs);
            }
        }
        true
    }

    /// Some of the jobs are lost, and what was not committed is torn.
    fn crash(&mut self, mut run: Run) {
        let count = self.rng.below(run.jobs.len() as u64 + 1) as usize;
        run.jobs.drain(..count).for_each(|job| run.io.disk(job));
        drop(run);
        let folder = self.folder.path().to_owned();
        let is_line = |path: &PathBuf| path.to_string_lossy().contains(".jsonl");
        let files = files_of(&folder).into_iter().filter(is_line);
        let is_open = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.ends_with(".open") || !name.contains('-')
        };
        for path in warcs(&folder).into_iter().chain(files).filter(is_open) {
            let listed = self.last.iter().flat_map(|commit| &commit.files);
            let complete = path.to_string_lossy().replace(".open", "");
            // It is about to get its number.
            let numbered = complete.replace("results.", "results-000001.");
            let numbered = numbered.replace("throttle.", "throttle-000001.");
            let numbered = numbered.replace("robots.", "robots-000001.");
            let is_it = |name: &Path| name == Path::new(&complete) || name == Path::new(&numbered);
            let committed = listed
                .filter(|file| is_it(&file.path))
                .map(|file| file.length);
            let committed = committed.max().unwrap_or(0);
            let mut file = OpenOptions::new().append(true).open(&path).unwrap();
            let rest = file.metadata().unwrap().len() - committed;
            file.set_len(committed + self.rng.below(rest + 1)).unwrap();
            let torn = [0, b'x', b'\n'][self.rng.below(3) as usize];
            file.write_all(&vec![torn; self.rng.below(50) as usize])
                .unwrap();
        }
    }

    /// The files have what is committed, and nothing else.
    fn check(&self) {
        let ids = |lines: &[Value]| -> Vec<u64> {
            lines
                .iter()
                .map(|line| line["id"].as_u64().unwrap())
                .collect()
        };
        let folder = self.folder.path();
        assert_eq!(ids(&checked_lines(folder, false)), self.committed);
        for series in ["/throttle", "/robots"] {
            let is_of_series = |path: &PathBuf| path.to_string_lossy().contains(series);
            let files = files_of(folder).into_iter().filter(is_of_series);
            let found: Vec<Value> = files.flat_map(|path| lines(&path)).collect();
            assert_eq!(ids(&found), self.committed, "{series}");
        }
    }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The WARC files of an output directory. An index that one has is its own.
fn warcs(folder: &Path) -> Vec<PathBuf> {
    let mut files = files_of(&folder.join("warc"));
    let is_index = |path: &mut PathBuf| path.extension().is_some_and(|ending| ending == "cdxj");
    let indexes: Vec<PathBuf> = files.extract_if(.., is_index).collect();
    for warc in &files {
        let Some(index) = index_path(warc).filter(|index| indexes.contains(index)) else {
            continue;
        };
        let mut made = Vec::new();
        let name = warc.file_name().unwrap().to_str().unwrap();
        let done = DeriveIndex::new(name).derive(DeriveFiles {
            from: &mut &fs::read(warc).unwrap()[..],
            to: &mut made,
            scratch: &mut std::io::Cursor::new(Vec::new()),
        });
        assert!(
            done.is_ok() && made == fs::read(&index).unwrap(),
            "{index:?}"
        );
    }
    files
}

/// The files in a directory, sorted.
fn files_of(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = paths.filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// The result lines of an output directory that no crawl writes to. Each line has its record, each reply its
/// line, and all files are whole.
/// `has_links`: links are in a file of their own.
pub fn checked_lines(folder: &Path, has_links: bool) -> Vec<Value> {
    let mut contents: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut replies = 0;
    let mut serials = BTreeSet::new();
    for path in warcs(folder) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(name.ends_with(".warc.gz"), "{name}");
        assert!(
            serials.insert(name.split('-').nth(2).unwrap().to_owned()),
            "{name}"
        );
        let bytes = fs::read(path).unwrap();
        let records = gunzip_members(&bytes);
        contents.insert(name, bytes);
        let is_reply =
            |record: &&Vec<u8>| record.starts_with(b"WARC/1.1\r\nWARC-Type: response\r\n");
        replies += records.iter().filter(is_reply).count();
        let mut records = records.iter();
        assert!(records.all(|record| record.starts_with(b"WARC/1.1\r\n")));
    }
    let mut lines = Vec::new();
    let mut reader = LineReader::results(folder, u64::MAX).unwrap();
    while let Some(line) = reader.next().unwrap() {
        assert_eq!(line.end, LineEnd::Whole, "{line:?}");
        assert!(!line.file.ends_with(".open"), "{line:?}");
        lines.push(serde_json::from_slice::<Value>(line.text).unwrap());
    }
    let mut found = BTreeMap::new();
    for file in LineFile::links(folder).unwrap() {
        assert!(!file.path().ends_with(".open"), "{file:?}");
        for line in file.open_at(0).unwrap().lines() {
            let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
            let links = line["links"].as_array().unwrap().len();
            let before = found.insert(line["id"].as_u64().unwrap(), links);
            assert_eq!(before, None, "a page has one line of links");
        }
    }
    for line in lines.iter().filter(|_| has_links) {
        let found = found.remove(&line["id"].as_u64().unwrap());
        let counted = line["links"].as_u64().unwrap_or(0) as usize;
        assert_eq!(found.unwrap_or(0), counted, "{line}");
    }
    assert!(found.is_empty(), "links have their page: {found:?}");
    let mut with_record = 0;
    for line in &lines {
        let warc = &line["warc"];
        let Some(file) = warc["file"].as_str() else {
            continue;
        };
        let number = |name: &str| warc[name].as_u64().unwrap() as usize;
        let bytes = &contents[file.strip_prefix("warc/").unwrap()];
        let record = &bytes[number("offset")..][..number("length")];
        let record = gunzip_members(record).pop().expect("a record");
        let target = format!("WARC-Target-URI: {}\r\n", line["url"].as_str().unwrap());
        assert!(String::from_utf8_lossy(&record).contains(&target));
        with_record += 1;
    }
    assert_eq!(replies, with_record, "each record has its line");
    lines
}
