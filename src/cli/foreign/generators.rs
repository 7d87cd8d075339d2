//! Flags of load generators for `probe`. A test parses each cure.

use super::{EVERY_SECOND, Foreign};

const PROBE: &[&str] = &["probe"];

/// In the order of what they are about.
pub(super) const ROWS: &[Foreign] = &[
    Foreign {
        commands: PROBE,
        flags: &["--count", "--number", "-n"],
        cure: "for the number of requests write --requests N",
        tries: &["--requests 100"],
    },
    Foreign {
        commands: PROBE,
        flags: &["--concurrency", "--threads", "--workers", "-c", "-t"],
        cure: "requests leave at a rate, whatever the replies: write --rate RATE, and --connections N as a bound",
        tries: &["--rate 100", "--connections 50"],
    },
    Foreign {
        commands: PROBE,
        flags: &["--qps", "--rps", "-q"],
        cure: "for the requests per second write --rate N",
        tries: &["--rate 100"],
    },
    Foreign {
        commands: PROBE,
        flags: &["--interval", "--delay", "--wait", "-i"],
        cure: EVERY_SECOND,
        tries: &["--rate 1", "--rate 0.5"],
    },
    Foreign {
        commands: PROBE,
        flags: &["--time", "-d", "-z"],
        cure: "for the length of the measurement write --duration D",
        tries: &["--duration 30s"],
    },
];
