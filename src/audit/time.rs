//! Times in the files of a crawl.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

use crate::base::time::Wall;

/// A wall time, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The end of time.
    pub const MAX: Time = Time(u64::MAX);

    /// Parses RFC 3339 in UTC with nanoseconds, as the files have it.
    pub fn parse(text: &str) -> Option<Time> {
        let bytes = text.as_bytes();
        let marks = b"....-..-..T..:..:...........Z";
        if bytes.len() != 30 || bytes[29] != b'Z' || bytes[19] != b'.' {
            return None;
        }
        let is_marked = |at: &usize| marks[*at] == b'.' || marks[*at] == bytes[*at];
        if !(0..19).all(|at| is_marked(&at)) {
            return None;
        }
        let number = |from: usize, to: usize| {
            bytes[from..to].iter().try_fold(0_u32, |number, byte| {
                let digit = byte.is_ascii_digit().then(|| u32::from(byte - b'0'))?;
                Some(number * 10 + digit)
            })
        };
        let date = (i64::from(number(0, 4)?), number(5, 7)?, number(8, 10)?);
        let time = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        let nanos = number(20, 29)?;
        let second = Wall::from_civil(date, time)?;
        Some(Time(second.0.checked_add(u64::from(nanos))?))
    }

    /// So many nanoseconds later.
    pub fn plus(self, nanos: u64) -> Time {
        Time(self.0.saturating_add(nanos))
    }

    /// So many nanoseconds earlier.
    pub fn minus(self, nanos: u64) -> Time {
        Time(self.0.saturating_sub(nanos))
    }

    /// Nanoseconds since an earlier time; 0 if it is later.
    pub fn since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Wall(self.0).fmt(f)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
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
                Time::parse(text).ok_or_else(|| E::custom(format!("{text:?} is no time")))
            }
        }
        deserializer.deserialize_str(TimeVisitor)
    }
}

/// Seconds as nanoseconds: the nearest, at least 0.
pub fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9).round().clamp(0.0, u64::MAX as f64) as u64
}

/// Nanoseconds as seconds.
pub fn seconds(nanos: u64) -> f64 {
    std::time::Duration::from_nanos(nanos).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_a_file_is_read_and_nothing_else_is() {
        let text = "2026-11-21T05:30:00.000000007Z";
        assert_eq!(Time::parse(text), Some(Time(1_795_239_000_000_000_007)));
        assert_eq!(Time(1_795_239_000_000_000_007).to_string(), text);
        for wrong in [
            "",
            "2026-11-21T05:30:00Z",
            "2026-11-21 05:30:00.000000007Z",
            "2026-11-21T05:30:00.000000007+",
            "2026-13-21T05:30:00.000000007Z",
            "2026-11-21T25:30:00.000000007Z",
            "2026-11-21T05:30:00.00000000xZ",
            "x026-11-21T05:30:00.000000007Z",
        ] {
            assert_eq!(Time::parse(wrong), None, "{wrong}");
        }
    }
}
