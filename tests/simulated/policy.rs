//! Hidden policies of simulated servers: limits, blocks and their replies.

use std::sync::Arc;
use std::time::Duration;

use argiope::base::time::Instant;
use argiope::io::sim::ConnId;

use super::reply::{Reply, Step};

/// A request as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct Visit<'a> {
    pub path: &'a str,
    /// So many of this host came before it, robots.txt aside.
    pub before: usize,
    /// Which of the connections to all hosts it came on.
    pub conn: ConnId,
}

/// What it answers, if it has an opinion.
pub type Mood = Arc<dyn Fn(&Visit<'_>) -> Option<Step> + Send + Sync>;

/// So many requests a second, and what becomes of the others.
#[derive(Clone, Debug)]
pub struct Limit {
    /// From when on how many a second, the earliest first.
    pub schedule: Vec<(Duration, f64)>,
    pub kind: Kind,
    pub refusal: Step,
}

/// How a limit counts.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Tokens drip in, so many at most.
    Bucket {
        burst: f64,
        tokens: f64,
        last: Instant,
    },
    /// In each span of this length since the crawl began, the rate times its length.
    Window {
        length: Duration,
        index: u64,
        count: u64,
    },
}

impl Limit {
    /// A token bucket that refuses at once, with 429.
    pub fn bucket(rate: f64, burst: f64) -> Self {
        Limit {
            schedule: vec![(Duration::ZERO, rate)],
            kind: Kind::Bucket {
                burst,
                tokens: burst,
                last: Instant::START,
            },
            refusal: Step::status(429).after(Duration::ZERO),
        }
    }

    /// So many in each span of this length, counted from the crawl's beginning.
    pub fn window(count: u32, length: Duration) -> Self {
        let rate = f64::from(count) / length.as_secs_f64();
        Limit {
            kind: Kind::Window {
                length,
                index: 0,
                count: 0,
            },
            ..Limit::bucket(rate, 1.0)
        }
    }

    /// From then on another rate.
    pub fn then(mut self, from: Duration, rate: f64) -> Self {
        self.schedule.push((from, rate));
        self
    }

    /// Requests a second that it lets pass at a moment.
    pub fn rate(&self, at: Instant) -> f64 {
        let since = at.saturating_since(Instant::START);
        let begun = self.schedule.iter().rev().find(|(from, _)| *from <= since);
        begun.map_or(0.0, |(_, rate)| *rate)
    }

    /// Whether a request that arrives now is within it.
    pub fn admits(&mut self, now: Instant) -> bool {
        let rate = self.rate(now);
        match &mut self.kind {
            Kind::Bucket {
                burst,
                tokens,
                last,
            } => {
                let since = now.saturating_since(*last).as_secs_f64();
                *tokens = (*tokens + since * rate).min(*burst);
                *last = now;
                let admits = *tokens >= 1.0 - 1e-9;
                *tokens -= f64::from(u8::from(admits));
                admits
            }
            Kind::Window {
                length,
                index,
                count,
            } => {
                let nanos = length.as_nanos() as u64;
                let current = now.as_nanos() / nanos;
                if current != *index {
                    (*index, *count) = (current, 0);
                }
                let admits = (*count as f64) < (rate * length.as_secs_f64()).round();
                *count += u64::from(admits);
                admits
            }
        }
    }
}

/// Every request has the same answer.
pub fn always(step: Step) -> Mood {
    Arc::new(move |_| Some(step.clone()))
}

/// One answer for so many pages, then another.
pub fn turns(after: usize, before: Step, then: Step) -> Mood {
    Arc::new(move |visit| {
        let step = if visit.before < after { &before } else { &then };
        Some(step.clone())
    })
}

/// Pages that differ, and links to none.
pub fn pages(think: Duration) -> Mood {
    Arc::new(move |visit| Some(page_of(visit.path).after(think)))
}

/// Pages of this length until a visitor has had enough: then one tiny page that asks who it is,
/// at once and with a 200.
pub fn soft_block(after: usize, think: Duration) -> Mood {
    Arc::new(move |visit| {
        if visit.before < after {
            return Some(page_of(visit.path).after(think));
        }
        let asks = "<html><title>Attention</title><div class=\"g-recaptcha\"></div></html>";
        Some(Step::new(Reply::Html(asks.to_owned())).after(Duration::from_micros(300)))
    })
}

/// Nine of ten pages come from a cache in front of it, at once.
pub fn cached(miss: Duration) -> Mood {
    Arc::new(move |visit| {
        let page = page_of(visit.path);
        Some(match visit.before % 10 {
            0 => page.after(miss).with("X-Cache: MISS"),
            _ => page.after_ms(1).with("Age: 30").with("X-Cache: HIT"),
        })
    })
}

/// So many pages of one kind, then so many of another, and so on.
pub fn batches(length: usize, thinks: [Duration; 2]) -> Mood {
    Arc::new(move |visit| Some(page_of(visit.path).after(thinks[visit.before / length % 2])))
}

/// A page like no other of its host, of two kilobytes.
pub fn page_of(path: &str) -> Step {
    let words = format!("<p>The page {path} says {path}.\n").repeat(60);
    Step::new(Reply::Html(format!(
        "<!DOCTYPE html><title>{path}</title>{words}"
    )))
}
