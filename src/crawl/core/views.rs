//! What operators ask: whether the crawl works, its totals, and its scopes.

use serde_json::{Value, json};

use crate::admin::response::Response;
use crate::admin::routes::Call;
use crate::base::time::Instant;
use crate::crawl::core::Core;
use crate::crawl::pace_report::{MOST_RUNNING, PaceReport, ScopePacing};
use crate::crawl::steering::{Description, Found};
use crate::io::Io;
use crate::sink::decisions;

/// Scopes in a list unless `limit` says otherwise, and at most.
const LIMIT_USUAL: usize = 50;
const LIMIT_MAX: usize = 1000;

/// Bytes and stars of a pattern of names: it is compared with all of them.
const PATTERN_MAX: usize = 256;
const STARS_MAX: usize = 8;

impl<I: Io> Core<I> {
    /// Whether requests are sent, and what prevents it.
    pub fn readiness(&self) -> Response {
        let progress = self.progress();
        let causes = [
            (!self.is_running(), "the crawl is ending"),
            (self.control.is_paused(), "the crawl is paused"),
            (progress.disk_full_for.is_some(), "the disk is full"),
            (progress.outage_open.is_some(), "the network does not work"),
        ];
        let causes = causes.into_iter().filter(|(applies, _)| *applies);
        let causes: Vec<&str> = causes.map(|(_, words)| words).collect();
        match causes.is_empty() {
            true => Response::text(200, "ready\n"),
            false => Response::text(503, &format!("{}\n", causes.join("; "))),
        }
    }

    /// The keys of `stats.json`, and the phase.
    pub fn status(&self) -> Response {
        let pacing = PaceReport::of(&self.throttle, MOST_RUNNING, self.now);
        let stats = self.output.stats();
        let mut status = stats.to_value(&self.progress(), &pacing);
        status["paused"] = json!(self.control.is_paused());
        status["phase"] = json!(self.control.phase().as_str());
        Response::json(200, &status)
    }

    /// The last decisions about the pace of a scope, the newest first, in the form of throttle lines.
    pub fn decisions(&self, call: &Call) -> Response {
        let limit = match limit_of(call) {
            Ok(limit) => limit,
            Err(refusal) => return refusal,
        };
        let scope = json!(call.name);
        let mut body = format!("{{\"scope\": {scope}, \"decisions\": [").into_bytes();
        for (number, decision) in self
            .throttle
            .history_of(&call.name, limit)
            .iter()
            .enumerate()
        {
            if number > 0 {
                body.extend_from_slice(b", ");
            }
            decisions::write_line(decision, self.network.wall_at(decision.at), &mut body);
            body.truncate(body.trim_ascii_end().len());
        }
        body.extend_from_slice(b"]}\n");
        Response::of(200, "application/json", body)
    }

    /// A list of scopes under which something was sent, to be described in steps.
    ///
    /// # Errors
    /// The call is wrong.
    pub fn scopes_by(&self, call: &Call) -> Result<Description, Response> {
        let limit = limit_of(call)?;
        let sort = call.parameter("sort").unwrap_or("waited");
        let Some(order) = Order::of(sort) else {
            let names = Order::ALL.map(|(name, _)| name).join(", ");
            let message = format!("sort is one of {names}, not {sort:?}");
            return Err(Response::error(400, &message));
        };
        let wanted = pattern_of(call)?;
        let list = ScopePacing::list(
            &self.throttle,
            |name| fits(wanted, name),
            |account| order.rank(account, self.now),
            limit,
            self.now,
        );
        let scopes = list.into_iter().map(Box::new).map(Found::Pacing);
        let beginning = format!("{{\"sort\":\"{sort}\",\"scopes\":[");
        Ok(Description::new(beginning, scopes).repeated(call.clone()))
    }

