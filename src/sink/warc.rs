//! The WARC files of a crawl: the records of each page, and when a new file is started.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::disk::{DiskDone, DiskJob, FileId};
use crate::base::time::Wall;
use crate::sink::page::Page;
use crate::sink::prepared::{Place, PreparedReply, Reserved, Room};
use crate::sink::records::{metadata_of, protocols_of, record_of, reply_record};
use crate::wire::warc::{Digest, Fields, Record, RecordId, RecordIds, RecordKind};

/// Tag of the job that syncs a file before it is closed. Pages are numbered from 1.
pub(super) const CLOSE_TAG: u64 = u64::MAX;

/// Naming, size and description of WARC files.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WarcOptions {
    /// The machine's name, for file names and `warcinfo`.
    pub host: String,
    /// Random bits from which record ids are derived. No two crawls may share them.
    pub seed: [u8; 16],
    /// Maximum compressed size of a file in bytes. A page is never split over two files, so a
    /// larger page has a file of its own. A full file is closed after the records that helper threads
    /// (`WORKERS`) prepare for it: room for these is reserved, and the file exceeds its size only by pages
    /// written before the last of them.
    pub size_max: u64,
    /// Further fields of each file's `warcinfo` record: `robots`, `http-header-user-agent`, …
    pub info: Vec<(String, String)>,
    /// Whether a CDXJ index is made beside each file that has its final name, by a thread of the lowest priority.
    pub cdxj: bool,
    /// WARC files of earlier runs without an index, which gets made:
    /// [`directory::unindexed`](crate::sink::directory::unindexed) finds them.
    pub unindexed: Vec<PathBuf>,
}

impl WarcOptions {
    /// One gibibyte per file, as the specification recommends (annex C).
    pub fn new(host: impl Into<String>, seed: [u8; 16]) -> Self {
        WarcOptions {
            host: host.into(),
            seed,
            size_max: 1 << 30,
            info: Vec::new(),
            cdxj: true,
            unindexed: Vec::new(),
        }
    }
}

/// The files written so far and the open one.
#[derive(Debug)]
pub(super) struct WarcFiles {
    folder: PathBuf,
    options: WarcOptions,
    ids: RecordIds,
    /// Id of the first file; the others follow.
    files_from: FileId,
    /// Serial number of the first file; the others follow.
    first_serial: u32,
    /// Whether a file gets its final name by [`WarcFiles::rename`], instead of when it is closed.
    commits: bool,
    /// The files' names relative to the output directory, in order.
    names: Vec<Arc<str>>,
    open: Option<OpenFile>,
}

impl WarcFiles {
    /// Files in `folder`, the output directory. The first is created for the first record. With `commits`
    /// they get their final names by [`WarcFiles::rename`].
    pub(super) fn new(
        folder: PathBuf,
        options: WarcOptions,
        files_from: FileId,
        commits: bool,
    ) -> Self {
        WarcFiles {
            folder,
            ids: RecordIds::new(options.seed),
            options,
            files_from,
            first_serial: 0,
            commits,
            names: Vec::new(),
            open: None,
        }
    }

    /// An earlier run of the crawl wrote a file with this number: others continue after it.
    pub(super) fn resume_after(&mut self, serial: u32) {
        self.first_serial = self.first_serial.max(serial.saturating_add(1));
    }

    /// Writes the records of a page: its reply, its request, and its metadata.
    ///
    /// Returns the name of the file if there was a reply; the job that writes the reply has this
    /// `tag`. An attempt that sent nothing has no records.
    pub(super) fn put(
        &mut self,
        page: &Page,
        digest: Option<Digest>,
        (reply, room): (Option<PreparedReply>, Option<Room>),
        tag: u64,
        disk: &mut Vec<DiskJob>,
    ) -> Option<Arc<str>> {
        let replied = !page.response_bytes.is_empty();
        if page.request_bytes.is_empty() && !replied {
            return None;
        }
        let size_max = self.options.size_max;
        let open = self.open.as_mut();
        let has_place = room.is_some() || open.is_some_and(|open| open.takes(page, size_max));
        let mut open = match self.open.take() {
            Some(open) if has_place => open,
            full => {
                if let Some(full) = full {
                    self.close(full, disk);
                }
                self.open_next(page.finished_at(), disk)
            }
        };
        open.write_page(page, digest, reply, tag, &mut self.ids, disk);
        self.open = Some(open);
        let name = self.names.last().expect("an open file has a name");
        replied.then(|| name.clone())
    }

