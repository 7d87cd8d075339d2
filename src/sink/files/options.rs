//! Which files a crawl writes, and where.

use std::path::PathBuf;

use crate::base::disk::FileId;
use crate::sink::lines::Rotation;
use crate::sink::warc::WarcOptions;

/// The outputs and their paths: change the fields of [`FileSinkOptions::new`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FileSinkOptions {
    /// The output directory, prepared by [`prepare`](crate::sink::directory::prepare).
    pub folder: PathBuf,
    /// Destination of result lines.
    pub results: Results,
    /// Name of their file, relative to `folder`.
    pub results_name: PathBuf,
    /// When their file is closed and another begun, and how they are compressed. Not on standard output.
    pub rotation: Rotation,
    /// Whether decisions about paces are written to `throttle.jsonl`; they exist only with
    /// `AUTOTHROTTLE_DEBUG`.
    pub decisions: bool,
    /// Whether each robots.txt is archived in `robots.jsonl`, with the time from which on it applies.
    pub robots: bool,
    /// Whether the links found in pages are written to `links.jsonl`, a line for each page.
    pub links: bool,
    /// Whether the links that filters leave out are written to `filtered.jsonl`, a line for each.
    pub filtered: bool,
    /// WARC files, if any.
    pub warc: Option<WarcOptions>,
    /// Whether the crawl has a state on disk, from which it can be resumed: a full WARC file then gets its
    /// final name only after a commit that covers it, and else when it is full; and lines on standard output
    /// have sequence numbers.
    pub commits: bool,
    /// Maximum bytes waiting for the disk before the sink asks the crawl to wait. Enough to
    /// compress a hundred pages of the usual size while others arrive.
    pub held_max: usize,
    /// File ids from this one on belong to the sink; a crawl that writes other files uses lower
    /// ones.
    pub files_from: FileId,
}

impl FileSinkOptions {
    /// Result lines to `results.jsonl` in `folder`, without WARC files.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        FileSinkOptions {
            folder: folder.into(),
            results: Results::File,
            results_name: PathBuf::from("results.jsonl"),
            rotation: Rotation::default(),
            decisions: false,
            robots: false,
            links: false,
            filtered: false,
            warc: None,
            commits: false,
            held_max: 64 << 20,
            files_from: FileId(1 << 16),
        }
    }
}

/// Destination of result lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Results {
    /// To [`FileSinkOptions::results_name`], `results.jsonl` by default.
    File,
    /// To standard output, which cannot be cut. With [`FileSinkOptions::commits`] each line has a number,
    /// `seq`, from 1 on. A crawl that is resumed first writes the line `{"resumed_after": SEQ}`: its reader
    /// drops earlier lines with a greater number. The commit has this number as the length of a file `-` in
    /// `folder`.
    Stdout,
    /// Nowhere.
    None,
}
