//! Metrics of a crawl, and the expressions of the dashboard, read by Prometheus's own checker.
//!
//! Prints `SKIPPED` if promtool is not installed (Debian's package `prometheus` has it).

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use argiope::sim::{Reply, Web};
use argiope::{Config, Crawler, FinishReason, MetricsFormat, Page, Request};
use serde_json::Value;

/// Scope names that would end a label, a line or the text if they were not escaped.
const HOSTILE: [&str; 5] = [
    "a\"} 1\nargiope_pages_total 7",
    "back\\slash\\",
    "\x1b[2J\0\u{9b}\u{202e}",
    "bücher.test 💡\t{}=,#",
    "# EOF",
];

#[test]
fn promtool_accepts_the_metrics_of_a_crawl() {
    let text = metrics_of_a_crawl();
    assert!(
        text.contains("argiope_scope_sent_total{scope=\"a\\\"} 1\\nargiope_pages_total 7\"} 1\n")
    );
    assert!(text.contains("argiope_responses_total{status=\"503\"} "));
    assert!(text.contains("argiope_errors_total{kind=\"reset\",code=\"reset\"} "));
    if let Some((accepted, output_text)) = promtool(&["check", "metrics"], &text) {
        assert!(accepted && output_text.is_empty(), "{output_text}\n{text}");
    }
}

#[test]
fn promtool_detects_text_that_is_wrong() {
    let text = metrics_of_a_crawl();
    let unescaped = text.replace("a\\\"} 1", "a\"} 1");
    let twice = format!("{text}# TYPE argiope_scopes gauge\n");
    let without_suffix = text.replace("argiope_pages_total", "argiope_pages");
    for (wrong, why) in [
        (unescaped, "a quote in a label"),
        (twice, "a family twice"),
        (without_suffix, "a counter without its suffix"),
    ] {
        if let Some((accepted, _)) = promtool(&["check", "metrics"], &wrong) {
            assert!(!accepted, "promtool accepts {why}");
        }
    }
}

#[test]
fn promtool_accepts_every_expression_of_the_dashboard() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/grafana.json");
    let dashboard = fs::read_to_string(path).expect("the dashboard is there");
    let dashboard: Value = dashboard.parse().expect("it is JSON");
    let mut rules = String::from("groups:\n- name: dashboard\n  rules:\n");
    let mut found = 0;
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().expect("an expression");
            // What Grafana fills in.
            let expression = expression.replace("$__rate_interval", "1m");
            assert!(
                !expression.replace("$instance", "").contains('$'),
                "{expression}"
            );
            let quoted = Value::from(expression);
            rules.push_str(&format!("  - record: number_{found}\n    expr: {quoted}\n"));
            found += 1;
        }
    }
    assert!(found > 20, "{found}");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join("dashboard_rules.yml");
    fs::write(&file, rules).expect("the folder is writable");
    let file = file.to_str().expect("a path of text");
    if let Some((accepted, output_text)) = promtool(&["check", "rules", file], "") {
        assert!(accepted, "{output_text}");
        assert!(
            output_text.contains(&format!("{found} rules found")),
            "{output_text}"
        );
    }
}

/// Of a crawl in which requests fail, are refused and are filtered.
fn metrics_of_a_crawl() -> String {
    let web = Web::new(|asked| match &*asked.target {
        "/busy" => Reply::status(503),
        "/reset" => Reply::reset(),
        _ => Reply::page("a page").after(Duration::from_millis(40)),
    });
    let mut config = Config::default();
    for (name, value) in [("RETRY_TIMES", "0"), ("ROBOTSTXT_OBEY", "false")] {
        config = config.with(name, value).expect("the setting is sound");
    }
    let mut crawler = Crawler::builder(config)
        .sink(|_: Page| {})
        .build_in(&web, 1)
        .expect("settings that can be");
    for target in ["", "busy", "reset", "more"] {
        let request = Request::get(format!("http://a.test/{target}"));
        crawler.submit(request).expect("it is a request");
    }
    for (number, scope) in HOSTILE.iter().enumerate() {
        let request = Request::get(format!("http://b.test/{number}")).scope(*scope);
        crawler.submit(request).expect("it is a request");
    }
    assert_eq!(crawler.run(), FinishReason::Finished);
    crawler.metrics(MetricsFormat::Prometheus)
}

/// Whether promtool accepts the text on its standard input, and its output; `None` without promtool.
fn promtool(arguments: &[&str], input: &str) -> Option<(bool, String)> {
    let started = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: promtool is not installed (Debian's package prometheus)"
            );
            return None;
        }
        Err(error) => panic!("promtool: {error}"),
    };
    let mut stdin = child.stdin.take().expect("it is piped");
    match stdin.write_all(input.as_bytes()) {
        // It may have seen enough.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => panic!("promtool: {error}"),
        _ => drop(stdin),
    }
    let output = child.wait_with_output().expect("it ends");
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Some((output.status.success(), text))
}
