//! Limits of all versions, and invalid values in their fields.

use proptest::prelude::*;

use super::*;

/// The wall-clock time of all replies here.
const NOW: u64 = 1_700_000_000;

fn read(lines: &str) -> RateLimit {
    let headers = Headers::of_lines(lines.as_bytes());
    RateLimit::read(&headers, Wall(NOW * 1_000_000_000))
}

/// Limit, remaining, and the seconds until the reset.
fn check(lines: &str, expected: (Option<f64>, Option<f64>, Option<f64>)) {
    let found = read(lines);
    let reset = found.reset.map(|reset| reset.as_secs_f64());
    assert_eq!((found.limit, found.remaining, reset), expected, "{lines}");
}

fn check_reset(value: &str, expected: Option<f64>) {
    for name in ["RateLimit-Reset", "X-RateLimit-Reset", "x-rate-limit-reset"] {
        check(&format!("{name}: {value}"), (None, None, expected));
    }
}

const NOTHING: (Option<f64>, Option<f64>, Option<f64>) = (None, None, None);

#[test]
fn f46_a_reset_is_seconds() {
    check_reset("2", Some(2.0));
    check_reset("0", Some(0.0));
    check_reset("1.5", Some(1.5));
    check_reset("50  ; preferred", Some(50.0));
    check_reset("1000000000", Some(1e9));
}

#[test]
fn f46_an_invalid_reset_is_ignored() {
    for garbage in [
        "-1",
        "nan",
        "NaN",
        "inf",
        "-inf",
        "Infinity",
        "1e999",
        "1e3",
        "soon",
        "",
        "0x10",
        "5s",
        "１２０",
        "2023-11-14T22:13:50Z",
        "Tue, 14 Nov 2023 22:14:20 PST",
    ] {
        check_reset(garbage, None);
    }
}

#[test]
fn f46_a_reset_above_a_thousand_million_is_a_time() {
    check_reset("1700000600", Some(600.0));
    check_reset("1700000001.5", Some(1.5));
    check_reset("1700000020000", Some(20.0));
    check_reset("1000000001", Some(0.0));
    check_reset("1699999995", Some(0.0));
    check_reset("Tue, 14 Nov 2023 22:14:20 GMT", Some(60.0));
    check_reset("Tue, 14 Nov 2023 22:12:20 GMT", Some(0.0));
}

#[test]
fn f46_a_distant_reset_is_clamped_and_flagged() {
    let longest = WAIT_MAX.as_secs_f64();
    for far in [
        "9999999999",
        &"9".repeat(400),
        "Fri, 31 Dec 9999 23:59:59 GMT",
    ] {
        check_reset(far, Some(longest));
        assert!(read(&format!("RateLimit-Reset: {far}")).clamped, "{far}");
    }
    assert!(!read("RateLimit-Reset: 1000000000").clamped);
    assert!(read("X-RateLimit-Reset-After: 1700000600").reset.is_some());
}

#[test]
fn f46_a_reset_time_is_read_by_the_servers_clock() {
    let hour_behind = "Date: Tue, 14 Nov 2023 21:13:20 GMT";
    let reset = |lines: &str| read(lines).reset.unwrap().as_secs();
    assert_eq!(
        reset(&format!("{hour_behind}\nRateLimit-Reset: 1699996410")),
        10
    );
    assert_eq!(reset(&format!("{hour_behind}\nRateLimit-Reset: 10")), 10);
    let year_behind = "Date: Mon, 14 Nov 2022 22:13:20 GMT";
    assert_eq!(
        reset(&format!("{year_behind}\nRateLimit-Reset: 1700000010")),
        10
    );
}

#[test]
fn three_fields_are_one_limit() {
    let all = (Some(5000.0), Some(100.0), Some(36000.0));
    check(
        "RateLimit-Limit: 5000, 1000;w=3600, 5000;w=86400\n\
         RateLimit-Remaining: 100\nRateLimit-Reset: 36000",
        all,
    );
    check("X-RateLimit-Remaining: 598.0", (None, Some(598.0), None));
    check("RateLimit-Remaining: -1", NOTHING);
    check("RateLimit-Limit: many", NOTHING);
    let endless = "9".repeat(400);
    let most = (None, Some(f64::MAX), None);
    check(&format!("RateLimit-Remaining: {endless}"), most);
}

