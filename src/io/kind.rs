//! Kinds of back ends.

use std::fmt;

/// The back end that a crawl runs on: `io` of `stats.json`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IoKind {
    /// epoll.
    #[default]
    Epoll,
    /// io_uring.
    Uring,
    /// The [simulated web](crate::sim), in virtual time.
    Simulated,
}

impl IoKind {
    /// The name in files: `epoll`, `uring` or `simulated`.
    pub const fn as_str(self) -> &'static str {
        match self {
            IoKind::Epoll => "epoll",
            IoKind::Uring => "uring",
            IoKind::Simulated => "simulated",
        }
    }
}

impl fmt::Display for IoKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
