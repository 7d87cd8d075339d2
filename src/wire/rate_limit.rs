//! What a server says of its rate limits, in every generation of header fields that is in use.
//!
//! - Three fields `RateLimit-Limit`, `-Remaining` and `-Reset`, with their policies behind the
//!   limit or in `RateLimit-Policy`: draft-polli-ratelimit-headers,
//!   draft-ietf-httpapi-ratelimit-headers-00 to 06.
//! - A dictionary, `RateLimit: limit=100, remaining=50, reset=5`: draft 07.
//! - A list of named limits, `RateLimit: "name";r=50;t=30`: since draft 08.
//! - The fields that vendors invented before and after, `X-RateLimit-*` and `X-Rate-Limit-*`.
//!
//! A reply out of a cache tells what somebody else had left: see [`super::cache_status`].

use std::borrow::Cow;
use std::cmp::Ordering;
use std::time::Duration;

use crate::base::time::Wall;

use super::date;
use super::http::Headers;
use super::retry_after::WAIT_MAX;
use super::structured;

/// The limits that a reply speaks of. All that it says nothing of, or nothing that can be read,
/// is `None`.
///
/// Where it speaks of several, what binds is the one with nothing remaining, of these the one
/// with the longest reset; else the one with the least remaining.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RateLimit {
    /// How much the limit that binds allows in its window.
    pub limit: Option<f64>,
    /// How much of that is left; some servers count in fractions.
    pub remaining: Option<f64>,
    /// How long until there is more, at most [`WAIT_MAX`].
    pub reset: Option<Duration>,
    /// The reset was further off than that.
    pub clamped: bool,
    /// The limits that have names, in order; the first [`LIMITS_MAX`].
    pub limits: Vec<NamedLimit>,
    /// The policies, in order; the first [`LIMITS_MAX`].
    pub policies: Vec<Policy>,
}

/// What is left of a limit with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedLimit {
    /// The name, which is that of a policy.
    pub policy: String,
    /// How much is left, in the unit of the policy.
    pub remaining: Option<f64>,
    /// How long until there is more.
    pub reset: Option<Duration>,
    /// For which part of its clients the server counts, as it writes it; to be compared only.
    pub partition: Option<String>,
}

/// What a server allows in general.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The name, since draft 08.
    pub policy: Option<String>,
    /// How much is allowed in a window.
    pub quota: f64,
    /// How long the window is.
    pub window: Option<Duration>,
    /// What is counted: `requests` unless the policy says otherwise.
    pub unit: Cow<'static, str>,
    /// For which part of its clients the server counts, as it writes it; to be compared only.
    pub partition: Option<String>,
}

impl RateLimit {
    /// Reads the header fields of a reply that came at `wall_now`.
    ///
    /// A reset is a number of seconds, or a moment: in seconds since 1970 if it is above 10⁹, in
    /// milliseconds if above 10¹², or an HTTP date. Moments are read by the server's own clock
    /// where that is sane (see [`date::clock_of`]); those that have passed are zero. What is
    /// negative or no number is as if it were not there.
    pub fn read(headers: &Headers, wall_now: Wall) -> Self {
        if !headers.iter().any(|(name, _)| is_about_limits(name)) {
            return RateLimit::default();
        }
        let mut reading = Reading {
            server_now: date::clock_of(headers, wall_now),
            binding: Told::default(),
            found: RateLimit::default(),
        };
        for family in &FAMILIES {
            reading.read_family(headers, family);
        }
        for value in headers.get_all("ratelimit") {
            reading.read_structured(value);
        }
        let Told {
            limit,
            remaining,
            reset,
        } = reading.binding;
        RateLimit {
            limit,
            remaining,
            reset: reset.map(|reset| reset.wait),
            clamped: reset.is_some_and(|reset| reset.clamped),
            ..reading.found
        }
    }

    /// Whether nothing remains: less than one request.
    pub fn is_exhausted(&self) -> bool {
        self.remaining.is_some_and(|remaining| remaining < 1.0)
    }
}

/// How many limits and policies of one reply are kept, and how often one field is read. Who writes
/// more has no wish to be read.
pub const LIMITS_MAX: usize = 16;

