//! The numbers of the benchmarks: those of the README, and those with raw data.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use argiope::serde_json::{self, Value, json};

use crate::markdown::{rows, tables};
use crate::tree::{files, keys, pages, read};

/// Sources of the README's numbers: the beginning of the row in the README, the page, the beginning of
/// the row in one of its tables, and how many numbers of that row precede it.
const README_NUMBERS: &[(&str, &str, &str, usize)] = &[
    (
        "rate with a new connection",
        "speed.md",
        "a new connection per page, 10 000 addresses",
        0,
    ),
    (
        "the same, relative to Scrapy",
        "speed.md",
        "against Scrapy",
        0,
    ),
    (
        "error of `server_latency`",
        "latency.md",
        "`server_latency` against the packets",
        0,
    ),
    (
        "resident memory for 1 million",
        "speed.md",
        "resident memory of 1 million",
        0,
    ),
    // The time until it settles is the first number of the row.
    (
        "used share of a hidden limit",
        "hidden-limits.md",
        "5 a second, burst 1",
        1,
    ),
];

#[test]
fn readme_numbers_match_the_benchmarks() {
    let readme = read("README.md");
    let (_, numbers) = readme.split_once("\n## In numbers").expect("the section");
    let mut ours = rows(tables(numbers)[0]);
    for (what, page, row, before) in README_NUMBERS {
        let cells = ours.next().expect("a row for each");
        assert!(cells[0].trim().starts_with(what), "{}", cells[0]);
        assert!(
            cells[1].contains(&format!("](docs/benchmarks/{page}")),
            "{what}: the number links to {page}"
        );
        let text = read(Path::new("docs/benchmarks").join(page));
        let tables = tables(&text);
        let column = |table: &str| {
            let head = table.lines().next().unwrap_or_default();
            let mut cells = head.trim_matches('|').split('|');
            cells.position(|cell| cell.contains("seen") || cell.contains("Argiope"))
        };
        let found: Vec<String> = tables
            .iter()
            .filter_map(|table| Some((table, column(table)?)))
            .flat_map(|(table, column)| rows(table).map(move |cells| (cells, column)))
            .filter(|(cells, _)| cells[0].trim().starts_with(row))
            .map(|(cells, column)| cells[column].to_owned())
            .collect();
        let [seen] = found.as_slice() else {
            panic!("{page} has {} rows that begin with {row}", found.len());
        };
        let (said, seen) = (numbers_of(cells[1]), numbers_of(seen));
        assert!(!said.is_empty(), "{what}");
        let seen = &seen[*before..];
        assert!(
            seen.starts_with(&said),
            "README: {what}: {said:?}; {page}: {seen:?}"
        );
    }
    assert_eq!(ours.next(), None, "README_NUMBERS has each row");
}

/// The raw results in `docs/benchmarks/raw`, by file name.
fn raw_results() -> BTreeMap<String, Value> {
    let files = files("docs/benchmarks/raw", "json").into_iter();
    let results = files.map(|path| {
        let name = path.file_name().expect("a name").to_string_lossy();
        let raw = read(&path);
        let raw: Value = serde_json::from_str(&raw).unwrap_or_else(|e| panic!("{name}: {e}"));
        (name.into_owned(), raw)
    });
    results.collect()
}

#[test]
fn every_raw_result_has_a_complete_header() {
    for (name, raw) in raw_results() {
        check_raw(&name, &raw);
    }
    // As `tools/raw.py` writes it for a small run.
    let raw = raw_example();
    check_raw("2026-11-24-figures-540c4b4df5.json", &raw);
    check_raw("2026-11-24-figures-540c4b4df5-2.json", &raw);
    assert_eq!(statistic(&raw, "kept"), Some(1.25));
    assert_eq!(statistic(&raw, "before.kept"), Some(1.0));
    assert_eq!(statistic(&raw, "new"), None);
    let latency = json!({
        "tool": "latency_judge",
        "seen": {"argiope-epoll-0": {"exact": [1.0, -3.5, 2.0], "bounds": []}},
    });
    assert_eq!(statistic(&latency, "argiope-epoll-0"), Some(3.5));
}

fn raw_example() -> Value {
    json!({
        "tool": "figures",
        "date": "2026-11-24",
        "commit": "540c4b4df5",
        "machine": {"cpu": "AMD EPYC", "cores": 2, "kernel": "Linux 6.18.44"},
        "command": "tools/figures.py --only kept --rounds 2",
        "rounds": 2,
        "seen": {"kept": [[1.0], [1.5]]},
        "before": {"kept": [[0.9], [1.2], [1.0]]},
    })
}

