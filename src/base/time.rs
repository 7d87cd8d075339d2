//! Time: instants since the start of the crawl, and wall-clock time for files.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A time in nanoseconds since the start of the crawl, on a monotonic clock.
///
/// Only a back end of the `io` floor reads a clock; all other code receives an `Instant`. The range
/// is 584 years; arithmetic saturates at both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The start of the crawl.
    pub const START: Instant = Instant(0);
    /// Later than any time in a crawl: "never".
    pub const FAR_FUTURE: Instant = Instant(u64::MAX);

    /// `nanos` nanoseconds after the start of the crawl.
    pub const fn from_nanos(nanos: u64) -> Self {
        Instant(nanos)
    }

    /// Nanoseconds since the start of the crawl.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The duration since `earlier`; zero if this is not later.
    pub const fn saturating_since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, span: Duration) -> Instant {
        Instant(self.0.saturating_add(nanos(span)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, span: Duration) -> Instant {
        Instant(self.0.saturating_sub(nanos(span)))
    }
}

/// A duration in whole nanoseconds, saturating at 584 years.
pub fn nanos(span: Duration) -> u64 {
    // Avoids 128-bit arithmetic, which is several times as slow.
    let whole = span.as_secs().saturating_mul(1_000_000_000);
    whole.saturating_add(span.subsec_nanos().into())
}

/// Wall-clock time, in nanoseconds since the Unix epoch. Used only in files, and for times in
/// servers' replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wall(pub u64);

impl Wall {
    /// Wall-clock time at `at`, for a crawl that started at `self`.
    ///
    /// Not affected by steps of the system's clock during the crawl, so that times in files are in
    /// the order of events.
    pub fn at(self, at: Instant) -> Wall {
        Wall(self.0.saturating_add(at.as_nanos()))
    }

    /// The duration since `earlier`; zero if this is not later.
    pub fn saturating_since(self, earlier: Wall) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The inverse of [`civil`](Self::civil); `None` if there is no such day or time of day, or it
    /// is before 1970. Saturates in the year 2554.
    pub(crate) fn from_civil(date: (i64, u32, u32), time: (u32, u32, u32)) -> Option<Wall> {
        let (hour, minute, second) = time;
        if !(0..=9999).contains(&date.0) || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let days = days_from_civil(date)?;
        let seconds = u64::try_from(days).ok()? * 86_400;
        let of_day = u64::from(hour * 3600 + minute * 60 + second);
        Some(Wall(nanos(Duration::from_secs(seconds + of_day))))
    }

    /// Whole seconds since the Unix epoch.
    pub fn unix_seconds(self) -> u64 {
        self.0 / 1_000_000_000
    }

    /// Year, month, day, hour, minute and second in UTC.
    pub(crate) fn civil(self) -> (i64, u32, u32, u32, u32, u32) {
        let seconds = self.unix_seconds();
        let (year, month, day) = civil_from_days((seconds / 86_400) as i64);
        let of_day = (seconds % 86_400) as u32;
        (
            year,
            month,
            day,
            of_day / 3600,
            of_day / 60 % 60,
            of_day % 60,
        )
    }
}

/// RFC 3339 in UTC with nanoseconds, as INTERFACE specifies for every wall-clock time.
impl fmt::Display for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day, hour, minute, second) = self.civil();
        let nanos = self.0 % 1_000_000_000;
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z"
        )
    }
}

/// The proleptic Gregorian date of a day counted from 1970-01-01.
///
/// Uses eras of 400 years that start on 1 March, so that the leap day is the last of its year.
fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    } as u32;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// The inverse of [`civil_from_days`]; `None` for dates that do not exist.
fn days_from_civil(date: (i64, u32, u32)) -> Option<i64> {
    let (year, month, day) = date;
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (month, day) = (i64::from(month), i64::from(day));
    let year = year - i64::from(month <= 2);
    let month_from_march = (month + 9) % 12;
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = year.div_euclid(400) * 146_097 + day_of_era - 719_468;
    // 31 April must not become 1 May.
    (civil_from_days(days) == date).then_some(days)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_time_is_written_as_rfc_3339_with_nanoseconds() {
        let check = |ns, expected: &str| assert_eq!(Wall(ns).to_string(), expected);
        check(0, "1970-01-01T00:00:00.000000000Z");
        check(951_782_400_000_000_007, "2000-02-29T00:00:00.000000007Z");
        check(1_795_219_199_999_999_999, "2026-11-20T23:59:59.999999999Z");
    }

    #[test]
    fn a_nonexistent_civil_time_is_no_wall_time() {
        let check = |date, time, expected: Option<&str>| {
            let wall = Wall::from_civil(date, time).map(|wall| wall.to_string());
            assert_eq!(wall.as_deref(), expected);
        };
        let midnight = (0, 0, 0);
        check(
            (1970, 1, 1),
            midnight,
            Some("1970-01-01T00:00:00.000000000Z"),
        );
        check(
            (2000, 2, 29),
            (23, 59, 59),
            Some("2000-02-29T23:59:59.000000000Z"),
        );
        check((1900, 2, 29), midnight, None);
        check((2026, 4, 31), midnight, None);
        check((2026, 13, 1), midnight, None);
        check((2026, 0, 1), midnight, None);
        check((2026, 1, 0), midnight, None);
        check((2026, 1, 1), (24, 0, 0), None);
        check((2026, 1, 1), (0, 60, 0), None);
        check((2026, 1, 1), (0, 0, 60), None);
        check((1969, 12, 31), (23, 59, 59), None);
        assert_eq!(
            Wall::from_civil((9999, 12, 31), midnight),
            Some(Wall(u64::MAX))
        );
    }

    #[test]
    fn a_wall_time_can_be_rebuilt_from_its_civil_time() {
        for day in (0..200_000).step_by(17) {
            let wall = Wall(day * 86_400 * 1_000_000_000);
            let (year, month, day, ..) = wall.civil();
            assert_eq!(Wall::from_civil((year, month, day), (0, 0, 0)), Some(wall));
        }
    }

    #[test]
    fn instants_saturate_at_both_ends() {
        assert_eq!(Instant::START - Duration::from_secs(1), Instant::START);
        assert_eq!(
            Instant::FAR_FUTURE + Duration::from_secs(1),
            Instant::FAR_FUTURE
        );
        assert_eq!(
            Instant::START.saturating_since(Instant::from_nanos(5)),
            Duration::ZERO
        );
    }
}
