//! What is known of each origin's robots.txt, and who waits to know it.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::base::time::Instant;
use crate::throttle::engine::LaneId;
use crate::wire::robots::Rules;

/// The standing of an origin's robots.txt (RFC 9309, section 2.3.1).
#[derive(Debug, Default)]
pub enum Standing {
    /// Never asked for, or too long ago.
    #[default]
    Unknown,
    /// It is being fetched; these lanes wait. Boxed: few are being fetched at once, and there may
    /// be millions of origins.
    Fetching(Box<SmallVec<[LaneId; 1]>>),
    /// They hold until the given moment. Boxed, too: few origins have any.
    Known(Box<(Arc<Rules>, Instant)>),
    /// There is none (4xx): all is allowed until the given moment.
    Absent(Instant),
    /// It could not be had (5xx, no answer, 429): nothing is allowed until the given moment.
    Unreachable(Instant),
}

/// What a fetch of robots.txt brought.
#[derive(Clone, Debug)]
pub enum Brought {
    /// A file: its rules for our agent.
    Rules(Arc<Rules>),
    /// 4xx, or a redirect too far: all is allowed.
    Absent,
    /// 5xx, no whole answer, or 429: nothing is allowed for now.
    Unreachable,
}

/// Whether a URL may be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Allowed,
    /// A rule forbids it: its text and line.
    Disallowed(String, u32),
    /// The file could not be had.
    Unreachable,
    /// The file must be fetched first.
    Ask,
    /// The file is being fetched.
    Wait,
}

/// How long an origin whose robots.txt cannot be had is left alone.
pub const UNREACHABLE_FOR: Duration = Duration::from_secs(10 * 60);

impl Standing {
    /// Whether `target` (path and query) may be fetched at `now`.
    pub fn verdict(&self, target: &str, now: Instant) -> Verdict {
        match self {
            Standing::Known(known) if known.1 > now => {
                let verdict = known.0.allowed(target);
                match (verdict.allowed, verdict.rule) {
                    (true, _) => Verdict::Allowed,
                    (false, Some(rule)) => Verdict::Disallowed(rule.pattern.to_owned(), rule.line),
                    (false, None) => Verdict::Disallowed("/".to_owned(), 0),
                }
            }
            Standing::Absent(until) if *until > now => Verdict::Allowed,
            Standing::Unreachable(until) if *until > now => Verdict::Unreachable,
            Standing::Fetching(_) => Verdict::Wait,
            _ => Verdict::Ask,
        }
    }

    /// Crawl-delay, where it is known and there is one.
    pub fn crawl_delay(&self) -> Option<Duration> {
        match self {
            Standing::Known(known) => known.0.crawl_delay(),
            _ => None,
        }
    }

    /// Takes what a fetch brought; gives the lanes that waited.
    pub fn arrived(
        &mut self,
        brought: Brought,
        lifetime: Duration,
        now: Instant,
    ) -> SmallVec<[LaneId; 1]> {
        let standing = match brought {
            Brought::Rules(rules) => Standing::Known(Box::new((rules, now + lifetime))),
            Brought::Absent => Standing::Absent(now + lifetime),
            Brought::Unreachable => Standing::Unreachable(now + UNREACHABLE_FOR.min(lifetime)),
        };
        match std::mem::replace(self, standing) {
            Standing::Fetching(waiting) => *waiting,
            _ => SmallVec::new(),
        }
    }

    /// Until when it need not be asked for again, where it was had or given up.
    pub fn holds_until(&self) -> Option<Instant> {
        match self {
            Standing::Known(known) => Some(known.1),
            Standing::Absent(until) | Standing::Unreachable(until) => Some(*until),
            Standing::Unknown | Standing::Fetching(_) => None,
        }
    }
}
