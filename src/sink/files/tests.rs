//! Lines, records and their files on an in-memory disk.

mod indexes;
mod prepared;
mod rotation;

use std::collections::BTreeMap;

use serde_json::Value;

use super::*;
use crate::sink::lines::BATCH_SIZE;
use crate::sink::page::samples;
use crate::throttle::decision::sample;

/// An in-memory disk that performs one job per call. It does not compress.
#[derive(Default)]
struct Disk {
    todo: VecDeque<DiskJob>,
    open: BTreeMap<FileId, String>,
    files: BTreeMap<String, Vec<u8>>,
    /// From now on every write fails.
    full: bool,
    /// Whether indexes of WARC files wait here.
    delays_indexes: bool,
    delayed: Vec<DiskJob>,
}

impl Disk {
    fn step(&mut self) -> Option<DiskDone> {
        let job = self.todo.pop_front()?;
        if self.delays_indexes && matches!(job, DiskJob::Derive { .. }) {
            self.delayed.push(job);
            return self.step();
        }
        let (held, mut lost) = (job.held(), Vec::new());
        let (tag, file, result) = match job {
            DiskJob::Create { file, path } => {
                let path = path.to_str().unwrap().to_owned();
                assert!(self.files.insert(path.clone(), Vec::new()).is_none());
                self.open.insert(file, path);
                return self.step();
            }
            DiskJob::Open { file, path, length } => {
                let path = path.to_str().unwrap().to_owned();
                assert_eq!(self.files[&path].len() as u64, length);
                self.open.insert(file, path);
                return self.step();
            }
            DiskJob::Stdout { file } => {
                self.files.insert("-".into(), Vec::new());
                self.open.insert(file, "-".into());
                return self.step();
            }
            DiskJob::Finish { file, rename } => {
                let path = self.open.remove(&file).expect("an open file");
                let Some(name) = rename else {
                    return self.step();
                };
                let bytes = self.files.remove(&path).unwrap();
                self.files.insert(name.to_str().unwrap().to_owned(), bytes);
                (0, file, Ok(Written::default()))
            }
            DiskJob::Append {
                file, bytes, tag, ..
            }
            | DiskJob::AppendCompressed {
                file, bytes, tag, ..
            } => {
                let content = self.files.get_mut(&self.open[&file]).unwrap();
                let written = Written {
                    offset: content.len() as u64,
                    length: bytes.len() as u64,
                };
                if self.full {
                    lost = bytes;
                } else {
                    content.extend(bytes);
                }
                (tag, file, Ok(written))
            }
            DiskJob::Sync { file, tag } => {
                let content = &self.files[&self.open[&file]];
                let end = Written {
                    offset: content.len() as u64,
                    length: 0,
                };
                (tag, file, Ok(end))
            }
            DiskJob::Derive {
                file,
                from,
                to,
                tag,
                ..
            } => {
                let from = from.to_str().unwrap();
                assert!(self.files.contains_key(from), "{from} has its final name");
                if !self.full {
                    let made = format!("the index of {from}");
                    self.files
                        .insert(to.to_str().unwrap().to_owned(), made.into());
                }
                (tag, file, Ok(Written::default()))
            }
            DiskJob::Replace { .. }
            | DiskJob::Allocate { .. }
            | DiskJob::Read { .. }
            | DiskJob::Remove { .. } => {
                panic!("a sink neither replaces, allocates, reads nor removes a file")
            }
        };
        let full = || Err(io::ErrorKind::StorageFull.into());
        Some(DiskDone {
            tag,
            file: Some(file),
            held,
            result: if self.full { full() } else { result },
            unwritten: if self.full { lost } else { Vec::new() },
            read: Vec::new(),
        })
    }

    /// Performs one job and reports it to the sink.
    fn turn(&mut self, sink: &mut FileSink) -> bool {
        let Some(done) = self.step() else {
            return false;
        };
        let mut jobs = Vec::new();
        sink.disk_done(&done, &mut jobs);
        self.todo.extend(jobs);
        true
    }

    fn put(&mut self, sink: &mut FileSink, mut page: Page) {
        let mut jobs = Vec::new();
        sink.put(&mut page, &mut jobs);
        self.todo.extend(jobs);
    }

    fn flush(&mut self, sink: &mut FileSink) {
        let mut jobs = Vec::new();
        sink.flush(&mut jobs);
        self.todo.extend(jobs);
    }

    fn finish(&mut self, sink: &mut FileSink) {
        let mut jobs = Vec::new();
        sink.finish(&mut jobs);
        self.todo.extend(jobs);
        while self.turn(sink) {}
    }

