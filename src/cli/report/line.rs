//! A line of `results.jsonl`: the keys that a report needs.

use std::borrow::Cow;
use std::fmt;

use argiope::audit::Time;
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

/// Nanoseconds of a duration in seconds, exact for what result lines have.
pub fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

#[cfg(test)]
mod tests {
    use argiope::Wall;

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
