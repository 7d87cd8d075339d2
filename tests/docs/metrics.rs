//! The metrics, and the dashboard that shows them.

use std::collections::BTreeSet;

use argiope::crawl::metrics::{FAMILIES, Family, Kind};
use argiope::serde_json::Value;
use argiope::{Config, Crawler, MetricsFormat};

use crate::markdown::{quoted, rows, tables};
use crate::tree::read;

/// Name, type, unit and labels of a metric.
type Row = (String, String, String, Vec<String>);

#[test]
fn every_metric_is_documented_with_its_type_unit_and_labels() {
    let known: Vec<Row> = FAMILIES
        .iter()
        .map(|family| {
            let kind = match family.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
                Kind::Info => "info",
            };
            let labels = family.labels.iter().map(|label| (*label).to_owned());
            (
                family.sample_name().into_owned(),
                kind.to_owned(),
                family.unit().unwrap_or_default().to_owned(),
                labels.collect(),
            )
        })
        .collect();
    let page = read("docs/reference/metrics.md");
    let documented: Vec<Row> = tables(&page)
        .into_iter()
        .flat_map(rows)
        .map(|row| {
            let [name, kind, unit, labels, meaning] = row[..] else {
                panic!("five columns: {row:?}");
            };
            assert!(!meaning.trim().is_empty(), "{name} has no meaning");
            let name = quoted(name).next().expect("a name in backticks");
            let labels = quoted(labels).map(str::to_owned);
            (
                name.to_owned(),
                kind.trim().to_owned(),
                unit.trim().to_owned(),
                labels.collect(),
            )
        })
        .collect();
    assert_eq!(documented, known);
}

#[test]
fn what_is_documented_is_what_a_crawl_renders() {
    let text = metrics();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let rendered: Vec<&str> = types.filter_map(|line| line.split(' ').next()).collect();
    let listed: Vec<_> = FAMILIES.iter().map(Family::sample_name).collect();
    assert_eq!(rendered, listed);
}

#[test]
fn bounds_of_buckets_are_documented() {
    let text = metrics();
    let page = read("docs/reference/metrics.md");
    for (metric, documented) in [
        (
            "argiope_latency_seconds",
            "Buckets of latencies and phases end at ",
        ),
        (
            "argiope_turn_seconds",
            "Buckets of lateness and turns end at ",
        ),
    ] {
        let start = format!("{metric}_bucket{{le=\"");
        let bounds = text.lines().filter_map(|line| line.strip_prefix(&start));
        let bounds = bounds.filter_map(|rest| rest.split('"').next());
        let bounds: Vec<&str> = bounds.filter(|bound| *bound != "+Inf").collect();
        let line = page.lines().find_map(|line| line.strip_prefix(documented));
        let line = line.expect("the line of bounds").replace(" and ", ", ");
        let numbers = line.trim_end_matches(" seconds.").split(", ");
        assert_eq!(bounds, numbers.collect::<Vec<_>>(), "{metric}");
    }
}

#[test]
fn the_dashboard_shows_metrics_that_exist_and_leaves_none_out() {
    let dashboard: Value = read("tools/grafana.json").parse().expect("it is JSON");
    let mut shown = BTreeSet::new();
    names_in(&dashboard, &mut shown);
    let mut known = BTreeSet::new();
    for family in FAMILIES {
        known.insert(match family.kind {
            Kind::Histogram => format!("{}_bucket", family.name),
            _ => family.sample_name().into_owned(),
        });
    }
    let wrong: Vec<_> = shown.difference(&known).collect();
    assert!(wrong.is_empty(), "nothing renders {wrong:?}");
    assert_eq!(shown, known);
}

#[test]
fn panels_of_the_dashboard_are_whole_and_do_not_overlap() {
    let dashboard: Value = read("tools/grafana.json").parse().expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        let title = panel["title"].as_str().expect("a title");
        assert!(ids.insert(panel["id"].as_u64()), "{title}: its id is taken");
        let of = |key| panel["gridPos"][key].as_u64().expect("a position");
        assert!(of("x") + of("w") <= 24, "{title} is in the grid");
        for x in of("x")..of("x") + of("w") {
            for y in of("y")..of("y") + of("h") {
                assert!(cells.insert((x, y)), "{title} overlaps another panel");
            }
        }
        if panel["type"] == "row" {
            continue;
        }
        let targets = panel["targets"].as_array().expect("targets");
        assert!(!targets.is_empty(), "{title} shows nothing");
        for source in targets.iter().chain([panel]) {
            assert_eq!(source["datasource"]["uid"], "${datasource}", "{title}");
        }
    }
}

/// The metrics of a crawl that has not begun.
fn metrics() -> String {
    let crawler = Crawler::builder(Config::default()).build();
    let crawler = crawler.expect("a crawl by default");
    crawler.metrics(MetricsFormat::Prometheus)
}

/// Adds the names of metrics in the strings of a value.
fn names_in(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let names = words.filter(|word| word.starts_with("argiope_"));
            found.extend(names.map(str::to_owned));
        }
        Value::Array(values) => values.iter().for_each(|value| names_in(value, found)),
        Value::Object(values) => values.values().for_each(|value| names_in(value, found)),
        _ => {}
    }
}
