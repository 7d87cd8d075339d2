//! Tests of Parquet files, by the reader of the same crate. tests/parquet_peers.rs reads them by another.

use std::fs::File;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::printer::print_schema;

use super::*;

/// Writes lines, with row groups up to this size; returns a reader of the file.
fn written(names: &[&str], lines: &[&str], bounds: Bounds) -> SerializedFileReader<File> {
    let fields: Vec<Field> = (names.iter())
        .map(|name| Field::parse(name, &[]).expect("a field"))
        .collect();
    let out = tempfile::tempfile().expect("a file");
    let handle = out.try_clone().expect("a second handle");
    let mut table = ParquetFile::with_bounds(out, &fields, bounds).expect("the head is written");
    for line in lines {
        let row = Row::parse(line.as_bytes()).expect("JSON");
        table.add(&row).expect("it is sound");
    }
    table.finish().expect("the end is written");
    SerializedFileReader::new(handle).expect("a whole file")
}

fn rows(file: &SerializedFileReader<File>) -> Vec<String> {
    let rows = file.get_row_iter(None).expect("rows");
    rows.map(|row| row.expect("a row").to_string()).collect()
}

const LINES: [&str; 4] = [
    r#"{"id": 7, "seed": true, "url": "http://a.test/", "scopes": ["a.test", "b \"c\" \u00fc"],
        "error": {"code": "dns.nxdomain"}, "sent": "2026-11-21T00:00:07.000040999Z", "latency": 3e-5,
        "meta": {"a": "text", "b": [1, "x"]}}"#,
    r#"{"id": 8, "seed": null, "scopes": [], "error": null, "meta": {"a": "", "b": {"c": null}}}"#,
    r#"{"id": 9, "scopes": ["one"], "error": {"code": "reset"}, "latency": 0, "meta": 5}"#,
    r#"{"scopes": null, "meta": {"a": 7}}"#,
];

const NAMES: [&str; 9] = [
    "id",
    "seed",
    "url",
    "scopes",
    "error.code",
    "sent",
    "latency",
    "meta.a",
    "meta.b",
];

#[test]
fn each_column_has_the_type_of_its_field() {
    let file = written(&NAMES, &[], BOUNDS);
    let mut text = Vec::new();
    print_schema(&mut text, file.metadata().file_metadata().schema());
    let expected = "\
message results {
  OPTIONAL INT64 id;
  OPTIONAL BOOLEAN seed;
  OPTIONAL BYTE_ARRAY url (STRING);
  OPTIONAL group scopes (LIST) {
    REPEATED group list {
      REQUIRED BYTE_ARRAY element (STRING);
    }
  }
  OPTIONAL BYTE_ARRAY error.code (STRING);
  OPTIONAL INT64 sent (TIMESTAMP(MICROS,true));
  OPTIONAL DOUBLE latency;
  OPTIONAL BYTE_ARRAY meta.a (STRING);
  OPTIONAL BYTE_ARRAY meta.b (STRING);
}
";
    assert_eq!(String::from_utf8_lossy(&text), expected);
    assert_eq!(rows(&file), [""; 0]);
}

#[test]
fn values_are_read_back_and_null_where_there_are_none() {
    let file = written(&NAMES, &LINES, BOUNDS);
    assert_eq!(
        rows(&file),
        [
            r#"{id: 7, seed: true, url: "http://a.test/", scopes: ["a.test", "b "c" ü"], error.code: "dns.nxdomain", sent: 2026-11-21 00:00:07.000040 +00:00, latency: 0.00003, meta.a: "text", meta.b: "[1, "x"]"}"#,
            r#"{id: 8, seed: null, url: null, scopes: [], error.code: null, sent: null, latency: null, meta.a: "", meta.b: "{"c": null}"}"#,
            r#"{id: 9, seed: null, url: null, scopes: ["one"], error.code: "reset", sent: null, latency: 0E0, meta.a: null, meta.b: null}"#,
            r#"{id: null, seed: null, url: null, scopes: null, error.code: null, sent: null, latency: null, meta.a: "7", meta.b: null}"#,
        ]
    );
}

#[test]
fn row_groups_are_bounded_by_rows_and_by_bytes() {
    let check = |bounds: Bounds, expected: &[i64]| {
        let file = written(&NAMES, &LINES, bounds);
        let groups = file.metadata().row_groups().iter();
        let groups: Vec<i64> = groups.map(|group| group.num_rows()).collect();
        assert_eq!(groups, expected);
        assert_eq!(rows(&file), rows(&written(&NAMES, &LINES, BOUNDS)));
    };
    let (rows_max, bytes_max) = (usize::MAX, usize::MAX);
    check(
        Bounds {
            rows: 3,
            bytes: bytes_max,
        },
        &[3, 1],
    );
    check(
        Bounds {
            rows: 1,
            bytes: bytes_max,
        },
        &[1, 1, 1, 1],
    );
    check(
        Bounds {
            rows: rows_max,
            bytes: 1,
        },
        &[1, 1, 1, 1],
    );
    // The first line has more than the others.
    check(
        Bounds {
            rows: rows_max,
            bytes: 350,
        },
        &[1, 3],
    );
}

#[test]
fn line_with_a_damaged_value_is_not_added() {
    let check = |name: &str, line: &str| {
        let fields = ["id", name].map(|name| Field::parse(name, &[]).expect("a field"));
        let out = tempfile::tempfile().expect("a file");
        let handle = out.try_clone().expect("a second handle");
        let mut table = ParquetFile::new(out, &fields).expect("the head is written");
        let row = Row::parse(line.as_bytes()).expect("JSON");
        match table.add(&row) {
            Err(AddError::Value(reason)) => assert!(reason.contains(name), "{reason}"),
            other => panic!("{line}: {other:?}"),
        }
        let sound = Row::parse(br#"{"id": 2}"#).expect("JSON");
        table.add(&sound).expect("it is sound");
        table.finish().expect("the end is written");
        let file = SerializedFileReader::new(handle).expect("a whole file");
        assert_eq!(rows(&file), [format!("{{id: 2, {name}: null}}")]);
    };
    check("status", r#"{"id": 1, "status": "200"}"#);
    check("status", r#"{"id": 1, "status": 200.5}"#);
    check("final", r#"{"id": 1, "final": 1}"#);
    check("url", r#"{"id": 1, "url": 1}"#);
    check("url", r#"{"id": 1, "url": "\ud800"}"#);
    check("sent", r#"{"id": 1, "sent": "yesterday"}"#);
    check("delay", r#"{"id": 1, "delay": "1"}"#);
    check("scopes", r#"{"id": 1, "scopes": ["a", 1]}"#);
    check("scopes", r#"{"id": 1, "scopes": "a"}"#);
    check("meta.a", r#"{"id": 1, "meta": {"a": "\ud800"}}"#);
}
