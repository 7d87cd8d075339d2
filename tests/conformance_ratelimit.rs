//! Parsing of rate-limit headers: examples of every draft, headers of vendors, forms of Retry-After.
//!
//! The cases are in the folder `ARGIOPE_VECTORS`, outside of the package.

mod vectors;

use std::time::Duration;

use argiope::Wall;
use argiope::wire::date;
use argiope::wire::http::{Headers, Item, Limits, ResponseReader};
use argiope::wire::rate_limit::RateLimit;
use argiope::wire::retry_after::{self, WAIT_MAX};
use serde::Deserialize;
use serde_json::Value;

#[test]
fn examples_of_every_draft_are_parsed() {
    let Some(vectors) = vectors::read::<Vectors>("ratelimit.json") else {
        return;
    };
    check_all("drafts", &vectors.drafts, |case| {
        let headers = headers(&case.headers);
        let now = date::clock_of(&headers, wall_of("2026-11-20T00:00:00Z"));
        let found = RateLimit::read(&headers, now);
        let expect = &case.expect;
        assert_eq!(found.limit, expect.limit, "limit");
        assert_eq!(found.remaining, expect.remaining, "remaining");
        // The draft has two notations of one reset; the first one is tested here.
        let reset_date = expect.reset_date.as_deref().map(|line| {
            let line = [("RateLimit-Reset".to_owned(), line.to_owned())];
            RateLimit::read(&self::headers(&line), now).reset
        });
        let reset = expect.reset_s.map(Duration::from_secs_f64);
        assert_eq!(found.reset, reset_date.unwrap_or(reset), "reset");
        assert_ne!(reset_date, Some(None), "the reset is read");
        assert!(!found.clamped, "clamped");

        let limits = found.limits.iter().map(|limit| Named::Limit {
            policy: limit.policy.clone(),
            remaining: limit.remaining,
            reset_s: limit.reset.map(|reset| reset.as_secs_f64()),
        });
        assert_eq!(limits.collect::<Vec<_>>(), well_formed(&expect.limits));
        if case.generation.as_deref() == Some("list") {
            let policies = found.policies.iter().map(|policy| Named::Policy {
                policy: policy.policy.clone().expect("the name of a policy"),
                quota: policy.quota,
                window_s: policy.window.map(|window| window.as_secs_f64()),
                unit: policy.unit.to_string(),
            });
            assert_eq!(policies.collect::<Vec<_>>(), well_formed(&expect.policies));
        }
        let wait = retry_after::read(&headers, now);
        let alone = expect.retry_after.as_deref();
        let expected = alone.and_then(|value| retry_after::parse(value.as_bytes(), now));
        assert_eq!(wait, expected, "retry-after");
        assert_eq!(wait.is_some(), alone.is_some(), "retry-after is read");
    });
}

#[test]
fn headers_of_vendors_are_parsed() {
    let Some(vectors) = vectors::read::<Vectors>("ratelimit.json") else {
        return;
    };
    check_all("vendors", &vectors.vendors, |case| {
        let headers = headers(&case.headers);
        let now = Wall(case.now_unix.expect("the time") * 1_000_000_000);
        let found = RateLimit::read(&headers, now);
        let expect = &case.expect;
        if expect.ignored {
            assert_eq!(found, RateLimit::default());
            return;
        }
        assert_eq!(found.remaining, expect.remaining, "remaining");
        assert_eq!(found.clamped, expect.clamped, "clamped");
        let reset = expect.reset_s.map(Duration::from_secs_f64);
        if expect.clamped {
            assert_eq!(found.reset, Some(WAIT_MAX), "reset");
        } else {
            assert_eq!(found.reset.map(to_the_microsecond), reset, "reset");
        }
        let wait = retry_after::read(&headers, now);
        assert_eq!(wait, expect.retry_after_s.map(Duration::from_secs_f64));
        if let Some(expected) = expect.wait_s {
            let wait = wait.or(found.reset);
            assert_eq!(wait, Some(Duration::from_secs_f64(expected)), "wait");
        }
    });
}