    /// A place for a reply's record in the open file, which stays open for it; `None` if none is open or it is
    /// full.
    pub(super) fn reserve(&mut self, page: &Page) -> Option<Place> {
        let open = self.open.as_mut()?;
        let room = open.reserve(page, self.options.size_max)?;
        Some(Place {
            id: self.ids.draw(),
            info: open.info,
            room,
        })
    }

    /// Handles a finished job; jobs of others are ignored.
    pub(super) fn disk_done(&mut self, done: &DiskDone) {
        if let Some(open) = &mut self.open
            && done.file == Some(open.file)
        {
            open.in_flight = open.in_flight.saturating_sub(done.held as u64);
            if let Ok(written) = &done.result {
                open.end = open.end.max(written.offset + written.length);
            }
        }
    }

    /// Closes the open file, and returns it.
    pub(super) fn finish(&mut self, disk: &mut Vec<DiskJob>) -> Option<FileId> {
        let open = self.open.take()?;
        let file = open.file;
        self.close(open, disk);
        Some(file)
    }

    /// Closes the open file if it has records of pages, and returns it. One for which records are being prepared is
    /// full from now on: it is closed for the first page after them.
    pub(super) fn close_open(&mut self, disk: &mut Vec<DiskJob>) -> Option<FileId> {
        let open = self.open.as_mut()?;
        if !open.has_pages {
            return None;
        }
        open.is_full = true;
        match open.reserved.size() {
            0 => self.finish(disk),
            _ => None,
        }
    }

    /// The open file.
    pub(super) fn open_file(&self) -> Option<FileId> {
        self.open.as_ref().map(|open| open.file)
    }

    /// The job that gives a closed file its final name.
    pub(super) fn rename(&self, file: FileId) -> DiskJob {
        DiskJob::Finish {
            file,
            rename: self.path(file),
        }
    }

    /// The final path of a file; `None` if it is not a file of this crawl.
    pub(super) fn path(&self, file: FileId) -> Option<PathBuf> {
        let index = file.0.checked_sub(self.files_from.0)?;
        let name = self.names.get(index as usize)?;
        Some(self.folder.join(&**name))
    }

    fn open_next(&mut self, now: Wall, disk: &mut Vec<DiskJob>) -> OpenFile {
        let index = self.names.len() as u32;
        let name = file_name(now, self.first_serial + index, &self.options.host);
        let path = format!("warc/{name}");
        let mut open = OpenFile {
            file: FileId(self.files_from.0 + index),
            info: self.ids.draw(),
            end: 0,
            in_flight: 0,
            reserved: Reserved::default(),
            is_full: false,
            has_pages: false,
        };
        disk.push(DiskJob::Create {
            file: open.file,
            path: self.folder.join(format!("{path}.open")),
        });
        self.names.push(path.into());

        let mut fields = Fields::default();
        fields.push("software", concat!("argiope/", env!("CARGO_PKG_VERSION")));
        fields.push("format", "WARC File Format 1.1");
        fields.push("conformsTo", FORMAT);
        fields.push("hostname", &self.options.host);
        for (key, value) in &self.options.info {
            fields.push(key, value);
        }
        let record = Record {
            filename: Some(&name),
            ..Record::new(RecordKind::Warcinfo, open.info, now, fields.as_bytes())
        };
        open.append(&record, 0, disk);
        open
    }

    fn close(&self, open: OpenFile, disk: &mut Vec<DiskJob>) {
        disk.push(DiskJob::Sync {
            file: open.file,
            tag: CLOSE_TAG,
        });
        if !self.commits {
            disk.push(self.rename(open.file));
        }
    }
}

/// The file to which records are written.
#[derive(Debug)]
struct OpenFile {
    file: FileId,
    /// Its `warcinfo` record.
    info: RecordId,
    /// End of the last record known to be written.
    end: u64,
    /// Bytes on their way to the disk, most of them before compression: the maximum by which `end` may
    /// still grow.
    in_flight: u64,
    /// Room for records that are being prepared, before compression. They name this file, so it stays open for
    /// them.
    reserved: Reserved,
    /// A page found no room: nothing more is reserved, so that the file can be closed.
    is_full: bool,
    /// Whether it contains records other than `warcinfo`.
    has_pages: bool,
}

