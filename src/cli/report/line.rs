//! A line of `results.jsonl`: the keys that a report needs.

use std::borrow::Cow;
use std::fmt;

use argiope::Wall;
use serde::de::{self, Deserialize, Deserializer, Visitor};

/// A finished attempt. Texts are borrowed from the line where they have no escapes.
#[derive(serde::Deserialize)]
pub struct Line<'a> {
    #[serde(borrow)]
    pub url: Text<'a>,
    #[serde(borrow)]
    pub kind: Text<'a>,
    #[serde(rename = "final")]
    pub is_final: bool,
    #[serde(default)]
    pub depth: u32,
    #[serde(default)]
    pub attempt: u32,
    #[serde(borrow, default)]
    pub scopes: Vec<Text<'a>>,
    pub status: Option<u16>,
    #[serde(borrow)]
    pub error: Option<LineError<'a>>,
    #[serde(borrow)]
    pub truncated: Option<Text<'a>>,
    #[serde(borrow)]
    pub redirect: Option<Text<'a>>,
    #[serde(borrow)]
    pub content_type: Option<Text<'a>>,
    #[serde(default)]
    pub reused: bool,
    #[serde(borrow)]
    pub tls: Option<LineTls<'a>>,
    #[serde(default)]
    pub bytes_wire: u64,
    #[serde(default)]
    pub bytes_body: u64,
    #[serde(borrow)]
    pub digest: Option<Text<'a>>,
    pub sent: Option<Time>,
    pub dns: Option<f64>,
    pub connect: Option<f64>,
    pub tls_handshake: Option<f64>,
    pub request: Option<f64>,
    pub first_byte: Option<f64>,
    pub headers: Option<f64>,
    pub body: Option<f64>,
    pub latency: Option<f64>,
    pub server_latency: Option<f64>,
    pub lateness: Option<f64>,
    pub delay: Option<f64>,
    #[serde(default)]
    pub refetched: bool,
}

/// Why an attempt failed.
#[derive(serde::Deserialize)]
pub struct LineError<'a> {
    #[serde(borrow)]
    pub code: Text<'a>,
    #[serde(borrow)]
    pub detail: Text<'a>,
}

/// TLS of its connection.
#[derive(serde::Deserialize)]
pub struct LineTls<'a> {
    #[serde(borrow)]
    pub version: Text<'a>,
    #[serde(borrow)]
    pub cipher: Text<'a>,
    pub resumed: bool,
    pub verified: bool,
}

impl Line<'_> {
    /// The host of its URL, with the port if that is not the usual one.
    pub fn host(&self) -> &str {
        let url = &*self.url.0;
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let authority = &rest[..end];
        authority
            .rsplit_once('@')
            .map_or(authority, |(_, host)| host)
    }

    /// The ends of its phases after its start, in seconds, in the order of [`PHASES`].
    pub fn phase_ends(&self) -> [Option<f64>; PHASES.len()] {
        [
            self.dns,
            self.connect,
            self.tls_handshake,
            self.request,
            self.first_byte,
            self.headers,
            self.body,
        ]
    }
}

/// The phases of an attempt, in the order in which they end.
pub const PHASES: [&str; 7] = [
    "dns",
    "connect",
    "tls_handshake",
    "request",
    "first_byte",
    "headers",
    "body",
];

/// A text, borrowed from the line if it has no escapes.
pub struct Text<'a>(pub Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// A wall time, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

impl Time {
    /// Parses a time as it is in result lines: RFC 3339 in UTC with nanoseconds.
    fn parse(text: &str) -> Option<Time> {
        let bytes = text.as_bytes();
        let marks = [
            (4, b'-'),
            (7, b'-'),
            (10, b'T'),
            (13, b':'),
            (16, b':'),
            (19, b'.'),
            (29, b'Z'),
        ];
        if bytes.len() != 30 || marks.iter().any(|(at, mark)| bytes[*at] != *mark) {
            return None;
        }
        let number = |from: usize, to: usize| {
            bytes[from..to].iter().try_fold(0_u64, |number, byte| {
                byte.is_ascii_digit()
                    .then(|| number * 10 + u64::from(byte - b'0'))
            })
        };
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        let is_date = (1970..2554).contains(&year) && (1..=12).contains(&month);
        if !is_date || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
        Some(Time(seconds * 1_000_000_000 + number(20, 29)?))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Wall(self.0).fmt(f)
    }
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. Years begin in March, so that the day that a leap
/// year has more is the last.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TimeVisitor;
        impl Visitor<'_> for TimeVisitor {
            type Value = Time;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time in UTC with nanoseconds")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Time, E> {
                Time::parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_str(TimeVisitor)
    }
}

/// Nanoseconds of a duration in seconds, exact for what result lines have.
pub fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_lines_are_read_to_the_nanosecond() {
        for nanos in [
            0,
            951_782_400_000_000_001,
            1_709_164_799_999_999_999,
            1_795_219_200_123_456_789,
            4_107_542_399_000_000_000,
        ] {
            assert_eq!(Time::parse(&Wall(nanos).to_string()), Some(Time(nanos)));
        }
        for bad in ["", "2026-11-21T00:00:07Z", "2026-13-21T00:00:07.000000000Z"] {
            assert_eq!(Time::parse(bad), None, "{bad}");
        }
        assert_eq!(Time::parse("2026-11-21T00:00:07.00000000éZ"), None);
    }

    #[test]
    fn host_of_a_url_has_its_port_and_no_credentials() {
        let host = |url: &str| {
            let line = format!("{{\"url\": \"{url}\", \"kind\": \"page\", \"final\": true}}");
            let line: Line<'_> = serde_json::from_str(&line).expect("a line");
            line.host().to_owned()
        };
        assert_eq!(host("http://a.test/x@y"), "a.test");
        assert_eq!(host("http://a.test:8080?q"), "a.test:8080");
        assert_eq!(host("https://u:p@[::1]:4/"), "[::1]:4");
        assert_eq!(host("nonsense"), "nonsense");
    }
}
