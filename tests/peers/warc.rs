//! WARC files as read by warcio, and by an independent reader.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use data_encoding::BASE32;
use flate2::bufread::MultiGzDecoder;
use sha1::{Digest, Sha1};

use super::skip;

/// The WARC files of a crawl, in order; none of them is unfinished. Each has its index.
pub fn files(out: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(out.join("warc")).expect("the crawl keeps WARC files");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let indexes: Vec<PathBuf> = files
        .extract_if(.., |file| file.extension() == Some("cdxj".as_ref()))
        .collect();
    assert_eq!(indexes.len(), files.len(), "{indexes:?}");
    let is_whole = |file: &PathBuf| file.to_str().is_some_and(|name| name.ends_with(".warc.gz"));
    assert!(files.iter().all(is_whole), "{files:?}");
    files
}

/// Whether warcio accepts a file, and its output; `None` without warcio.
pub fn warcio(arguments: &[&str]) -> Option<(bool, Vec<u8>)> {
    let output = match Command::new("warcio").args(arguments).output() {
        Ok(output) if output.status.code() != Some(127) => output,
        _ => {
            skip("warcio is not installed (pip install warcio)");
            return None;
        }
    };
    let mut text = output.stdout;
    if !output.status.success() {
        text.extend_from_slice(&output.stderr);
    }
    Some((output.status.success(), text))
}

/// One record.
pub struct Record {
    fields: Vec<(String, String)>,
    pub block: Vec<u8>,
}

impl Record {
    /// The record in a gzip member.
    pub fn read(member: &[u8]) -> Self {
        let mut bytes = Vec::new();
        MultiGzDecoder::new(member)
            .read_to_end(&mut bytes)
            .expect("a gzip member");
        let (head, rest) = split_head(&bytes);
        let mut lines = head.lines();
        assert_eq!(lines.next(), Some("WARC/1.1"));
        let fields: Vec<(String, String)> = lines.map(field).collect();
        let mut record = Record {
            fields,
            block: Vec::new(),
        };
        let length: usize = record.field("content-length").unwrap().parse().unwrap();
        assert_eq!(&rest[length..], b"\r\n\r\n", "one record a member");
        record.block = rest[..length].to_vec();
        record
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        of(&self.fields, name)
    }

    /// The reply in the record: head fields, the payload as WARC means it, and the body decoded.
    pub fn reply(&self) -> Reply {
        let (head, body) = split_head(&self.block);
        let fields: Vec<(String, String)> = head.lines().skip(1).map(field).collect();
        let chunked = of(&fields, "transfer-encoding") == Some("chunked");
        let payload = if chunked { joined(body) } else { body.to_vec() };
        let mut decoded = Vec::new();
        match of(&fields, "content-encoding") {
            Some("gzip") => drop(
                MultiGzDecoder::new(&payload[..])
                    .read_to_end(&mut decoded)
                    .expect("gzip"),
            ),
            other => {
                assert_eq!(other, None, "nginx packs with nothing else");
                decoded.clone_from(&payload);
            }
        }
        Reply {
            status_line: head.lines().next().unwrap_or("").to_owned(),
            chunked,
            gzipped: of(&fields, "content-encoding").is_some(),
            digest: format!("sha1:{}", BASE32.encode(&Sha1::digest(&payload))),
            decoded,
        }
    }
}

/// A reply, read.
pub struct Reply {
    pub status_line: String,
    pub chunked: bool,
    pub gzipped: bool,
    pub digest: String,
    pub decoded: Vec<u8>,
}

fn split_head(bytes: &[u8]) -> (&str, &[u8]) {
    let end = bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .expect("a head ends with an empty line");
    let head = std::str::from_utf8(&bytes[..end]).expect("nginx's heads are ASCII");
    (head, &bytes[end + 4..])
}

fn field(line: &str) -> (String, String) {
    let (name, value) = line.split_once(": ").expect("a field");
    (name.to_ascii_lowercase(), value.to_owned())
}

fn of<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = fields.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.as_str())
}

/// A chunked body's data.
fn joined(mut body: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    loop {
        let end = body
            .windows(2)
            .position(|two| two == b"\r\n")
            .expect("a size");
        let size = std::str::from_utf8(&body[..end]).expect("a size");
        let size = usize::from_str_radix(size, 16).expect("a size");
        if size == 0 {
            return data;
        }
        data.extend_from_slice(&body[end + 2..][..size]);
        body = &body[end + 2 + size + 2..];
    }
}
