//! URLs of result lines: of those that no commit has, before a resume cuts them off, and of all others.

use std::borrow::Cow;
use std::fs;
use std::io::{self, BufRead, ErrorKind, Read};
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::sink::commit::Commit;
use crate::sink::directory::line_file::LineFileName;
use crate::sink::directory::lines::LineFile;
use crate::sink::directory::outputs::RESULTS;

/// The fields of a line from which that is known.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    url: Cow<'a, str>,
    /// When the request was sent.
    sent: Option<IgnoredAny>,
}

/// Usual limit: far more than a crawl writes between two commits. A file whose commits are lost may have a month
/// of lines.
pub(super) const TAIL_MAX: u64 = 256 << 20;

/// A longer line is ignored.
const LINE_MAX: u64 = 4 << 20;

/// Calls `each` with the URL of each whole result line beyond the last commit whose request was sent. Other lines
/// are ignored, and so are bytes that are no line. Reads at most `tail_max` bytes, the last ones; of a compressed
/// file all that no commit has.
pub(super) fn sent_urls(
    folder: &Path,
    last: Option<&Commit>,
    tail_max: u64,
    mut each: impl FnMut(&str),
) -> io::Result<()> {
    let committed = match last {
        Some(commit) => match Committed::of(folder, commit) {
            Some(committed) => committed,
            // The lines are elsewhere.
            None => return Ok(()),
        },
        None => Committed::default(),
    };
    // Each file and the offsets from which it is read, the newest first.
    let (mut read, mut left) = (Vec::new(), tail_max);
    for file in LineFile::results(folder)?.into_iter().rev() {
        let length = match fs::metadata(file.path()) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            metadata => metadata?.len(),
        };
        let begin = committed.length(&file).unwrap_or(length).min(length);
        if length == begin || left == 0 {
            continue;
        }
        let start = match file.compression() {
            None => begin.max(length.saturating_sub(left)),
            Some(_) => begin,
        };
        left = left.saturating_sub(length - begin);
        read.push((file, start, start > begin));
    }
    for (file, start, is_rest) in read.into_iter().rev() {
        let file = file.open_at(start)?;
        let read = each_line(file, LINE_MAX, is_rest, |line| {
            if let Ok(Line { url, sent: Some(_) }) = serde_json::from_slice(line) {
                each(&url);
            }
        });
        match read {
            // What was being compressed when the machine ended is torn, and no line.
            Err(error) if error.kind() == ErrorKind::InvalidData => {}
            read => read?,
        }
    }
    Ok(())
}

/// Calls `each` with the URL of each result line that the commit has. Returns false if it has none, because the
/// lines are elsewhere.
pub(super) fn committed_urls(
    folder: &Path,
    last: &Commit,
    mut each: impl FnMut(&str),
) -> io::Result<bool> {
    let Some(committed) = Committed::of(folder, last) else {
        return Ok(false);
    };
    for file in LineFile::results(folder)? {
        let length = committed.length(&file);
        // What is compressed is read up to the end of a member.
        let bytes = match length {
            Some(length) => fs::metadata(file.path())?.len().min(length),
            None => u64::MAX,
        };
        if bytes == 0 {
            continue;
        }
        each_line(file.open_until(bytes)?, u64::MAX, false, |line| {
            if let Ok(Line { url, .. }) = serde_json::from_slice(line) {
                each(&url);
            }
        })?;
    }
    Ok(true)
}

/// How much of the files of result lines a commit has.
#[derive(Default)]
struct Committed {
    /// Length of the file with each name that it lists.
    listed: Vec<(LineFileName, u64)>,
}

impl Committed {
    /// `None` if it has no such file.
    fn of(folder: &Path, commit: &Commit) -> Option<Self> {
        let first = folder.join(RESULTS);
        let listed = commit.files.iter().filter_map(|file| {
            let name = LineFileName::of(&file.path, &first)?;
            Some((name, file.length))
        });
        let listed: Vec<_> = listed.collect();
        (!listed.is_empty()).then_some(Committed { listed })
    }

    /// Bytes of a file that the commit has; `None` for all.
    fn length(&self, file: &LineFile) -> Option<u64> {
        let name = file.name().closed();
        let find = |name: LineFileName| {
            let mut listed = self.listed.iter();
            listed
                .find(|(other, _)| *other == name)
                .map(|(_, length)| *length)
        };
        let last = self.listed.iter().filter_map(|(name, _)| name.number).max();
        let is_before = name.number.is_some() && name.number < last;
        let first = LineFileName::numbered(1, name.compression);
        // A file that is about to get its number is listed with that.
        let is_to_be_named = name.number.is_none();
        match find(name).or_else(|| find(first).filter(|_| is_to_be_named)) {
            None if is_before => None,
            length => Some(length.unwrap_or(0)),
        }
    }
}

