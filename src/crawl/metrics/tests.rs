//! Reads the metrics back, as a scraper does.

use std::collections::BTreeSet;

use super::*;
use crate::base::rng::Rng;
use crate::frontier::filter::Filtered;
use crate::throttle::strategy::Pace;

/// A crawl that has measured something of everything.
#[derive(Default)]
struct Example {
    stats: Stats,
    progress: Progress,
    pacing: PaceReport,
}

impl Example {
    fn new() -> Self {
        let mut example = Example::default();
        let stats = &mut example.stats;
        stats.by_status.extend([(200, 7), (503, 1)]);
        stats.by_error.insert("timeout.connect".to_owned(), 3);
        stats.by_kind.insert(PageKind::Robots, 2);
        let mut rng = Rng::from_seed(11);
        let mut fill = |spread: &mut Spread| {
            for _ in 0..1000 {
                spread.record(Duration::from_nanos(
                    1 << rng.below(40) | rng.below(1 << 30),
                ));
            }
        };
        fill(&mut stats.server_latency);
        fill(&mut stats.latency);
        fill(&mut stats.lateness);
        fill(&mut stats.lag);
        stats.phases.iter_mut().for_each(|(_, spread)| fill(spread));
        let progress = &mut example.progress;
        progress.filtered.insert(Filtered::Depth, 5);
        progress.hosts_held_next = Some(Duration::from_millis(1500));
        example
            .pacing
            .waited
            .insert(WaitCause::Delay, Duration::from_secs(9));
        example.pacing.decided.insert(DecisionEvent::Hold, 4);
        example.add_scope("a.test");
        example.add_scope("b.test");
        example
    }

    fn add_scope(&mut self, name: &str) {
        let pace = Pace {
            delay: Duration::from_millis(250),
            concurrency: 8,
        };
        let mut scope = ScopePacing::new(name, pace);
        scope.sent = 12;
        scope.refused = 1;
        scope.latency = Some(Duration::from_millis(70));
        scope
            .waited
            .insert(WaitCause::Delay, Duration::from_secs(2));
        scope
            .waited
            .insert(WaitCause::Hold, Duration::from_millis(500));
        self.pacing.scopes.push(scope);
    }

    fn render(&self, format: MetricsFormat) -> String {
        let metrics = Metrics {
            stats: &self.stats,
            progress: &self.progress,
            pacing: &self.pacing,
            is_paused: true,
            watch: None,
            scopes_max: 20,
        };
        metrics.render(format)
    }

    fn read(&self) -> Vec<ReadFamily> {
        read(&self.render(MetricsFormat::Prometheus))
    }
}

/// A family as read.
struct ReadFamily {
    name: String,
    kind: String,
    samples: Vec<Sample>,
}

#[derive(Clone, Debug, PartialEq)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

impl ReadFamily {
    /// The values of the samples with this name and first of its labels.
    fn values(&self, suffix: &str, label: Option<(&str, &str)>) -> Vec<f64> {
        let name = format!("{}{suffix}", self.name);
        let fits = |sample: &&Sample| {
            let has = |(key, value): (&str, &str)| {
                sample.labels.contains(&(key.to_owned(), value.to_owned()))
            };
            sample.name == name && label.is_none_or(has)
        };
        self.samples
            .iter()
            .filter(fits)
            .map(|sample| sample.value)
            .collect()
    }
}

/// The families of a text in either format.
fn read(text: &str) -> Vec<ReadFamily> {
    let mut families: Vec<ReadFamily> = Vec::new();
    let mut lines = text
        .strip_suffix("# EOF\n")
        .unwrap_or(text)
        .lines()
        .peekable();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, _) = help.split_once(' ').expect("a name and a text");
            let prefix = format!("# TYPE {name} ");
            let kind = lines.next().and_then(|line| line.strip_prefix(&prefix));
            lines.next_if(|line| line.starts_with(&format!("# UNIT {name} ")));
            families.push(ReadFamily {
                name: name.to_owned(),
                kind: kind.expect("the type follows").to_owned(),
                samples: Vec::new(),
            });
            continue;
        }
        let sample = read_sample(line).unwrap_or_else(|| panic!("a sample: {line}"));
        let family = families.last_mut().expect("a family begins with its help");
        assert!(sample.name.starts_with(&family.name), "{line}");
        family.samples.push(sample);
    }
    families
}