    /// One scope: its present state, and its pacing so far.
    pub fn scope(&mut self, name: &str) -> Response {
        self.throttle.refresh_named(name, self.now);
        let pacing = ScopePacing::named(&self.throttle, name, self.now);
        if pacing.is_none() && self.throttle.view(name, self.now).is_none() {
            let message = format!(
                "there is no scope {name:?} now: nothing was sent under it, and nothing waits for it"
            );
            return Response::error(404, &message);
        }
        let entry: Value = self.entry_json(name);
        let mut scope = pacing.map_or_else(|| json!({"scope": name}), |pacing| pacing.to_json());
        scope["settings"] = entry;
        scope["now"] = self.scope_now(name);
        Response::json(200, &scope)
    }

    /// The present state of a scope; null if it has none.
    pub fn scope_now(&self, name: &str) -> Value {
        let Some(view) = self.throttle.view(name, self.now) else {
            return Value::Null;
        };
        let wall = |at: Instant| self.network.wall_at(at).to_string();
        let is_late = view.next_send > self.now;
        // A scope that is evicted waits for nothing.
        let account = self.throttle.live_account(name);
        let waits = account.and_then(|account| account.waits());
        json!({
            "in_flight": view.in_flight,
            "lanes": view.lanes,
            "delay": view.pace.delay.as_secs_f64(),
            "concurrency": view.pace.concurrency,
            "sent": view.sent.map(wall),
            "gap": view.gap.as_secs_f64(),
            "next_send": is_late.then(|| wall(view.next_send)),
            "limited_by": is_late.then(|| view.rule.as_str()),
            "held": view.is_held,
            "has_free_slot": view.has_free_slot,
            "waits_for": waits.map(|(cause, _)| cause.as_str()),
            "waits_since": waits.map(|(_, since)| wall(since)),
        })
    }
}

/// The pattern of the names in a list.
pub fn pattern_of(call: &Call) -> Result<&str, Response> {
    let wanted = call.parameter("match").unwrap_or("*");
    match wanted.len() > PATTERN_MAX || wanted.matches('*').count() > STARS_MAX {
        true => {
            let message = format!("match has at most {PATTERN_MAX} bytes and {STARS_MAX} stars");
            Err(Response::error(400, &message))
        }
        false => Ok(wanted),
    }
}

/// Entries of a list.
pub fn limit_of(call: &Call) -> Result<usize, Response> {
    match call.parameter("limit").map(str::parse::<usize>) {
        None => Ok(LIMIT_USUAL),
        Some(Ok(limit @ 1..=LIMIT_MAX)) => Ok(limit),
        Some(_) => {
            let message = format!("limit is a number from 1 to {LIMIT_MAX}");
            Err(Response::error(400, &message))
        }
    }
}

/// The order of a list of scopes, each with the greatest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Waited,
    Sent,
    Refused,
    Latency,
    Delay,
    Blocked,
}

impl Order {
    const ALL: [(&'static str, Order); 6] = [
        ("waited", Order::Waited),
        ("sent", Order::Sent),
        ("refused", Order::Refused),
        ("latency", Order::Latency),
        ("delay", Order::Delay),
        ("blocked", Order::Blocked),
    ];

    fn of(name: &str) -> Option<Self> {
        let found = Order::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, order)| *order)
    }

    /// The rank of a scope; `None` leaves it out.
    fn rank(self, account: &crate::throttle::engine::Account, now: Instant) -> Option<u64> {
        use crate::base::time::nanos;
        match self {
            Order::Waited => Some(nanos(account.waited_total(now))),
            Order::Sent => Some(account.sent),
            Order::Refused => Some(account.refused).filter(|refused| *refused > 0),
            Order::Latency => account.latency().map(nanos),
            Order::Delay => Some(nanos(account.pace.delay)),
            Order::Blocked => account.suspected.is_some().then_some(account.sent),
        }
    }
}

/// Whether a name fits a pattern in which `*` stands for any text.
pub fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        let check = |pattern: &str, name: &str, expected: bool| {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        };
        check("*", "", true);
        check("a.test", "a.test", true);
        check("a.test", "ba.test", false);
        check("*.test", "a.test", true);
        check("*.test", "a.test.example", false);
        check("a*c*e", "abcde", true);
        check("a*c*e", "abdce", true);
        check("a*c*e", "abde", false);
        check("*ab", "ab", true);
        check("ab*ba", "aba", false);
    }
}
