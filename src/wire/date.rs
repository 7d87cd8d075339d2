//! Dates in replies: HTTP dates and RFC 3339, and the clock by which they are read.

use std::time::{Duration, UNIX_EPOCH};

use crate::base::time::{Wall, nanos};

use super::http::Headers;

/// Parses a date in one of the three forms that every recipient must accept (RFC 9110 section
/// 5.6.7).
///
/// No other form is accepted: the zone is GMT, the day exists and falls on the named weekday. Dates
/// before 1970 are rejected; those beyond the range of [`Wall`] become its maximum.
pub fn http_date(value: &[u8]) -> Option<Wall> {
    let text = std::str::from_utf8(value).ok()?;
    let date = httpdate::parse_http_date(text).ok()?;
    Some(Wall(nanos(date.duration_since(UNIX_EPOCH).ok()?)))
}

/// A date in the form that is sent: `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 section 5.6.7).
pub fn to_http_date(wall: Wall) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_nanos(wall.0))
}

/// Parses a date and time with its offset from UTC (RFC 3339 section 5.6).
pub fn timestamp(value: &[u8]) -> Option<Wall> {
    let (date, rest) = value.trim_ascii().split_at_checked(10)?;
    let rest = rest.strip_prefix(b"T").or(rest.strip_prefix(b"t"))?;
    let (time, rest) = rest.split_at_checked(8)?;
    let local = Wall::from_civil(
        (
            digits(&date[..4])?.into(),
            after(date[4], b'-', &date[5..7])?,
            after(date[7], b'-', &date[8..])?,
        ),
        (
            digits(&time[..2])?,
            after(time[2], b':', &time[3..5])?,
            after(time[5], b':', &time[6..])?,
        ),
    )?;
    let (fraction, zone) = fraction(rest)?;
    let (sign, hours, minutes) = match zone {
        b"Z" | b"z" => return Some(Wall(local.0.saturating_add(fraction))),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            (*sign, digits(&[*h1, *h2])?, digits(&[*m1, *m2])?)
        }
        _ => return None,
    };
    if hours > 23 || minutes > 59 {
        return None;
    }
    let offset = nanos(Duration::from_secs(u64::from(hours * 3600 + minutes * 60)));
    let at = local.0.saturating_add(fraction);
    match sign {
        b'-' => Some(Wall(at.saturating_add(offset))),
        _ => at.checked_sub(offset).map(Wall),
    }
}

/// The time of the server's clock when it wrote a reply, by which other times in the reply are
/// read: its `Date` if plausible, else our own wall-clock time.
///
/// Plausible means within a day of ours. A clock set to local time instead of GMT, which is what
/// this handles, is off by less; one further off was made up or comes from a cache. An error of
/// less than a day is the most that a wrong `Date` can cause.
pub fn clock_of(headers: &Headers, wall_now: Wall) -> Wall {
    let date = headers.get("date").and_then(http_date);
    date.filter(|date| wall_now.0.abs_diff(date.0) <= nanos(CLOCK_ERROR_MAX))
        .unwrap_or(wall_now)
}

/// Maximum difference between a server's clock and ours at which it is used.
const CLOCK_ERROR_MAX: Duration = Duration::from_secs(86_400);

/// A number with few digits.
fn digits(text: &[u8]) -> Option<u32> {
    text.iter().try_fold(0, |number, byte| {
        byte.is_ascii_digit()
            .then(|| number * 10 + u32::from(byte - b'0'))
    })
}

fn after(found: u8, separator: u8, text: &[u8]) -> Option<u32> {
    digits(text).filter(|_| found == separator)
}