fn read_sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (key, quoted) = rest.split_once("=\"")?;
            let mut value = String::new();
            let mut chars = quoted.char_indices();
            let end = loop {
                match chars.next()? {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match chars.next()?.1 {
                        'n' => '\n',
                        char @ ('\\' | '"') => char,
                        _ => return None,
                    }),
                    (_, char) => value.push(char),
                }
            };
            labels.push((key.to_owned(), value));
            rest = &quoted[end + 1..];
            match rest.strip_prefix(',') {
                Some(next) => rest = next,
                None => break rest = rest.strip_prefix('}')?,
            }
        }
    }
    Some(Sample {
        name: name.to_owned(),
        labels,
        value: rest.strip_prefix(' ')?.parse().ok()?,
    })
}

fn family<'a>(families: &'a [ReadFamily], name: &str) -> &'a ReadFamily {
    let mut families = families.iter();
    families
        .find(|family| family.name == name)
        .unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn every_family_of_the_list_is_written_with_its_labels_and_nothing_else() {
    let families = Example::new().read();
    let names: Vec<&str> = families.iter().map(|family| family.name.as_str()).collect();
    let listed: Vec<_> = FAMILIES.iter().map(Family::sample_name).collect();
    assert_eq!(names, listed);
    let mut series = BTreeSet::new();
    for (read, listed) in families.iter().zip(FAMILIES) {
        let kind = match listed.kind {
            Kind::Counter => "counter",
            Kind::Gauge | Kind::Info => "gauge",
            Kind::Histogram => "histogram",
        };
        assert_eq!(read.kind, kind, "{}", read.name);
        assert!(!read.samples.is_empty(), "{} has no sample", read.name);
        assert!(listed.name.starts_with("argiope_") && listed.help.ends_with('.'));
        for sample in &read.samples {
            let keys = sample.labels.iter().map(|(key, _)| key.as_str());
            let keys: Vec<&str> = keys.filter(|key| *key != "le").collect();
            assert_eq!(keys, listed.labels, "{}", sample.name);
            let is_new = series.insert((sample.name.clone(), sample.labels.clone()));
            assert!(is_new, "{sample:?} appears twice");
        }
    }
}

#[test]
fn a_crawl_without_anything_yet_has_the_same_families() {
    let families = Example::default().read();
    assert_eq!(families.len(), FAMILIES.len());
    for (name, expected) in [
        ("argiope_pages_total", vec![0.0]),
        ("argiope_attempts_total", vec![0.0; 3]),
        ("argiope_responses_total", vec![]),
        ("argiope_hosts_held_next_seconds", vec![]),
        ("argiope_scope_sent_total", vec![]),
    ] {
        assert_eq!(family(&families, name).values("", None), expected, "{name}");
    }
    let turns = family(&families, "argiope_turn_seconds");
    assert_eq!(turns.values("_bucket", None), [0.0; LOOP_BOUNDS.len() + 1]);
    assert_eq!(turns.values("_sum", None), [0.0]);
}

