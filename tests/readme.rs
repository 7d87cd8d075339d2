//! Compares the README, the book and the library's first page with the code: names exist, and required
//! names occur. `tests/docs.rs` compares the tables.

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

use argiope::serde_json::Value;
use argiope::{FailureKind, PaceReport, Progress, Stats};

const STATS: &str = include_str!("../docs/reference/stats.md");
const SETTINGS_PAGE: &str = include_str!("../docs/reference/settings.md");
const LIBRARY: &str = include_str!("../src/lib.md");
const FAILURES: &str = include_str!("../src/fetch/failure.rs");
const SETTINGS: &str = include_str!("../src/settings.md");
const ROWS: &str = include_str!("throttling_rows.md");
/// Stands in place of the tests in a row that has none yet.
const PENDING: &str = "pending";

#[test]
fn every_key_of_stats_json_is_documented() {
    let keys = section(STATS, "## Keys");
    let named: BTreeSet<&str> = rows(keys).flat_map(|row| quoted(row[0])).collect();
    let stats = Stats::new().to_json(&Progress::default(), &PaceReport::default());
    let stats: Value = stats.parse().expect("stats are JSON");
    let there: BTreeSet<&str> = stats
        .as_object()
        .expect("stats are an object")
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(named, there);
}

#[test]
fn throttling_rows_and_tests_match() {
    let code: Vec<String> = ["src", "tests"].iter().flat_map(|f| sources(f)).collect();
    let there: BTreeSet<&str> = code.iter().flat_map(|code| functions(code)).collect();
    let table: Vec<(&str, Vec<&str>)> = rows(ROWS)
        .filter(|cells| cells[2].trim() != PENDING)
        .map(|cells| (cells[0].trim(), quoted(cells[2]).collect()))
        .collect();
    let numbers: Vec<&str> = rows(ROWS).map(|cells| cells[0].trim()).collect();
    let expected: Vec<String> = (1..=112).map(|number| format!("F{number:02}")).collect();
    assert_eq!(numbers, expected, "each row once, in order");
    for (row, names) in &table {
        assert!(!names.is_empty(), "{row} names no test");
        assert!(names.is_sorted(), "the tests of {row} stand in their order");
        for name in names {
            assert!(there.contains(name), "{row} names {name}, which is no test");
        }
    }
    for (row, name) in there.iter().filter_map(|name| Some((row_of(name)?, name))) {
        let named = table
            .iter()
            .any(|(other, names)| *other == row && names.contains(name));
        assert!(named, "{name} is missing in its row {row}");
    }
}

#[test]
fn every_named_file_exists() {
    let mut named = 0;
    for (page, text) in pages() {
        for quoted in quoted(&text) {
            // A command may have arguments.
            let name = quoted.split(' ').next().unwrap_or(quoted);
            let ours = [
                "src/",
                "tests/",
                "benches/",
                "examples/",
                "tools/",
                "docs/",
                "LICENSE",
            ];
            let pattern = name.contains('*');
            if ours.iter().any(|start| name.starts_with(start)) && !pattern {
                let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
                assert!(path.exists(), "{page} names {name}, which is not there");
                named += 1;
            }
        }
    }
    assert!(named > 50, "{named}");
}

#[test]
fn every_named_setting_exists() {
    let library = ("src/lib.md".to_owned(), LIBRARY.to_owned());
    let mut named = 0;
    for (page, text) in pages().into_iter().chain([library]) {
        for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
            let shouted = word.contains('_')
                && word.starts_with(|c: char| c.is_ascii_uppercase())
                && !word.starts_with("ARGIOPE_")
                && word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
            let there = || argiope::settings::all().iter().any(|s| s.name == word);
            // A constant of the kernel.
            let known = || word == "TCP_INFO" || there();
            assert!(
                !shouted || known(),
                "{page} names {word}, which is no setting"
            );
            named += usize::from(shouted);
        }
    }
    assert!(named > 100, "{named}");
}

/// `ARGIOPE_WRITE=1 cargo test --test readme` writes the tables anew.
#[test]
fn every_setting_is_documented_with_its_default() {
    let settings = argiope::settings::all().iter();
    let table = table(
        "name | value | default | meaning | in a scope | reload",
        settings.map(|setting| {
            [
                format!("`{}`", setting.name),
                escaped(setting.kind),
                in_code(&readable(&setting.default().into(), setting.kind)),
                escaped(setting.meaning),
                in_code(setting.scope_key.unwrap_or_default()),
                if setting.is_live { "yes" } else { "" }.to_owned(),
            ]
            .join(" | ")
        }),
    );
    let presets = argiope::settings::presets().iter();
    let presets = self::table(
        "preset | for | sets",
        presets.map(|preset| {
            let values = preset.values.iter();
            let values: Vec<String> = values.map(|(n, v)| format!("`{n}={v}`")).collect();
            [
                in_code(preset.name),
                escaped(preset.meaning),
                values.join(", "),
            ]
            .join(" | ")
        }),
    );
    let (before, _) = SETTINGS.split_once("| name").unwrap_or((SETTINGS, ""));
    check_generated("src/settings.md", SETTINGS, format!("{before}{table}"));

    let (before, rest) = SETTINGS_PAGE
        .split_once("## Presets\n")
        .expect("a section of presets");
    let (about, _) = rest.split_once("\n\n| preset").expect("the table");
    let page = format!("{before}## Presets\n{about}\n\n{presets}\n## All settings\n\n{table}");
    check_generated("docs/reference/settings.md", SETTINGS_PAGE, page);
}

