//! Compares the documentation with the code: tables, the summary, examples, links.

#[cfg(feature = "cli")]
#[allow(dead_code, reason = "other tests ask it for more")]
mod loopback;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use argiope::serde_json::{self, Value, json};
use argiope::sink::results::{RecordPlace, write_line};
use argiope::{
    Config, DecisionEvent, Failure, FailureKind, Filtered, Instant, Pace, PaceReport, Page,
    Progress, Remark, RemarkKind, ScopePacing, Stamp, Stats, TlsInfo, TlsVersion, Truncation,
};

const README_LINES_MAX: usize = 150;

/// Pages beside the book, for the same readers.
const TOP: &[&str] = &[
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
];

// The pages.

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
            // The keys of raw results are looked up by another test.
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

/// Whether a word stands in a text, not as a part of another.
fn is_word_of(text: &str, word: &str) -> bool {
    let continues = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        !before.ends_with(continues) && !after.starts_with(continues)
    })
}

// Versions.

#[test]
fn documented_msrv_matches_the_manifest() {
    let manifest = read("Cargo.toml");
    let (_, version) = manifest
        .split_once("\nrust-version = \"")
        .expect("a version");
    let version = version.split('"').next().expect("a version");
    let page = read("docs/stability.md");
    assert!(page.contains(&format!("**{version}**")), "{version}");
}

#[test]
fn no_dependency_needs_a_newer_compiler() {
    let ran = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--format-version", "1"])
        // Cargo has fetched only what this platform builds.
        .args(["--filter-platform", &host()])
        .args([
            "--manifest-path",
            concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
        ])
        .output()
        .expect("cargo runs");
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{errors}");
    let metadata: Value = serde_json::from_slice(&ran.stdout).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let version = |package: &Value| -> Option<Vec<u32>> {
        let version = package["rust_version"].as_str()?;
        version
            .split('.')
            .take(2)
            .map(|part| part.parse().ok())
            .collect()
    };
    let ours = packages.iter().find(|package| package["name"] == "argiope");
    let ours = ours.and_then(version).expect("our own version");
    for package in packages {
        let theirs = version(package).unwrap_or_default();
        let name = &package["name"];
        assert!(
            theirs <= ours,
            "{name} wants {theirs:?}, we promise {ours:?}"
        );
    }
}

/// The platform of the compiler, such as `x86_64-unknown-linux-gnu`.
fn host() -> String {
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let ran = Command::new(compiler)
        .arg("-vV")
        .output()
        .expect("rustc runs");
    let said = String::from_utf8(ran.stdout).expect("rustc writes UTF-8");
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.expect("rustc names its host").to_owned()
}

// Benchmarks.

/// Where a number of the README comes from: the beginning of its row there, the page, the beginning of the
/// row in one of its tables, and how many numbers of that row come before it.
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
    // How long it takes to settle comes first.
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
    // What `tools/raw.py` writes of a small run.
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

