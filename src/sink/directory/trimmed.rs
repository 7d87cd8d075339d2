//! URLs of result lines: of those that no commit has, before a resume cuts them off, and of all others.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::sink::commit::Commit;
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

/// Calls `each` with the URL of each whole line of `results.jsonl` beyond the last commit whose request was
/// sent. Other lines are ignored, and so are bytes that are no line. Reads at most `tail_max` bytes, the last
/// ones.
pub(super) fn sent_urls(
    folder: &Path,
    last: Option<&Commit>,
    tail_max: u64,
    mut each: impl FnMut(&str),
) -> io::Result<()> {
    let path = folder.join(RESULTS);
    let listed = last.map(|commit| commit.files.iter().find(|file| file.path == path));
    let committed = match listed {
        Some(Some(file)) => file.length,
        // The lines are elsewhere.
        Some(None) => return Ok(()),
        None => 0,
    };
    let mut file = match File::open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let length = file.metadata()?.len();
    let start = committed.max(length.saturating_sub(tail_max));
    file.seek(SeekFrom::Start(start))?;
    each_line(file, LINE_MAX, start > committed, |line| {
        if let Ok(Line { url, sent: Some(_) }) = serde_json::from_slice(line) {
            each(&url);
        }
    })
}

/// Calls `each` with the URL of each line of `results.jsonl` that the commit has. Returns false if it has none,
/// because the lines are elsewhere.
pub(super) fn committed_urls(
    folder: &Path,
    last: &Commit,
    mut each: impl FnMut(&str),
) -> io::Result<bool> {
    let path = folder.join(RESULTS);
    let Some(listed) = last.files.iter().find(|file| file.path == path) else {
        return Ok(false);
    };
    let file = File::open(&path)?.take(listed.length);
    each_line(file, u64::MAX, false, |line| {
        if let Ok(Line { url, .. }) = serde_json::from_slice(line) {
            each(&url);
        }
    })?;
    Ok(true)
}

/// Calls `each` with each whole line that is not longer than this. `is_rest`: the first is not whole.
fn each_line(
    file: impl Read,
    length_max: u64,
    mut is_rest: bool,
    mut each: impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    while (&mut reader)
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
