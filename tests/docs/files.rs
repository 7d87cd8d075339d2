//! The files of a crawl: the keys and words of input and output.

use std::collections::BTreeSet;
use std::path::Path;

use argiope::parts::DirectiveWords;
use argiope::serde_json::{self, Value};
use argiope::sink::directory::LineFile;
use argiope::sink::results::{RecordPlace, write_line};
use argiope::{
    AskedHold, DecisionEvent, DecisionSource, Failure, FailureKind, Filtered, Instant, Pace,
    PaceReport, Page, Progress, Remark, RemarkKind, Route, ScopePacing, Stamp, Stats, TlsInfo,
    TlsVersion, Truncation,
};

use crate::markdown::{named_in_row, names, quoted, rows, tables};
use crate::tree::{constant, filters, keys, read, words_of};

#[test]
fn every_key_of_a_result_line_is_documented() {
    let mut page = Page::default();
    let at = |micros: u64| Some(Instant::from_nanos(micros * 1000));
    page.status = Some(200);
    page.judged = Some(429);
    page.failure = Some(Failure::new(FailureKind::Truncated, "body", "it broke off"));
    page.truncated = Some(Truncation::Disconnect);
    page.refetched = true;
    page.robots_ignored = true;
    page.route = Some(Route::Direct);
    let asked = std::time::Duration::from_secs(2);
    let hold = AskedHold::new(Instant::START, asked, DecisionSource::RetryAfter);
    page.hold = Some(Box::new(hold));
    page.tls = Some(TlsInfo::new(TlsVersion::Tls13, "TLS13_AES_128_GCM_SHA256"));
    let mut words = DirectiveWords::default();
    words.add_header("noindex", "argiope");
    page.directives = Some(Box::new(words));
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
    let mut line: Value = serde_json::from_slice(&line).expect("a line is JSON");
    // On standard output, with a state.
    line["seq"] = 1.into();
    // With `EXTRACT`, whose keys are the user's.
    line["fields"] = Value::Object(Default::default());

    let text = read("docs/reference/results.md");
    let tables = tables(&text);
    assert_eq!(names(tables[0]), keys(&line));
    for (table, key) in tables[1..]
        .iter()
        .zip(["error", "hold", "tls", "robots", "warc"])
    {
        let head = table.lines().next().unwrap_or_default();
        assert!(head.contains(&format!("`{key}`")), "{head}");
        assert_eq!(names(table), keys(&line[key]), "{key}");
    }
    assert_eq!(tables.len(), 6);
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
    // No request waits for an empty queue: this is only the reason of a remark.
    assert!(causes.remove("queue"));
    assert_eq!(names(tables[2]), causes);
    let mut remarks = words_of("src/throttle/diagnosis.rs", "\nimpl Finding {");
    remarks.extend(
        [DecisionEvent::Ineffective, DecisionEvent::Suspect].map(|event| event.as_str().to_owned()),
    );
    assert_eq!(names(tables[4]), remarks);
}

#[test]
fn the_nested_keys_and_values_of_stats_json_are_documented() {
    let page = read("docs/reference/stats.md");
    let mut reasons = words_of("src/crawl/finish.rs", "\nimpl FinishReason {");
    // Only probes end for these reasons, and a probe has no `stats.json`.
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
    let of = |name| constant("src/sink/directory.rs", name);
    known.insert(format!("{}/{}*", of("STATE"), of("JOURNAL")));
    known.insert(format!("{}/{}*", of("STATE"), of("SEEN")));
    known.insert(format!("{}/{}*", of("STATE"), of("QUEUE")));
    known.insert(format!("{}/{}*", of("STATE"), of("UNREAD")));
    known.insert(constant("src/sink/directory/lock.rs", "NAME"));
    for name in ["ORDERS", "RUNS", "SOCKET"] {
        known.insert(constant("src/sink/directory/control.rs", name));
    }
    // Names with a number or a suffix are not constants.
    let outputs = read("src/sink/directory/outputs.rs");
    let (_, series) = outputs
        .split_once("const SERIES")
        .expect("the files of lines");
    let (_, series) = series.split_once("= [").expect("their names");
    let (series, _) = series.split_once("];").expect("their end");
    for name in series.split(',') {
        known.insert(constant("src/sink/directory/outputs.rs", name.trim()));
    }
    let numbered = ["results-000001.jsonl", "results-000003.jsonl.open"];
    let first = Path::new("out/results.jsonl");
    for name in numbered {
        let file = LineFile::at(&Path::new("out").join(name), first);
        assert!(file.is_some(), "{name} is a name of a file of lines");
        known.insert(name.to_owned());
    }
    let kept = read("src/sink/directory/kept.rs");
    assert!(outputs.contains("ends_with(\".warc.gz\")") && kept.contains("name(\".old\")"));
    let indexes = read("src/sink/directory/indexes.rs");
    assert!(indexes.contains("\".cdxj\", \".cdxj.tmp\""));
    let named = [
        "warc/*.warc.gz",
        "warc/*.warc.gz.open",
        "warc/*.cdxj",
        "warc/*.cdxj.tmp",
    ];
    known.extend(named.map(str::to_owned));
    known.insert("pending.jsonl.old".to_owned());
    assert_eq!(names(tables(&page)[0]), known);
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