#[test]
fn vendor_names_of_the_reset_are_read() {
    check(
        "RateLimit-ResetTime: Tue, 14 Nov 2023 22:14:10 GMT",
        (None, None, Some(50.0)),
    );
    check(
        "X-RateLimit-Next: 2023-11-14T22:13:50Z",
        (None, None, Some(30.0)),
    );
    check(
        "X-RateLimit-Reset: 1700000009\nX-RateLimit-Reset-After: 1.5",
        (None, None, Some(1.5)),
    );
    check(
        "RateLimit-Reset: soon\nRateLimit-ResetTime: Tue, 14 Nov 2023 22:14:10 GMT",
        (None, None, Some(50.0)),
    );
}

#[test]
fn a_dictionary_is_one_limit() {
    check(
        "RateLimit: limit=100, remaining=50, reset=5",
        (Some(100.0), Some(50.0), Some(5.0)),
    );
    check(
        "RateLimit: limit=10;x, reset=1",
        (Some(10.0), None, Some(1.0)),
    );
    check("RateLimit: limit=-1, remaining=nan, reset=soon", NOTHING);
    check("RateLimit: limit, remaining;r=5", NOTHING);
}

#[test]
fn a_list_holds_limits_with_names() {
    let found = read(r#"RateLimit: "a;b, c"; r=50; t=30, "day";r=999;pk=:cA==:"#);
    assert_eq!(found.remaining, Some(50.0));
    assert_eq!(
        found.limits,
        [
            NamedLimit {
                policy: "a;b, c".to_owned(),
                remaining: Some(50.0),
                reset: Some(Duration::from_secs(30)),
                partition: None,
            },
            NamedLimit {
                policy: "day".to_owned(),
                remaining: Some(999.0),
                reset: None,
                partition: Some(":cA==:".to_owned()),
            },
        ]
    );
}

#[test]
fn a_limit_with_an_invalid_name_is_skipped() {
    let found = read(r#"RateLimit: quota;r=0;t=9, "good";r=5;t=1, "open;r=0;t=9"#);
    assert_eq!((found.remaining, found.limits.len()), (Some(5.0), 1));
    let found = read(r#"RateLimit-Policy: quota;q=10, "good";q=5, "none";w=5"#);
    assert_eq!(found.policies.len(), 1);
}

#[test]
fn policies_of_all_drafts_are_read() {
    let check = |line: &str, expected: &[(Option<&str>, f64, Option<u64>, &str)]| {
        let found = read(line).policies;
        let found: Vec<_> = found
            .iter()
            .map(|policy| {
                let window = policy.window.map(|window| window.as_secs());
                (
                    policy.policy.as_deref(),
                    policy.quota,
                    window,
                    &*policy.unit,
                )
            })
            .collect();
        assert_eq!(found, expected, "{line}");
    };
    let old = [
        (None, 10.0, Some(1), "requests"),
        (None, 1000.0, Some(3600), "requests"),
    ];
    check(
        "RateLimit-Limit: 10, 10;window=1;burst=1000, 1000;window=3600",
        &old,
    );
    check("RateLimit-Limit: 10, 10;w=1, 1000;w=3600", &old);
    check(
        "RateLimit-Policy: 10;w=1;comment=\"a, b;w=5\", 1000;w=3600",
        &old,
    );
    check(
        "RateLimit-Policy: 10;w=1\nRateLimit-Policy: 1000;w=3600",
        &old,
    );
    check(
        r#"RateLimit-Policy: "peruser";q=65535;qu="content-bytes";w=10;pk=:cA==:, "x";q=1"#,
        &[
            (Some("peruser"), 65535.0, Some(10), "content-bytes"),
            (Some("x"), 1.0, None, "requests"),
        ],
    );
}

#[test]
fn the_exhausted_limit_with_the_longest_reset_binds() {
    check(
        r#"RateLimit: "a";r=0;t=5, "b";r=0;t=60, "c";r=0, "d";r=1;t=900"#,
        (None, Some(0.0), Some(60.0)),
    );
    check(
        r#"RateLimit: "a";r=0.5;t=60, "b";r=0;t=5"#,
        (None, Some(0.5), Some(60.0)),
    );
}

#[test]
fn the_limit_with_the_least_remaining_binds() {
    check(
        r#"RateLimit: "hour";t=900, "day";r=100;t=5, "minute";r=9;t=3"#,
        (None, Some(9.0), Some(3.0)),
    );
    check(
        "RateLimit-Remaining: 10\nRateLimit-Reset: 10\n\
         X-RateLimit-Remaining: 3\nX-RateLimit-Reset: 7\nX-RateLimit-Limit: 8",
        (Some(8.0), Some(3.0), Some(7.0)),
    );
}

#[test]
fn the_fields_of_two_servers_are_read_separately() {
    let second = (Some(9.0), Some(0.0), Some(5.0));
    check(
        "X-RateLimit-Limit: 100\nX-RateLimit-Remaining: 99\nX-RateLimit-Reset: 3600\n\
         X-RateLimit-Limit: 9\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 5",
        second,
    );
    check(
        "X-RateLimit-Remaining: 99, 0\nX-RateLimit-Reset: 3600, 5",
        (None, Some(0.0), Some(5.0)),
    );
    check(
        "X-RateLimit-Remaining: 99\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 5",
        (None, Some(0.0), Some(5.0)),
    );
}

#[test]
fn a_limit_with_less_than_one_request_is_exhausted() {
    let check = |line: &str, exhausted: bool| {
        assert_eq!(read(line).is_exhausted(), exhausted, "{line}");
    };
    check("RateLimit-Remaining: 0", true);
    check("RateLimit-Remaining: 0.4", true);
    check("RateLimit-Remaining: 1", false);
    check("RateLimit-Remaining: -1", false);
    check("RateLimit-Reset: 60", false);
}

#[test]
fn a_reply_without_limit_fields_has_no_limits() {
    for lines in [
        "",
        "Date: Tue, 14 Nov 2023 22:13:20 GMT\nRate: 5\nX-Rate: 0\nRetry-After: 5",
    ] {
        assert_eq!(read(lines), RateLimit::default());
    }
}

#[test]
fn the_number_of_limits_read_is_bounded() {
    let many = r#""n";q=1;r=1,"#.repeat(2000);
    let found = read(&format!("RateLimit: {many}\nRateLimit-Policy: {many}"));
    assert_eq!(
        (found.limits.len(), found.policies.len()),
        (LIMITS_MAX, LIMITS_MAX)
    );
    let found = read(&format!("RateLimit: {many}\"last\";r=0"));
    assert!(
        found.is_exhausted(),
        "a limit that is not kept can still bind"
    );
}

/// Fields of all versions with random values.
fn fields() -> impl Strategy<Value = Vec<u8>> {
    let name = prop::sample::select(vec![
        "RateLimit",
        "RateLimit-Limit",
        "RateLimit-Remaining",
        "RateLimit-Reset",
        "RateLimit-ResetTime",
        "RateLimit-Policy",
        "X-RateLimit-Remaining",
        "X-RateLimit-Reset",
        "X-RateLimit-Reset-After",
        "X-RateLimit-Next",
        "x-rate-limit-reset",
        "Date",
    ]);
    let value = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        "[0-9.,;=\"\\\\a-z-]{0,40}".prop_map(String::into_bytes),
        "\"[a-z]\";[rtqw]=[-0-9.e]{1,20};[rtqw]=[0-9]{1,20}".prop_map(String::into_bytes),
        "(limit|reset|remaining)=[-0-9.e]{1,20}".prop_map(String::into_bytes),
    ];
    prop::collection::vec((name, value), 0..6).prop_map(|fields| {
        let mut lines = Vec::new();
        for (name, mut value) in fields {
            value.retain(|byte| !matches!(byte, b'\r' | b'\n' | 0));
            lines.extend([name.as_bytes(), b": ", &value, b"\n"].concat());
        }
        lines
    })
}

proptest! {
    #[test]
    fn no_value_is_ever_negative_or_infinite(lines in fields(), now: u64) {
        let lines: Vec<u8> = lines.strip_suffix(b"\n").unwrap_or(&lines).to_vec();
        let found = RateLimit::read(&Headers::of_lines(&lines), Wall(now));
        let named = found.limits.iter().map(|limit| limit.remaining);
        let quotas = found.policies.iter().map(|policy| Some(policy.quota));
        for amount in named.chain(quotas).chain([found.limit, found.remaining]).flatten() {
            prop_assert!(amount.is_finite() && amount >= 0.0);
        }
        let resets = found.limits.iter().map(|limit| limit.reset);
        let windows = found.policies.iter().map(|policy| policy.window);
        for span in resets.chain(windows).chain([found.reset]).flatten() {
            prop_assert!(span <= WAIT_MAX);
        }
        prop_assert!(!found.clamped || found.reset == Some(WAIT_MAX));
    }

    #[test]
    fn garbage_yields_no_limits(garbage in "-[0-9]{1,9}|[a-z]{1,9}|[0-9]{1,5}[a-z][0-9]{0,3}|[.][0-9]+") {
        check_reset(&garbage, None);
        check(&format!("RateLimit-Remaining: {garbage}"), NOTHING);
        check(&format!("X-RateLimit-Limit: {garbage}"), NOTHING);
        check(&format!("RateLimit: limit={garbage}, remaining={garbage}, reset={garbage}"), NOTHING);
        check(&format!("RateLimit: \"name\";r={garbage};t={garbage}"), NOTHING);
    }
}
