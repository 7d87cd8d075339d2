//! The codes of errors.

use std::collections::{BTreeMap, BTreeSet};

use argiope::FailureKind;

use crate::markdown::{quoted, rows, tables};
use crate::tree::{filters, read, sources};

#[test]
fn documented_error_codes_match_the_code() {
    let page = read("docs/reference/errors.md");
    let mut documented: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut kind = String::new();
    for row in rows(tables(&page)[0]) {
        if let Some(name) = quoted(row[0]).next() {
            kind = name.to_owned();
        }
        let codes = documented.entry(kind.clone()).or_default();
        for code in quoted(row[1]) {
            assert!(codes.insert(code.to_owned()), "{kind}.{code} stands twice");
        }
    }
    let known = codes();
    assert_eq!(known.len(), FailureKind::ALL.len());
    assert_eq!(documented, known);
}

/// The table of codes by kind, which a debug build checks each new failure against.
fn codes() -> BTreeMap<String, BTreeSet<String>> {
    let text = read("src/fetch/failure.rs");
    let (_, table) = text.split_once("fn codes(").expect("the table");
    let (table, _) = table.split_once("\n    }\n").expect("its end");
    let arms = table.split("FailureKind::").skip(1);
    let arms = arms.map(|arm| {
        let (variant, codes) = arm.split_once(" => ").expect("an arm");
        let mut kinds = FailureKind::ALL.iter();
        let kind = kinds.find(|kind| format!("{kind:?}") == variant);
        let codes = codes.split('"').skip(1).step_by(2);
        let kind = kind.unwrap_or_else(|| panic!("there is no kind {variant}"));
        (kind.to_string(), codes.map(str::to_owned).collect())
    });
    arms.collect()
}

#[test]
fn every_code_of_an_error_is_one_that_the_source_makes() {
    let code: Vec<String> = sources("src")
        .into_iter()
        .filter(|code| !code.contains("pub enum FailureKind"))
        .map(|code| {
            let code = code.split("#[cfg(test)]").next().unwrap_or_default();
            code.to_owned()
        })
        .collect();
    for (kind, codes) in codes() {
        for name in codes {
            let literal = format!("\"{name}\"");
            let is_made = code.iter().any(|code| code.contains(&literal));
            assert!(is_made, "nothing makes {kind}.{name}");
        }
    }
    // The codes of filters are their names.
    assert!(codes()["filtered"].is_superset(&filters()));
}

#[test]
fn every_kind_of_failure_lists_its_codes() {
    let text = read("src/fetch/failure.rs");
    let (_, kinds) = text
        .split_once("pub enum FailureKind {")
        .expect("the kinds");
    let mut docs = String::new();
    let mut listed = BTreeMap::new();
    let mut names = FailureKind::ALL.iter().map(|kind| kind.as_str());
    for line in kinds.lines().skip(1).take_while(|line| *line != "}") {
        match line.trim_start().strip_prefix("///") {
            Some(words) => docs.push_str(words),
            None => {
                let kind = names.next().expect("as many kinds as names");
                let words = quoted(&docs).filter(|word| is_code(word));
                let words: BTreeSet<String> = words.map(str::to_owned).collect();
                listed.insert(kind.to_owned(), words);
                docs.clear();
            }
        }
    }
    let filtered = listed.get_mut(FailureKind::Filtered.as_str());
    filtered.expect("a kind").extend(filters());
    assert_eq!(listed, codes());
}

fn is_code(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '_')
}
