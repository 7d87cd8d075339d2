//! Compares the public items of the library with a list in the repository.
//!
//! ```sh
//! ARGIOPE_WRITE=1 cargo test --test public_api    # writes tests/public_api/list.txt
//! ```
//!
//! The list is made from the source: public items of `src/lib.rs`, re-exports, and the fields, variants,
//! functions and traits of each type. Items hidden from the documentation or made by macros are omitted, but for
//! `Debug` of errors.

mod modules;
mod render;

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

use modules::{Crate, Thing};

#[test]
fn the_public_api_matches_the_list() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let lines = lines_of(&Crate::read(&root.join("src/lib.rs")));
    let path = root.join("tests/public_api/list.txt");
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    if env::var_os("ARGIOPE_WRITE").is_some() {
        fs::write(&path, &text).expect("the list can be written");
    }
    let kept = fs::read_to_string(&path).expect("the list is there");
    let kept: BTreeSet<&str> = kept.lines().collect();
    let there: BTreeSet<&str> = lines.iter().map(String::as_str).collect();
    let gone: Vec<_> = kept
        .difference(&there)
        .map(|line| format!("- {line}"))
        .collect();
    let new: Vec<_> = there
        .difference(&kept)
        .map(|line| format!("+ {line}"))
        .collect();
    assert!(
        gone.is_empty() && new.is_empty(),
        "the public API has changed; if that is meant: ARGIOPE_WRITE=1 cargo test --test public_api\n{}\n{}",
        gone.join("\n"),
        new.join("\n")
    );
}

#[test]
fn common_items_are_in_the_list() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let lines = lines_of(&Crate::read(&root.join("src/lib.rs")));
    for expected in [
        "argiope::Crawler::run(&mut self) -> FinishReason",
        "argiope::Page::status: Option<u16>",
        "argiope::Turn::GoesOn",
        "argiope::Sink::is_ready(&self) -> bool",
        "impl Clone for argiope::Handle",
        "impl AsFd for argiope::Crawler<Kernel>",
        "argiope::parts::links",
        "argiope::sim::Web::asked(&self) -> Vec<Asked>",
    ] {
        let is_there = |line: &String| line.starts_with(expected) || line.contains(expected);
        assert!(lines.iter().any(is_there), "{expected} is missing");
    }
    let hidden = lines.iter().find(|line| line.contains("build_on"));
    assert_eq!(hidden, None, "it is hidden");
}

/// The list, sorted.
fn lines_of(library: &Crate) -> Vec<String> {
    let mut lines = BTreeSet::new();
    for (path, thing) in library.visible() {
        match thing {
            Thing::Module => drop(lines.insert(format!("mod {path}"))),
            Thing::Foreign(what) => drop(lines.insert(format!("use {path} = {what}"))),
            Thing::Item { item, home } => {
                lines.extend(render::item(&path, item));
                for (block, _) in library.impls_of(item, &home) {
                    lines.extend(render::block(&path, block));
                }
            }
        }
    }
    lines.into_iter().collect()
}
