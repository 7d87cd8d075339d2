//! The CDXJ index of WARC files: a line for each capture, sorted, as pywb reads it.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::base::derive::{Derive, DeriveFiles};
use crate::base::gzip::MemberReader;
use crate::base::line_sorter::{LineSorter, Scratch};
use crate::wire::cdxj::{HEAD_MAX, Indexed, LINE_MAX, Place, read_record};

/// The ends of the names of a WARC file and of its index.
const WARC: &str = ".warc.gz";
const CDXJ: &str = ".cdxj";

/// The path of the index of a WARC file: beside it, with `.cdxj` in place of `.warc.gz`. `None` if it has another
/// ending.
pub fn index_path(warc: &Path) -> Option<PathBuf> {
    let name = warc.file_name()?.to_str()?.strip_suffix(WARC)?;
    Some(warc.with_file_name(format!("{name}{CDXJ}")))
}

/// An index that is being made, in memory of about 20 MiB whatever the files have.
#[derive(Debug, Default)]
pub struct Indexer {
    lines: LineSorter,
    /// Captures without a line, as it or a head of theirs is too long.
    omitted: u64,
}

impl Indexer {
    /// Adds the lines of a WARC file with a gzip member for each record. What does not fit into memory goes to
    /// `scratch`, which is the same file each time, empty at first.
    ///
    /// # Errors
    /// [`InvalidData`](io::ErrorKind::InvalidData) or [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) with the offset
    /// of the record: the file is damaged, cut, or no such file. A file cannot be read or written.
    pub fn add(
        &mut self,
        warc: impl Read,
        filename: &str,
        scratch: &mut dyn Scratch,
    ) -> io::Result<()> {
        let mut members = MemberReader::new(warc);
        let mut offset = 0;
        loop {
            let at = |error: io::Error| match error.kind() {
                io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                    let text = format!("{error}, at offset {offset}");
                    io::Error::new(error.kind(), text)
                }
                _ => error,
            };
            if members.next_member().map_err(at)?.is_none() {
                return Ok(());
            }
            let record = read_record(&mut members).map_err(at)?;
            let end = members.skip_rest().map_err(at)?;
            let place = Place {
                filename,
                offset,
                length: end - offset,
            };
            match record {
                Indexed::Other => {}
                Indexed::Long => self.omitted += 1,
                Indexed::Entry(entry) => match entry.line(place) {
                    Some(line) => self.lines.add(&line, scratch)?,
                    None => self.omitted += 1,
                },
            }
            offset = end;
        }
    }

    /// Writes all lines to `out` in the order of their bytes. Returns the number of captures that are omitted because
    /// they have a head of more than 256 KiB or a line of more than 1 MiB, which no crawl has.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn finish(self, scratch: &mut dyn Scratch, out: &mut dyn Write) -> io::Result<u64> {
        self.lines.finish(scratch, out)?;
        Ok(self.omitted)
    }
}

/// Makes the index of one WARC file.
#[derive(Debug)]
pub struct DeriveIndex {
    filename: String,
}

impl DeriveIndex {
    /// Of the file with this name.
    pub fn new(filename: impl Into<String>) -> Self {
        DeriveIndex {
            filename: filename.into(),
        }
    }
}

impl Derive for DeriveIndex {
    fn derive(&mut self, files: DeriveFiles<'_>) -> io::Result<()> {
        let DeriveFiles { from, to, scratch } = files;
        let mut indexer = Indexer::default();
        indexer.add(from, &self.filename, scratch)?;
        let omitted = indexer.finish(scratch, to)?;
        if omitted > 0 {
            log::warn!(
                "{omitted} captures of {} are not in its index: a head of theirs has more than {HEAD_MAX} bytes, or their \
                 line more than {LINE_MAX}",
                self.filename
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::base::gzip::Gzip;

    /// A WARC file with these records, and their offsets.
    fn warc(records: &[String]) -> (Vec<u8>, Vec<usize>) {
        let (mut file, mut offsets) = (Vec::new(), Vec::new());
        let mut gzip = Gzip::new(6);
        for record in records {
            offsets.push(file.len());
            gzip.member(record.as_bytes(), &mut file);
        }
        offsets.push(file.len());
        (file, offsets)
    }

    fn response(url: &str, second: u32) -> String {
        let block = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\nhello";
        format!(
            "WARC/1.1\r\nWARC-Type: response\r\nWARC-Date: 2026-11-28T00:00:{second:02}.123Z\r\n\
             WARC-Target-URI: {url}\r\nWARC-Payload-Digest: sha1:X\r\nContent-Length: {}\r\n\r\n{block}\r\n\r\n",
            block.len()
        )
    }

    fn index(file: &[u8]) -> io::Result<String> {
        let mut out = Vec::new();
        DeriveIndex::new("a.warc.gz").derive(DeriveFiles {
            from: &mut &file[..],
            to: &mut out,
            scratch: &mut Cursor::new(Vec::new()),
        })?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn an_index_has_each_capture_in_the_order_of_keys_and_times() {
        let info = "WARC/1.1\r\nWARC-Type: warcinfo\r\nContent-Length: 2\r\n\r\nok\r\n\r\n";
        let records = [
            info.to_owned(),
            response("http://b.test/", 3),
            response("http://www.a.test/x?y", 2),
            response("https://a.test/x?y", 1),
        ];
        let (file, at) = warc(&records);
        let line = |key: &str, second: u32, url: &str, number: usize| {
            format!(
                "{key} 202611280000{second:02} {{\"url\": \"{url}\", \"mime\": \"text/html\", \"status\": \"200\", \
                 \"digest\": \"sha1:X\", \"length\": \"{}\", \"offset\": \"{}\", \"filename\": \"a.warc.gz\"}}\n",
                at[number + 1] - at[number],
                at[number],
            )
        };
        let expected = [
            line("test,a)/x?y", 1, "https://a.test/x?y", 3),
            line("test,a)/x?y", 2, "http://www.a.test/x?y", 2),
            line("test,b)/", 3, "http://b.test/", 1),
        ];
        assert_eq!(index(&file).unwrap(), expected.concat());
        assert_eq!(index(b"").unwrap(), "");
    }

    #[test]
    fn a_damaged_or_cut_file_is_an_error_that_names_the_offset() {
        let (file, at) = warc(&[response("http://a.test/", 1), response("http://b.test/", 2)]);
        let mut damaged = file.clone();
        damaged[at[1] + 30] ^= 1;
        let (double, _) = warc(&[response("http://a.test/", 1).repeat(2)]);
        let (other, _) = warc(&["no record\r\n\r\n".to_owned()]);
        for (what, file, offset) in [
            ("damaged", &damaged[..], at[1]),
            ("cut", &file[..at[2] - 1], at[1]),
            ("not compressed", b"WARC/1.1\r\n\r\n", 0),
            ("two records in a member", &double, 0),
            ("another format", &other, 0),
        ] {
            let error = index(file).expect_err(what).to_string();
            assert!(
                error.ends_with(&format!(", at offset {offset}")),
                "{what}: {error}"
            );
        }
    }

    #[test]
    fn the_index_of_a_warc_file_is_beside_it() {
        let path = |warc: &str| index_path(Path::new(warc));
        assert_eq!(path("warc/a.warc.gz"), Some("warc/a.cdxj".into()));
        assert_eq!(path("warc/a.warc.gz.open"), None);
        assert_eq!(path("warc/a.warc"), None);
    }
}