/// The work of reading one reply.
struct Reading {
    server_now: Wall,
    binding: Told,
    found: RateLimit,
}

impl Reading {
    /// Servers on the way may each have put their fields in: first values go with first values,
    /// second with second.
    fn read_family(&mut self, headers: &Headers, family: &Family) {
        for value in headers.get_all(family.policy) {
            structured::members(value).for_each(|member| self.add_policy(member));
        }
        let mut limits = headers.get_all(family.limit);
        let mut remainings = headers.get_all(family.remaining).flat_map(pieces);
        let mut afters = headers.get_all(family.reset_after).flat_map(pieces);
        let mut resets = headers.get_all(family.reset).flat_map(pieces);
        let mut times = headers.get_all(family.reset_time).flat_map(pieces);
        let mut nexts = headers.get_all(family.next).flat_map(pieces);
        let mut last_reset = None;
        for _ in 0..LIMITS_MAX {
            let limit = limits.next();
            let remaining = remainings.next();
            let (after, reset) = (afters.next(), resets.next());
            let (time, next) = (times.next(), nexts.next());
            let more = [limit, remaining, after, reset, time, next];
            if more.iter().all(Option::is_none) {
                break;
            }
            // What needs no clock first.
            let reset = (after.and_then(structured::number).map(Reset::after))
                .or_else(|| self.reset(reset?))
                .or_else(|| Some(self.until(date::http_date(time?)?)))
                .or_else(|| Some(self.until(date::timestamp(next?)?)));
            // Several limits with one reset share it.
            last_reset = reset.or(last_reset);
            let told = Told {
                limit: limit.and_then(|value| self.limit_and_policies(value)),
                remaining: remaining.and_then(amount),
                reset: last_reset,
            };
            self.hear(told);
        }
    }

    /// A limit, and behind it the policies that it comes from.
    fn limit_and_policies(&mut self, value: &[u8]) -> Option<f64> {
        let mut members = structured::members(value);
        let (limit, _) = structured::item(members.next()?);
        members.for_each(|member| self.add_policy(member));
        amount(limit)
    }

    /// A `RateLimit` field: members of a dictionary, limits with names, or garbage between them.
    fn read_structured(&mut self, value: &[u8]) {
        let mut told = Told::default();
        for member in structured::members(value) {
            if member.starts_with(b"\"") {
                self.read_named(member);
                continue;
            }
            let (key, value) = structured::pair(structured::item(member).0);
            let Some(value) = value else { continue };
            match key {
                b"limit" => told.limit = amount(value).or(told.limit),
                b"remaining" => told.remaining = amount(value).or(told.remaining),
                b"reset" => told.reset = self.reset(value).or(told.reset),
                _ => {}
            }
        }
        self.hear(told);
    }

    fn read_named(&mut self, member: &[u8]) {
        let (name, parameters) = structured::item(member);
        let Some(policy) = structured::string(name) else {
            return;
        };
        let mut told = Told::default();
        let mut partition = None;
        for (key, value) in parameters {
            let Some(value) = value else { continue };
            match key {
                b"r" => told.remaining = amount(value),
                b"t" => told.reset = self.reset(value),
                b"pk" => partition = text(value),
                _ => {}
            }
        }
        if self.found.limits.len() < LIMITS_MAX {
            self.found.limits.push(NamedLimit {
                policy,
                remaining: told.remaining,
                reset: told.reset.map(|reset| reset.wait),
                partition,
            });
        }
        self.hear(told);
    }

    fn add_policy(&mut self, member: &[u8]) {
        if self.found.policies.len() < LIMITS_MAX {
            self.found.policies.extend(policy(member));
        }
    }

    fn hear(&mut self, told: Told) {
        if told.binds_before(&self.binding) {
            self.binding = told;
        }
    }

