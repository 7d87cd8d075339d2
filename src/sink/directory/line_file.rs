//! Names of files of lines: `results.jsonl`, and those of a crawl that begins a new one now and then,
//! `results-000001.jsonl`, each with the ending of its compression.
//!
//! A file with a number has `.open` appended while it is written, as WARC files have. So a file with a number and
//! without `.open` is complete, and the names sort in the order of the lines. A file without a number that is closed
//! for another gets the number 1.

use std::path::{Path, PathBuf};

use crate::base::compression::Compression;
use crate::sink::directory::outputs::OPEN;

/// The name of a file of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sink) struct LineFileName {
    /// Its number, from 1 on; `None` if it has none.
    pub number: Option<u32>,
    /// How it is compressed.
    pub compression: Option<Compression>,
    /// Whether it is being written, as its name says.
    pub is_open: bool,
}

impl LineFileName {
    /// The first file of a crawl that does not begin new ones.
    pub(in crate::sink) fn unnumbered(compression: Option<Compression>) -> Self {
        LineFileName {
            number: None,
            compression,
            is_open: false,
        }
    }

    /// A complete file with a number.
    pub(in crate::sink) fn numbered(number: u32, compression: Option<Compression>) -> Self {
        LineFileName {
            number: Some(number),
            compression,
            is_open: false,
        }
    }

    /// The name of this file while it is written.
    pub(in crate::sink) fn open(self) -> Self {
        LineFileName {
            is_open: self.number.is_some(),
            ..self
        }
    }

    /// The name of this file once it is complete.
    pub(in crate::sink) fn closed(self) -> Self {
        LineFileName {
            is_open: false,
            ..self
        }
    }

    /// The name that this path has in the series that begins with `first`; `None` if it is no file of it.
    pub(in crate::sink) fn of(path: &Path, first: &Path) -> Option<Self> {
        if path.parent() != first.parent() {
            return None;
        }
        let (stem, ending) = stem_and_ending(first)?;
        let name = path.file_name()?.to_str()?;
        let (name, is_open) = match name.strip_suffix(OPEN) {
            Some(name) => (name, true),
            None => (name, false),
        };
        let compressed = Compression::ALL
            .into_iter()
            .find_map(|c| Some((name.strip_suffix(c.extension())?, c)));
        let (name, compression) = match compressed {
            Some((name, compression)) => (name, Some(compression)),
            None => (name, None),
        };
        let rest = name.strip_prefix(stem)?.strip_suffix(ending)?;
        let number = match rest {
            "" => None,
            _ => Some(number_of(rest.strip_prefix('-')?)?),
        };
        (number.is_some() || !is_open).then_some(LineFileName {
            number,
            compression,
            is_open,
        })
    }

    /// The path with this name in the series that begins with `first`.
    pub(in crate::sink) fn path(self, first: &Path) -> PathBuf {
        let (stem, ending) = stem_and_ending(first).unwrap_or_default();
        let number = match self.number {
            Some(number) => format!("-{number:06}"),
            None => String::new(),
        };
        let compression = self.compression.map_or("", Compression::extension);
        let open = if self.is_open { OPEN } else { "" };
        first.with_file_name(format!("{stem}{number}{ending}{compression}{open}"))
    }
}

/// The digits of a number, with at least six.
fn number_of(digits: &str) -> Option<u32> {
    let is_number = digits.len() >= 6 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = digits.len() == 6 || !digits.starts_with('0');
    let number = digits.parse().ok().filter(|_| is_number && is_plain)?;
    (number > 0).then_some(number)
}

/// `results` and `.jsonl`.
fn stem_and_ending(first: &Path) -> Option<(&str, &str)> {
    let name = first.file_name()?.to_str()?;
    Some(name.split_at(name.find('.').unwrap_or(name.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_number_and_the_compression_of_its_file() {
        let first = Path::new("out/results.jsonl");
        let check = |name: &str, number, compression, is_open| {
            let path = Path::new("out").join(name);
            let expected = LineFileName {
                number,
                compression,
                is_open,
            };
            assert_eq!(LineFileName::of(&path, first), Some(expected), "{name}");
            assert_eq!(expected.path(first), path);
        };
        let (gzip, zstd) = (Some(Compression::Gzip), Some(Compression::Zstd));
        check("results.jsonl", None, None, false);
        check("results.jsonl.zst", None, zstd, false);
        check("results-000001.jsonl", Some(1), None, false);
        check("results-000020.jsonl.gz.open", Some(20), gzip, true);
        check("results-1234567.jsonl.zst", Some(1_234_567), zstd, false);
    }

    #[test]
    fn names_of_other_files_are_not_taken_for_a_series() {
        let first = Path::new("out/results.jsonl");
        for name in [
            "results.jsonl.bak",
            "results.jsonl.open",
            "results-1.jsonl",
            "results-000000.jsonl",
            "results-0000001.jsonl",
            "results-00000a.jsonl",
            "results-+00001.jsonl",
            "results-99999999999.jsonl",
            "results000001.jsonl",
            "results-000001.json",
            "results-000001.jsonl.xz",
            "results-000001.jsonl.gz.zst",
            "my-results-000001.jsonl",
            "below/results-000001.jsonl",
        ] {
            let path = Path::new("out").join(name);
            assert_eq!(LineFileName::of(&path, first), None, "{name}");
        }
    }

    #[test]
    fn names_sort_in_the_order_of_their_files() {
        let first = Path::new("out/results.jsonl");
        let name = |number| LineFileName::numbered(number, None);
        let names = [name(1), name(2), name(99).open()].map(|name| name.path(first));
        assert!(names.is_sorted(), "{names:?}");
    }
}
