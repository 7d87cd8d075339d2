//! Records that are prepared before their pages are put.

use super::*;
use crate::base::gzip::{Gzip, gunzip};
use crate::fetch::failure::Truncation;

/// Who prepares a page.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Preparer {
    /// The sink, when the page is put.
    Put,
    /// The loop, in steps of so many units.
    Loop(u64),
    /// A helper thread, after the loop has done a step.
    Helper,
}

/// The records of a crawl by file, uncompressed, and how many were members when they came to the disk.
#[derive(Debug, Default)]
struct Written {
    records: Vec<(FileId, Vec<u8>)>,
    members: usize,
}

/// Replies of several kinds.
fn page(id: u64) -> Page {
    let body = "a page ".repeat(30 * id as usize);
    let head = "HTTP/1.1 200 OK\r\n\r\n";
    let mut page = samples::reply(id, head, body.as_bytes());
    match id % 4 {
        1 => page.response_bytes.splice(..0, *b"\r\n").for_each(drop),
        2 => page.truncated = Some(Truncation::Length),
        3 => page.chunked = true,
        _ => {}
    }
    page
}

/// Puts twenty pages, five of which are prepared at a time, into small files. `changes`: something is learned of
/// every third page after it was prepared.
fn write(preparer: Preparer, changes: bool) -> Written {
    let mut options = with_warc();
    options.warc.as_mut().expect("it writes one").size_max = 30_000;
    let mut sink = FileSink::new(options);
    let (mut jobs, mut gzip) = (Vec::new(), Gzip::new(6));
    for batch in 0..4 {
        let mut pages: Vec<Page> = (1..=5).map(|id| page(batch * 5 + id)).collect();
        let prepared: Vec<_> = pages
            .iter()
            .map(|page| {
                let units = &mut if preparer == Preparer::Put {
                    u64::MAX
                } else {
                    0
                };
                let mut preparation = sink.preparation(page, units)?;
                match preparer {
                    Preparer::Put => panic!("it takes few units"),
                    Preparer::Loop(units) => while !preparation.step(page, &mut units.clone()) {},
                    Preparer::Helper => {
                        if page.id.is_multiple_of(2) {
                            preparation.step(page, &mut 1);
                        }
                        preparation.complete(page, &mut gzip);
                    }
                }
                Some(preparation)
            })
            .collect();
        for (page, prepared) in pages.iter_mut().zip(prepared) {
            if changes && page.id % 3 == 0 {
                page.truncated = Some(Truncation::Time);
            }
            if let Some(prepared) = prepared {
                sink.prepared_page(page.id, prepared);
            }
            sink.put(page, &mut jobs);
        }
    }
    sink.finish(&mut jobs);
    let warc = sink.first_warc_file();
    let mut written = Written::default();
    for job in jobs {
        if let DiskJob::Append {
            file, bytes, gzip, ..
        } = job
            && file >= warc
        {
            written.members += usize::from(!gzip);
            // They are counted by their length.
            assert!(gzip || bytes.capacity() < bytes.len() + 64);
            let record = if gzip { bytes } else { gunzip(&bytes) };
            written.records.push((file, record));
        }
    }
    written
}

/// The records of pages, without their ids.
fn records_of(written: &Written) -> Vec<String> {
    let texts = written.records.iter().map(|(_, record)| {
        let text = str::from_utf8(record).expect("the samples are text");
        let lines = text
            .split("\r\n")
            .map(|line| line.split(": <urn:uuid:").next().expect("a name"));
        lines.collect::<Vec<_>>().join("\n")
    });
    texts
        .filter(|text| !text.contains("Type: warcinfo"))
        .collect()
}

#[test]
fn records_are_the_same_whoever_prepares_them() {
    for changes in [false, true] {
        let expected = records_of(&write(Preparer::Put, changes));
        assert_eq!(expected.len(), 60);
        for preparer in [
            Preparer::Loop(1),
            Preparer::Loop(u64::MAX),
            Preparer::Helper,
        ] {
            let records = records_of(&write(preparer, changes));
            assert_eq!(records.len(), expected.len());
            for (record, expected) in records.iter().zip(&expected) {
                assert!(record == expected, "{preparer:?}, {changes}: {record}");
            }
        }
    }
}

#[test]
fn a_helper_compresses_records_whose_file_and_page_stay_the_same() {
    let [same, changed] = [false, true].map(|changes| write(Preparer::Helper, changes).members);
    // Not those that were prepared before their file was begun.
    assert!((3..15).contains(&same), "{same}");
    assert!(changed < same && changed > 0, "{changed} of {same}");
}

