//! Stable code and message of a socket's failure.

use std::borrow::Cow;

use crate::crawl::network::ports::NO_PORT;
use crate::crawl::network::room::EXHAUSTED;
use crate::io::NetError;

/// Stable code and message of a socket's failure.
pub fn words(error: NetError) -> (&'static str, Cow<'static, str>) {
    match error {
        NetError::Refused => ("refused", "the connection was refused".into()),
        NetError::Reset => ("reset", "the connection was reset".into()),
        NetError::TimedOut => ("timed_out", "the kernel gave the connection up".into()),
        NetError::NoRoute => ("unreachable", "no route leads there".into()),
        NetError::Unreachable => ("unreachable", "the host cannot be reached".into()),
        NetError::Exhausted => (
            EXHAUSTED,
            "our machine has no socket or memory to give".into(),
        ),
        NetError::NoPort => (NO_PORT, "our machine has no local port left".into()),
        NetError::Other(errno) => (
            "other",
            format!("{}", std::io::Error::from_raw_os_error(errno)).into(),
        ),
    }
}

/// The code of a kept connection's death, after which a request is tried once more on a new one.
pub const IDLE_CLOSED: &str = "idle_closed";