    /// A reset in whatever way it is written, save those that have fields of their own.
    fn reset(&self, value: &[u8]) -> Option<Reset> {
        let Some(number) = structured::number(value) else {
            return Some(self.until(date::http_date(value)?));
        };
        let epoch = match number {
            ..=EPOCH_SECONDS_MIN => return Some(Reset::after(number)),
            ..=EPOCH_MILLIS_MIN => number,
            _ => number / 1e3,
        };
        let now = self.server_now.0 as f64 / 1e9;
        Some(Reset::after((epoch - now).max(0.0)))
    }

    fn until(&self, moment: Wall) -> Reset {
        Reset::after(moment.saturating_since(self.server_now).as_secs_f64())
    }
}

/// One limit, as far as it is told.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    limit: Option<f64>,
    remaining: Option<f64>,
    reset: Option<Reset>,
}

impl Told {
    fn binds_before(&self, other: &Told) -> bool {
        let left = |told: &Told| match told.remaining {
            None => f64::INFINITY,
            Some(remaining) if remaining < 1.0 => 0.0,
            Some(remaining) => remaining,
        };
        let wait = |told: &Told| told.reset.map(|reset| reset.wait);
        let order = left(self)
            .total_cmp(&left(other))
            .then_with(|| wait(other).cmp(&wait(self)))
            .then_with(|| other.limit.is_some().cmp(&self.limit.is_some()));
        order == Ordering::Less
    }
}

#[derive(Clone, Copy, Debug)]
struct Reset {
    wait: Duration,
    clamped: bool,
}

impl Reset {
    fn after(seconds: f64) -> Self {
        let wait = span(seconds);
        Reset {
            wait: wait.unwrap_or(WAIT_MAX),
            clamped: wait.is_none(),
        }
    }
}

/// What is allowed in general: a number, or a string with a quota, and their window.
fn policy(member: &[u8]) -> Option<Policy> {
    let (item, parameters) = structured::item(member);
    let name = structured::string(item);
    let mut quota = amount(item);
    let mut window = None;
    let mut unit = None;
    let mut partition = None;
    for (key, value) in parameters {
        let Some(value) = value else { continue };
        match key {
            b"q" if name.is_some() => quota = amount(value),
            b"w" | b"window" => window = structured::number(value),
            b"qu" => unit = structured::string(value),
            b"pk" => partition = text(value),
            _ => {}
        }
    }
    Some(Policy {
        policy: name,
        quota: quota?,
        window: window.map(|seconds| span(seconds).unwrap_or(WAIT_MAX)),
        unit: unit.map_or(Cow::Borrowed("requests"), Cow::Owned),
        partition,
    })
}

/// An amount; one beyond all bounds is the largest there is.
fn amount(value: &[u8]) -> Option<f64> {
    structured::number(value).map(|number| number.min(f64::MAX))
}

/// A span that is not negative; `None` if it is longer than [`WAIT_MAX`].
fn span(seconds: f64) -> Option<Duration> {
    let span = Duration::try_from_secs_f64(seconds).ok();
    span.filter(|span| *span <= WAIT_MAX)
}

fn text(value: &[u8]) -> Option<String> {
    String::from_utf8(value.to_vec()).ok()
}

/// The values of one line, which may be several lines joined, without any parameters. A date
/// holds a comma of its own.
fn pieces(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_date = value.first().is_some_and(u8::is_ascii_alphabetic);
    value
        .split(move |&byte| byte == b',' && !is_date)
        .map(|piece| structured::item(piece).0)
}

/// Whether it is worth looking further: most replies say nothing of limits.
fn is_about_limits(name: &str) -> bool {
    ["ratelimit", "x-ratelimit-", "x-rate-limit-"]
        .iter()
        .any(|start| {
            let head = name.as_bytes().get(..start.len());
            head.is_some_and(|head| head.eq_ignore_ascii_case(start.as_bytes()))
        })
}

/// Fields of one make, which speak of the same limits.
struct Family {
    limit: &'static str,
    remaining: &'static str,
    reset: &'static str,
    /// Seconds: Discord's.
    reset_after: &'static str,
    /// An HTTP date: GitLab's.
    reset_time: &'static str,
    /// RFC 3339: Akamai's.
    next: &'static str,
    policy: &'static str,
}

