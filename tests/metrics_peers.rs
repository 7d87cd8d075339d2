//! Metrics of a crawl, and the expressions of the dashboard, read by Prometheus's own checker and by the
//! OpenMetrics parser of its client for Python.
//!
//! Prints `SKIPPED` if promtool (Debian's package `prometheus`) or the client (`pip install
//! prometheus-client`) is not installed.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use argiope::probe::{Length, Probe, ProbeSettings};
use argiope::sim::{Reply, Web};
use argiope::sink::NullSink;
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
    let text = metrics_of_a_crawl(MetricsFormat::Prometheus);
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
    let text = metrics_of_a_crawl(MetricsFormat::Prometheus);
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

/// Prints the number of samples, and the values of a label.
const READER: &str = "\
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
families = list(text_string_to_metric_families(sys.stdin.read()))
print(sum(len(family.samples) for family in families))
print(sorted({sample.labels.get('scope', '') for family in families for sample in family.samples}))
";

#[test]
fn python_client_reads_the_openmetrics_of_a_crawl() {
    let text = metrics_of_a_crawl(MetricsFormat::OpenMetrics);
    let Some((accepted, output_text)) = python(READER, &text) else {
        return;
    };
    assert!(accepted, "{output_text}\n{text}");
    let samples = text.lines().filter(|line| !line.starts_with('#')).count();
    let (number, scopes) = output_text.split_once('\n').expect("two lines");
    assert_eq!(number, samples.to_string());
    for scope in ["'a\"} 1\\nargiope_pages_total 7'", "'back\\\\slash\\\\'"] {
        assert!(scopes.contains(scope), "{scope} is not in {scopes}");
    }
    let (accepted, _) = python(READER, text.trim_end_matches("# EOF\n")).expect("it is there");
    assert!(!accepted, "text without its end");
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

#[test]
fn promtool_accepts_the_metrics_of_a_target() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a port");
    let at = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let asked = BufReader::new(&stream).lines();
            let lines = asked.map_while(Result::ok);
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            stream.write_all(reply).expect("it reads");
        }
    });
    let url = format!("http://{at}/");
    let config = Config::default().with("ALLOW_NET", "loopback");
    let config = config.expect("a setting");
    let mut settings = ProbeSettings::default();
    settings.every = Some(Duration::from_millis(100));
    settings.length = Some(Length::Requests(2));
    let targets = [Request::get(&url)];
    let mut probe = Probe::new(config, settings, &targets, NullSink).expect("a probe");
    assert_eq!(probe.run(), FinishReason::Finished);
    let text = probe.target_metrics(&url, MetricsFormat::Prometheus);
    let text = text.expect("it was requested");
    assert!(text.contains("\nprobe_success 1\n"), "{text}");
    let all = probe.metrics(MetricsFormat::Prometheus);
    assert!(
        all.contains("argiope_probes_total{result=\"success\"} 2\n"),
        "{all}"
    );
    for text in [text, all] {
        if let Some((accepted, output_text)) = promtool(&["check", "metrics"], &text) {
            assert!(accepted && output_text.is_empty(), "{output_text}\n{text}");
        }
    }
}

/// Of a crawl in which requests fail, are refused and are filtered.
fn metrics_of_a_crawl(format: MetricsFormat) -> String {
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
    crawler.metrics(format)
}

/// Whether promtool accepts the text on its standard input, and its output; `None` without promtool.
fn promtool(arguments: &[&str], input: &str) -> Option<(bool, String)> {
    let checked = run(Command::new("promtool").args(arguments), input);
    if checked.is_none() {
        skip("promtool is not installed (Debian's package prometheus)");
    }
    checked
}

/// Whether a program in Python accepts the text, and its output; `None` without the client.
fn python(program: &str, input: &str) -> Option<(bool, String)> {
    let checked = run(Command::new("python3").args(["-c", program]), input);
    let is_absent = |text: &str| text.contains("No module named 'prometheus_client'");
    let checked = checked.filter(|(_, text)| !is_absent(text));
    if checked.is_none() {
        skip("prometheus-client is not installed (pip install prometheus-client)");
    }
    checked
}

fn skip(lacking: &str) {
    // Directly, because the harness captures the output of passing tests.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {lacking}");
}

/// Whether a program succeeds with this input, and its output; `None` if it is not installed.
fn run(command: &mut Command, input: &str) -> Option<(bool, String)> {
    let started = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match started {
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        started => started.expect("the program starts"),
    };
    let mut stdin = child.stdin.take().expect("it is piped");
    match stdin.write_all(input.as_bytes()) {
        // It may have seen enough.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => panic!("{command:?}: {error}"),
        _ => drop(stdin),
    }
    let output = child.wait_with_output().expect("it ends");
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Some((output.status.success(), text))
}