impl OpenFile {
    /// Whether a page that has no place in it belongs in it: there is room for the page, or records that are
    /// being prepared follow.
    fn takes(&mut self, page: &Page, size_max: u64) -> bool {
        self.is_full |= !self.has_room(size_of_records(page), size_max);
        !self.is_full || !self.has_pages || self.reserved.size() > 0
    }

    /// Reserves room for a page; `None` if the file is full.
    fn reserve(&mut self, page: &Page, size_max: u64) -> Option<Room> {
        let size = size_of_records(page);
        self.is_full |= !self.has_room(size, size_max);
        (!self.is_full).then(|| self.reserved.reserve(size))
    }

    /// Whether so many bytes fit, or are the first.
    fn has_room(&self, size: u64, size_max: u64) -> bool {
        let reserved = self.reserved.size();
        let is_empty = !self.has_pages && reserved == 0;
        is_empty || self.end + self.in_flight + reserved + size <= size_max
    }

    fn write_page(
        &mut self,
        page: &Page,
        digest: Option<Digest>,
        reply: Option<PreparedReply>,
        tag: u64,
        ids: &mut RecordIds,
        disk: &mut Vec<DiskJob>,
    ) {
        self.has_pages = true;
        let protocols = protocols_of(page);
        // The record that the others are concurrent to: the reply, or else the request.
        let prepared = reply.as_ref().and_then(PreparedReply::id);
        let main = prepared.unwrap_or_else(|| ids.draw());
        let record = |kind, id, block| Record {
            concurrent_to: (id != main).then_some(main),
            ..record_of(page, kind, id, self.info, &protocols, block)
        };

        let replied = !page.response_bytes.is_empty();
        let response = replied.then(|| reply_record(page, digest, main, self.info, &protocols));
        let request = (!page.request_bytes.is_empty()).then(|| {
            let id = if replied { ids.draw() } else { main };
            record(RecordKind::Request, id, &page.request_bytes)
        });
        let known = metadata_of(page);
        let metadata = Record {
            protocols: &[],
            cipher: None,
            ..record(RecordKind::Metadata, ids.draw(), known.as_bytes())
        };

        if let Some(response) = response {
            match reply {
                Some(reply) => {
                    let (bytes, is_member) = reply.write(&response);
                    self.append_bytes(bytes, !is_member, tag, disk);
                }
                None => self.append(&response, tag, disk),
            }
        }
        for record in [request, Some(metadata)].into_iter().flatten() {
            self.append(&record, 0, disk);
        }
    }

    fn append(&mut self, record: &Record<'_>, tag: u64, disk: &mut Vec<DiskJob>) {
        let mut bytes = Vec::new();
        record.write(&mut bytes);
        self.append_bytes(bytes, true, tag, disk);
    }

    fn append_bytes(&mut self, bytes: Vec<u8>, gzip: bool, tag: u64, disk: &mut Vec<DiskJob>) {
        self.in_flight += bytes.len() as u64;
        disk.push(DiskJob::Append {
            file: self.file,
            bytes,
            gzip,
            tag,
        });
    }
}

/// Upper estimate of the size of a page's records.
fn size_of_records(page: &Page) -> u64 {
    let blocks = page.response_bytes.len() + page.request_bytes.len();
    (blocks + 4 * page.url.len() + FIELDS_SIZE) as u64
}

/// `argiope-UTC17-SERIAL-HOST.warc.gz`, following the pattern of annex C.
fn file_name(now: Wall, serial: u32, host: &str) -> String {
    let (year, month, day, hour, minute, second) = now.civil();
    let millis = now.0 / 1_000_000 % 1000;
    let host: String = host
        .chars()
        .map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '.' => c,
            _ => '-',
        })
        .collect();
    format!(
        "argiope-{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}{millis:03}-{serial:05}-{host}.warc.gz"
    )
}

/// The serial number in the path of a WARC file of a crawl in `folder`, as [`file_name`] writes it.
pub(super) fn serial_of(folder: &Path, path: &Path) -> Option<u32> {
    let name = path.strip_prefix(folder.join("warc")).ok()?.to_str()?;
    let (_, name) = name.strip_prefix("argiope-")?.split_once('-')?;
    let (serial, host) = name.split_once('-')?;
    serial.parse().ok().filter(|_| host.ends_with(".warc.gz"))
}

/// URL of the format's specification.
const FORMAT: &str =
    "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/";

/// Upper estimate of the size of a page's record fields besides the URL: with all fields, about
/// half of this is used.
const FIELDS_SIZE: usize = 4096;
