//! Parquet files of `argiope export`, read by DuckDB and held against the CSV of the same lines.
//!
//! Prints `SKIPPED` if DuckDB for Python (`pip install duckdb`) is not installed.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::json;

/// A field of each type, some below others.
const FIELDS: [&str; 12] = [
    "id",
    "final",
    "url",
    "scopes",
    "status",
    "error.code",
    "warc.offset",
    "robots",
    "sent",
    "latency",
    "hold",
    "meta.a",
];

/// Prints the type of each column, the number of rows, and those that differ from the CSV. Both are read as
/// DuckDB reads them; what is not a text there is made of the texts of the CSV here.
const READER: &str = r#"
import duckdb, json, sys
parquet, csv = sys.argv[1:]
connection = duckdb.connect()
described = connection.execute("DESCRIBE SELECT * FROM read_parquet(?)", [parquet]).fetchall()
types = {row[0]: row[1] for row in described}
for name, kind in types.items():
    print(name, kind, sep=": ")
moment = "TIMESTAMP WITH TIME ZONE"
columns = [f'epoch_us("{name}")' if kind == moment else f'"{name}"' for name, kind in types.items()]
found = connection.execute(f"SELECT {', '.join(columns)} FROM read_parquet(?)", [parquet]).fetchall()
given = connection.execute(
    "SELECT * FROM read_csv(?, all_varchar = true, header = true, delim = ',', quote = '\"', escape = '\"', "
    "nullstr = '', allow_quoted_nulls = false)", [csv]).fetchall()
def micros(text):
    day, fraction = text[:-1].split(".")
    whole = connection.execute("SELECT epoch_us(?::TIMESTAMP)", [day]).fetchone()[0]
    return whole + int(fraction) // 1000
read = {"BIGINT": int, "DOUBLE": float, "BOOLEAN": json.loads, "VARCHAR": str, "VARCHAR[]": json.loads,
    moment: micros}
print(len(found))
expected = [tuple(None if text is None else read[kind](text) for text, kind in zip(row, types.values()))
    for row in given]
print(len(expected), sum(1 for row in expected for value in row if value is None) > 0)
for one, other in zip(found, expected):
    if one != other:
        print(one, other)
"#;

const EXPECTED: &str = "\
id: BIGINT
final: BOOLEAN
url: VARCHAR
scopes: VARCHAR[]
status: BIGINT
error.code: VARCHAR
warc.offset: BIGINT
robots: VARCHAR
sent: TIMESTAMP WITH TIME ZONE
latency: DOUBLE
hold: VARCHAR
meta.a: VARCHAR
1000
1000 True
";

/// Result lines with values of all kinds, some null or absent.
fn lines() -> String {
    let mut lines = String::new();
    for id in 1..=1000_u32 {
        let mut line = json!({
            "id": id, "final": id % 3 > 0, "url": format!("http://a.test/{id}?q=\"ü,\"\n💡"),
            "scopes": (0..id % 4).map(|number| format!("s{number}, \"{id}\"")).collect::<Vec<_>>(),
            "status": (id % 5 > 0).then_some(200), "error": null, "warc": {"offset": u64::from(id) << 33},
            "robots": {"meta": ["noindex"], "header": []},
            "sent": format!("2026-11-21T00:{:02}:{:02}.{:09}Z", id / 60 % 60, id % 60, id * 999_983 % 1_000_000_000),
            "latency": f64::from(id) / 7e6, "hold": null, "meta": {"a": if id % 2 > 0 { json!("") } else { json!([id]) }},
        });
        match id % 7 {
            0 => {
                line["error"] = json!({"kind": "dns", "code": "dns.nxdomain", "detail": "none"});
                line["warc"] = json!(null);
                line["sent"] = json!(null);
                line["latency"] = json!(0);
            }
            1 => {
                line["hold"] = json!({"seconds": 1.5, "scopes": {"a.test": 1.5}});
                line["robots"] = json!(null);
                line["meta"] = json!(7);
            }
            _ => {}
        }
        lines += &format!("{line}\n");
    }
    lines
}

fn export(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_argiope"));
    command.current_dir(folder).arg("export").args(args);
    command.output().expect("it starts")
}

#[test]
fn duckdb_reads_the_types_and_the_values_that_the_csv_has() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("results.jsonl"), lines()).expect("a file");
    for (format, out) in [("--parquet", "a.parquet"), ("--csv", "a.csv")] {
        let args = [&[".", "--all", "-o", out, format], &FIELDS[..]].concat();
        let exported = export(folder.path(), &args);
        assert!(exported.status.success(), "{exported:?}");
    }
    let to_stdout = export(
        folder.path(),
        &[&[".", "--all", "--parquet"], &FIELDS[..]].concat(),
    );
    let file = fs::read(folder.path().join("a.parquet")).expect("the file");
    assert!(to_stdout.stdout == file, "standard output has another file");
    let mut python = Command::new("python3");
    python.args(["-c", READER, "a.parquet", "a.csv"]);
    let read = python.current_dir(folder.path()).output();
    let lacking = |output: &Output| {
        String::from_utf8_lossy(&output.stderr).contains("No module named 'duckdb'")
    };
    let Some(read) = read.ok().filter(|output| !lacking(output)) else {
        // Directly, because the harness captures the output of passing tests.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: duckdb is not installed (pip install duckdb)"
        );
        return;
    };
    let printed = String::from_utf8_lossy(&read.stdout);
    assert_eq!(printed, EXPECTED, "{read:?}");
}

#[test]
fn columns_with_the_same_name_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("results.jsonl"), "{\"id\": 1}\n").expect("a file");
    let args = [".", "--parquet", "id", "url", "id", "-o", "a.parquet"];
    let refused = export(folder.path(), &args);
    let message = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{message}");
    assert!(message.contains("\"id\" is given twice"), "{message}");
    assert!(!folder.path().join("a.parquet").exists());
}

#[test]
fn damaged_values_cost_their_lines_and_are_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let lines = "{\"id\": 1, \"status\": \"?\"}\n{\"id\": 2, \"status\": 200}\n";
    fs::write(folder.path().join("results.jsonl"), lines).expect("a file");
    let args = [".", "--parquet", "id", "status", "-o", "a.parquet"];
    let exported = export(folder.path(), &args);
    let message = String::from_utf8_lossy(&exported.stderr);
    assert_eq!(exported.status.code(), Some(0), "{message}");
    let named = message.contains("1 damaged lines") && message.contains("line 1 of");
    assert!(named && message.contains("status is not"), "{message}");
}
