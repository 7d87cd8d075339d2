//! Records and the lines that they get.

use super::*;

/// A record of this kind with these fields and this block.
fn record(kind: &str, fields: &str, block: &[u8]) -> Vec<u8> {
    let head = format!(
        "WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Date: 2026-11-28T09:05:01.123456789Z\r\n\
         WARC-Target-URI: http://a.test/\r\n{fields}Content-Length: {}\r\n\r\n",
        block.len()
    );
    [head.as_bytes(), block, b"\r\n\r\n"].concat()
}

fn read(mut record: &[u8]) -> io::Result<Indexed> {
    read_record(&mut record)
}

/// The JSON of its line, without the place of the record.
fn values(record: &[u8]) -> String {
    let Ok(Indexed::Entry(entry)) = read(record) else {
        panic!("no entry: {:?}", read(record));
    };
    let place = Place {
        filename: "f",
        offset: 7,
        length: 9,
    };
    let line = String::from_utf8(entry.line(place).expect("it is short")).unwrap();
    let start = "test,a)/ 20261128090501 {\"url\": \"http://a.test/\", ";
    let values = line.strip_prefix(start).unwrap_or_else(|| panic!("{line}"));
    let end = "\"length\": \"9\", \"offset\": \"7\", \"filename\": \"f\"}";
    values
        .strip_suffix(end)
        .unwrap_or_else(|| panic!("{line}"))
        .to_owned()
}

const DIGEST: &str = "WARC-Payload-Digest: sha1:X\r\n";

#[test]
fn status_and_media_type_are_read_as_warcio_reads_them() {
    for (head, expected) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n",
            "\"mime\": \"text/html\", \"status\": \"200\"",
        ),
        (
            "HTTP/1.1 404\r\ncontent-TYPE : a/b; c=d\r\n\r\n",
            "\"mime\": \"a/b\", \"status\": \"404\"",
        ),
        (
            "HTTP/1.1  301  Moved\nContent-Type:a/b c\nContent-Type: d\n\n",
            "\"mime\": \"a/b\", \"status\": \"301\"",
        ),
        (
            "HTTP/1.1 200 OK\r\n\r\nContent-Type: a/b",
            "\"status\": \"200\"",
        ),
        (
            "HTTP/1.1\r\nContent-Type:\r\n\r\n",
            "\"mime\": \"\", \"status\": \"\"",
        ),
        (
            "HTTP/1.1 200\r\nContent-Type:\r\n a/b\r\n\r\n",
            "\"mime\": \"\", \"status\": \"200\"",
        ),
        (
            "HTTP/1.1 200\r\n Content-Type: a/b\r\nno field\r\n more\r\n\r\n",
            "\"status\": \"200\"",
        ),
        (
            "\r\nHTTP/1.1 200\r\nContent-Type: a/b\r\n\r\n",
            "\"status\": \"\"",
        ),
        (
            "HTTP/1.1 2\"\\\x01 x\r\nContent-Type: \u{fc}\u{1f600}/{}\r\n\u{a0}\r\n",
            "\"mime\": \"\\u00fc\\ud83d\\ude00/{}\", \"status\": \"2\\\"\\\\\\u0001\"",
        ),
        ("", ""),
    ] {
        let expected = match expected {
            "" => "\"digest\": \"sha1:X\", ".to_owned(),
            expected => format!("{expected}, \"digest\": \"sha1:X\", "),
        };
        assert_eq!(
            values(&record("response", DIGEST, head.as_bytes())),
            expected,
            "{head:?}"
        );
    }
    let latin = record(
        "response",
        DIGEST,
        b"HTTP/1.1 200\r\nContent-Type: \xfc/\x7f\r\n\r\n",
    );
    assert!(values(&latin).starts_with("\"mime\": \"\\u00fc/\\u007f\", "));
}

#[test]
fn a_missing_digest_is_that_of_the_bytes_behind_the_head() {
    let block = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let digest = Digest::new(b"5\r\nhello\r\n0\r\n\r\n");
    let expected = format!("\"status\": \"200\", \"digest\": \"{digest}\", ");
    assert_eq!(values(&record("response", "", block)), expected);
}

