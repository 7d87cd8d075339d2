//! Parses `Retry-After` (RFC 9110 section 10.2.3).
//!
//! Hand-written: a value is a number or a date. `httpdate` parses dates, and what they mean depends on
//! the server's clock.

use std::time::Duration;

use crate::base::time::Wall;

use super::date;
use super::http::Headers;

/// The wait that a reply's `Retry-After` asks for; `None` if it has no valid one.
///
/// A date is read by the server's own clock if that is plausible (see [`date::clock_of`]). Two
/// fields come from two servers on the way; the longer wait applies.
pub fn read(headers: &Headers, wall_now: Wall) -> Option<Duration> {
    let mut values = headers.get_all("retry-after").peekable();
    values.peek()?;
    let server_now = date::clock_of(headers, wall_now);
    values.filter_map(|value| parse(value, server_now)).max()
}

/// The wait of one value: seconds, or the time until a date, which is zero if that has passed.
///
/// Seconds consist of digits only: a fraction, a sign or a list is invalid and ignored, because its
/// meaning is unclear. At most [`WAIT_MAX`].
pub fn parse(value: &[u8], now: Wall) -> Option<Duration> {
    let value = value.trim_ascii();
    let wait = if !value.is_empty() && value.iter().all(u8::is_ascii_digit) {
        Duration::from_secs(value.iter().fold(0u64, |seconds, digit| {
            seconds
                .saturating_mul(10)
                .saturating_add(u64::from(digit - b'0'))
        }))
    } else {
        date::http_date(value)?.saturating_since(now)
    };
    Some(wait.min(WAIT_MAX))
}

/// Maximum wait returned, a hundred years, so that adding it to a clock does not overflow. The
/// crawl's settings have a lower limit.
pub const WAIT_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn now() -> Wall {
        date::timestamp(b"2026-11-20T00:00:00Z").unwrap()
    }

    fn check(value: impl AsRef<[u8]>, expected: Option<u64>) {
        let value = value.as_ref();
        assert_eq!(
            parse(value, now()),
            expected.map(Duration::from_secs),
            "{}",
            String::from_utf8_lossy(value)
        );
    }

    #[test]
    fn f45_seconds_are_digits_and_nothing_else() {
        check("120", Some(120));
        check(" 120 ", Some(120));
        check("00000120", Some(120));
        check("0", Some(0));
        for garbage in [
            "",
            " ",
            "soon",
            "-5",
            "+5",
            "1.5",
            "1e999",
            "0x10",
            "120, 60",
            "120;",
            "120 s",
            "nan",
            "inf",
            "1 2",
            "１２０",
        ] {
            check(garbage, None);
        }
        check([b'1', 0xff, b'2'], None);
        check([0xc3, 0x28], None);
    }

    #[test]
    fn f45_a_date_is_the_time_until_then() {
        check("Fri, 20 Nov 2026 00:00:03 GMT", Some(3));
        check("Friday, 20-Nov-26 00:02:00 GMT", Some(120));
        check("Fri Nov 20 00:02:00 2026", Some(120));
        for garbage in [
            "Fri, 20 Nov 2026 00:02:00",
            "Fri, 20 Nov 2026 00:02:00 PST",
            "Fri, 32 Nov 2026 00:02:00 GMT",
            "2026-11-20T00:02:00Z",
            "2026-11-20 00:02:00",
        ] {
            check(garbage, None);
        }
    }

    #[test]
    fn f45_a_past_date_means_now() {
        check("Thu, 19 Nov 2026 23:59:00 GMT", Some(0));
        check("Fri, 20 Nov 2026 00:00:00 GMT", Some(0));
        check("Thu, 01 Jan 1970 00:00:00 GMT", Some(0));
    }

    #[test]
    fn f45_a_too_long_wait_becomes_the_maximum() {
        let longest = Some(WAIT_MAX.as_secs());
        check("1000000", Some(1_000_000));
        check("3153600001", longest);
        check("18446744073709551616", longest);
        // Twice 2⁶⁴, plus eight.
        check("36893488147419103240", longest);
        check("9".repeat(5000), longest);
        check("Fri, 31 Dec 9999 23:59:59 GMT", longest);
    }

    #[test]
    fn f45_a_date_is_read_by_the_servers_clock() {
        let check = |lines: &str, expected: Option<u64>| {
            let headers = Headers::of_lines(lines.as_bytes());
            let expected = expected.map(Duration::from_secs);
            assert_eq!(read(&headers, now()), expected, "{lines}");
        };
        let after = "Retry-After: Fri, 20 Nov 2026 05:00:10 GMT\n";
        check(
            &format!("{after}Date: Fri, 20 Nov 2026 05:00:00 GMT"),
            Some(10),
        );
        check(
            &format!("{after}Date: Thu, 01 Jan 2015 00:00:00 GMT"),
            Some(18_010),
        );
        check(after, Some(18_010));
        check("Date: Fri, 20 Nov 2026 05:00:00 GMT", None);
    }

    #[test]
    fn the_longer_of_two_waits_applies() {
        let check = |lines: &str, expected: Option<u64>| {
            let headers = Headers::of_lines(lines.as_bytes());
            let expected = expected.map(Duration::from_secs);
            assert_eq!(read(&headers, now()), expected, "{lines}");
        };
        check("Retry-After: 5\nretry-after: 20\nRetry-After: 1", Some(20));
        check("Retry-After: soon\nRetry-After: 2", Some(2));
        check("Retry-After: soon", None);
    }

    proptest! {
        #[test]
        fn f45_no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), now: u64) {
            if let Some(wait) = parse(&bytes, Wall(now)) {
                prop_assert!(wait <= WAIT_MAX);
            }
        }

        #[test]
        fn f45_an_invalid_value_is_no_wait(text in "[^0-9]{1,20}|-[0-9]+|[0-9]+[^0-9\\s]+") {
            prop_assert_eq!(parse(text.as_bytes(), now()), None);
        }

        #[test]
        fn f45_seconds_are_parsed_exactly(seconds in 0..=3_153_600_000u64, zeros in 0..9usize) {
            let text = format!("{}{seconds}", "0".repeat(zeros));
            prop_assert_eq!(parse(text.as_bytes(), now()), Some(Duration::from_secs(seconds)));
        }
    }
}
