//! Rate-limit headers of each generation.

use std::time::{Duration, UNIX_EPOCH};

use super::limit::Standing;

/// A draft or service whose header format is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    Polli00,
    Polli02,
    Ietf03,
    Ietf06,
    Ietf07,
    Ietf10,
    GitHub,
    X,
    GitLab,
    Reddit,
    Vimeo,
    Discord,
}

use Generation::*;

const NAMES: &[(&str, Generation)] = &[
    ("polli00", Polli00),
    ("polli02", Polli02),
    ("ietf03", Ietf03),
    ("ietf06", Ietf06),
    ("ietf07", Ietf07),
    ("ietf10", Ietf10),
    ("github", GitHub),
    ("x", X),
    ("gitlab", GitLab),
    ("reddit", Reddit),
    ("vimeo", Vimeo),
    ("discord", Discord),
];

impl Generation {
    pub fn named(name: &str) -> Option<Self> {
        let (_, generation) = NAMES.iter().find(|(other, _)| *other == name)?;
        Some(*generation)
    }

    /// The headers at a time since 1970. Seconds are rounded up, so that a client that waits is not early.
    pub fn fields(self, standing: Standing, wall: Duration) -> Vec<(&'static str, String)> {
        let limit = standing.limit.floor();
        let left = standing.remaining.floor();
        let reset = standing.reset.as_secs_f64().ceil();
        let window = standing.period.as_secs_f64().ceil();
        let at = wall + standing.reset;
        let epoch = at.as_secs_f64().ceil();
        let date = || self::date(Duration::from_secs_f64(epoch));
        let three = |limit: String, reset: String| {
            vec![
                ("RateLimit-Limit", limit),
                ("RateLimit-Remaining", left.to_string()),
                ("RateLimit-Reset", reset),
            ]
        };
        match self {
            Polli00 => three(format!("{limit}, {limit};window={window}"), date()),
            Polli02 | Ietf03 => three(format!("{limit}, {limit};w={window}"), reset.to_string()),
            Ietf06 => {
                let mut fields = three(limit.to_string(), reset.to_string());
                fields.push(("RateLimit-Policy", format!("{limit};w={window}")));
                fields
            }
            Ietf07 => vec![
                (
                    "RateLimit",
                    format!("limit={limit}, remaining={left}, reset={reset}"),
                ),
                ("RateLimit-Policy", format!("{limit};w={window}")),
            ],
            Ietf10 => vec![
                ("RateLimit", format!("\"default\";r={left};t={reset}")),
                (
                    "RateLimit-Policy",
                    format!("\"default\";q={limit};w={window}"),
                ),
            ],
            GitHub => vec![
                ("x-ratelimit-limit", limit.to_string()),
                ("x-ratelimit-remaining", left.to_string()),
                ("x-ratelimit-reset", epoch.to_string()),
            ],
            X => vec![
                ("x-rate-limit-limit", limit.to_string()),
                ("x-rate-limit-remaining", left.to_string()),
                ("x-rate-limit-reset", epoch.to_string()),
            ],
            GitLab => three(limit.to_string(), epoch.to_string()),
            Reddit => vec![
                ("x-ratelimit-used", (limit - left).to_string()),
                (
                    "x-ratelimit-remaining",
                    format!("{:.1}", standing.remaining),
                ),
                ("x-ratelimit-reset", reset.to_string()),
            ],
            Vimeo => vec![
                ("X-RateLimit-Limit", limit.to_string()),
                ("X-RateLimit-Remaining", left.to_string()),
                ("X-RateLimit-Reset", date()),
            ],
            Discord => vec![
                ("X-RateLimit-Limit", limit.to_string()),
                ("X-RateLimit-Remaining", left.to_string()),
                ("X-RateLimit-Reset", format!("{:.3}", at.as_secs_f64())),
                (
                    "X-RateLimit-Reset-After",
                    format!("{:.3}", standing.reset.as_secs_f64()),
                ),
            ],
        }
    }
}

/// A time since 1970 as an HTTP date, truncated to seconds.
pub fn date(since_epoch: Duration) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + since_epoch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_generation_has_its_header_format() {
        let standing = Standing {
            limit: 12.0,
            remaining: 3.4,
            reset: Duration::from_millis(1500),
            period: Duration::from_secs(60),
        };
        let check = |generation: Generation, expected: &[&str]| {
            let fields = generation.fields(standing, Duration::from_secs(784_111_775));
            let lines: Vec<String> = fields.iter().map(|(n, v)| format!("{n}: {v}")).collect();
            assert_eq!(lines, expected);
        };
        let three = |limit, reset| [limit, "RateLimit-Remaining: 3", reset];
        let date = "RateLimit-Reset: Sun, 06 Nov 1994 08:49:37 GMT";
        check(Polli00, &three("RateLimit-Limit: 12, 12;window=60", date));
        for generation in [Polli02, Ietf03] {
            let limit = "RateLimit-Limit: 12, 12;w=60";
            check(generation, &three(limit, "RateLimit-Reset: 2"));
        }
        check(
            Ietf07,
            &[
                "RateLimit: limit=12, remaining=3, reset=2",
                "RateLimit-Policy: 12;w=60",
            ],
        );
        check(
            Ietf10,
            &[
                "RateLimit: \"default\";r=3;t=2",
                "RateLimit-Policy: \"default\";q=12;w=60",
            ],
        );
        check(
            GitLab,
            &three("RateLimit-Limit: 12", "RateLimit-Reset: 784111777"),
        );
        check(
            Discord,
            &[
                "X-RateLimit-Limit: 12",
                "X-RateLimit-Remaining: 3",
                "X-RateLimit-Reset: 784111776.500",
                "X-RateLimit-Reset-After: 1.500",
            ],
        );
    }
}
