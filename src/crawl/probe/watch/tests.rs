//! The last results of targets, and their metrics.

use super::*;
use crate::fetch::failure::{Failure, Truncation};
use crate::fetch::timings::Timings;
use crate::sink::page::{TlsInfo, samples};
use crate::wire::http::Headers;

/// Two targets.
fn watch() -> Watch {
    let urls = ["http://a.test/", "http://b.test/"].into_iter();
    Watch::new(urls, Wall::default())
}

fn failed() -> Page {
    let mut page = samples::page(7);
    page.status = None;
    page.failure = Some(Failure::new(FailureKind::Timeout, "connect", "no answer"));
    page
}

fn text(watch: &Watch, url: &str) -> String {
    let text = watch.metrics(url, MetricsFormat::Prometheus);
    text.unwrap_or_else(|error| panic!("{url}: {error:?}"))
}

#[test]
fn a_target_has_the_metrics_of_its_last_request() {
    let mut watch = watch();
    let none = |url| watch.metrics(url, MetricsFormat::Prometheus).err();
    assert_eq!(none("http://a.test/"), Some(NoMetrics::Pending));
    assert_eq!(none("http://c.test/"), Some(NoMetrics::Unknown));
    let mut page = samples::page(7);
    watch.end(0, &page);
    let plain = text(&watch, "http://a.test/");
    assert!(plain.contains("probe_http_ssl 0\n"), "{plain}");
    assert!(!plain.contains("probe_tls"), "{plain}");
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let field = format!("Last-Modified: {date}\r\n");
    page.headers = Headers::of_lines(field.as_bytes());
    page.tls = Some(TlsInfo::new(TlsVersion::Tls13, "TLS_AES_128_GCM_SHA256"));
    watch.end(0, &page);
    let seen = text(&watch, "http://a.test/");
    for line in [
        "probe_success 1",
        "probe_duration_seconds 0.0203",
        "probe_dns_lookup_time_seconds 0",
        "probe_failed_due_to_regex 0",
        "probe_http_status_code 200",
        "probe_http_duration_seconds{phase=\"connect\"} 0",
        "probe_http_duration_seconds{phase=\"processing\"} 0.02006",
        "probe_http_duration_seconds{phase=\"transfer\"} 0.0002",
        "probe_http_content_length -1",
        "probe_http_uncompressed_body_length 5",
        "probe_http_ssl 1",
        "probe_http_version 1.1",
        "probe_ip_protocol 4",
        "probe_ip_addr_hash 3668918509",
        "probe_http_last_modified_timestamp_seconds 784111777",
        "probe_tls_version_info{version=\"TLS 1.3\"} 1",
        "probe_tls_cipher_info{cipher=\"TLS_AES_128_GCM_SHA256\"} 1",
    ] {
        assert!(seen.lines().any(|own| own == line), "{line} in {seen}");
    }
    assert!(!seen.contains("argiope_probe_failure"), "{seen}");
    watch.end(0, &failed());
    let seen = text(&watch, "http://a.test/");
    for line in [
        "probe_success 0",
        "probe_http_status_code 0",
        "argiope_probe_failure_info{kind=\"timeout\",code=\"connect\"} 1",
    ] {
        assert!(seen.lines().any(|own| own == line), "{line} in {seen}");
    }
    assert_eq!(
        watch.metrics("http://b.test/", MetricsFormat::Prometheus),
        Err(NoMetrics::Pending)
    );
}

#[test]
fn a_status_that_is_not_2xx_is_no_success() {
    for (status, is_success) in [
        (200, true),
        (204, true),
        (301, false),
        (404, false),
        (500, false),
    ] {
        let mut page = samples::page(7);
        page.status = Some(status);
        assert_eq!(Outcome::of(&page).is_success, is_success, "{status}");
    }
}

#[test]
fn a_body_that_is_cut_is_no_success() {
    let mut watch = watch();
    let mut page = samples::page(7);
    page.truncated = Some(Truncation::Length);
    watch.end(0, &page);
    let seen = text(&watch, "http://a.test/");
    for line in [
        "probe_success 0",
        "probe_http_status_code 200",
        "argiope_probe_failure_info{kind=\"truncated\",code=\"length\"} 1",
    ] {
        assert!(seen.lines().any(|own| own == line), "{line} in {seen}");
    }
}

#[test]
fn the_duration_is_from_due_to_the_end() {
    let mut watch = watch();
    let mut page = failed();
    page.timings = Timings {
        due: page.timings.due,
        started: page.ended,
        ..Timings::default()
    };
    watch.end(0, &page);
    let seen = text(&watch, "http://a.test/");
    assert!(seen.contains("\nprobe_duration_seconds 0.0203\n"), "{seen}");
}

#[test]
fn a_dropped_request_is_the_last_result_of_its_target() {
    let mut watch = watch();
    watch.end(0, &samples::page(7));
    assert_eq!(watch.counts().up, 1);
    let now = Instant::START + Duration::from_secs(60);
    watch.drops(0, Duration::from_millis(3), now);
    let counts = watch.counts();
    assert_eq!((counts.up, counts.pending, counts.dropped), (0, 1, 1));
    let seen = text(&watch, "http://a.test/");
    for line in [
        "probe_success 0",
        "probe_duration_seconds 0.003",
        "argiope_probe_failure_info{kind=\"cancelled\",code=\"dropped\"} 1",
        "argiope_probe_ended_time_seconds 60",
    ] {
        assert!(seen.lines().any(|own| own == line), "{line} in {seen}");
    }
}

#[test]
fn a_target_with_an_open_request_is_skipped() {
    let mut watch = watch();
    assert!(!watch.skips(0, false));
    watch.begin(0);
    assert!(watch.skips(0, false), "its request is open");
    assert!(!watch.skips(1, false), "the other is free");
    watch.begin(1);
    watch.end(0, &failed());
    assert!(!watch.skips(0, false), "it has ended");
    watch.end(1, &samples::page(8));
    let expected = WatchCounts {
        targets: 2,
        up: 1,
        pending: 0,
        succeeded: 1,
        failed: 1,
        skipped: 1,
        dropped: 0,
    };
    assert_eq!(watch.counts(), expected);
    watch.end(1, &failed());
    assert_eq!(watch.counts().up, 0);
    let mut out = Exposition::new(MetricsFormat::Prometheus);
    watch.counts().write(&mut out);
    let written = out.finish();
    assert!(
        written.contains("argiope_probe_targets{state=\"down\"} 2\n"),
        "{written}"
    );
    assert!(
        written.contains("argiope_probes_total{result=\"skipped\"} 1\n"),
        "{written}"
    );
}

#[test]
fn all_metrics_of_targets_are_documented() {
    let page = include_str!("../../../../docs/reference/probe.md");
    for family in TARGET_FAMILIES.iter().chain(COUNT_FAMILIES) {
        let name = format!("| `{}` |", family.sample_name());
        assert!(page.contains(&name), "{name} has no row");
    }
}
