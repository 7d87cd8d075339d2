//! Distinguishes files of lines that crawls wrote from files of the same names that a user has.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use super::outputs::{DECISIONS, FILTERED, LINKS, RESULTS, ROBOTS};

/// Whether a file of an output directory may be a crawl's: no other file begins as its lines do. Files of other names,
/// empty ones, and what is no file count as a crawl's.
///
/// # Errors
/// It cannot be read.
pub(super) fn is_of_a_crawl(path: &Path) -> io::Result<bool> {
    let name = path.file_name().unwrap_or_default();
    let Some((_, begins, has)) = LINES.iter().find(|(known, ..)| *known == name) else {
        return Ok(true);
    };
    if !fs::metadata(path)?.is_file() {
        return Ok(true);
    }
    let mut beginning = Vec::new();
    let file = File::open(path)?;
    file.take(BEGINNING).read_to_end(&mut beginning)?;
    let line = beginning.split(|byte| *byte == b'\n').next();
    let line = line.unwrap_or_default();
    let has_key = |key: &str| line.windows(key.len()).any(|part| part == key.as_bytes());
    // These have the key behind a URL, which may be of any length.
    let is_cut = line.len() as u64 == BEGINNING && (name == LINKS || name == FILTERED);
    let is_ours = line.starts_with(begins.as_bytes()) && (is_cut || has_key(has));
    // What a run that was resumed wrote to standard output may be kept under the name.
    Ok(beginning.is_empty() || is_ours || name == RESULTS && line.starts_with(RESUMED))
}

/// Names of files, with the beginning of each of their lines, and a key behind that.
const LINES: [(&str, &str, &str); 5] = [
    (RESULTS, "{\"id\": ", ", \"parent\": "),
    (DECISIONS, "{\"at\": \"", ", \"scope\": \""),
    (ROBOTS, "{\"at\": \"", ", \"until\": \""),
    (LINKS, "{\"id\": ", ", \"links\": ["),
    (FILTERED, "{\"url\": ", ", \"filter\": \""),
];

/// How the first line of a resumed run on standard output begins.
const RESUMED: &[u8] = b"{\"resumed_after\": ";

/// Bytes that are read of a file: URLs may be long. Of a longer line the end is not seen.
const BEGINNING: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::files::write_line;
    use crate::sink::page::samples;

    #[test]
    fn a_file_is_of_a_crawl_if_it_begins_with_a_line_of_its_kind() {
        let folder = tempfile::tempdir().unwrap();
        let check = |name: &str, text: &[u8], expected: bool| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            let found = is_of_a_crawl(&path).unwrap();
            let shown = String::from_utf8_lossy(text);
            assert_eq!(found, expected, "{name}: {shown}");
        };
        let mut line = Vec::new();
        let page = samples::reply(7, "HTTP/1.1 200 OK\r\n\r\n", b"");
        write_line(&page, None, &mut line);
        check(RESULTS, &line, true);
        check(RESULTS, b"", true);
        check(RESULTS, b"{\"resumed_after\": 7}\n", true);
        check(RESULTS, b"{\"id\": 7, \"title\": \"Tea\"}\n", false);
        check(
            RESULTS,
            b"{\"id\": 7}\n{\"id\": 7, \"parent\": null}\n",
            false,
        );
        check(RESULTS, b"my notes\n", false);
        check(LINKS, b"{\"id\": 7, \"url\": \"u\", \"links\": []}\n", true);
        check(LINKS, &line, false);
        let long = |length| "x".repeat(length);
        let links = |length| {
            format!(
                "{{\"id\": 7, \"url\": \"{}\", \"links\": []}}\n",
                long(length)
            )
        };
        check(LINKS, links(100_000).as_bytes(), true);
        check(LINKS, links(2_000_000).as_bytes(), true);
        let filtered = format!(
            "{{\"url\": \"{}\", \"filter\": \"denied\"}}\n",
            long(2_000_000)
        );
        check(FILTERED, filtered.as_bytes(), true);
        // A user's own.
        let texts = |length| format!("{{\"id\": 7, \"text\": \"{}\"}}\n", long(length));
        check(LINKS, texts(100_000).as_bytes(), false);
        check(RESULTS, texts(2_000_000).as_bytes(), false);
        check(LINKS, long(2_000_000).as_bytes(), false);
        // Of others the name is enough.
        check("stats.json", b"my notes\n", true);
        check("results-000001.jsonl", b"my notes\n", true);
    }
}