#[test]
fn numbers_are_those_of_the_crawl() {
    let mut example = Example::new();
    example.stats.bytes_wire = 5_000_000_000;
    example.progress.started = Wall::from_civil((2026, 1, 2), (3, 4, 5)).expect("a date");
    example.progress.outage_time = Duration::from_millis(2500);
    example.pacing.left_out = 40;
    let families = example.read();
    let check = |name: &str, label, expected: &[f64]| {
        let values = family(&families, name).values("", label);
        assert_eq!(values, expected, "{name} {label:?}");
    };
    check("argiope_wire_bytes_total", None, &[5e9]);
    check("argiope_start_time_seconds", None, &[1_767_323_045.0]);
    check("argiope_outage_seconds_total", None, &[2.5]);
    check("argiope_paused", None, &[1.0]);
    check(
        "argiope_build_info",
        Some(("version", env!("CARGO_PKG_VERSION"))),
        &[1.0],
    );
    check("argiope_attempts_total", Some(("kind", "robots")), &[2.0]);
    check("argiope_responses_total", Some(("status", "503")), &[1.0]);
    check("argiope_errors_total", Some(("kind", "timeout")), &[3.0]);
    check("argiope_errors_total", Some(("code", "connect")), &[3.0]);
    check("argiope_filtered_total", Some(("reason", "depth")), &[5.0]);
    check("argiope_hosts_held_next_seconds", None, &[1.5]);
    check(
        "argiope_waited_seconds_total",
        Some(("cause", "delay")),
        &[9.0],
    );
    check(
        "argiope_waited_seconds_total",
        Some(("cause", "hold")),
        &[0.0],
    );
    check("argiope_decisions_total", Some(("event", "hold")), &[4.0]);
    check("argiope_scopes_omitted", None, &[40.0]);
    let scope = Some(("scope", "b.test"));
    check("argiope_scope_sent_total", scope, &[12.0]);
    check("argiope_scope_refused_total", scope, &[1.0]);
    check("argiope_scope_waited_seconds_total", scope, &[2.5]);
    check("argiope_scope_delay_seconds", scope, &[0.25]);
    check("argiope_scope_concurrency", scope, &[8.0]);
    check("argiope_scope_latency_seconds", scope, &[0.07]);
}

#[test]
fn histograms_are_cumulative_and_agree_with_their_spreads() {
    let example = Example::new();
    let families = example.read();
    let stats = &example.stats;
    let check = |name: &str, label, spread: &Spread, bounds: &[Duration]| {
        let family = family(&families, name);
        let buckets = family.values("_bucket", label);
        assert!(buckets.is_sorted(), "{name}: {buckets:?}");
        assert_eq!(buckets.len(), bounds.len() + 1, "{name}");
        assert_eq!(buckets.last(), Some(&(spread.count() as f64)), "{name}");
        assert_eq!(family.values("_count", label), [spread.count() as f64]);
        let sum = family.values("_sum", label)[0];
        let mean = spread.mean().expect("spans").as_secs_f64();
        assert!(
            (sum / 1000.0 - mean).abs() < 1e-8,
            "{name}: {sum} of {mean}"
        );
        for (bound, counted) in bounds.iter().zip(buckets) {
            // The spans of a counter are reported as the longest of them.
            let up_to = |bound: Duration| -> u64 {
                let spans = spread.buckets().take_while(|(span, _)| *span <= bound);
                spans.map(|(_, count)| count).sum()
            };
            assert!(counted as u64 >= up_to(*bound), "{name}: {bound:?}");
            assert!(
                counted as u64 <= up_to(bound.mul_f64(1.001)),
                "{name}: {bound:?}"
            );
        }
        let bounds_read: Vec<f64> = family
            .samples
            .iter()
            .filter(|sample| label.is_none_or(|(_, value)| sample.labels[0].1 == value))
            .filter_map(|sample| sample.labels.iter().find(|(key, _)| key == "le"))
            .map(|(_, bound)| bound.parse().expect("a number"))
            .collect();
        let expected = bounds.iter().map(Duration::as_secs_f64);
        let expected: Vec<f64> = expected.chain([f64::INFINITY]).collect();
        assert_eq!(bounds_read, expected, "{name}");
    };
    check(
        "argiope_server_latency_seconds",
        None,
        &stats.server_latency,
        LATENCY_BOUNDS,
    );
    check(
        "argiope_latency_seconds",
        None,
        &stats.latency,
        LATENCY_BOUNDS,
    );
    check(
        "argiope_lateness_seconds",
        None,
        &stats.lateness,
        LOOP_BOUNDS,
    );
    check("argiope_turn_seconds", None, &stats.lag, LOOP_BOUNDS);
    for (phase, spread) in &stats.phases {
        let label = Some(("phase", phase.as_str()));
        check("argiope_phase_seconds", label, spread, LATENCY_BOUNDS);
    }
}