#[test]
fn each_record_names_the_warcinfo_of_its_file() {
    let id_of = |record: &str, field: &str| {
        let start = record.find(field).map(|at| at + field.len());
        start.map(|start| {
            record[start..]
                .split("\r\n")
                .next()
                .expect("it has a value")
                .to_owned()
        })
    };
    let mut infos: BTreeMap<FileId, String> = BTreeMap::new();
    let mut ids = BTreeMap::new();
    for (file, record) in write(Preparer::Helper, true).records {
        let record = String::from_utf8(record).expect("the samples are text");
        let id = id_of(&record, "WARC-Record-ID: ").expect("each has one");
        assert_eq!(ids.insert(id.clone(), file), None, "{id}");
        match id_of(&record, "WARC-Warcinfo-ID: ") {
            None => assert_eq!(infos.insert(file, id), None),
            Some(info) => assert_eq!(infos[&file], info),
        }
    }
}

/// A sink with small files, and what it gave to the disk.
struct Files {
    sink: FileSink,
    jobs: Vec<DiskJob>,
    gzip: Gzip,
}

impl Files {
    /// The first file is open.
    fn new(size_max: u64) -> Self {
        let mut options = with_warc();
        options.warc.as_mut().expect("it writes one").size_max = size_max;
        let mut files = Files {
            sink: FileSink::new(options),
            jobs: Vec::new(),
            gzip: Gzip::new(6),
        };
        files.put(0, None);
        files
    }

    /// A page of 30 kB.
    fn page(id: u64) -> Page {
        samples::reply(id, "HTTP/1.1 200 OK\r\n\r\n", &[b'x'; 30_000])
    }

    /// As a helper thread does it.
    fn prepare(&mut self, id: u64) -> Option<Box<dyn Preparation>> {
        let page = Files::page(id);
        let mut preparation = self.sink.preparation(&page, &mut 0)?;
        preparation.complete(&page, &mut self.gzip);
        Some(preparation)
    }

    fn put(&mut self, id: u64, prepared: Option<Box<dyn Preparation>>) {
        if let Some(prepared) = prepared {
            self.sink.prepared_page(id, prepared);
        }
        self.sink.put(&mut Files::page(id), &mut self.jobs);
    }

    /// Where the replies were written, in order: the number of the file, and whether as the member of a helper.
    fn replies(&self) -> Vec<(u32, bool)> {
        let first = self.sink.first_warc_file();
        let replies = self.jobs.iter().filter_map(|job| match job {
            DiskJob::Append {
                file, gzip, tag, ..
            } if *tag > 0 => Some((file.0 - first.0, !gzip)),
            _ => None,
        });
        replies.collect()
    }
}

#[test]
fn a_full_file_stays_open_for_the_records_prepared_for_it() {
    let mut files = Files::new(200_000);
    let prepared: Vec<_> = (1..=3).map(|id| (id, files.prepare(id))).collect();
    // No helper prepares these. The last two find no room.
    (11..=14).for_each(|id| files.put(id, None));
    let late = files.prepare(4);
    for (id, prepared) in prepared {
        files.put(id, prepared);
    }
    files.put(4, late);
    let without = [(0, false); 5];
    let prepared = [(0, true); 3];
    // This one was prepared for whichever file follows: the disk thread compresses it.
    let expected = [&without[..], &prepared, &[(1, false)]].concat();
    assert_eq!(files.replies(), expected);
}

#[test]
fn records_are_prepared_for_a_file_while_it_has_room_for_all_of_them() {
    let mut files = Files::new(200_000);
    let prepared: Vec<_> = (1..=10).map(|id| (id, files.prepare(id))).collect();
    for (id, prepared) in prepared {
        files.put(id, prepared);
    }
    let of_first = [(0, false), (0, true), (0, true), (0, true), (0, true)];
    let of_second = [(1, false); 6];
    assert_eq!(files.replies(), [&of_first[..], &of_second].concat());
}

#[test]
fn a_preparation_that_is_dropped_keeps_no_file_open() {
    let mut files = Files::new(90_000);
    let prepared = files.prepare(1);
    (2..=4).for_each(|id| files.put(id, None));
    drop(prepared);
    files.put(5, None);
    let in_first = [(0, false); 4];
    assert_eq!(files.replies(), [&in_first[..], &[(1, false)]].concat());
}
