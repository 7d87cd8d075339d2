//! `argiope audit` and `tools/audit.py`, on files with planted violations and on those of real crawls.

#[path = "../../src/base/loud.rs"]
mod loud;
mod planted;
mod real;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use argiope::audit::Kind;
use serde_json::Value;

use planted::Files;

/// What a verifier found: its exit code, its verdict, and each violation.
#[derive(Debug, PartialEq)]
struct Found {
    code: Option<i32>,
    verdict: String,
    departures: u64,
    violations: BTreeSet<(String, u64)>,
}

fn found(output: &Output) -> Found {
    let errors = String::from_utf8_lossy(&output.stderr);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!(
            "{error}: {}{errors}",
            String::from_utf8_lossy(&output.stdout)
        )
    });
    let violation = |line: &Value| match line.as_array() {
        Some(pair) => (pair[0].clone(), pair[1].clone()),
        None => (line["kind"].clone(), line["id"].clone()),
    };
    let violations = value["violations"].as_array().expect("violations");
    Found {
        code: output.status.code(),
        verdict: value["verdict"].as_str().expect("a verdict").to_owned(),
        departures: value["departures"].as_u64().expect("a number"),
        violations: violations
            .iter()
            .map(violation)
            .map(|(kind, id)| {
                let kind = kind.as_str().expect("a kind").to_owned();
                (kind, id.as_u64().expect("a number"))
            })
            .collect(),
    }
}

fn audit(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_argiope"))
        .arg("audit")
        .arg(folder)
        .args(args)
        .output()
        .expect("the binary runs")
}

/// The verdict of the second verifier; `None`, with a word about it, where Python is absent.
fn second_verdict(folder: &Path) -> Option<Found> {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tools/audit.py");
    let output = Command::new("python3")
        .arg(script)
        .arg(folder)
        .arg("--json")
        .output();
    match output {
        Ok(output) => Some(found(&output)),
        Err(error) => {
            loud::skip(format!("tools/audit.py was not compared: python3: {error}"));
            None
        }
    }
}

fn written(files: &Files) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    files.write(folder.path());
    folder
}

/// Hosts of each kind of violation.
const OF_EACH: u64 = 40;

#[test]
fn a_clean_crawl_has_no_violation_by_both_verifiers() {
    let hosts = Kind::ALL.len() as u64 * OF_EACH;
    let folder = written(&Files::clean(hosts));
    let first = found(&audit(folder.path(), &["--json"]));
    assert_eq!(first.violations, BTreeSet::new());
    assert_eq!((first.code, first.verdict.as_str()), (Some(0), "kept"));
    assert_eq!(first.departures, hosts * 6);
    if let Some(second) = second_verdict(folder.path()) {
        assert_eq!(second, first);
    }
}

#[test]
#[ignore = "it takes some minutes"]
fn a_clean_crawl_of_a_million_requests_has_no_violation_by_both_verifiers() {
    let hosts = 1_000_000_u64.div_ceil(6);
    let folder = written(&Files::clean(hosts));
    let output = audit(folder.path(), &["-o", "/dev/null"]);
    let text = String::from_utf8_lossy(&output.stdout);
    let first = text.lines().next().unwrap_or_default();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let expected = format!("kept: 0 violations in {} requests", hosts * 6);
    assert!(first.starts_with(&expected), "{first}");
    if let Some(second) = second_verdict(folder.path()) {
        assert_eq!(
            (second.verdict.as_str(), second.departures),
            ("kept", hosts * 6)
        );
    }
}

#[test]
fn a_thousand_planted_violations_of_all_kinds_are_found_by_both_verifiers_and_nothing_else_is() {
    let files = Files::violated(Kind::ALL.len() as u64 * OF_EACH, 7);
    let folder = written(&files);
    let planted = files
        .planted
        .iter()
        .map(|(kind, id)| (kind.to_string(), *id));
    let planted: BTreeSet<(String, u64)> = planted.collect();
    assert!(planted.len() >= 1000, "{}", planted.len());
    let kinds: BTreeSet<&str> = planted.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds.len(), Kind::ALL.len());
    let first = found(&audit(folder.path(), &["--json"]));
    let missed: Vec<_> = planted.difference(&first.violations).take(10).collect();
    let invented: Vec<_> = first.violations.difference(&planted).take(10).collect();
    assert!(
        missed.is_empty() && invented.is_empty(),
        "missed {missed:?}, invented {invented:?}"
    );
    assert_eq!((first.code, first.verdict.as_str()), (Some(1), "violated"));
    if let Some(second) = second_verdict(folder.path()) {
        let differ: Vec<_> = second
            .violations
            .symmetric_difference(&first.violations)
            .take(10)
            .collect();
        assert!(differ.is_empty(), "{differ:?}");
        assert_eq!(second, first);
    }
}

#[test]
fn the_second_verifier_has_at_most_300_lines_and_the_standard_library_alone() {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tools/audit.py");
    let text = std::fs::read_to_string(script).expect("it is there");
    assert!(text.lines().count() <= 300, "{}", text.lines().count());
    let imports = text.lines().filter_map(|line| line.strip_prefix("import "));
    let from = text
        .lines()
        .filter_map(|line| Some(line.strip_prefix("from ")?.split_once(' ')?.0));
    let imports: BTreeSet<&str> = imports
        .flat_map(|names| names.split(", "))
        .chain(from)
        .collect();
    let known = BTreeSet::from([
        "base64",
        "bisect",
        "calendar",
        "collections",
        "glob",
        "gzip",
        "heapq",
        "ipaddress",
        "json",
        "os",
        "re",
        "sys",
        "urllib.parse",
    ]);
    assert_eq!(imports, known);
}

#[test]
fn what_cannot_be_judged_is_a_usage_error_that_says_how_to_mend_it() {
    let folder = written(&Files::clean(1));
    let check = |args: &[&str], expected: &str| {
        let output = audit(folder.path(), args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(
            errors.contains(expected) && errors.lines().count() == 1,
            "{errors}"
        );
    };
    check(&["--site", "other.test"], "no request was sent to it");
    let results = folder.path().join("results.jsonl");
    let results = results.to_str().expect("a UTF-8 path");
    check(&["-o", results], "this is the crawl's results.jsonl");
    let runs = folder.path().join("runs.jsonl");
    std::fs::write(&runs, "{}\n").expect("it can be written");
    check(&[], "no start of a run");
    std::fs::remove_file(&runs).expect("it is there");
    check(&[], "has no runs.jsonl");
    std::fs::remove_file(results).expect("it is there");
    check(&[], "has no results.jsonl");
}