/// The nanoseconds of an optional fraction of a second, and the rest.
fn fraction(text: &[u8]) -> Option<(u64, &[u8])> {
    let Some(text) = text.strip_prefix(b".") else {
        return Some((0, text));
    };
    let end = text.iter().position(|byte| !byte.is_ascii_digit())?;
    let (fraction, rest) = text.split_at(end);
    // Further digits are below a nanosecond.
    let fraction = &fraction[..fraction.len().min(9)];
    let scale = 10u64.pow(9 - fraction.len() as u32);
    (end > 0).then_some((u64::from(digits(fraction)?) * scale, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn check(read: fn(&[u8]) -> Option<Wall>, value: &str, expected: Option<&str>) {
        let found = read(value.as_bytes()).map(|wall| wall.to_string());
        let expected = expected.map(|to_the_second| format!("{to_the_second}.000000000Z"));
        assert_eq!(found, expected, "{value}");
    }

    #[test]
    fn the_three_forms_of_an_http_date_are_read() {
        let moment = Some("1994-11-06T08:49:37");
        check(http_date, "Sun, 06 Nov 1994 08:49:37 GMT", moment);
        check(http_date, "Sunday, 06-Nov-94 08:49:37 GMT", moment);
        check(http_date, "Sun Nov  6 08:49:37 1994", moment);
        check(http_date, " Sun, 06 Nov 1994 08:49:37 GMT ", moment);
        let leap_day = Some("2024-02-29T23:59:59");
        check(http_date, "Thu, 29 Feb 2024 23:59:59 GMT", leap_day);
        let soon = Some("2026-11-20T00:02:00");
        check(http_date, "Friday, 20-Nov-26 00:02:00 GMT", soon);
    }

    #[test]
    fn a_date_is_sent_in_the_first_form() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        let wall = http_date(date.as_bytes()).expect("it is a date");
        assert_eq!(to_http_date(wall), date);
    }

    #[test]
    fn an_invalid_http_date_is_rejected() {
        for value in [
            "",
            "soon",
            "Sun, 06 Nov 1994 08:49:37 PST",
            "Sun, 06 Nov 1994 08:49:37 +0000",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Fri, 32 Nov 2026 00:02:00 GMT",
            "Fri, 30 Feb 2026 00:02:00 GMT",
            "Fri, 20 Nov 2026 24:00:00 GMT",
            "Wed, 31 Dec 1969 23:59:59 GMT",
            "2026-11-20T00:02:00Z",
            "Sün, 06 Nov 1994 08:49:37 GMT",
        ] {
            check(http_date, value, None);
        }
    }

    #[test]
    fn a_date_beyond_the_range_becomes_its_maximum() {
        let far = http_date(b"Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(far, Some(Wall(u64::MAX)));
        let far = timestamp(b"9999-12-31T23:59:59.9-12:00");
        assert_eq!(far, Some(Wall(u64::MAX)));
    }

    #[test]
    fn a_timestamp_is_read_in_its_zone() {
        let moment = Some("2023-11-14T22:13:50");
        check(timestamp, "2023-11-14T22:13:50Z", moment);
        check(timestamp, "2023-11-14t22:13:50z", moment);
        check(timestamp, "2023-11-14T22:13:50.000+00:00", moment);
        check(timestamp, "2023-11-14T17:13:50-05:00", moment);
        check(timestamp, "2023-11-15T03:58:50+05:45", moment);
        let precise = timestamp(b"1970-01-01T00:00:01.0250000009Z");
        assert_eq!(precise, Some(Wall(SECOND + SECOND / 40)));
    }

    #[test]
    fn an_invalid_timestamp_is_rejected() {
        for value in [
            "",
            "2023-11-14",
            "2023-11-14T22:13:50",
            "2023-11-14 22:13:50Z",
            "2023-11-31T22:13:50Z",
            "2023-11-14T25:13:50Z",
            "2023-11-14T22:13:50.Z",
            "2023-11-14T22:13:50.5",
            "2023-11-14T22:13:50+0000",
            "2023-11-14T22:13:50+24:00",
            "2023/11/14T22:13:50Z",
            "+023-11-14T22:13:50Z",
            "1970-01-01T00:00:00+00:01",
            "Tue, 14 Nov 2023 22:13:50 GMT",
        ] {
            check(timestamp, value, None);
        }
    }

    #[test]
    fn a_server_clock_off_by_less_than_a_day_is_used() {
        let ours = http_date(b"Fri, 20 Nov 2026 12:00:00 GMT").unwrap();
        let check = |date: &str, expected: &str| {
            let headers = Headers::of_lines(format!("Date: {date}").as_bytes());
            let expected = http_date(expected.as_bytes());
            assert_eq!(Some(clock_of(&headers, ours)), expected, "{date}");
        };
        for date in [
            "Fri, 20 Nov 2026 12:00:00 GMT",
            "Fri, 20 Nov 2026 21:00:00 GMT",
            "Fri, 20 Nov 2026 01:00:00 GMT",
            "Sat, 21 Nov 2026 12:00:00 GMT",
        ] {
            check(date, date);
        }
        for date in [
            "Sat, 21 Nov 2026 12:00:01 GMT",
            "Thu, 19 Nov 2026 11:59:59 GMT",
            "Thu, 01 Jan 1970 00:00:00 GMT",
            "Fri, 31 Dec 9999 23:59:59 GMT",
            "now",
            "",
        ] {
            check(date, "Fri, 20 Nov 2026 12:00:00 GMT");
        }
        assert_eq!(clock_of(&Headers::default(), ours), ours);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_date_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            http_date(&bytes);
            timestamp(&bytes);
        }

        #[test]
        fn no_almost_valid_date_makes_the_parser_panic(
            text in "(Mon|Thursday|Fri), ?[0-9]{2}[ -](Jan|Feb|Dec)[ -][0-9]{2,4} [0-9:]{8} GMT",
            stamp in "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(\\.[0-9]{0,12})?(Z|[+-][0-9]{2}:[0-9]{2})",
        ) {
            http_date(text.as_bytes());
            timestamp(stamp.as_bytes());
        }
    }
}
