//! The files of the repository, and the words in its source.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use argiope::serde_json::Value;

/// The pages outside the book.
const TOP: &[&str] = &[
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
];

pub fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn read(path: impl AsRef<Path>) -> String {
    let path = top().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every page except the book's summary, as a path below the top.
pub fn pages() -> Vec<String> {
    let mut found: Vec<String> = TOP.iter().map(|name| (*name).to_owned()).collect();
    for path in files("docs", "md") {
        let path = path.strip_prefix(top()).expect("it is below the top");
        let path = path.display().to_string();
        if path != "docs/SUMMARY.md" {
            found.push(path);
        }
    }
    found
}

pub fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![top().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the folder is readable") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == ending)
            {
                found.push(path);
            }
        }
    }
    found.sort_unstable();
    found
}

/// The source files of a folder, without files of tests.
pub fn sources(folder: &str) -> Vec<String> {
    let is_tests = |path: &PathBuf| {
        let mut parts = path.components();
        parts.any(
            |part| matches!(part, Component::Normal(name) if name == "tests" || name == "tests.rs"),
        )
    };
    let below = |path: &PathBuf| path.strip_prefix(top()).expect("below the top").to_owned();
    let files = files(folder, "rs").into_iter();
    files
        .map(|path| below(&path))
        .filter(|path| !is_tests(path))
        .map(read)
        .collect()
}

/// The results of a match in the block of a source file that begins with `block`.
pub fn words_of(file: &str, block: &str) -> BTreeSet<String> {
    let code = read(file);
    let (_, code) = code.split_once(block).expect("the block");
    let code = code.split("\n}").next().unwrap_or_default();
    let words = code.split("=> \"").skip(1);
    words
        .filter_map(|rest| rest.split('"').next())
        .map(str::to_owned)
        .collect()
}

/// The text of a constant in a source file.
pub fn constant(file: &str, name: &str) -> String {
    let code = read(file);
    let (_, value) = code
        .split_once(&format!("const {name}: &str = \""))
        .expect("the constant");
    value.split('"').next().unwrap_or_default().to_owned()
}

/// The names of all filters.
pub fn filters() -> BTreeSet<String> {
    words_of("src/frontier/filter.rs", "\nimpl Filtered {")
}

pub fn keys(value: &Value) -> BTreeSet<String> {
    let object = value.as_object().expect("an object");
    object.keys().cloned().collect()
}