fn table(head: &str, rows: impl Iterator<Item = String>) -> String {
    let columns = head.split('|').count();
    let mut table = format!("| {head} |\n|{}\n", "---|".repeat(columns));
    for row in rows {
        table.push_str(&format!("| {row} |\n"));
    }
    table
}

fn check_generated(file: &str, present: &str, expected: String) {
    if env::var_os("ARGIOPE_WRITE").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        fs::write(path, expected).expect("it is written");
    } else {
        assert!(
            present == expected,
            "{file} does not show the settings as they are; ARGIOPE_WRITE=1 writes it anew"
        );
    }
}

/// A value as a person writes it.
fn readable(value: &Value, kind: &str) -> String {
    let units: &[(f64, &str)] = match kind {
        "duration" => &[
            (3600.0, "h"),
            (60.0, "m"),
            (1.0, "s"),
            (1e-3, "ms"),
            (1e-9, "ns"),
        ],
        "bytes" => &[(1073741824.0, "GiB"), (1048576.0, "MiB"), (1024.0, "KiB")],
        _ => &[],
    };
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(entries) => {
            let entries: Vec<_> = entries.iter().map(|entry| readable(entry, "")).collect();
            entries.join(",")
        }
        Value::Number(number) => {
            let number = number.as_f64().expect("it is a number");
            let whole = units
                .iter()
                .find(|(unit, _)| number >= *unit && number % unit == 0.0);
            whole.map_or(value.to_string(), |(unit, name)| {
                format!("{}{name}", number / unit)
            })
        }
        Value::Object(entries) if entries.is_empty() => String::new(),
        other => other.to_string(),
    }
}

/// Text with Markdown's special characters escaped.
fn escaped(text: &str) -> String {
    let marks = ['*', '[', ']', '<', '_'];
    text.chars()
        .flat_map(|c| marks.contains(&c).then_some('\\').into_iter().chain([c]))
        .collect()
}

fn in_code(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!("`{text}`")
    }
}

#[test]
fn error_codes_in_tests_are_listed_with_their_kind() {
    // Strings that only look like codes.
    const OTHERS: [&str; 5] = [
        "dns.test",
        "robots.json",
        "robots.jsonl",
        "robots.txt",
        "tls.provider",
    ];
    let (_, kinds) = FAILURES
        .split_once("pub enum FailureKind {")
        .expect("it is there");
    let (mut docs, mut documented) = (String::new(), Vec::new());
    for line in kinds.lines().skip(1).take_while(|line| *line != "}") {
        match line.trim_start().strip_prefix("///") {
            Some(words) => docs.push_str(words),
            None => documented.push(std::mem::take(&mut docs)),
        }
    }
    let code: Vec<String> = ["src", "tests"].iter().flat_map(|f| sources(f)).collect();
    let mut known = 0;
    for (kind, documented) in FailureKind::ALL.iter().zip(documented) {
        // The codes of filters are their names.
        if *kind == FailureKind::Filtered {
            continue;
        }
        let begin = format!("\"{}.", kind.as_str());
        for rest in code.iter().flat_map(|code| code.split(&begin).skip(1)) {
            let code = rest.split('"').next().unwrap_or_default();
            let is_word =
                !code.is_empty() && code.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            if is_word && !OTHERS.contains(&format!("{}.{code}", kind.as_str()).as_str()) {
                let is_documented = documented.contains(&format!("`{code}`"));
                assert!(
                    is_documented,
                    "{kind:?} has {code}, which is not documented: {documented}"
                );
                known += 1;
            }
        }
    }
    assert!(known > 100, "{known}");
}

/// The row of a test, by its name: `F05` of `f05_the_global_cap_holds`.
fn row_of(name: &str) -> Option<String> {
    let (number, _) = name.strip_prefix('f')?.split_once('_')?;
    number.parse::<u32>().ok()?;
    Some(format!("F{number}"))
}

/// The names of all functions in a source file.
fn functions(code: &str) -> impl Iterator<Item = &str> {
    let declared = code.split("fn ").skip(1);
    declared.filter_map(|rest| rest.split(['(', '<']).next())
}

/// The text under a heading, up to the next one.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, rest) = page
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

/// The texts in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let outside_blocks = text.split("```").step_by(2);
    outside_blocks.flat_map(|part| part.split('`').skip(1).step_by(2))
}

/// Every page for readers, by its path: those at the top, and the book.
fn pages() -> Vec<(String, String)> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders = vec![top.join("docs")];
    let mut paths: Vec<_> = [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "SECURITY.md",
    ]
    .iter()
    .map(|name| top.join(name))
    .collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the folder is readable") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|end| end == "md") => paths.push(path),
                false => {}
            }
        }
    }
    paths.sort_unstable();
    for path in paths {
        let name = path.strip_prefix(top).expect("it is below the top");
        let text = fs::read_to_string(&path).expect("a page is text");
        found.push((name.display().to_string(), text));
    }
    found
}

fn sources(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the folder is readable") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(fs::read_to_string(path).expect("a source file is text"));
            }
        }
    }
    found
}
