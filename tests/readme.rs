//! The README keeps its word: what it names is there, and what must be named in it is.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use argiope::{Pacing, Progress, Stats};

const README: &str = include_str!("../README.md");

#[test]
fn every_key_of_stats_json_is_documented() {
    let keys = section("### The keys of `stats.json`");
    let named: BTreeSet<&str> = rows(keys).flat_map(|row| quoted(row[0])).collect();
    let stats = Stats::new().to_json(&Progress::default(), &Pacing::default());
    let there: BTreeSet<&str> = stats
        .as_object()
        .expect("stats are an object")
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(named, there);
}

#[test]
fn every_throttling_row_named_has_its_test_and_every_such_test_its_row() {
    let named: BTreeSet<u32> = rows(section("## How it is tested"))
        .flat_map(|row| row[0].split(','))
        .filter_map(|words| {
            let mut ends = words.split('–').map(|word| word.trim().strip_prefix('F'));
            let first = ends.next()??.parse::<u32>().ok()?;
            let last = match ends.next() {
                Some(last) => last?.parse().ok()?,
                None => first,
            };
            Some(first..=last)
        })
        .flatten()
        .collect();
    let mut tested = BTreeSet::new();
    for code in sources("src") {
        for name in code.split("fn f").skip(1) {
            let number = name.split('_').next().unwrap_or("");
            tested.extend(number.parse::<u32>().ok());
        }
    }
    assert_eq!(named, tested);
}

#[test]
fn every_file_that_is_named_exists() {
    for name in quoted(README) {
        let ours = ["src/", "tests/", "benches/", "tools/", "LICENSE"];
        let pattern = name.contains('*');
        if ours.iter().any(|start| name.starts_with(start)) && !pattern {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
            assert!(path.exists(), "{name} is named but is not there");
        }
    }
}

#[test]
fn every_setting_that_is_named_exists() {
    for word in README.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
        let shouted = word.contains('_')
            && !word.starts_with("ARGIOPE_")
            && word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        let there = || argiope::settings::all().iter().any(|s| s.name == word);
        assert!(!shouted || there(), "{word} is named but is no setting");
    }
}

/// What stands under a heading, down to the next one.
fn section(heading: &str) -> &'static str {
    let (_, rest) = README
        .split_once(&format!("\n{heading}\n"))
        .unwrap_or_else(|| panic!("there is no section {heading}"));
    rest.split("\n#").next().unwrap_or(rest)
}

/// The cells of each table row, without the heading's.
fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines()
        .filter(|line| line.starts_with('|') && !line.starts_with("|---"))
        .map(|line| line.trim_matches('|').split('|').collect())
        .skip(1)
}

/// What stands in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let outside_blocks = text.split("```").step_by(2);
    outside_blocks.flat_map(|part| part.split('`').skip(1).step_by(2))
}

fn sources(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the folder is readable") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(fs::read_to_string(path).expect("a source file is text"));
            }
        }
    }
    found
}
