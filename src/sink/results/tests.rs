//! Result lines as specified, parsed back.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::Value;
use serde_json::value::RawValue;

use super::*;
use crate::base::stamp::Clock;
use crate::base::time::Wall;
use crate::fetch::failure::{FailureKind, Truncation};
use crate::fetch::tls::TlsVersion;
use crate::sink::line::Seconds;
use crate::sink::page::samples;
use crate::throttle::decision::DecisionSource;

fn line(page: &Page, place: Option<RecordPlace<'_>>) -> String {
    let mut out = Vec::new();
    write_line(page, place, &mut out);
    String::from_utf8(out).unwrap()
}

fn parsed(page: &Page) -> Value {
    let line = line(page, None);
    assert_eq!(line.matches('\n').count(), 1, "{line}");
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[test]
fn a_line_has_the_specified_fields_in_order() {
    let mut page = samples::page(7);
    page.parent = Some(3);
    page.seed = false;
    page.depth = 1;
    page.content_type = Some("text/html; charset=utf-8".into());
    page.links = Some(12);
    let mut words = DirectiveWords::default();
    words.add_meta("robots", "noindex", "argiope");
    words.add_header("none, max-snippet:2", "argiope");
    page.directives = Some(Box::new(words));
    let place = RecordPlace {
        file: "warc/x.warc.gz",
        offset: 0,
        length: 900,
    };
    assert_eq!(
        line(&page, Some(place)),
        concat!(
            r#"{"id": 7, "parent": 3, "seed": false, "final": true, "kind": "page", "url": "http://a.test/7", "#,
            r#""method": "GET", "depth": 1, "attempt": 1, "scopes": ["a.test"], "status": 200, "error": null, "#,
            r#""truncated": null, "redirect": null, "version": "HTTP/1.1", "content_type": "text/html; charset=utf-8", "#,
            r#""remote": "127.0.0.1:80", "local": "127.0.0.1:40112", "reused": false, "tls": null, "#,
            r#""bytes_wire": 43, "bytes_body": 5, "digest": "sha1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N", "links": 12, "#,
            r#""robots": {"meta": ["noindex"], "header": ["none", "max-snippet:2"]}, "#,
            r#""warc": {"file": "warc/x.warc.gz", "offset": 0, "length": 900}, "#,
            r#""started": "2026-11-21T00:00:07.000000000Z", "due": "2026-11-21T00:00:07.000000000Z", "#,
            r#""sent": "2026-11-21T00:00:07.000040000Z", "dns": null, "connect": 0.00003, "tls_handshake": null, "#,
            r#""request": 0.00004, "first_byte": 0.0201, "headers": 0.0202, "body": 0.0203, "ended": 0.0203, "#,
            r#""latency": 0.02016, "server_latency": 0.02016, "clock": "kernel", "lateness": 0.00001, "#,
            r#""delay": 0.25, "hold": null, "meta": null}"#,
            "\n"
        )
    );
}

#[test]
fn missing_values_are_null_and_never_zero() {
    let mut page = samples::page(1);
    page.status = None;
    page.version = None;
    page.remote = None;
    page.local = None;
    page.response_bytes.clear();
    page.head_length = 0;
    page.delay = None;
    page.timings = crate::fetch::timings::Timings::default();
    page.failure = Some(Failure::new(FailureKind::Dns, "nxdomain", "no \"a.test\""));
    let value = parsed(&page);
    for name in [
        "parent",
        "status",
        "version",
        "remote",
        "local",
        "tls",
        "digest",
        "links",
        "robots",
        "warc",
        "due",
        "sent",
        "dns",
        "connect",
        "tls_handshake",
        "request",
        "first_byte",
        "headers",
        "body",
        "latency",
        "server_latency",
        "clock",
        "lateness",
        "delay",
        "ended",
        "hold",
        "meta",
    ] {
        assert_eq!(value.get(name), Some(&Value::Null), "{name}");
    }
    assert_eq!(
        value["error"],
        serde_json::json!({"kind": "dns", "code": "dns.nxdomain", "detail": "no \"a.test\""})
    );
}

#[test]
fn a_hold_names_each_scope_with_the_time_for_which_it_is_held() {
    let mut page = samples::page(7);
    let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
    let mut hold = AskedHold::new(at(8), Duration::from_secs(90), DecisionSource::RetryAfter);
    hold.scopes = vec![
        ("a.test".to_owned(), Duration::from_secs(60)),
        ("key \"b\"".to_owned(), Duration::from_millis(500)),
    ];
    hold.redirect = Some(Duration::from_secs(30));
    page.hold = Some(Box::new(hold));
    page.robots_ignored = true;
    let value = parsed(&page);
    assert_eq!(
        value["hold"],
        serde_json::json!({
            "from": "2026-11-21T00:00:08.000000000Z", "seconds": 90, "source": "retry-after",
            "scopes": {"a.test": 60, "key \"b\"": 0.5}, "redirect": 30
        })
    );
    assert_eq!(value["robots_ignored"], true);
    assert_eq!(parsed(&samples::page(7)).get("robots_ignored"), None);
}

#[test]
fn a_bound_is_listed_only_for_upper_bounds() {
    let mut page = samples::page(1);
    assert_eq!(parsed(&page).get("bound"), None);
    let headers = page.timings.headers.as_mut().expect("a head");
    headers.clock = Clock::User;
    let value = parsed(&page);
    assert_eq!(value["bound"], Value::Bool(true));
    assert_eq!(value["clock"], "user");
    page.timings.headers = None;
    assert_eq!(parsed(&page).get("bound"), None);
}

#[test]
fn a_line_contains_tls_and_truncation() {
    let mut page = samples::page(1);
    page.tls = Some(TlsInfo {
        version: TlsVersion::Tls13,
        cipher: "TLS_AES_128_GCM_SHA256",
        resumed: true,
        verified: false,
    });
    page.truncated = Some(Truncation::Disconnect);
    page.timings.tls_took = Some(Duration::from_millis(100));
    let value = parsed(&page);
    assert_eq!(value["truncated"], "disconnect");
    assert_eq!(
        value["tls"],
        serde_json::json!({"version": "TLSv1.3", "cipher": "TLS_AES_128_GCM_SHA256",
            "resumed": true, "verified": false})
    );
    assert_eq!(value["latency"], 0.12016);
    assert_eq!(value["server_latency"], 0.02016);
}

#[test]
fn seconds_are_plain_decimals() {
    let check = |nanos, expected: &str| {
        let text = Seconds(Duration::from_nanos(nanos)).to_string();
        assert_eq!(text, expected);
    };
    check(0, "0");
    check(1, "0.000000001");
    check(30_000, "0.00003");
    check(1_000_000_000, "1");
    check(100_000_000_000, "100");
    check(12_345_678_901, "12.345678901");
    check(u64::MAX, "18446744073.709551615");
}

#[test]
fn a_callers_json_is_kept_on_one_line() {
    let check = |json: &str, expected: &str| {
        let mut page = samples::page(1);
        page.meta = Some(RawValue::from_string(json.to_owned()).unwrap());
        let line = line(&page, None);
        assert!(
            line.ends_with(&format!("\"meta\": {expected}}}\n")),
            "{line}"
        );
    };
    check(
        r#"{"n":1.10,"s":"\u00e9\n"}"#,
        r#"{"n":1.10,"s":"\u00e9\n"}"#,
    );
    check("[1,\r\n2]", "[1,  2]");
    check("12345678901234567890123", "12345678901234567890123");
}

#[test]
fn a_reply_that_cannot_have_a_body_has_no_digest() {
    let mut page = samples::reply(1, "HTTP/1.1 200 OK\r\n\r\n", b"");
    assert_eq!(
        parsed(&page)["digest"],
        "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"
    );
    page.status = Some(304);
    assert_eq!(parsed(&page)["digest"], Value::Null);
    page.status = Some(200);
    page.method = "HEAD".into();
    assert_eq!(parsed(&page)["digest"], Value::Null);
}

proptest! {
    #[test]
    fn any_text_survives_a_line(text in any::<String>(), wild in ".*[\\x00-\\x1f\"\\\\\u{7f}\u{2028}].*") {
        let mut page = samples::page(1);
        page.url = text.as_str().into();
        page.content_type = Some(wild.clone());
        page.redirect = Some(text.clone());
        page.scopes = vec![text.as_str().into(), wild.as_str().into()];
        page.failure = Some(Failure::new(FailureKind::TooLarge, "head", wild.clone()));
        let value = parsed(&page);
        prop_assert_eq!(&value["url"], &text);
        prop_assert_eq!(&value["content_type"], &wild);
        prop_assert_eq!(&value["redirect"], &text);
        prop_assert_eq!(&value["scopes"][1], &wild);
        prop_assert_eq!(&value["error"]["detail"], &wild);
    }

    #[test]
    fn wall_times_are_written_as_by_display(nanos in any::<u64>()) {
        let mut text = Vec::new();
        Line { out: &mut text }.wall(Wall(nanos));
        prop_assert_eq!(String::from_utf8(text).unwrap(), format!("\"{}\"", Wall(nanos)));
    }
}

#[test]
fn special_characters_are_escaped_at_any_position() {
    for length in 0..20 {
        for at in 0..length {
            for octet in 0..0x80 {
                let mut text = "~".repeat(length);
                text.replace_range(at..=at, &char::from(octet).to_string());
                let mut out = Vec::new();
                Line { out: &mut out }.text(&text);
                let read: String = serde_json::from_slice(&out).expect("it is JSON");
                assert_eq!(read, text);
            }
        }
    }
}

#[test]
fn addresses_are_written_as_by_display() {
    let check = |address: &str| {
        let mut out = Vec::new();
        Line { out: &mut out }.address(address.parse().expect("an address"));
        assert_eq!(String::from_utf8(out).unwrap(), format!("\"{address}\""));
    };
    for octet in 0..=255 {
        check(&format!("{octet}.{octet}.0.{octet}:{octet}"));
    }
    check("127.0.0.1:65535");
    check("[2001:db8::1]:8080");
}

#[test]
fn wall_times_of_different_seconds_are_formatted_separately() {
    let mut text = WallText::new();
    let seconds = [59, 59, 60, 0, u64::MAX / 1_000_000_000, 60];
    for (nanos, second) in seconds.into_iter().enumerate() {
        let wall = Wall(second * 1_000_000_000 + nanos as u64);
        assert_eq!(text.of(wall), format!("\"{wall}\"").as_bytes());
    }
}