fn check_raw(name: &str, raw: &Value) {
    let text = |key: &str| {
        let text = raw[key].as_str().filter(|text| !text.is_empty());
        text.unwrap_or_else(|| panic!("{name} has no {key}"))
    };
    let (date, tool, commit) = (text("date"), text("tool"), text("commit"));
    let full = format!("{date}-{tool}-{commit}");
    let more = name
        .strip_suffix(".json")
        .and_then(|name| name.strip_prefix(&full));
    let more = more.unwrap_or_else(|| panic!("{name} is not named for its content: {full}"));
    let number = more.strip_prefix('-').map(str::parse::<u32>);
    assert!(more.is_empty() || matches!(number, Some(Ok(_))), "{name}");
    assert!(
        commit.chars().all(|c| c.is_ascii_hexdigit()),
        "{name}: not of a commit"
    );
    assert!(text("command").starts_with("tools/"), "{name}");
    assert!(
        raw["rounds"].as_u64().is_some_and(|rounds| rounds > 0),
        "{name}"
    );
    assert_ne!(raw["quick"], true, "{name}: --quick is not for publication");
    let known = ["cpu", "cores", "kernel"].map(str::to_owned);
    assert_eq!(keys(&raw["machine"]), BTreeSet::from(known), "{name}");
    let has_results = match &raw["seen"] {
        Value::Object(seen) => !seen.is_empty(),
        Value::Array(seen) => !seen.is_empty(),
        _ => false,
    };
    assert!(has_results, "{name} has no results");
}

/// The statistic of a key of a raw result that tables show, as documented in `docs/benchmarks/method.md`.
fn statistic(raw: &Value, key: &str) -> Option<f64> {
    match raw["tool"].as_str()? {
        "figures" | "durable_size" | "upgrade" | "rotation" | "race" => {
            let (of, row) = key.split_once('.').unwrap_or(("seen", key));
            let rounds = raw[of][row].as_array()?.iter();
            let mut values: Vec<f64> = rounds
                .map(|round| round[0].as_f64())
                .collect::<Option<_>>()?;
            values.sort_by(f64::total_cmp);
            let (low, high) = (
                values.get((values.len().checked_sub(1)?) / 2)?,
                values[values.len() / 2],
            );
            Some((low + high) / 2.0)
        }
        "latency_judge" => {
            let errors = raw["seen"][key]["exact"].as_array()?.iter();
            let mut sizes: Vec<f64> = errors
                .map(|e| e.as_f64().map(f64::abs))
                .collect::<Option<_>>()?;
            sizes.sort_by(f64::total_cmp);
            let last = sizes.len().checked_sub(1)?;
            Some(sizes[(sizes.len() * 99 / 100).min(last)])
        }
        _ => None,
    }
}

#[test]
fn every_number_with_raw_data_is_computed_from_them() {
    let results = raw_results();
    let mut dated = 0;
    for page in pages()
        .iter()
        .filter(|page| page.starts_with("docs/benchmarks/"))
    {
        let text = read(page);
        for table in tables(&text) {
            let mut head = table
                .lines()
                .next()
                .unwrap_or_default()
                .trim_matches('|')
                .split('|');
            let Some(day) = head.position(|cell| cell.trim() == "recorded") else {
                continue;
            };
            assert_eq!(head.next().map(str::trim), Some("raw data"), "{page}");
            for row in rows(table) {
                let line = row.join("|");
                assert!(
                    (row[day + 1].trim() == "none kept") != line.contains("](raw/"),
                    "{page}: {}: a link to raw data, or \"none kept\"",
                    row[0]
                );
                for (shown, name, key) in raw_links(&line) {
                    let raw = results
                        .get(name)
                        .unwrap_or_else(|| panic!("{page}: {name}"));
                    assert_eq!(raw["date"], row[day].trim(), "{page}: {}", row[0]);
                    let value = statistic(raw, key);
                    let value = value.unwrap_or_else(|| panic!("{page}: {name} has no {key}"));
                    assert!(
                        is_rounded(shown, value),
                        "{page}: {shown} of {key} is {value}"
                    );
                }
                dated += 1;
            }
        }
    }
    assert!(dated > 15, "{dated}");
    let link = "is [0.71 of](raw/2026-a.json#kept) its";
    assert_eq!(
        raw_links(link).next(),
        Some(("0.71 of", "2026-a.json", "kept"))
    );
    assert!(is_rounded("0.71 of", 0.7149) && is_rounded("42", 41.6) && is_rounded("8.4 µs", 8.36));
    assert!(!is_rounded("0.71 of", 0.716) && !is_rounded("42", 42.6) && !is_rounded("many", 1.0));
}

/// The links to raw data: their text, file and key.
fn raw_links(line: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    let ends = line.match_indices("](raw/");
    ends.filter_map(|(at, opens)| {
        let (_, shown) = line[..at].rsplit_once('[')?;
        let (target, _) = line[at + opens.len()..].split_once(')')?;
        let (name, key) = target.split_once('#')?;
        Some((shown, name, key))
    })
}

/// Whether a text begins with this value, rounded to as many decimals.
fn is_rounded(text: &str, value: f64) -> bool {
    let numbers = numbers_of(text);
    let Some(number) = numbers.first() else {
        return false;
    };
    let decimals = number
        .split_once('.')
        .map_or(0, |(_, decimals)| decimals.len());
    format!("{value:.decimals$}") == *number
}

/// The numbers in a cell, as they are written, without those in the targets of links.
fn numbers_of(cell: &str) -> Vec<String> {
    let mut text = String::new();
    for (nth, part) in cell.split("](").enumerate() {
        let after = part.split_once(')').map_or(part, |(_, after)| after);
        text.push_str(if nth == 0 { part } else { after });
    }
    let words = text.split(|c: char| !(c.is_ascii_digit() || c == '.'));
    let words = words.map(|word| word.trim_matches('.'));
    words
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}
