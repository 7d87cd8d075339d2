//! The totals of the last hour, sampled, so that a page that is opened later shows what was before.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

use crate::base::time::{Instant, Wall};

/// Totals of a crawl at a moment. A rate is the difference of two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// When.
    pub at: Instant,
    /// Pages, as in the status.
    pub pages: u64,
    /// Bytes received, as in the status.
    pub bytes_wire: u64,
    /// Latencies of servers.
    pub server_latency: Measured,
    /// Lateness of departures.
    pub lateness: Measured,
}

/// How many spans were measured, and their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// How many.
    pub count: u64,
    /// Their sum.
    pub seconds: f64,
}

impl Sample {
    fn has_totals_of(&self, other: &Sample) -> bool {
        Sample {
            at: other.at,
            ..*self
        } == *other
    }
}

/// Samples of the last hour; none before [`History::open`].
#[derive(Debug, Default)]
pub struct History {
    is_open: bool,
    samples: VecDeque<Sample>,
}

impl History {
    /// Keeps samples from now on.
    pub fn open(&mut self) {
        self.is_open = true;
    }

    /// Whether a sample is to be taken at this tick. `is_last`: no tick follows for now.
    pub fn is_due(&self, is_last: bool, now: Instant) -> bool {
        let last = self.samples.back();
        let is_next = last.is_none_or(|last| now.saturating_since(last.at) >= STEP);
        self.is_open && (is_next || is_last)
    }

    /// Adds a sample, in place of the oldest if there are many. `tick` is the time since the crawl was woken at the
    /// latest: where no samples were taken for longer than a step nothing happened before.
    pub fn add(&mut self, sample: Sample, tick: Duration) {
        if let Some(last) = self.samples.back() {
            let span = sample.at.saturating_since(last.at);
            if span.is_zero() || span < STEP && sample.has_totals_of(last) {
                return;
            }
            if span > STEP * 2 && !sample.has_totals_of(last) {
                // Or a rate would be that of the whole time without samples.
                let woken = Sample {
                    at: last.at + (span - tick),
                    ..*last
                };
                self.push(woken);
            }
        }
        self.push(sample);
    }

    fn push(&mut self, sample: Sample) {
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// The samples as JSON, the oldest first, of a crawl that started at this time. Their keys are those of the
    /// status.
    pub fn to_json(&self, started: Wall) -> Vec<u8> {
        let step = STEP.as_secs();
        let mut out = format!("{{\"started\": \"{started}\", \"step\": {step}, \"samples\": [");
        for (number, sample) in self.samples.iter().enumerate() {
            if number > 0 {
                out.push_str(", ");
            }
            push_sample(sample, &mut out);
        }
        out.push_str("]}\n");
        out.into_bytes()
    }
}

fn push_sample(sample: &Sample, out: &mut String) {
    let elapsed = sample.at.saturating_since(Instant::START).as_secs_f64();
    let (pages, bytes_wire) = (sample.pages, sample.bytes_wire);
    let _ = write!(
        out,
        "{{\"elapsed\": {elapsed}, \"pages\": {pages}, \"bytes_wire\": {bytes_wire}"
    );
    for (key, Measured { count, seconds }) in [
        ("server_latency", sample.server_latency),
        ("lateness", sample.lateness),
    ] {
        let _ = match count {
            0 => write!(out, ", \"{key}\": null"),
            _ => {
                let mean = seconds / count as f64;
                write!(out, ", \"{key}\": {{\"count\": {count}, \"mean\": {mean}}}")
            }
        };
    }
    out.push('}');
}

/// Time between two samples.
const STEP: Duration = Duration::from_secs(5);

/// Samples that are kept, some eighty bytes each: those of an hour, and the one where it begins.
const SAMPLES_MAX: usize = 721;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const TICK: Duration = Duration::from_secs(1);

    fn sample(seconds: u64, pages: u64) -> Sample {
        Sample {
            at: Instant::START + Duration::from_secs(seconds),
            pages,
            bytes_wire: 1000 * pages,
            server_latency: Measured {
                count: pages,
                seconds: pages as f64 / 4.0,
            },
            lateness: Measured::default(),
        }
    }

    fn open() -> History {
        let mut history = History::default();
        history.open();
        history
    }

    /// The seconds and the pages of each sample.
    fn kept(history: &History) -> Vec<(f64, u64)> {
        let json: Value = serde_json::from_slice(&history.to_json(Wall(0))).expect("it is JSON");
        let samples = json["samples"].as_array().expect("a list");
        let pair = |sample: &Value| Some((sample["elapsed"].as_f64()?, sample["pages"].as_u64()?));
        samples
            .iter()
            .map(|one| pair(one).expect("numbers"))
            .collect()
    }

    #[test]
    fn a_sample_is_taken_every_five_seconds_once_it_is_open() {
        let mut history = History::default();
        assert!(!history.is_due(true, Instant::START));
        history.open();
        for second in 0..=12 {
            let now = sample(second, second);
            if history.is_due(false, now.at) {
                history.add(now, TICK);
            }
        }
        assert_eq!(kept(&history), [(0.0, 0), (5.0, 5), (10.0, 10)]);
        // The crawl falls asleep.
        assert!(history.is_due(true, sample(13, 13).at));
    }

    #[test]
    fn samples_of_more_than_an_hour_ago_make_room() {
        let mut history = open();
        for number in 0..1000 {
            history.add(sample(5 * number, number), TICK);
        }
        let kept = kept(&history);
        assert_eq!(kept.len(), 721);
        assert_eq!((kept[0], kept[720]), ((1395.0, 279), (4995.0, 999)));
    }

    #[test]
    fn nothing_happened_while_no_samples_were_taken() {
        let mut history = open();
        history.add(sample(0, 0), TICK);
        history.add(sample(5, 9), TICK);
        history.add(sample(606, 20), TICK);
        assert_eq!(
            kept(&history),
            [(0.0, 0), (5.0, 9), (605.0, 9), (606.0, 20)]
        );
        // A crawl that is still asleep.
        history.add(sample(608, 20), TICK);
        history.add(sample(900, 20), TICK);
        assert_eq!(kept(&history)[3..], [(606.0, 20), (900.0, 20)]);
    }

    #[test]
    fn samples_have_the_keys_of_the_status() {
        let mut history = open();
        history.add(sample(0, 0), TICK);
        history.add(sample(5, 3), TICK);
        let json: Value = serde_json::from_slice(&history.to_json(Wall(0))).expect("it is JSON");
        assert_eq!(
            json,
            json!({"started": "1970-01-01T00:00:00.000000000Z", "step": 5, "samples": [
                {"elapsed": 0, "pages": 0, "bytes_wire": 0, "server_latency": null, "lateness": null},
                {"elapsed": 5, "pages": 3, "bytes_wire": 3000,
                    "server_latency": {"count": 3, "mean": 0.25}, "lateness": null},
            ]})
        );
    }
}