#[test]
fn retry_after_is_parsed_in_its_two_forms_only() {
    let Some(vectors) = vectors::read::<Vectors>("ratelimit.json") else {
        return;
    };
    check_all("retry_after", &vectors.retry_after, |case| {
        let now = wall_of(&case.now);
        let found = retry_after::parse(case.value.as_bytes(), now);
        let field = [("Retry-After".to_owned(), case.value.clone())];
        assert_eq!(retry_after::read(&headers(&field), now), found);
        let two_minutes = Duration::from_secs(120);
        match (&case.expect_s, found) {
            (Value::Number(seconds), _) => {
                assert_eq!(found, seconds.as_u64().map(Duration::from_secs));
            }
            (Value::String(word), None) => {
                assert!(["ignore", "120-or-ignore"].contains(&&**word), "ignored");
            }
            (Value::String(word), Some(wait)) if word == "clamp" => {
                // The crawl's settings limit the wait later; the parser must not.
                assert!(wait >= Duration::from_secs(1_000_000) && wait <= WAIT_MAX);
            }
            (Value::String(word), Some(wait)) => {
                assert_eq!((&**word, wait), ("120-or-ignore", two_minutes));
            }
            (other, _) => panic!("an expectation {other}"),
        }
    });
}

#[derive(Deserialize)]
struct Vectors {
    drafts: Vec<Case>,
    vendors: Vec<Case>,
    retry_after: Vec<RetryAfter>,
}

#[derive(Deserialize)]
struct Case {
    id: String,
    generation: Option<String>,
    now_unix: Option<u64>,
    headers: Vec<(String, String)>,
    expect: Expect,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Expect {
    limit: Option<f64>,
    remaining: Option<f64>,
    reset_s: Option<f64>,
    reset_date: Option<String>,
    retry_after: Option<String>,
    retry_after_s: Option<f64>,
    wait_s: Option<f64>,
    clamped: bool,
    ignored: bool,
    limits: Vec<Named>,
    policies: Vec<Named>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Named {
    Policy {
        policy: String,
        quota: f64,
        window_s: Option<f64>,
        unit: String,
    },
    Limit {
        policy: String,
        remaining: Option<f64>,
        reset_s: Option<f64>,
    },
    Malformed {
        malformed: String,
    },
}

#[derive(Deserialize)]
struct RetryAfter {
    id: String,
    value: String,
    now: String,
    expect_s: Value,
}

trait Identified {
    fn id(&self) -> &str;
}

impl Identified for Case {
    fn id(&self) -> &str {
        &self.id
    }
}

impl Identified for RetryAfter {
    fn id(&self) -> &str {
        &self.id
    }
}

/// Checks every case, and prints the name of the first that fails before its assertion does.
fn check_all<T: Identified>(group: &str, cases: &[T], check: impl Fn(&T)) {
    assert!(!cases.is_empty(), "no case among {group}");
    for case in cases {
        println!("{}", case.id());
        check(case);
    }
    println!("{group}: all {}", cases.len());
}

/// Removes malformed values from the expected ones: the parser does not return them.
fn well_formed(expected: &[Named]) -> Vec<Named> {
    let is_malformed = |named: &&Named| matches!(named, Named::Malformed { .. });
    let kept = expected.iter().filter(|named| !is_malformed(named));
    kept.cloned().collect()
}

/// Moments written as fractions of seconds since 1970 are no more precise in an `f64`.
fn to_the_microsecond(span: Duration) -> Duration {
    Duration::from_micros((span.as_secs_f64() * 1e6).round() as u64)
}

fn wall_of(timestamp: &str) -> Wall {
    date::timestamp(timestamp.as_bytes()).expect("a time")
}

/// The header fields, parsed from a reply.
fn headers(fields: &[(String, String)]) -> Headers {
    let mut reply = "HTTP/1.1 200 OK\r\n".to_owned();
    for (name, value) in fields {
        reply += &format!("{name}: {value}\r\n");
    }
    reply += "\r\n";
    let mut reader = ResponseReader::new(true, Limits::default());
    match reader.next(&mut reply.as_bytes()) {
        Ok(Some(Item::Head(head))) => {
            assert_eq!(head.headers.len(), fields.len(), "every field is read");
            head.headers
        }
        other => panic!("no head: {other:?}"),
    }
}