/// The statistic that a table has of a key of a raw result, as `docs/benchmarks/method.md` says.
fn statistic(raw: &Value, key: &str) -> Option<f64> {
    match raw["tool"].as_str()? {
        "figures" => {
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

/// The links to raw data: the text, the file, and the key in it.
fn raw_links(line: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    let ends = line.match_indices("](raw/");
    ends.filter_map(|(at, opens)| {
        let (_, shown) = line[..at].rsplit_once('[')?;
        let (target, _) = line[at + opens.len()..].split_once(')')?;
        let (name, key) = target.split_once('#')?;
        Some((shown, name, key))
    })
}

/// Whether a text begins with this value, rounded as there.
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

/// The numbers in a cell, as they are written; those in the targets of links are not part of it.
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

// Files.

#[test]
fn every_key_of_a_result_line_is_documented() {
    let mut page = Page::default();
    let at = |micros: u64| Some(Instant::from_nanos(micros * 1000));
    page.status = Some(200);
    page.failure = Some(Failure::new(FailureKind::Truncated, "body", "it broke off"));
    page.truncated = Some(Truncation::Disconnect);
    page.tls = Some(TlsInfo::new(TlsVersion::Tls13, "TLS13_AES_128_GCM_SHA256"));
    page.timings.due = at(1);
    page.timings.sent = at(2);
    page.timings.headers = at(3).map(Stamp::exact);
    page.timings.sent_slack = std::time::Duration::from_millis(1);
    let place = RecordPlace {
        file: "warc/x.warc.gz",
        offset: 0,
        length: 1,
    };
    let mut line = Vec::new();
    write_line(&page, Some(place), &mut line);
    let line: Value = serde_json::from_slice(&line).expect("a line is JSON");

    let text = read("docs/reference/results.md");
    let tables = tables(&text);
    assert_eq!(names(tables[0]), keys(&line));
    for (table, key) in tables[1..].iter().zip(["error", "tls", "warc"]) {
        let head = table.lines().next().unwrap_or_default();
        assert!(head.contains(&format!("`{key}`")), "{head}");
        assert_eq!(names(table), keys(&line[key]), "{key}");
    }
    assert_eq!(tables.len(), 4);
    for truncation in [Truncation::Length, Truncation::Time, Truncation::Disconnect] {
        assert!(text.contains(&format!("`{}`", truncation.as_str())));
    }
}

#[test]
fn every_key_of_a_seeds_line_is_documented() {
    let code = read("src/frontier/request/seeds/object.rs");
    let (_, fields) = code
        .split_once("struct Object {")
        .expect("the object is there");
    let fields = fields.split("\n}").next().unwrap_or_default();
    let fields = fields.lines().filter_map(|line| {
        let (name, _) = line.trim().strip_prefix("pub ")?.split_once(':')?;
        Some(name.to_owned())
    });
    let page = read("docs/reference/seeds.md");
    assert_eq!(names(tables(&page)[1]), fields.collect());
}

#[test]
fn every_example_of_a_seeds_line_parses() {
    let page = read("docs/reference/seeds.md");
    let mut read_as_one = 0;
    for row in rows(tables(&page)[0]) {
        for example in quoted(row[1]) {
            let request = argiope::Request::from_line(example);
            assert!(matches!(request, Ok(Some(_))), "{example}: {request:?}");
            read_as_one += 1;
        }
    }
    assert!(read_as_one >= 5, "{read_as_one}");
    let guide = read("docs/guide/broad-crawl.md");
    let (_, seeds) = guide.split_once("```text\n").expect("examples");
    for line in seeds.split("```").next().unwrap_or_default().lines() {
        let request = argiope::Request::from_line(line);
        assert!(matches!(request, Ok(Some(_))), "{line}: {request:?}");
    }
}

#[test]
fn every_kind_and_source_of_a_decision_is_documented() {
    let page = read("docs/reference/throttle.md");
    let tables = tables(&page);
    let events = DecisionEvent::ALL
        .iter()
        .map(|event| event.as_str().to_owned());
    assert_eq!(names(tables[1]), events.collect());
    let sources = words_of("src/throttle/decision.rs", "\nimpl DecisionSource {");
    assert_eq!(names(tables[2]), sources);
}

#[test]
fn every_cause_of_a_wait_and_every_remark_is_documented() {
    let page = read("docs/reference/stats.md");
    let tables = tables(&page);
    let mut causes = words_of("src/throttle/cause.rs", "\nimpl WaitCause {");
    // Nothing waits for what is not there: it is the reason of a remark alone.
    assert!(causes.remove("queue"));
    assert_eq!(names(tables[2]), causes);
    let mut remarks = words_of("src/throttle/diagnosis.rs", "\nimpl Finding {");
    remarks.extend(
        [DecisionEvent::Ineffective, DecisionEvent::Suspect].map(|event| event.as_str().to_owned()),
    );
    assert_eq!(names(tables[4]), remarks);
}

/// The words that stand as outcomes of a match, in the block of a source file that begins so.
fn words_of(file: &str, block: &str) -> BTreeSet<String> {
    let code = read(file);
    let (_, code) = code.split_once(block).expect("the block");
    let code = code.split("\n}").next().unwrap_or_default();
    let words = code.split("=> \"").skip(1);
    words
        .filter_map(|rest| rest.split('"').next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_nested_keys_and_values_of_stats_json_are_documented() {
    let page = read("docs/reference/stats.md");
    let mut reasons = words_of("src/crawl/finish.rs", "\nimpl FinishReason {");
    // A probe ends for these, and has no `stats.json`.
    for of_probe in ["blocked_address", "overdue"] {
        assert!(reasons.remove(of_probe), "{of_probe}");
    }
    assert_eq!(named_in_row(&page, "finish_reason"), reasons);
    let kinds = words_of("src/io/mod.rs", "\nimpl IoKind {");
    assert_eq!(named_in_row(&page, "io"), kinds);

    let mut pacing = PaceReport::default();
    let mut scope = ScopePacing::new(
        "a.test",
        Pace {
            delay: std::time::Duration::ZERO,
            concurrency: 1,
        },
    );
    scope.remarks.push(Remark::new(RemarkKind::Slow, "slow"));
    pacing.scopes.push(scope);
    let stats = Stats::new().to_json(&Progress::default(), &pacing);
    let stats: Value = stats.parse().expect("stats are JSON");
    for key in ["phases", "stamps"] {
        assert_eq!(named_in_row(&page, key), keys(&stats[key]), "{key}");
    }
    let scope = &stats["pacing"][0];
    let pace = named_in_row(&page, "configured_pace");
    assert_eq!(pace, keys(&scope["configured_pace"]));
    assert_eq!(named_in_row(&page, "pace"), keys(&scope["pace"]));
    assert_eq!(
        named_in_row(&page, "remarks"),
        keys(&scope["remarks"][0]),
        "remarks"
    );
}

/// What stands in backticks in the second column of the row of this name.
fn named_in_row(page: &str, name: &str) -> BTreeSet<String> {
    let name = format!("`{name}`");
    let mut rows = tables(page).into_iter().flat_map(rows);
    let row = rows.find(|row| row[0].split(',').any(|cell| cell.trim() == name));
    let row = row.unwrap_or_else(|| panic!("{name} has no row"));
    quoted(row[1]).map(str::to_owned).collect()
}

#[test]
fn every_reason_to_reject_a_link_is_documented() {
    let page = read("docs/reference/stats.md");
    let row = page
        .lines()
        .find(|line| line.starts_with("| `links`, `filtered` |"));
    let (_, reasons) = row.expect("the row").split_once('(').expect("the reasons");
    let documented: BTreeSet<String> = quoted(reasons).map(str::to_owned).collect();
    assert_eq!(documented, filters());
    assert!(documented.contains(Filtered::Duplicate.as_str()));
}

#[test]
fn every_file_of_the_output_directory_is_documented() {
    let page = read("docs/reference/output.md");
    let code = read("src/sink/directory.rs");
    let (_, files) = code.split_once("\nconst FILES").expect("the files");
    let (files, _) = files.split_once("];").expect("their end");
    let mut known: BTreeSet<String> = files
        .split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect();
    known.insert(constant("src/sink/directory.rs", "PROBE"));
    known.insert(constant("src/sink/directory/lock.rs", "NAME"));
    // Files of any number, and an input that is kept: their names are made.
    assert!(code.contains("ends_with(\".warc.gz\")") && code.contains("name(\".old\")"));
    known.extend(["warc/*.warc.gz", "warc/*.warc.gz.open", "pending.jsonl.old"].map(str::to_owned));
    assert_eq!(names(tables(&page)[0]), known);
}

/// The text of a constant in a source file.
fn constant(file: &str, name: &str) -> String {
    let code = read(file);
    let (_, value) = code
        .split_once(&format!("const {name}: &str = \""))
        .expect("the constant");
    value.split('"').next().unwrap_or_default().to_owned()
}

#[test]
fn every_signal_is_documented() {
    let page = read("docs/reference/commands.md");
    let mut tables = tables(&page).into_iter();
    let table = tables.find(|table| table.starts_with("| signal "));
    let documented: Vec<String> = rows(table.expect("the table"))
        .flat_map(|row| {
            row[0]
                .split(',')
                .map(|name| name.trim().to_owned())
                .collect::<Vec<_>>()
        })
        .collect();
    let code = read("src/cli/signals.rs");
    let (_, names) = code.split_once("consts::{").expect("the names");
    let names = names.split('}').next().unwrap_or_default();
    let known: BTreeSet<String> = names
        .split(',')
        .map(|name| name.trim().to_owned())
        .collect();
    assert_eq!(documented.len(), known.len(), "each once");
    assert_eq!(BTreeSet::from_iter(documented), known);
}

// Codes.

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

/// The table that [`Failure::new`] checks each code against, in a debug build.
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

/// The names of all filters.
fn filters() -> BTreeSet<String> {
    words_of("src/frontier/filter.rs", "\nimpl Filtered {")
}

// Settings.

#[test]
fn every_key_of_a_scope_is_documented() {
    let page = read("docs/reference/scopes.md");
    let tables = tables(&page);
    let keys = |entry: Value| -> BTreeSet<String> {
        let config = Config::default().with("THROTTLING_SCOPES", json!({"a.test": entry}));
        let refused = config.expect_err("unknown key").to_string();
        let (_, keys) = refused.split_once("unknown key; give ").expect("the keys");
        keys.trim_end_matches('.')
            .split(", ")
            .map(str::to_owned)
            .collect()
    };
    // Like no other key, so that none is proposed.
    let unknown = || json!({"qqqqqqqqqqqqqqqqqqqqqqqq": 1});
    let mut documented = names(tables[0]);
    // The sentence about the keys of `autothrottle` outside of its table.
    let alone = page
        .lines()
        .find(|line| line.contains("may also be keys of the entry"));
    let (_, alone) = alone
        .expect("the sentence")
        .split_once(": ")
        .expect("the keys");
    documented.extend(quoted(alone).map(str::to_owned));
    assert_eq!(documented, keys(unknown()));

    for (table, key) in tables[1..4]
        .iter()
        .zip(["backoff", "rampup", "autothrottle"])
    {
        let head = table.lines().next().unwrap_or_default();
        assert!(head.contains(&format!("`{key}`")), "{head}");
        let mut documented = names(table);
        if key == "backoff" {
            assert!(table.contains("`concurrency_decrease_factor`"));
            documented.insert("concurrency_decrease_factor".to_owned());
        }
        assert_eq!(documented, keys(json!({key: unknown()})), "{key}");
    }
}

#[test]
fn each_key_of_a_scope_stands_instead_of_its_setting() {
    let page = read("docs/reference/scopes.md");
    let mut documented: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (table, of) in tables(&page)
        .iter()
        .zip(["", "backoff.", "rampup.", "autothrottle."])
    {
        for row in rows(table) {
            let settings: Vec<&str> = quoted(row[2]).collect();
            let keys: Vec<&str> = quoted(row[0]).collect();
            assert!(
                settings.is_empty() || settings.len() == keys.len(),
                "{row:?}"
            );
            for (key, setting) in keys.iter().zip(settings) {
                let settings = documented.entry(format!("{of}{key}")).or_default();
                settings.insert(setting.to_owned());
            }
        }
    }
    let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for setting in argiope::settings::all() {
        if let Some(key) = setting.scope_key {
            let settings = known.entry(key.to_owned()).or_default();
            settings.insert(setting.name.to_owned());
        }
    }
    assert_eq!(documented, known);
}

#[test]
fn every_example_of_a_scopes_name_is_one_and_every_pattern_has_an_example() {
    let page = read("docs/reference/scopes.md");
    let tables = tables(&page);
    let table = tables
        .iter()
        .find(|table| table.starts_with("| name of an entry "));
    let table = table.expect("the table of names");
    let entry = |name: &str| {
        let entries = json!({name: {"delay": 1}});
        Config::default().with("THROTTLING_SCOPES", entries)
    };
    let mut patterns = BTreeSet::new();
    for row in rows(table) {
        for name in quoted(row[1]) {
            let config = entry(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            let shown = config.get("THROTTLING_SCOPES").expect("a setting");
            let shown = Value::from(shown);
            assert!(shown.get(name).is_some(), "{name} is read as {shown}");
            if name.contains('*') {
                patterns.insert(name.to_owned());
            }
        }
    }
    let refused = entry("a*.test").expect_err("no pattern").to_string();
    let words = refused.split([' ', ',', '(', ')']);
    let known = words.filter(|word| word.contains('*') && word.len() > 1 && !word.contains('"'));
    assert_eq!(patterns, known.map(str::to_owned).collect(), "{refused}");
}

// The command.

#[cfg(feature = "cli")]
mod command {
    use std::io::Write as _;
    use std::process::Stdio;
    use std::time::Duration;

    use super::*;

    use super::loopback::{Reply, Server};

    fn argiope(args: &[&str]) -> (Option<i32>, String) {
        let ran = Command::new(env!("CARGO_BIN_EXE_argiope"))
            .args(args)
            .output()
            .expect("the binary runs");
        let out = String::from_utf8(ran.stdout).expect("stdout is UTF-8");
        (ran.status.code(), out)
    }

    #[test]
    fn every_command_is_documented() {
        let (_, help) = argiope(&["--help"]);
        let (_, list) = help.split_once("Commands:\n").expect("a list of commands");
        let commands = list.lines().take_while(|line| !line.is_empty());
        let commands = commands.filter_map(|line| line.split_whitespace().next());
        let commands: BTreeSet<String> = commands
            .filter(|name| *name != "help")
            .map(str::to_owned)
            .collect();
        let page = read("docs/reference/commands.md");
        assert_eq!(names(tables(&page)[0]), commands);
    }

    #[test]
    fn every_documented_flag_exists() {
        let mut helps: BTreeMap<String, String> = BTreeMap::new();
        let mut checked = 0;
        for page in pages() {
            let text = read(&page);
            let blocks = blocks(&text).filter(|(language, _)| *language == "sh");
            let lines = blocks.flat_map(|(_, block)| block.lines());
            // What stands behind a pipe or is sent to a file is another program's.
            for line in lines.filter_map(|line| line.strip_prefix("argiope ")) {
                let line = line.split(['|', '>', '<', '#']).next().unwrap_or_default();
                let command = line.split(' ').next().unwrap_or_default();
                let help = helps
                    .entry(command.to_owned())
                    .or_insert_with(|| argiope(&["help", command]).1);
                assert!(!help.is_empty(), "{page}: there is no command {command}");
                let flags = line
                    .split(' ')
                    .filter(|word| word.starts_with('-') && *word != "-");
                for flag in flags {
                    let known = [" ", ",", "\n"]
                        .iter()
                        .any(|end| help.contains(&format!("{flag}{end}")));
                    assert!(known, "{page}: {line}: there is no {flag}");
                }
                checked += 1;
            }
        }
        assert!(checked >= 15, "{checked}");
    }

    #[test]
    fn every_example_of_a_settings_file_is_accepted() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("crawl.toml");
        let mut checked = 0;
        for page in pages() {
            let text = read(&page);
            let blocks = blocks(&text).filter(|(language, _)| *language == "toml");
            for (_, block) in blocks.filter(|(_, block)| !block.contains("[dependencies]")) {
                fs::write(&file, block).expect("it is written");
                let file = file.to_str().expect("a UTF-8 path");
                let (code, _) = argiope(&["settings", "--config", file]);
                assert_eq!(code, Some(0), "{page}: {block}");
                checked += 1;
            }
        }
        assert!(checked >= 4, "{checked}");
    }

    #[test]
    fn every_exit_code_is_documented() {
        let page = read("docs/reference/commands.md");
        let documented: BTreeSet<String> = rows(tables(&page)[1])
            .map(|row| row[0].trim().to_owned())
            .collect();
        let mut known = BTreeSet::new();
        for code in sources("src/cli") {
            let code = code.split("#[cfg(test)]").next().unwrap_or_default();
            for begin in ["Ok(", "const FAILED: u8 = ", "const MISUSED: u8 = "] {
                let codes = code
                    .split(begin)
                    .skip(1)
                    .filter_map(|rest| rest.split([')', ';']).next());
                known.extend(
                    codes
                        .filter(|code| code.parse::<u8>().is_ok())
                        .map(str::to_owned),
                );
            }
        }
        assert_eq!(documented, known);
        assert_eq!(argiope(&["settings"]).0, Some(0));
        assert_eq!(
            argiope(&["fetch", "--fail", "http://127.0.0.1:9/"]).0,
            Some(1)
        );
        assert_eq!(argiope(&["settings", "-s", "NO_SUCH_SETTING=1"]).0, Some(2));
    }

    #[test]
    fn questions_and_answers_as_json_lines_have_the_documented_keys() {
        let page = read("docs/reference/commands.md");
        let tables = tables(&page);
        let table = tables
            .iter()
            .find(|table| table.starts_with("| command | input"));
        let robots = json!({"robots": "", "agent": "a", "url": "http://a.test/"});
        let url = json!({"input": "/x", "base": "http://a.test/"});
        // A URL, though none that a crawl fetches.
        let failed = json!({"input": "ftp://a.test/", "base": "http://a.test/"});
        let links = json!({"html": "<a href=/>", "base": "http://a.test/", "content_type": ""});
        for row in rows(table.expect("the table")) {
            let command = quoted(row[0]).next().expect("a command");
            let questions = match command {
                "robots" => vec![&robots],
                "url" => vec![&url, &failed],
                "links" => vec![&links],
                other => panic!("no question for {other}"),
            };
            let objects = |cell: &str| -> Vec<BTreeSet<String>> {
                let objects = quoted(cell).filter(|object| object.starts_with('{'));
                let names = |object: &str| {
                    object
                        .split('"')
                        .skip(1)
                        .step_by(2)
                        .map(str::to_owned)
                        .collect()
                };
                objects.map(names).collect()
            };
            let asked = &objects(row[1])[0];
            // In base64 as an alternative, as the text below the table says.
            let mut fields = fields_of(&format!("src/cli/{command}.rs"), "struct Question {");
            for field in fields
                .clone()
                .iter()
                .filter(|field| field.ends_with("_b64"))
            {
                assert!(page.contains(&format!("`{field}`")), "{field}");
                fields.remove(field);
            }
            assert_eq!(asked, &fields, "{command}");
            for (question, documented) in questions.iter().zip(objects(row[2])) {
                assert_eq!(asked, &keys(question), "{command}");
                let answer = answer_to(command, question);
                assert_eq!(documented, keys(&answer), "{command}: {answer}");
            }
        }
    }

    /// The names of the fields of a struct in a source file.
    fn fields_of(file: &str, block: &str) -> BTreeSet<String> {
        let code = read(file);
        let (_, fields) = code.split_once(block).expect("the struct");
        let fields = fields.split("\n}").next().unwrap_or_default();
        let names = fields
            .lines()
            .filter_map(|line| line.trim().split_once(':'));
        names.map(|(name, _)| name.to_owned()).collect()
    }

    /// What a command answers to one question on its standard input.
    fn answer_to(command: &str, question: &Value) -> Value {
        let mut child = Command::new(env!("CARGO_BIN_EXE_argiope"))
            .args([command, "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut input = child.stdin.take().expect("a pipe");
        writeln!(input, "{question}").expect("it reads");
        drop(input);
        let ran = child.wait_with_output().expect("it ends");
        let answer = String::from_utf8(ran.stdout).expect("stdout is UTF-8");
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{command}: {error}: {answer}"))
    }

    #[test]
    fn output_of_a_crawl_has_the_documented_keys() {
        let server = Server::start(|_| Reply::page("a page").after(Duration::from_millis(1)));
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("crawl");
        let here = server.here();
        let args = [
            "-s",
            "AUTOTHROTTLE_DEBUG=true",
            "-s",
            "AUTOTHROTTLE_ENABLED=true",
            "--resolve",
            &here,
        ];
        let url = "http://a.test/";
        let mut all = vec!["crawl", url, "--allow-net", "loopback", "--quiet", "--out"];
        all.push(out.to_str().expect("a UTF-8 path"));
        all.extend(args);
        assert_eq!(argiope(&all).0, Some(0));

        let check = |file: &str, page: &str, may_lack: &[&str]| {
            let text = fs::read_to_string(out.join(file)).expect("the file is there");
            let page = read(page);
            let documented = names(tables(&page)[0]);
            assert!(text.lines().count() > 0, "{file} is empty");
            for line in text.lines() {
                let line: Value = serde_json::from_str(line).expect("a line is JSON");
                let mut keys = keys(&line);
                keys.extend(may_lack.iter().map(|key| (*key).to_owned()));
                assert_eq!(documented, keys, "{file}");
            }
        };
        check("throttle.jsonl", "docs/reference/throttle.md", &[]);
        check("results.jsonl", "docs/reference/results.md", &["bound"]);

        let text = fs::read_to_string(out.join("stats.json")).expect("the file is there");
        let stats: Value = serde_json::from_str(&text).expect("it is JSON");
        let page = read("docs/reference/stats.md");
        let tables = tables(&page);
        assert_eq!(names(tables[1]), keys(&stats["server_latency"]));
        assert_eq!(names(tables[3]), keys(&stats["pacing"][0]));
        let slowest = named_in_row(&page, "slowest_scopes");
        assert_eq!(slowest, keys(&stats["slowest_scopes"][0]));

        let page = read("docs/reference/output.md");
        let documented: BTreeSet<String> = rows(super::tables(&page)[0])
            .filter_map(|row| quoted(row[0]).next().map(str::to_owned))
            .collect();
        for entry in fs::read_dir(&out).expect("the directory is there") {
            let name = entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned();
            let is_documented = documented.contains(&name)
                || documented
                    .iter()
                    .any(|file| file.starts_with(&format!("{name}/")));
            assert!(is_documented, "{name} is not documented: {documented:?}");
        }
    }
}

// What the tests have in common.

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = top().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every page, as a path below the top; without the book's list of them.
fn pages() -> Vec<String> {
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

fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
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

/// The source files of a folder, without those of tests alone.
fn sources(folder: &str) -> Vec<String> {
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

/// Without `..`.
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

/// Where the links of a page lead.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let outside_blocks = text.split("```").step_by(2);
    outside_blocks.flat_map(|part| {
        part.split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
    })
}

/// The blocks of code of a page: the language, and what stands in it.
fn blocks(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("```")
        .skip(1)
        .step_by(2)
        .filter_map(|block| block.split_once('\n'))
}

/// The anchors of a page's headings, as mdBook and code hosts make them.
fn headings(text: &str) -> BTreeSet<String> {
    let outside_blocks = text.split("```").step_by(2);
    let lines = outside_blocks.flat_map(str::lines);
    let anchor = |heading: &str| -> String {
        let kept = heading.trim().chars().filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
            _ => None,
        });
        kept.collect()
    };
    lines
        .filter(|line| line.starts_with('#'))
        .map(|line| anchor(line.trim_start_matches('#')))
        .collect()
}

/// The tables of a page, each with its heading.
fn tables(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut start, mut at) = (None, 0);
    for line in text.split_inclusive('\n').chain(["\n"]) {
        match (line.starts_with('|'), start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                found.push(&text[from..at]);
                start = None;
            }
            _ => {}
        }
        at = (at + line.len()).min(text.len());
    }
    found
}

/// The cells of each row of a table, without its heading.
fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    let rows = table.lines().skip(2);
    rows.map(|line| line.trim_matches('|').split('|').collect())
}

/// What stands in backticks in the first column of a table.
fn names(table: &str) -> BTreeSet<String> {
    rows(table)
        .flat_map(|row| quoted(row[0]).map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// What stands in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn keys(value: &Value) -> BTreeSet<String> {
    let object = value.as_object().expect("an object");
    object.keys().cloned().collect()
}
