//! The result lines and WARC files of a crawl, and what is wrong with them. Used by the tests, too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::path::Path;

use argiope::sink::directory::LineReader;
use serde_json::Value;

/// The files of a crawl that is not running.
pub struct Output {
    pub lines: Vec<Line>,
    /// WARC records by file and offset.
    records: BTreeMap<(String, u64), WarcRecord>,
    wrong: Vec<String>,
}

/// A result line.
pub struct Line {
    pub id: u64,
    pub parent: Option<u64>,
    pub url: String,
    pub is_page: bool,
    pub is_final: bool,
    pub is_sent: bool,
    pub is_refetched: bool,
    /// The status, or the code of the error.
    pub end: String,
    /// File, offset and length of its record.
    record: Option<(String, u64, u64)>,
}

struct WarcRecord {
    length: u64,
    is_response: bool,
    target: String,
}

impl Output {
    /// Reads the files in the output directory of a crawl.
    pub fn read(out: &Path) -> io::Result<Output> {
        let mut reader = LineReader::results(out, u64::MAX)?;
        let mut text = String::new();
        while let Some(line) = reader.next()? {
            text.push_str(&String::from_utf8_lossy(line.text));
        }
        let mut output = Output {
            lines: Vec::new(),
            records: BTreeMap::new(),
            wrong: Vec::new(),
        };
        if !text.is_empty() && !text.ends_with('\n') {
            output.wrong.push("the last line is cut short".to_owned());
        }
        for line in text.lines() {
            match serde_json::from_str(line) {
                Ok(line) => output.lines.push(Line::of(&line)),
                Err(error) => output.wrong.push(format!("{error}: {line}")),
            }
        }
        let warcs = match fs::read_dir(out.join("warc")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(output),
            warcs => warcs?,
        };
        for entry in warcs {
            let path = entry?.path();
            // An index is made after the crawl's files, and may be missing after a crash.
            if path.to_string_lossy().contains(".cdxj") {
                continue;
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            output.read_warc(&name, &fs::read(&path)?);
        }
        Ok(output)
    }

    /// Each record is a gzip member.
    fn read_warc(&mut self, name: &str, bytes: &[u8]) {
        if !name.ends_with(".warc.gz") {
            self.wrong.push(format!("{name} has not its final name"));
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let offset = (bytes.len() - rest.len()) as u64;
            let mut decoder = flate2::bufread::GzDecoder::new(rest);
            let mut content = Vec::new();
            if let Err(error) = decoder.read_to_end(&mut content) {
                self.wrong.push(format!("{name} at {offset}: {error}"));
                return;
            }
            rest = decoder.into_inner();
            let head = String::from_utf8_lossy(&content);
            let head = head.split("\r\n\r\n").next().unwrap_or_default();
            if !head.starts_with("WARC/1.1\r\n") {
                self.wrong
                    .push(format!("{name} at {offset}: no WARC record"));
            }
            let field = |name: &str| {
                let mut fields = head.lines().filter_map(|line| line.split_once(": "));
                fields
                    .find(|(found, _)| *found == name)
                    .map(|(_, value)| value)
            };
            let record = WarcRecord {
                length: (bytes.len() - rest.len()) as u64 - offset,
                is_response: field("WARC-Type") == Some("response"),
                target: field("WARC-Target-URI").unwrap_or_default().to_owned(),
            };
            self.records
                .insert((format!("warc/{name}"), offset), record);
        }
    }

    /// What is wrong with the files: each URL has one final line at most, each attempt that is not final
    /// its successor, each line a number of its own and its record, and each reply among the records its
    /// line.
    pub fn violations(&self) -> Vec<String> {
        let mut wrong = self.wrong.clone();
        let mut finals = BTreeSet::new();
        let mut ids = BTreeSet::new();
        let mut with_record = 0;
        let parents: BTreeSet<u64> = self.lines.iter().filter_map(|line| line.parent).collect();
        for line in &self.lines {
            let Line { id, url, .. } = line;
            if !ids.insert(*id) {
                wrong.push(format!("two lines have the number {id}"));
            }
            if line.is_page && line.is_final && !finals.insert(url) {
                wrong.push(format!("{url} has two final lines"));
            }
            if line.is_page && !line.is_final && !parents.contains(id) {
                wrong.push(format!("nothing follows line {id} of {url}"));
            }
            let Some((file, offset, length)) = &line.record else {
                continue;
            };
            with_record += 1;
            let found = self.records.get(&(file.clone(), *offset));
            if !found.is_some_and(|found| found.length == *length && found.target == *url) {
                wrong.push(format!(
                    "line {id} of {url} has no record at {offset} of {file}"
                ));
            }
        }
        let replies = self
            .records
            .values()
            .filter(|record| record.is_response)
            .count();
        if replies != with_record {
            wrong.push(format!(
                "{replies} replies are recorded, and {with_record} lines have one"
            ));
        }
        wrong
    }

    /// How the last attempt at each page ended, by its URL. Whether that of a redirect is final depends on
    /// whether another page had led to its target before.
    pub fn ends(&self) -> BTreeMap<&str, &str> {
        let pages = self.lines.iter().filter(|line| line.is_page);
        pages.map(|line| (&*line.url, &*line.end)).collect()
    }
}

impl Line {
    fn of(line: &Value) -> Line {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let warc = &line["warc"];
        let record = warc["file"].as_str().and_then(|file| {
            let number = |name: &str| warc[name].as_u64();
            Some((file.to_owned(), number("offset")?, number("length")?))
        });
        Line {
            id: line["id"].as_u64().unwrap_or_default(),
            parent: line["parent"].as_u64(),
            url: text(&line["url"]),
            is_page: line["kind"] == "page",
            is_final: line["final"] == true,
            is_sent: !line["sent"].is_null(),
            is_refetched: line["refetched"] == true,
            end: match &line["error"] {
                Value::Null => line["status"].to_string(),
                error => text(&error["code"]),
            },
            record,
        }
    }
}