#[test]
fn both_formats_have_the_same_samples() {
    let example = Example::new();
    let samples = |format| -> Vec<Sample> {
        let families = read(&example.render(format)).into_iter();
        families.flat_map(|family| family.samples).collect()
    };
    let plain = samples(MetricsFormat::Prometheus);
    assert!(plain.len() > 250, "{}", plain.len());
    assert_eq!(plain, samples(MetricsFormat::OpenMetrics));
}

#[test]
fn openmetrics_text_ends_with_its_mark_and_names_units() {
    let text = Example::new().render(MetricsFormat::OpenMetrics);
    assert!(text.ends_with("\n# EOF\n"));
    for line in [
        "# TYPE argiope_build info",
        "# TYPE argiope_pages counter",
        "# UNIT argiope_wire_bytes bytes",
        "# UNIT argiope_scope_delay_seconds seconds",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}");
    }
}

#[test]
fn hostile_scope_names_are_labels_and_never_lines() {
    let mut example = Example::default();
    let names = [
        "a\"} 1\nargiope_pages_total 7",
        "back\\slash",
        "\\",
        "\x1b[2J",
        "\\u001b[2J",
        "\u{202e}moc.test",
        "new\r\nline",
        "bücher.test",
        "{scope=\"x\"}",
        "# EOF",
    ];
    names.iter().for_each(|name| example.add_scope(name));
    let long = "x".repeat(10_000);
    example.add_scope(&format!("{long}1"));
    example.add_scope(&format!("{long}2"));
    let families = example.read();
    assert_eq!(families.len(), FAMILIES.len());
    let sent = family(&families, "argiope_scope_sent_total");
    let labels: Vec<&str> = sent
        .samples
        .iter()
        .map(|sample| sample.labels[0].1.as_str())
        .collect();
    let long = long.as_str();
    let expected = names.iter().chain([&long]).map(|name| label_value(name));
    let expected: BTreeSet<_> = expected.collect();
    // Two pairs of names become one label each.
    assert_eq!(expected.len(), names.len());
    assert_eq!(labels, Vec::from_iter(expected));
    assert!(labels.contains(&"a\"} 1\nargiope_pages_total 7"));
    let omitted = family(&families, "argiope_scopes_omitted");
    assert_eq!(omitted.values("", None), [2.0]);
    assert_eq!(
        family(&families, "argiope_pages_total").values("", None),
        [0.0]
    );
}

#[test]
fn number_of_series_is_bounded_whatever_the_web_answers() {
    let series = |example: &Example| {
        let families = example.read();
        families
            .iter()
            .map(|family| family.samples.len())
            .sum::<usize>()
    };
    let few = series(&Example::new());
    let mut example = Example::new();
    // A status has three digits.
    example
        .stats
        .by_status
        .extend((100..=999).map(|status| (status, 1)));
    (0..50_000).for_each(|number| example.add_scope(&format!("{number}.test")));
    example.pacing.left_out = 1_000_000;
    let scopes = FAMILIES
        .iter()
        .filter(|family| family.labels == ["scope"])
        .count();
    assert_eq!(scopes, 6);
    assert_eq!(series(&example), few + (900 - 2) + (20 - 2) * scopes);
    let text = example.render(MetricsFormat::OpenMetrics);
    assert!(text.len() < 150_000, "{}", text.len());
}
