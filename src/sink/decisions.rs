//! Writes decisions about a pace as lines of JSON: `throttle.jsonl`.

use crate::base::time::Wall;
use crate::sink::line::Line;
use crate::throttle::decision::Decision;

/// Appends the line of a decision made at the wall-clock time `at`, with its line end.
pub fn write_line(decision: &Decision, at: Wall, out: &mut Vec<u8>) {
    let mut line = Line { out };
    line.out.push(b'{');
    line.first("at").wall(at);
    line.key("scope").text(&decision.scope);
    line.key("id").or_null(decision.id, Line::number);
    line.key("event").text(decision.event.as_str());
    let status = decision.status.map(u64::from);
    line.key("status").or_null(status, Line::number);
    line.key("latency").or_null(decision.latency, Line::seconds);
    line.key("target_delay")
        .or_null(decision.target_delay, Line::seconds);
    line.key("delay").pair(decision.delay, Line::seconds);
    let concurrency = decision.concurrency.map(u64::from);
    line.key("concurrency").pair(concurrency, Line::number);
    line.key("in_flight").number(decision.in_flight.into());
    line.key("size").or_null(decision.size, Line::number);
    line.key("reason").text(&decision.reason);
    line.key("source").text(decision.source.as_str());
    line.out.extend_from_slice(b"}\n");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::throttle::decision::sample;

    #[track_caller]
    fn check(decision: &Decision, expected: &str) {
        let mut out = Vec::new();
        write_line(decision, Wall(1_795_239_000_000_000_007), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), format!("{expected}\n"));
    }

    #[test]
    fn f79_a_line_contains_the_values_before_and_after_and_the_rule() {
        check(
            &sample(),
            r#"{"at": "2026-11-21T05:30:00.000000007Z", "scope": "a.test", "id": 7, "event": "autothrottle", "status": 200, "latency": 0.31, "target_delay": 0.31, "delay": [0.08, 0.195], "concurrency": [3, 4], "in_flight": 2, "size": 1024, "reason": "the delay follows the latency", "source": "autothrottle"}"#,
        );
    }

    #[test]
    fn missing_values_are_null() {
        let held = Decision {
            id: None,
            status: None,
            latency: None,
            target_delay: None,
            delay: [Duration::ZERO; 2],
            size: None,
            reason: "with \"quotes\"".into(),
            ..sample()
        };
        check(
            &held,
            r#"{"at": "2026-11-21T05:30:00.000000007Z", "scope": "a.test", "id": null, "event": "autothrottle", "status": null, "latency": null, "target_delay": null, "delay": [0, 0], "concurrency": [3, 4], "in_flight": 2, "size": null, "reason": "with \"quotes\"", "source": "autothrottle"}"#,
        );
    }
}