    fn lines(&self, path: &str) -> Vec<Value> {
        let text = str::from_utf8(&self.files[path]).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn ids_on_stdout(&self) -> Vec<u64> {
        match self.files.contains_key("-") {
            true => self.ids("-"),
            false => Vec::new(),
        }
    }

    /// The numbers of the lines on standard output, once all are written.
    fn numbers_on_stdout(&mut self, sink: &mut FileSink) -> Vec<String> {
        while self.turn(sink) {}
        let number = |line: &Value| match &line["resumed_after"] {
            Value::Null => line["seq"].to_string(),
            after => format!("after {after}"),
        };
        self.lines("-").iter().map(number).collect()
    }

    fn ids(&self, path: &str) -> Vec<u64> {
        let lines = self.lines(path);
        lines
            .iter()
            .map(|line| line["id"].as_u64().unwrap())
            .collect()
    }
}

fn with_warc() -> FileSinkOptions {
    FileSinkOptions {
        warc: Some(WarcOptions::new("spider_1", [7; 16])),
        ..FileSinkOptions::new("out")
    }
}

#[test]
fn a_line_points_to_the_record_of_its_reply() {
    let (mut sink, mut disk) = (FileSink::new(with_warc()), Disk::default());
    for id in 1..=3 {
        disk.put(&mut sink, samples::page(id));
    }
    disk.finish(&mut sink);
    assert!(sink.is_done());
    for line in disk.lines("out/results.jsonl") {
        let file = format!("out/{}", line["warc"]["file"].as_str().unwrap());
        let offset = line["warc"]["offset"].as_u64().unwrap() as usize;
        let length = line["warc"]["length"].as_u64().unwrap() as usize;
        let record = str::from_utf8(&disk.files[&file][offset..offset + length]).unwrap();
        assert!(record.starts_with("WARC/1.1\r\nWARC-Type: response\r\n"));
        let target = format!("WARC-Target-URI: {}\r\n", line["url"].as_str().unwrap());
        assert!(record.contains(&target), "{record}");
        assert!(record.ends_with("hello\r\n\r\n"));
    }
}

#[test]
fn lines_are_written_in_order_although_some_wait_for_their_record() {
    let (mut sink, mut disk) = (FileSink::new(with_warc()), Disk::default());
    for id in 1..=9 {
        let mut page = samples::page(id);
        if id % 3 == 0 {
            page.request_bytes.clear();
            page.response_bytes.clear();
        }
        disk.put(&mut sink, page);
        if id == 4 {
            (0..4).for_each(|_| _ = disk.turn(&mut sink));
            disk.flush(&mut sink);
        }
    }
    disk.finish(&mut sink);
    assert!(sink.is_done());
    assert_eq!(disk.ids("out/results.jsonl"), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let lines = disk.lines("out/results.jsonl");
    assert!(lines[2]["warc"].is_null());
    assert!(lines[3]["warc"].is_object());
}

#[test]
fn a_sink_is_not_done_before_its_last_byte_is_synced() {
    let (mut sink, mut disk) = (FileSink::new(with_warc()), Disk::default());
    disk.put(&mut sink, samples::page(1));
    assert!(!sink.is_done());
    let mut jobs = Vec::new();
    sink.finish(&mut jobs);
    disk.todo.extend(jobs);
    while disk
        .todo
        .iter()
        .any(|job| !matches!(job, DiskJob::Finish { .. }))
    {
        assert!(!sink.is_done());
        disk.turn(&mut sink);
    }
    assert!(sink.is_done());
    assert_eq!(sink.held(), 0);
}

#[test]
fn a_slow_disk_causes_backpressure() {
    let options = FileSinkOptions {
        held_max: 1_000_000,
        ..with_warc()
    };
    let (mut sink, mut disk) = (FileSink::new(options), Disk::default());
    let mut put = 0;
    while sink.is_ready() && put < 50 {
        put += 1;
        disk.put(
            &mut sink,
            samples::reply(put, "HTTP/1.1 200 OK\r\n\r\n", &[b'x'; 100_000]),
        );
    }
    assert_eq!(
        put, 10,
        "ten pages of a good hundred thousand bytes are over the bound"
    );
    let held: usize = disk.todo.iter().map(DiskJob::held).sum();
    assert!(sink.held() >= held);
    while disk.turn(&mut sink) {}
    assert!(sink.is_ready());
}

#[test]
fn lines_are_handed_over_in_batches_and_when_flushed() {
    let mut sink = FileSink::new(FileSinkOptions::new("out"));
    let mut jobs = Vec::new();
    sink.put(&mut samples::page(1), &mut jobs);
    assert_eq!(jobs.len(), 1, "only the file is created");
    sink.flush(&mut jobs);
    assert_eq!(jobs.len(), 2);
    sink.flush(&mut jobs);
    assert_eq!(jobs.len(), 2, "there is nothing to flush");
    for id in 2..800 {
        sink.put(&mut samples::page(id), &mut jobs);
    }
    let sizes: Vec<usize> = jobs[2..].iter().map(DiskJob::held).collect();
    assert!(
        sizes
            .iter()
            .all(|size| (BATCH_SIZE..BATCH_SIZE + 2000).contains(size))
    );
    assert_eq!(sizes.len(), 2);
}

/// Writes twenty pages to small files, on a disk that performs this many jobs after each page.
fn small_files(jobs_per_page: usize) -> BTreeMap<String, Vec<u8>> {
    let mut options = with_warc();
    options.warc.as_mut().unwrap().size_max = 20_000;
    let (mut sink, mut disk) = (FileSink::new(options), Disk::default());
    for id in 1..=20 {
        disk.put(&mut sink, samples::page(id));
        (0..jobs_per_page).for_each(|_| _ = disk.turn(&mut sink));
    }
    disk.finish(&mut sink);
    disk.files.retain(|name, _| name.contains(".warc.gz"));
    disk.files
}

#[test]
fn a_new_file_is_started_before_the_size_limit_is_exceeded() {
    let warcs = small_files(100);
    assert!(warcs.len() > 1);
    for (serial, (name, bytes)) in warcs.iter().enumerate() {
        let text = str::from_utf8(bytes).unwrap();
        assert!(name.starts_with("out/warc/argiope-202611210000"), "{name}");
        assert!(
            name.ends_with(&format!("-{serial:05}-spider-1.warc.gz")),
            "{name}"
        );
        assert!(text.len() <= 20_000);
        assert!(text.starts_with("WARC/1.1\r\nWARC-Type: warcinfo\r\n"));
        assert_eq!(text.matches("WARC-Type: warcinfo").count(), 1);
        let responses = text.matches("WARC-Type: response").count();
        assert_eq!(text.matches("WARC-Type: request").count(), responses);
        assert_eq!(text.matches("WARC-Type: metadata").count(), responses);
    }
}

#[test]
fn files_are_split_the_same_with_any_disk_speed() {
    let at_once = small_files(100);
    for jobs_per_page in [0, 1, 2, 3] {
        assert!(
            small_files(jobs_per_page) == at_once,
            "{jobs_per_page} jobs a page"
        );
    }
}

#[test]
fn a_file_being_written_has_a_temporary_name() {
    let (mut sink, mut disk) = (FileSink::new(with_warc()), Disk::default());
    disk.put(&mut sink, samples::page(1));
    while disk.turn(&mut sink) {}
    assert!(
        disk.files
            .keys()
            .any(|name| name.ends_with(".warc.gz.open"))
    );
    disk.finish(&mut sink);
    assert!(!disk.files.keys().any(|name| name.ends_with(".open")));
}

#[test]
fn only_a_reply_without_chunks_has_a_payload_digest() {
    let check = |chunked, expected: usize| {
        let (mut sink, mut disk) = (FileSink::new(with_warc()), Disk::default());
        let mut page = samples::reply(1, "HTTP/1.1 200 OK\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n");
        page.chunked = chunked;
        disk.put(&mut sink, page);
        disk.finish(&mut sink);
        let (_, warc) = disk
            .files
            .iter()
            .find(|(name, _)| name.contains(".warc.gz"))
            .unwrap();
        let text = str::from_utf8(warc).unwrap();
        assert_eq!(text.matches("WARC-Payload-Digest").count(), expected);
        let digest = disk.lines("out/results.jsonl")[0]["digest"].clone();
        assert_eq!(digest == "sha1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N", chunked);
    };
    check(true, 0);
    check(false, 1);
}

#[test]
fn a_reply_with_an_ambiguous_head_end_has_no_payload_digest() {
    let check = |head: &str, expected: usize| {
        let (mut sink, mut disk) = (FileSink::new(with_warc()), Disk::default());
        disk.put(&mut sink, samples::reply(1, head, b"hello"));
        disk.finish(&mut sink);
        let (_, warc) = (disk.files.iter())
            .find(|(name, _)| name.contains(".warc.gz"))
            .expect("there is one");
        let text = str::from_utf8(warc).expect("ASCII");
        assert_eq!(
            text.matches("WARC-Payload-Digest").count(),
            expected,
            "{head:?}"
        );
        assert_eq!(text.matches("WARC-Type: response").count(), 1);
        let digest = disk.lines("out/results.jsonl")[0]["digest"].clone();
        assert_eq!(digest, "sha1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N");
    };
    check("HTTP/1.1 200 OK\r\nA: b\r\n\r\n", 1);
    check("HTTP/1.1 200 OK\nA: b\n\n", 0);
    check("HTTP/1.1 200 OK\r\nA: b\n\r\n", 0);
    check("HTTP/1.1 200 OK\nA: b\r\n\r\n", 1);
    check("\r\nHTTP/1.1 200 OK\r\nA: b\r\n\r\n", 0);
}

#[test]
fn a_request_without_a_reply_head_has_no_response_record() {
    let (mut sink, mut disk) = (FileSink::new(with_warc()), Disk::default());
    let mut page = samples::page(1);
    page.response_bytes.clear();
    page.status = None;
    disk.put(&mut sink, page);
    disk.finish(&mut sink);
    assert!(disk.lines("out/results.jsonl")[0]["warc"].is_null());
    let (_, warc) = disk
        .files
        .iter()
        .find(|(name, _)| name.contains(".warc.gz"))
        .unwrap();
    let text = str::from_utf8(warc).unwrap();
    assert_eq!(text.matches("WARC-Type: response").count(), 0);
    assert_eq!(text.matches("WARC-Type: request").count(), 1);
    assert_eq!(text.matches("WARC-Concurrent-To").count(), 1);
}

#[test]
fn metadata_contains_what_is_not_in_the_bytes() {
    let (mut sink, mut disk) = (FileSink::new(with_warc()), Disk::default());
    let mut page = samples::page(7);
    page.parent = Some(3);
    page.via = Some("http://a.test/from".into());
    page.depth = 2;
    disk.put(&mut sink, page);
    disk.finish(&mut sink);
    let (_, warc) = disk
        .files
        .iter()
        .find(|(name, _)| name.contains(".warc.gz"))
        .unwrap();
    let text = str::from_utf8(warc).unwrap();
    let block = "via: http://a.test/from\r\nfetchTimeMs: 20\r\nid: 7\r\nparent: 3\r\n\
        kind: page\r\nseed: true\r\ndepth: 2\r\nattempt: 1\r\nscope: a.test\r\n\
        reused: false\r\nconnect: 0.00003\r\nrequest: 0.00004\r\nfirst_byte: 0.0201\r\n\
        headers: 0.0202\r\nbody: 0.0203\r\nlatency: 0.02016\r\nserver_latency: 0.02016\r\n\
        lateness: 0.00001\r\ndelay: 0.25\r\n\r\n\r\n";
    assert!(text.ends_with(block), "{text}");
}

#[test]
fn a_full_disk_is_reported_with_its_file_and_the_sink_still_ends() {
    let (mut sink, mut disk) = (FileSink::new(with_warc()), Disk::default());
    disk.put(&mut sink, samples::page(1));
    disk.full = true;
    disk.finish(&mut sink);
    assert!(sink.is_done());
    let failure = sink.failure().expect("a failure");
    let name = "out/warc/argiope-20261121000001020-00000-spider-1.warc.gz";
    assert_eq!(failure.path.to_str(), Some(name));
    assert_eq!(failure.cause.kind(), io::ErrorKind::StorageFull);
    let unwritten = sink.take_unwritten();
    let urls: Vec<&str> = unwritten.iter().map(|request| &*request.url).collect();
    assert_eq!(urls, [samples::page(1).url]);
    assert!(disk.files["out/results.jsonl"].is_empty());
    assert!(
        sink.take_unwritten().is_empty(),
        "each request is returned once"
    );
}

#[test]
fn a_line_is_not_written_if_its_record_cannot_be() {
    let (mut sink, mut disk) = (FileSink::new(with_warc()), Disk::default());
    disk.put(&mut sink, samples::page(1));
    while disk.turn(&mut sink) {}
    disk.full = true;
    disk.put(&mut sink, samples::page(2));
    while disk.turn(&mut sink) {}
    disk.full = false;
    disk.put(&mut sink, samples::page(3));
    disk.finish(&mut sink);
    assert!(sink.is_done() && sink.failure().is_some());
    assert_eq!(disk.ids("out/results.jsonl"), [1, 3]);
    assert_eq!(sink.take_unwritten().len(), 1);
}

#[test]
fn lines_to_standard_output_need_no_file() {
    let options = FileSinkOptions {
        results: Results::Stdout,
        ..FileSinkOptions::new("out")
    };
    let (mut sink, mut disk) = (FileSink::new(options), Disk::default());
    disk.put(&mut sink, samples::page(1));
    let mut jobs = Vec::new();
    sink.finish(&mut jobs);
    disk.todo.extend(jobs);
    assert!(!sink.is_done(), "the line is not written yet");
    while disk.turn(&mut sink) {}
    assert!(sink.is_done());
    assert_eq!(disk.ids("-"), [1]);
    assert_eq!(disk.files.len(), 1);
}

#[test]
fn a_line_to_standard_output_is_written_at_once_and_later_ones_are_batched() {
    let (mut sink, mut disk) = (
        FileSink::new(FileSinkOptions {
            results: Results::Stdout,
            ..FileSinkOptions::new("out")
        }),
        Disk::default(),
    );
    let batches = |disk: &Disk| {
        let appends = disk.todo.iter();
        appends
            .filter(|job| matches!(job, DiskJob::Append { .. }))
            .count()
    };
    disk.put(&mut sink, samples::page(1));
    assert_eq!(batches(&disk), 1, "the next line may be far off");
    disk.put(&mut sink, samples::page(2));
    disk.put(&mut sink, samples::page(3));
    assert_eq!(batches(&disk), 1, "one is being written");
    while disk.ids_on_stdout().len() < 3 {
        assert!(disk.turn(&mut sink), "they follow without a flush");
    }
    assert_eq!(disk.ids_on_stdout(), [1, 2, 3]);
}

#[test]
fn jobs_of_other_owners_are_ignored() {
    let (mut sink, mut disk) = (FileSink::new(with_warc()), Disk::default());
    disk.put(&mut sink, samples::page(1));
    let held = sink.held();
    let other = DiskDone {
        tag: 1,
        file: Some(FileId(3)),
        held: 10,
        result: Err(io::ErrorKind::StorageFull.into()),
        unwritten: b"other".to_vec(),
        read: Vec::new(),
    };
    sink.disk_done(&other, &mut Vec::new());
    assert_eq!(sink.held(), held);
    assert!(sink.failure().is_none());
}

fn with_decisions() -> FileSinkOptions {
    FileSinkOptions {
        decisions: true,
        ..FileSinkOptions::new("out")
    }
}

fn decide(disk: &mut Disk, sink: &mut FileSink, id: u64) {
    let decision = Decision {
        id: Some(id),
        ..sample()
    };
    let mut jobs = Vec::new();
    sink.decision(&decision, Wall(0), &mut jobs);
    disk.todo.extend(jobs);
}

#[test]
fn decisions_are_written_to_their_own_file_only_if_enabled() {
    let mut disk = Disk::default();
    let mut sink = FileSink::new(FileSinkOptions {
        warc: Some(WarcOptions::new("spider_1", [7; 16])),
        ..with_decisions()
    });
    decide(&mut disk, &mut sink, 1);
    disk.put(&mut sink, samples::page(1));
    disk.flush(&mut sink);
    decide(&mut disk, &mut sink, 2);
    disk.finish(&mut sink);
    assert!(sink.is_done() && sink.failure().is_none());
    assert_eq!(sink.held(), 0);
    assert_eq!(disk.ids("out/throttle.jsonl"), [1, 2]);
    assert_eq!(disk.ids("out/results.jsonl"), [1]);

    let mut disk = Disk::default();
    let mut sink = FileSink::new(FileSinkOptions::new("out"));
    decide(&mut disk, &mut sink, 1);
    disk.finish(&mut sink);
    assert!(sink.is_done());
    assert!(!disk.files.contains_key("out/throttle.jsonl"));
}

#[test]
fn unwritten_decisions_count_as_held_and_a_full_disk_is_a_failure() {
    let mut disk = Disk::default();
    let mut sink = FileSink::new(FileSinkOptions {
        held_max: 1000,
        ..with_decisions()
    });
    for id in 0..10 {
        decide(&mut disk, &mut sink, id);
    }
    assert!(sink.held() > 1000 && !sink.is_ready());
    disk.full = true;
    disk.finish(&mut sink);
    let failure = sink.failure().expect("a failure").to_string();
    assert!(failure.contains("out/throttle.jsonl"), "{failure}");
    assert!(sink.is_done());
}

#[test]
fn requests_are_kept_until_their_lines_are_written_and_else_returned() {
    let (mut sink, mut disk) = (FileSink::new(with_warc()), Disk::default());
    let request = |id: u64| Request::post(samples::page(id).url, "body").tag(id);
    let put = |sink: &mut FileSink, disk: &mut Disk, id| {
        sink.on_request(id, &|| request(id));
        disk.put(sink, samples::page(id));
    };
    put(&mut sink, &mut disk, 11);
    while disk.turn(&mut sink) {}
    disk.full = true;
    put(&mut sink, &mut disk, 12);
    while disk.turn(&mut sink) {}
    disk.full = false;
    put(&mut sink, &mut disk, 13);
    while disk.turn(&mut sink) {}
    assert!(sink.pending_requests.size() > 0, "no line is written yet");
    disk.flush(&mut sink);
    while disk.turn(&mut sink) {}
    assert_eq!((sink.pending_requests.size(), sink.held()), (0, 0));
    disk.put(&mut sink, samples::page(14));
    put(&mut sink, &mut disk, 15);
    while disk.turn(&mut sink) {}
    disk.full = true;
    disk.finish(&mut sink);
    assert_eq!((sink.pending_requests.size(), sink.held()), (0, 0));
    let unwritten = sink.take_unwritten();
    let lines: Vec<String> = unwritten.iter().map(Request::to_line).collect();
    let plain = Request::get(samples::page(14).url);
    let expected = [&request(12), &plain, &request(15)].map(Request::to_line);
    assert_eq!(lines, expected);
}

/// Begins to commit an epoch.
fn prepare(disk: &mut Disk, sink: &mut FileSink, epoch: Epoch) {
    let mut jobs = Vec::new();
    sink.prepare(epoch, &mut jobs);
    disk.todo.extend(jobs);
}

/// Ends the commit of an epoch.
fn commit(disk: &mut Disk, sink: &mut FileSink, epoch: Epoch) {
    let mut jobs = Vec::new();
    sink.committed(epoch, &mut jobs);
    disk.todo.extend(jobs);
}

#[test]
fn an_epoch_is_prepared_once_the_disk_has_synced_its_lines_and_records() {
    let options = FileSinkOptions {
        decisions: true,
        ..with_warc()
    };
    let (mut sink, mut disk) = (FileSink::new(options), Disk::default());
    for id in 1..=3 {
        disk.put(&mut sink, samples::page(id));
        decide(&mut disk, &mut sink, id);
    }
    prepare(&mut disk, &mut sink, Epoch(1));
    // These belong to the next epoch.
    for id in 4..=5 {
        disk.put(&mut sink, samples::page(id));
        decide(&mut disk, &mut sink, id);
    }
    let mut turns = 0;
    while sink.prepared(Epoch(1)).is_none() {
        assert!(disk.turn(&mut sink), "nothing is left to do after {turns}");
        turns += 1;
    }
    assert!(turns > 3, "each file was synced");
    let files = sink.prepared(Epoch(1)).expect("it is prepared");
    let length = |end: &str| {
        let of = |file: &&FileLength| file.path.to_str().unwrap().ends_with(end);
        files.iter().find(of).expect("the file is named").length as usize
    };
    let cut = |path: &str, length| str::from_utf8(&disk.files[path][..length]).unwrap().lines();
    assert_eq!(cut("out/results.jsonl", length("results.jsonl")).count(), 3);
    assert_eq!(
        cut("out/throttle.jsonl", length("throttle.jsonl")).count(),
        3
    );
    let warc = disk.files.keys().find(|path| path.ends_with(".open"));
    let records = cut(warc.expect("it is open"), length(".warc.gz"));
    let replies = records
        .filter(|line| *line == "WARC-Type: response")
        .count();
    assert_eq!(replies, 3);

    commit(&mut disk, &mut sink, Epoch(1));
    disk.finish(&mut sink);
    assert!(sink.prepared(Epoch(2)).is_none(), "it was not asked for");
    prepare(&mut disk, &mut sink, Epoch(2));
    for FileLength { path, length } in sink.prepared(Epoch(2)).expect("all is synced") {
        assert_eq!(disk.files[path.to_str().unwrap()].len() as u64, length);
    }
    assert_eq!(disk.ids("out/results.jsonl"), [1, 2, 3, 4, 5]);
}

#[test]
fn an_epoch_with_a_failed_write_is_never_prepared() {
    let (mut sink, mut disk) = (FileSink::new(with_warc()), Disk::default());
    disk.put(&mut sink, samples::page(1));
    prepare(&mut disk, &mut sink, Epoch(1));
    disk.full = true;
    while disk.turn(&mut sink) {}
    disk.finish(&mut sink);
    assert!(sink.failure().is_some() && sink.prepared(Epoch(1)).is_none());
}

#[test]
fn lines_on_standard_output_are_prepared_once_written_and_have_no_length() {
    let options = FileSinkOptions {
        results: Results::Stdout,
        ..FileSinkOptions::new("out")
    };
    let (mut sink, mut disk) = (FileSink::new(options), Disk::default());
    disk.put(&mut sink, samples::page(1));
    prepare(&mut disk, &mut sink, Epoch(1));
    assert_eq!(sink.prepared(Epoch(1)), None);
    while disk.turn(&mut sink) {}
    assert_eq!(sink.prepared(Epoch(1)), Some(Vec::new()));
}

#[test]
fn a_resumed_sink_numbers_lines_on_standard_output_from_the_commit() {
    let options = FileSinkOptions {
        results: Results::Stdout,
        commits: true,
        ..FileSinkOptions::new("out")
    };
    let (mut sink, mut disk) = (FileSink::new(options.clone()), Disk::default());
    disk.put(&mut sink, samples::page(1));
    disk.put(&mut sink, samples::page(2));
    let files = commit_all(&mut disk, &mut sink, 1);
    assert_eq!(files, BTreeMap::from([("out/-".to_owned(), 2)]));
    disk.put(&mut sink, samples::page(3));
    assert_eq!(disk.numbers_on_stdout(&mut sink), ["1", "2", "3"]);

    let (mut sink, mut disk) = (FileSink::new(options), Disk::default());
    let files = files
        .iter()
        .map(|(path, length)| FileLength::new(path, *length));
    let last = Commit {
        epoch: Epoch(1),
        files: files.collect(),
    };
    sink.resumed(Some(&last), &mut Vec::new());
    assert_eq!(commit_all(&mut disk, &mut sink, 2)["out/-"], 2);
    disk.put(&mut sink, samples::page(4));
    assert_eq!(disk.numbers_on_stdout(&mut sink), ["after 2", "3"]);
    assert_eq!(commit_all(&mut disk, &mut sink, 3)["out/-"], 3);
}

fn with_commits() -> FileSinkOptions {
    let mut options = FileSinkOptions {
        commits: true,
        ..with_warc()
    };
    options.warc.as_mut().unwrap().size_max = 20_000;
    options
}

/// Commits an epoch; returns its files.
fn commit_all(disk: &mut Disk, sink: &mut FileSink, epoch: u64) -> BTreeMap<String, u64> {
    prepare(disk, sink, Epoch(epoch));
    while sink.prepared(Epoch(epoch)).is_none() {
        assert!(disk.turn(sink), "epoch {epoch} is not prepared");
    }
    let files = sink.prepared(Epoch(epoch)).expect("it is prepared");
    commit(disk, sink, Epoch(epoch));
    let name = |file: FileLength| (file.path.to_str().unwrap().to_owned(), file.length);
    files.into_iter().map(name).collect()
}

/// The names of the WARC files on the disk.
fn warcs(disk: &Disk) -> Vec<String> {
    let names = disk.files.keys().filter(|name| name.contains(".warc.gz"));
    names.cloned().collect()
}

#[test]
fn a_warc_file_gets_its_final_name_once_all_of_it_is_committed() {
    let (mut sink, mut disk) = (FileSink::new(with_commits()), Disk::default());
    let mut committed: BTreeMap<String, u64> = BTreeMap::new();
    let mut id = 0;
    for epoch in 1..=20 {
        // The file may become full before or after the end of an epoch.
        for _ in 0..epoch % 5 {
            id += 1;
            disk.put(&mut sink, samples::page(id));
        }
        prepare(&mut disk, &mut sink, Epoch(epoch));
        for _ in 0..epoch % 7 {
            id += 1;
            disk.put(&mut sink, samples::page(id));
        }
        while sink.prepared(Epoch(epoch)).is_none() || epoch % 3 == 0 && !disk.todo.is_empty() {
            assert!(disk.turn(&mut sink));
        }
        let named = |disk: &Disk| {
            let names = warcs(disk).into_iter();
            names
                .filter(|name| !name.ends_with(".open"))
                .collect::<Vec<_>>()
        };
        for name in named(&disk) {
            assert_eq!(committed[&name], disk.files[&name].len() as u64, "{name}");
        }
        let files = sink.prepared(Epoch(epoch)).expect("it is prepared");
        for FileLength { path, length } in files {
            committed.insert(path.to_str().unwrap().to_owned(), length);
        }
        commit(&mut disk, &mut sink, Epoch(epoch));
        while disk.turn(&mut sink) {}
        let finished = named(&disk).len();
        assert!(finished + 2 >= warcs(&disk).len(), "{:?}", warcs(&disk));
    }
    disk.finish(&mut sink);
    assert!(sink.is_done() && warcs(&disk).iter().any(|name| name.ends_with(".open")));
    commit_all(&mut disk, &mut sink, 21);
    assert!(!sink.is_done(), "files are being renamed");
    while disk.turn(&mut sink) {}
    assert!(sink.is_done() && !warcs(&disk).iter().any(|name| name.ends_with(".open")));
    assert_eq!(disk.ids("out/results.jsonl"), (1..=id).collect::<Vec<_>>());
}

#[test]
fn a_renamed_warc_file_is_listed_until_it_has_its_name_and_another_follows() {
    let (mut sink, mut disk) = (FileSink::new(with_commits()), Disk::default());
    for id in 1..=20 {
        disk.put(&mut sink, samples::page(id));
    }
    let first = commit_all(&mut disk, &mut sink, 1);
    let all = warcs(&disk).len();
    assert!(all > 2 && first.len() == all + 1);
    // The jobs that rename them wait.
    assert_eq!(commit_all(&mut disk, &mut sink, 2), first);
    while disk.turn(&mut sink) {}
    assert_eq!(
        commit_all(&mut disk, &mut sink, 3).len(),
        2,
        "the lines and the open file"
    );
    disk.finish(&mut sink);
    let last = commit_all(&mut disk, &mut sink, 4);
    while disk.turn(&mut sink) {}
    assert_eq!(
        commit_all(&mut disk, &mut sink, 5),
        last,
        "it has the last number"
    );
}

#[test]
fn a_file_without_new_content_is_not_synced_again() {
    let options = FileSinkOptions {
        decisions: true,
        ..with_commits()
    };
    let (mut sink, mut disk) = (FileSink::new(options), Disk::default());
    let syncs = |disk: &Disk| {
        let jobs = disk.todo.iter();
        jobs.filter(|job| matches!(job, DiskJob::Sync { .. }))
            .count()
    };
    disk.put(&mut sink, samples::page(1));
    let files = commit_all(&mut disk, &mut sink, 1);
    prepare(&mut disk, &mut sink, Epoch(2));
    assert_eq!(syncs(&disk), 0);
    assert_eq!(sink.prepared(Epoch(2)).map(|files| files.len()), Some(3));
    commit(&mut disk, &mut sink, Epoch(2));
    decide(&mut disk, &mut sink, 1);
    prepare(&mut disk, &mut sink, Epoch(3));
    assert_eq!(syncs(&disk), 1, "the decisions");
    while disk.turn(&mut sink) {}
    let third = sink.prepared(Epoch(3)).expect("it is prepared");
    let grown = third
        .iter()
        .filter(|file| files[file.path.to_str().unwrap()] != file.length);
    assert_eq!(grown.count(), 1);
}

#[test]
fn a_resumed_sink_continues_its_files_and_serial_numbers() {
    let options = FileSinkOptions {
        decisions: true,
        ..with_commits()
    };
    let (mut sink, mut disk) = (FileSink::new(options.clone()), Disk::default());
    for id in 1..=20 {
        disk.put(&mut sink, samples::page(id));
        decide(&mut disk, &mut sink, id);
    }
    disk.finish(&mut sink);
    commit_all(&mut disk, &mut sink, 1);
    while disk.turn(&mut sink) {}
    let files = commit_all(&mut disk, &mut sink, 2);
    let count = warcs(&disk).len();
    let last = Commit {
        epoch: Epoch(2),
        files: files
            .iter()
            .map(|(path, length)| FileLength::new(path, *length))
            .collect(),
    };
    let resume = |options: &FileSinkOptions| {
        let mut sink = FileSink::new(options.clone());
        let mut jobs = Vec::new();
        sink.resumed(Some(&last), &mut jobs);
        assert!(jobs.is_empty());
        sink
    };
    // Without decisions and records their files stay in the commits.
    let fewer = FileSinkOptions::new("out");
    disk.open.clear();
    assert_eq!(commit_all(&mut disk, &mut resume(&fewer), 3), files);
    disk.open.clear();
    let mut sink = resume(&options);
    assert_eq!(
        commit_all(&mut disk, &mut sink, 3),
        files,
        "the last record file is listed"
    );
    disk.put(&mut sink, samples::page(21));
    decide(&mut disk, &mut sink, 21);
    let more = commit_all(&mut disk, &mut sink, 4);
    let ids: Vec<_> = (1..=21).collect();
    assert_eq!(disk.ids("out/results.jsonl"), ids);
    assert_eq!(disk.ids("out/throttle.jsonl"), ids);
    let name = more
        .keys()
        .find(|name| name.contains(".warc.gz"))
        .expect("a new one");
    assert!(name.contains(&format!("-{count:05}-")), "{name}");
    assert_eq!(more.len(), 3);
    for (name, length) in more {
        let open = format!("{name}.open");
        let file = disk.files.get(&name).or_else(|| disk.files.get(&open));
        assert_eq!(file.expect("it exists").len() as u64, length, "{name}");
    }
}