/// Calls `each` with each whole line that is not longer than this. `is_rest`: the first is not whole.
fn each_line(
    mut reader: impl BufRead,
    length_max: u64,
    mut is_rest: bool,
    mut each: impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut line = Vec::new();
    while reader
        .by_ref()
        .take(length_max)
        .read_until(b'\n', &mut line)?
        > 0
    {
        let is_whole = line.ends_with(b"\n");
        if is_whole && !is_rest {
            each(&line);
        }
        // Otherwise it is in the middle of a line, until that ends.
        is_rest = !is_whole;
        line.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::base::compression::{Compression, Compressor};
    use crate::sink::commit::{Epoch, FileLength};

    /// The URLs beyond this many bytes of a file with this content; without a commit for `None`.
    fn urls(content: &[u8], committed: Option<u64>) -> Vec<String> {
        last_urls(content, committed, TAIL_MAX)
    }

    fn last_urls(content: &[u8], committed: Option<u64>, tail_max: u64) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(RESULTS);
        fs::write(&path, content).unwrap();
        let commit = committed.map(|length| Commit {
            epoch: Epoch(1),
            files: vec![FileLength::new(path, length)],
        });
        let mut urls = Vec::new();
        sent_urls(folder.path(), commit.as_ref(), tail_max, |url| {
            urls.push(url.to_owned());
        })
        .unwrap();
        urls
    }

    fn line(url: &str) -> String {
        format!("{{\"id\": 1, \"url\": \"{url}\", \"sent\": \"2026-11-25T00:00:00Z\"}}\n")
    }

    #[test]
    fn whole_lines_beyond_the_commit_have_the_urls_that_were_requested() {
        let lines = ["http://a.test/", "http://a.test/?q=\\\"", "http://b.test/"].map(line);
        let content = lines.concat();
        let first = lines[0].len() as u64;
        let expected = ["http://a.test/?q=\"", "http://b.test/"];
        assert_eq!(urls(content.as_bytes(), Some(first)), expected);
        assert_eq!(urls(content.as_bytes(), None).len(), 3);
        let torn = &content.as_bytes()[..content.len() - 1];
        assert_eq!(urls(torn, Some(first)), expected[..1]);
        assert!(urls(content.as_bytes(), Some(content.len() as u64 + 9)).is_empty());
    }

    #[test]
    fn what_was_not_sent_and_what_is_no_line_is_ignored() {
        let unsent = "{\"url\": \"http://a.test/1\", \"sent\": null}\n";
        let others =
            "{\"resumed_after\": 5}\n\n\0\0\0\n\"\n\u{fffd}{}\n{\"url\": 5, \"sent\": 1}\n";
        let long = line(&format!(
            "http://a.test/{}",
            "x".repeat(2 * LINE_MAX as usize)
        ));
        let mut content = [unsent, others, &long].concat().into_bytes();
        content.extend(b"\xff\xfe\n{\"url\": \"\xff\", \"sent\": 1}\n");
        content.extend(line("http://a.test/2").bytes());
        assert_eq!(urls(&content, Some(0)), ["http://a.test/2"]);
    }

    #[test]
    fn only_the_last_lines_of_a_long_file_are_read() {
        let lines: Vec<String> = (0..1000).map(|n| format!("http://a.test/{n}")).collect();
        let content: String = lines.iter().map(|url| line(url)).collect();
        let last = line(&lines[999]).len() as u64;
        for (tail_max, count) in [(last - 1, 0), (last, 0), (2 * last, 1), (10 * last - 1, 9)] {
            let read = last_urls(content.as_bytes(), None, tail_max);
            assert!(lines.ends_with(&read));
            assert_eq!(read.len(), count, "{tail_max}");
        }
        assert_eq!(last_urls(content.as_bytes(), None, 1 << 20), lines);
    }

    #[test]
    fn lines_of_compressed_files_beyond_the_commit_have_the_urls_that_were_requested() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mut compressor = Compressor::default();
        let mut member = |url: &str| {
            let mut out = Vec::new();
            let text = line(url);
            let done = compressor.compress(Compression::Gzip, text.as_bytes(), &mut out);
            done.map(|()| out).unwrap()
        };
        let (first, second) = (member("http://a.test/1"), member("http://a.test/2"));
        let write = |name: &str, parts: &[&[u8]]| fs::write(path(name), parts.concat()).unwrap();
        write("results-000001.jsonl.gz", &[&first]);
        write("results-000002.jsonl.gz.open", &[&first, &second, &[0; 99]]);
        write(
            "results-000003.jsonl.gz.open",
            &[&second, &first[..20], b"\xff\xff\xff"],
        );
        let length = first.len() as u64;
        let last = Commit {
            epoch: Epoch(1),
            files: vec![FileLength::new(path("results-000002.jsonl.gz"), length)],
        };
        let mut urls = Vec::new();
        let each = |url: &str| urls.push(url.to_owned());
        sent_urls(folder.path(), Some(&last), TAIL_MAX, each).unwrap();
        assert_eq!(urls, ["http://a.test/2", "http://a.test/2"]);
        urls.clear();
        let each = |url: &str| urls.push(url.to_owned());
        assert!(committed_urls(folder.path(), &last, each).unwrap());
        assert_eq!(urls, ["http://a.test/1", "http://a.test/1"]);
    }

    #[test]
    fn lines_that_go_elsewhere_are_not_looked_for() {
        let folder = tempfile::tempdir().unwrap();
        let each = |url: &str| panic!("{url}");
        sent_urls(folder.path(), None, TAIL_MAX, each).unwrap();
        fs::write(folder.path().join(RESULTS), line("http://a.test/")).unwrap();
        let commit = Commit {
            epoch: Epoch(1),
            files: vec![FileLength::new(folder.path().join("-"), 1)],
        };
        sent_urls(folder.path(), Some(&commit), TAIL_MAX, each).unwrap();
    }
}
