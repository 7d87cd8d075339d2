//! The pages: the summary, links, code blocks, and names in the overview.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::markdown::{headings, links, names, quoted, rows, tables};
use crate::tree::{pages, read, top};

const README_LINES_MAX: usize = 150;

#[test]
fn the_readme_is_short() {
    let lines = read("README.md").lines().count();
    assert!(
        lines <= README_LINES_MAX,
        "{lines} lines; the rest belongs into docs/"
    );
}

#[test]
fn every_page_is_in_the_summary_and_its_examples_are_compiled() {
    let pages: BTreeSet<String> = pages().into_iter().collect();
    let summary = read("docs/SUMMARY.md");
    let in_summary: BTreeSet<String> = links(&summary).map(|to| format!("docs/{to}")).collect();
    let in_book = pages.iter().filter(|page| page.starts_with("docs/"));
    let in_book: BTreeSet<String> = in_book.cloned().collect();
    assert_eq!(in_summary, in_book, "docs/SUMMARY.md lists each page once");

    let library = read("src/lib.rs");
    let compiled = library.split("= \"../").skip(1);
    let compiled: BTreeSet<String> = compiled
        .filter_map(|rest| rest.split('"').next())
        .map(str::to_owned)
        .collect();
    assert_eq!(
        compiled, pages,
        "src/lib.rs includes each page for its examples"
    );
}

#[test]
fn every_link_resolves() {
    let mut followed = 0;
    for page in pages().into_iter().chain(["docs/SUMMARY.md".to_owned()]) {
        let text = read(&page);
        for link in links(&text) {
            if link.starts_with("https://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => PathBuf::from(&page),
                file => plain(&Path::new(&page).with_file_name("").join(file)),
            };
            assert!(top().join(&target).exists(), "{page}: {link} leads nowhere");
            let leaves = page.starts_with("docs/") && !target.starts_with("docs");
            assert!(!leaves, "{page}: {link} has no page in the book");
            // Another test checks the keys of raw results.
            if !anchor.is_empty() && target.extension().is_some_and(|ending| ending == "md") {
                let headings = headings(&read(&target));
                assert!(
                    headings.contains(anchor),
                    "{page}: {link}; there is {headings:?}"
                );
            }
            followed += 1;
        }
    }
    assert!(followed > 80, "{followed}");
}

#[test]
fn every_code_block_has_a_language() {
    for page in pages() {
        let text = read(&page);
        let fences = text.lines().filter(|line| line.starts_with("```"));
        for (number, fence) in fences.enumerate() {
            let language = fence.trim_start_matches('`');
            let opens = number % 2 == 0;
            assert_eq!(
                opens,
                !language.is_empty(),
                "{page}: block {}",
                number / 2 + 1
            );
        }
    }
}

#[test]
fn the_floors_are_the_folders_of_the_source() {
    let page = read("docs/design/overview.md");
    let folders = fs::read_dir(top().join("src")).expect("the source is there");
    let folders = folders.map(|entry| entry.expect("an entry").path());
    let folders: BTreeSet<String> = folders
        .filter(|path| path.is_dir())
        .map(|path| {
            path.file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    assert_eq!(names(tables(&page)[0]), folders);
}

#[test]
fn names_in_the_overview_are_in_their_files() {
    let page = read("docs/design/overview.md");
    let table = tables(&page);
    let table = table.iter().find(|table| table.starts_with("| question"));
    let mut found = 0;
    for row in rows(table.expect("the table of questions")) {
        let code: Vec<String> = quoted(row[2]).map(read).collect();
        for name in quoted(row[1]).filter(|name| *name != "src/wire") {
            let words = name.split("::").map(|word| word.trim_end_matches('!'));
            for word in words.flat_map(|word| word.split(' ')) {
                let is_there = code.iter().any(|code| is_word_of(code, word));
                assert!(is_there, "{}: {word} is in none of {}", row[0], row[2]);
                found += 1;
            }
        }
    }
    assert!(found > 30, "{found}");
}

/// Whether a text contains this whole word.
fn is_word_of(text: &str, word: &str) -> bool {
    let continues = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        !before.ends_with(continues) && !after.starts_with(continues)
    })
}

/// The path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            other => plain.push(other),
        }
    }
    plain
}