#[test]
fn a_revisit_has_its_own_media_type_and_no_computed_digest() {
    let block = b"HTTP/1.1 304 Not Modified\r\nContent-Type: a/b\r\n\r\n";
    let expected = "\"mime\": \"warc/revisit\", \"status\": \"304\", ";
    assert_eq!(values(&record("revisit", "", block)), expected);
    let expected = "\"mime\": \"warc/revisit\", \"digest\": \"sha1:X\", ";
    assert_eq!(values(&record("revisit", DIGEST, b"")), expected);
}

#[test]
fn other_blocks_have_the_media_type_of_their_record() {
    let digest = Digest::new(b"HTTP/1.1 200 OK\r\n\r\n");
    let block = b"HTTP/1.1 200 OK\r\n\r\n";
    for kind in ["resource", "metadata"] {
        let typed = record(kind, "Content-Type: text/plain; charset=utf-8\r\n", block);
        let expected = format!("\"mime\": \"text/plain\", \"digest\": \"{digest}\", ");
        assert_eq!(values(&typed), expected);
        let fields = record(kind, "Content-Type: application/warc-fields\r\n", block);
        assert_eq!(read(&fields).unwrap(), Indexed::Other);
    }
    for kind in ["request", "warcinfo", "conversion"] {
        assert_eq!(read(&record(kind, DIGEST, block)).unwrap(), Indexed::Other);
    }
}

#[test]
fn a_url_in_brackets_or_with_spaces_is_mended() {
    let record = "WARC/1.0\r\nWARC-Type: response\r\nWARC-Date: 2026\u{2d}11-28\r\nWARC-Target-URI: <http://a.test/b c>\r\n\
                  WARC-Payload-Digest: x\r\nContent-Length: 0\r\n\r\n";
    let Indexed::Entry(entry) = read(record.as_bytes()).unwrap() else {
        panic!("it is a response");
    };
    assert_eq!(entry.url, "http://a.test/b%20c");
    assert_eq!(entry.timestamp, "20261128000000");
}

#[test]
fn heads_and_lines_have_a_bound() {
    let long = |length: usize| format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(length));
    let of = |length| read(&record("response", DIGEST, long(length).as_bytes())).unwrap();
    assert_eq!(of(HEAD_MAX), Indexed::Long);
    assert!(matches!(of(HEAD_MAX - 100), Indexed::Entry(_)));
    let fields = format!("X: {}\r\n", "x".repeat(HEAD_MAX));
    assert_eq!(
        read(&record("response", &fields, b"")).unwrap(),
        Indexed::Long
    );
    let entry = |length: usize| Entry {
        url: format!("http://a.test/{}", "\"".repeat(length)),
        ..Entry::default()
    };
    let place = Place {
        filename: "f",
        offset: 0,
        length: 0,
    };
    assert_eq!(entry(LINE_MAX / 2).line(place), None);
    assert!(entry(LINE_MAX / 4).line(place).is_some());
}

#[test]
fn what_is_no_single_record_is_an_error() {
    let whole = record("response", DIGEST, b"HTTP/1.1 200 OK\r\n\r\nhello");
    let text = String::from_utf8(whole.clone()).unwrap();
    for (what, bytes) in [
        ("nothing", String::new()),
        ("another format", "HTTP/1.1 200 OK\r\n\r\n".to_owned()),
        ("two records", format!("{text}{text}")),
        ("a length that is too small", text.replace("h: 24", "h: 23")),
        (
            "a length that is too great",
            text.replace("h: 24", "h: 240"),
        ),
        ("no length", text.replace("Content-Length", "X")),
        ("no date", text.replace("WARC-Date", "X")),
        ("a wrong date", text.replace("11-28T", "13-28T")),
        ("no URL", text.replace("WARC-Target-URI", "X")),
    ] {
        let read = read(bytes.as_bytes());
        assert!(read.is_err(), "{what}: {read:?}");
    }
    assert!(read(&whole).is_ok());
}
