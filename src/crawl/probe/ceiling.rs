//! Upper bounds for a probe's figures: `p99=5ms`, `connect.max=1s`, `errors=0.1%`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::base::sentence::debug_as_sentence;
use crate::crawl::config;
use crate::crawl::probe::report::{Measure, ProbeReport};
use crate::crawl::stats::Spread;

/// Upper bound for one figure of a report, in the syntax of `--fail-above`.
///
/// `STATISTIC=SPAN`, where the statistic is a percentile (`p50`, `p99.9`), `mean` or `max`, of the
/// latency from due ([`Measure::Due`]) or of the measure named before the statistic
/// (`sent.p99=5ms`, `lateness.max=1ms`); or `errors=COUNT`, `errors=SHARE%`.
///
/// An unanswered request counts as above every bound: if one request in fifty timed out, the p99
/// is exceeded, and so are mean and max ([`ProbeReport::unanswered`]).
///
/// ```
/// use argiope::probe::Ceiling;
///
/// assert!("connect.p99.9=10ms".parse::<Ceiling>().is_ok());
/// assert!("errors=0.1%".parse::<Ceiling>().is_ok());
/// assert!("p101=10ms".parse::<Ceiling>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Ceiling {
    text: String,
    of: Figure,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Figure {
    Span(Measure, Statistic, Duration),
    /// Maximum number of failures.
    Errors(u64),
    /// Maximum share of failures among the requests that ended.
    ErrorShare(f64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Statistic {
    Quantile(f64),
    Mean,
    Max,
}

/// An invalid ceiling.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?}: {what}; {mend}")]
pub struct CeilingError {
    text: String,
    what: String,
    mend: String,
}

debug_as_sentence!(CeilingError);

impl CeilingError {
    /// The stable code: `ceiling`.
    pub const fn code(&self) -> &'static str {
        "ceiling"
    }

    /// Whether a retry could succeed: never.
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

/// By how much a [`Ceiling`] is exceeded; its text is one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exceeded(String);

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Ceiling {
    /// The excess over the bound; `None` if the bound holds. It is exceeded, too, if nothing was
    /// measured.
    pub fn exceeded_by(&self, report: &ProbeReport) -> Option<Exceeded> {
        self.excess(report).map(Exceeded)
    }

    fn excess(&self, report: &ProbeReport) -> Option<String> {
        match self.of {
            Figure::Span(measure, statistic, most) => {
                let (spread, unanswered) = (report.spread(measure), report.unanswered(measure));
                let all = spread.count() + unanswered;
                let seen = match statistic {
                    _ if all == 0 => return Some(format!("{self}: nothing was measured")),
                    Statistic::Quantile(share) => {
                        // 99.9 % of 1000 are 999, although rounding makes the product slightly larger.
                        let rank = (share * all as f64 * (1.0 - 1e-12)).ceil() as u64;
                        of_rank(spread, rank)
                    }
                    Statistic::Mean | Statistic::Max if unanswered > 0 => None,
                    Statistic::Mean => spread.mean(),
                    Statistic::Max => spread.max(),
                };
                match seen {
                    None => Some(format!(
                        "{self}: {unanswered} of {all} requests were not answered, \
                         which counts as above any bound"
                    )),
                    Some(seen) if seen > most => Some(format!(
                        "{self}: measured {seen:.3?}, {:.3?} above",
                        seen - most
                    )),
                    Some(_) => None,
                }
            }
            Figure::Errors(most) => {
                let seen = report.errors();
                (seen > most).then(|| format!("{self}: counted {seen}, {} above", seen - most))
            }
            Figure::ErrorShare(most) => {
                let ended = report.errors() + report.replies;
                if ended == 0 {
                    return Some(format!("{self}: nothing was measured"));
                }
                let seen = report.errors() as f64 / ended as f64;
                (seen > most).then(|| {
                    let (seen, above) = (seen * 100.0, (seen - most) * 100.0);
                    format!("{self}: counted {seen:.3} %, {above:.3} % above")
                })
            }
        }
    }
}

/// The span of this rank in ascending order, counted from 1; `None` if there are fewer spans.
fn of_rank(spread: &Spread, rank: u64) -> Option<Duration> {
    let mut below = 0;
    spread.buckets().find_map(|(span, count)| {
        below += count;
        (below >= rank).then_some(span)
    })
}

impl fmt::Display for Ceiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Ceiling {
    type Err = CeilingError;

    fn from_str(text: &str) -> Result<Self, CeilingError> {
        let wrong = |what: &str, mend: &str| CeilingError {
            text: text.to_owned(),
            what: what.to_owned(),
            mend: mend.to_owned(),
        };
        let Some((name, most)) = text.split_once('=') else {
            return Err(wrong("missing bound", "write p99=5ms"));
        };
        let (name, most) = (name.trim(), most.trim());
        let of = if name == "errors" {
            errors(most).ok_or_else(|| {
                wrong(
                    "invalid number of errors",
                    "write errors=0, errors=10 or errors=0.1%",
                )
            })?
        } else {
            let (measure, statistic) = figure(name).ok_or_else(|| {
                wrong(
                    "unknown figure",
                    "write p50, p99.9, mean, max or errors; a measure may come first (sent.p99)",
                )
            })?;
            let most = config::span(most).map_err(|problem| wrong(&problem.what, &problem.mend))?;
            Figure::Span(measure, statistic, most)
        };
        Ok(Ceiling {
            text: text.to_owned(),
            of,
        })
    }
}

fn errors(most: &str) -> Option<Figure> {
    match most.strip_suffix('%') {
        None => most.parse().ok().map(Figure::Errors),
        Some(share) => {
            let share: f64 = share.trim().parse().ok()?;
            (0.0..=100.0)
                .contains(&share)
                .then_some(Figure::ErrorShare(share / 100.0))
        }
    }
}

/// A measure and its statistic: `p99`, `connect.p99.9`.
fn figure(name: &str) -> Option<(Measure, Statistic)> {
    if let Some(statistic) = statistic(name) {
        return Some((Measure::Due, statistic));
    }
    let (measure, rest) = name.split_once('.')?;
    Some((Measure::from_name(measure)?, statistic(rest)?))
}

fn statistic(name: &str) -> Option<Statistic> {
    match name {
        "mean" => Some(Statistic::Mean),
        "max" => Some(Statistic::Max),
        _ => {
            let percent: f64 = name.strip_prefix('p')?.parse().ok()?;
            (0.0..=100.0)
                .contains(&percent)
                .then_some(Statistic::Quantile(percent / 100.0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::stamp::Stamp;
    use crate::base::time::Instant;
    use crate::crawl::probe::{Arrivals, Length};
    use crate::sink::page::samples;

    fn check(text: &str, expected: Option<Figure>) {
        let read = text.parse::<Ceiling>().ok().map(|ceiling| ceiling.of);
        assert_eq!(read, expected, "{text}");
    }

    fn span(measure: Measure, statistic: Statistic, micros: u64) -> Option<Figure> {
        Some(Figure::Span(
            measure,
            statistic,
            Duration::from_micros(micros),
        ))
    }

    #[test]
    fn a_ceiling_names_a_statistic_and_optionally_a_measure() {
        let p99 = Statistic::Quantile(0.99);
        check("p99=5ms", span(Measure::Due, p99, 5_000));
        check("sent.p99=5ms", span(Measure::Sent, p99, 5_000));
        check(
            "first_byte.p99 = 0.5",
            span(Measure::FirstByte, p99, 500_000),
        );
        check("max=250us", span(Measure::Due, Statistic::Max, 250));
        let p999 = Statistic::Quantile(99.9 / 100.0);
        check("connect.p99.9=1s", span(Measure::Connect, p999, 1_000_000));
        check(
            "lateness.mean=1ms",
            span(Measure::Lateness, Statistic::Mean, 1_000),
        );
        check("errors=0", Some(Figure::Errors(0)));
        check("errors=0.5%", Some(Figure::ErrorShare(0.005)));
    }

    #[test]
    fn invalid_ceilings_are_refused() {
        for text in [
            "",
            "p99",
            "p99=",
            "p99=soon",
            "p99=-1ms",
            "p101=1ms",
            "p=1ms",
            "99=1ms",
            "pNaN=1ms",
            "server.p99=1ms",
            "sent.=1ms",
            "errors=-1",
            "errors=101%",
            "errors=many",
            "=5ms",
        ] {
            check(text, None);
        }
    }
    /// The verdict on a ceiling for `due` requests, of which those in `spans` (milliseconds) were
    /// answered.
    fn verdict(text: &str, due: u64, spans: impl Iterator<Item = u64>) -> Option<String> {
        let length = Length::Requests(due);
        let mut report = ProbeReport::new((Arrivals::Constant, 1.0), length, 1, 1);
        report.due = due;
        for span in spans {
            let mut page = samples::page(0);
            let at = Instant::START + Duration::from_millis(span);
            page.timings.headers = Some(Stamp::exact(at));
            page.timings.body = None;
            report.count(&page, Instant::START, None);
        }
        text.parse::<Ceiling>()
            .expect("a ceiling")
            .exceeded_by(&report)
            .map(|exceeded| exceeded.to_string())
    }

    #[test]
    fn unanswered_requests_count_as_above_every_bound() {
        let hundred = || 1..=100;
        assert_eq!(verdict("p99=99100us", 100, hundred()), None);
        assert!(verdict("p99=98900us", 100, hundred()).is_some());
        assert_eq!(verdict("max=1s", 100, hundred()), None);
        assert_eq!(verdict("mean=51ms", 100, hundred()), None);
        assert_eq!(verdict("p99.9=999500us", 1000, 1..=1000), None);
        // One of 101 is unanswered, so the p99 is the longest of the answered ones.
        assert_eq!(verdict("p99=101ms", 101, hundred()), None);
        assert!(verdict("p99=99ms", 101, hundred()).is_some());
        for text in ["max=1h", "mean=1h", "p100=1h", "whole.max=1h"] {
            let verdict = verdict(text, 101, hundred()).expect(text);
            assert!(
                verdict.contains("1 of 101 requests were not answered"),
                "{verdict}"
            );
        }
        // Two of 102 are unanswered.
        assert!(verdict("p99=1h", 102, hundred()).is_some());
        assert_eq!(verdict("p98=101ms", 102, hundred()), None);
        let none = verdict("p50=1h", 10, 0..0).expect("no request was answered");
        assert!(
            none.contains("10 of 10 requests were not answered"),
            "{none}"
        );
        assert_eq!(verdict("lateness.max=1h", 101, hundred()), None);
        let nothing = verdict("p50=1h", 0, 0..0).expect("nothing was measured");
        assert!(nothing.contains("nothing was measured"), "{nothing}");
    }
}