macro_rules! family {
    ($prefix:literal) => {
        Family {
            limit: concat!($prefix, "limit"),
            remaining: concat!($prefix, "remaining"),
            reset: concat!($prefix, "reset"),
            reset_after: concat!($prefix, "reset-after"),
            reset_time: concat!($prefix, "resettime"),
            next: concat!($prefix, "next"),
            policy: concat!($prefix, "policy"),
        }
    };
}

const FAMILIES: [Family; 3] = [
    family!("ratelimit-"),
    family!("x-ratelimit-"),
    family!("x-rate-limit-"),
];

/// Above it a reset is a moment: as a span it would be thirty years.
const EPOCH_SECONDS_MIN: f64 = 1e9;

/// Above it that moment is in milliseconds: in seconds it would be in the year 33658.
const EPOCH_MILLIS_MIN: f64 = 1e12;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The wall time of all replies here.
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
    fn f46_a_reset_that_is_no_number_is_none() {
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
    fn f46_a_reset_above_a_thousand_million_is_a_moment() {
        check_reset("1700000600", Some(600.0));
        check_reset("1700000001.5", Some(1.5));
        check_reset("1700000020000", Some(20.0));
        check_reset("1000000001", Some(0.0));
        check_reset("1699999995", Some(0.0));
        check_reset("Tue, 14 Nov 2023 22:14:20 GMT", Some(60.0));
        check_reset("Tue, 14 Nov 2023 22:12:20 GMT", Some(0.0));
    }

    #[test]
    fn f46_a_reset_too_far_off_is_clamped_and_says_so() {
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
    fn f46_a_moment_is_read_by_the_clock_of_who_wrote_it() {
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
    fn a_reset_of_another_name_is_read_too() {
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
    fn a_limit_whose_name_is_no_string_spoils_no_other() {
        let found = read(r#"RateLimit: quota;r=0;t=9, "good";r=5;t=1, "open;r=0;t=9"#);
        assert_eq!((found.remaining, found.limits.len()), (Some(5.0), 1));
        let found = read(r#"RateLimit-Policy: quota;q=10, "good";q=5, "none";w=5"#);
        assert_eq!(found.policies.len(), 1);
    }

    #[test]
    fn policies_of_all_generations_are_read() {
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
    fn what_binds_is_the_longest_reset_where_nothing_remains() {
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
    fn what_binds_is_the_least_that_remains() {
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
    fn the_fields_of_two_servers_on_the_way_are_kept_apart() {
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
    fn nothing_remains_when_less_than_a_request_does() {
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
    fn a_reply_that_does_not_speak_of_limits_has_none() {
        for lines in [
            "",
            "Date: Tue, 14 Nov 2023 22:13:20 GMT\nRate: 5\nX-Rate: 0\nRetry-After: 5",
        ] {
            assert_eq!(read(lines), RateLimit::default());
        }
    }

    #[test]
    fn a_reply_of_limits_without_end_is_read_to_a_bound() {
        let many = r#""n";q=1;r=1,"#.repeat(2000);
        let found = read(&format!("RateLimit: {many}\nRateLimit-Policy: {many}"));
        assert_eq!(
            (found.limits.len(), found.policies.len()),
            (LIMITS_MAX, LIMITS_MAX)
        );
        let found = read(&format!("RateLimit: {many}\"last\";r=0"));
        assert!(found.is_exhausted(), "what is not kept still binds");
    }

    /// Fields of all generations, with whatever values.
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
        fn whatever_a_reply_says_no_value_is_negative_or_without_end(lines in fields(), now: u64) {
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
        fn garbage_says_nothing(garbage in "-[0-9]{1,9}|[a-z]{1,9}|[0-9]{1,5}[a-z][0-9]{0,3}|[.][0-9]+") {
            check_reset(&garbage, None);
            check(&format!("RateLimit-Remaining: {garbage}"), NOTHING);
            check(&format!("X-RateLimit-Limit: {garbage}"), NOTHING);
            check(&format!("RateLimit: limit={garbage}, remaining={garbage}, reset={garbage}"), NOTHING);
            check(&format!("RateLimit: \"name\";r={garbage};t={garbage}"), NOTHING);
        }
    }
}
