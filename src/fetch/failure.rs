//! How an attempt can fail: the web's faults, as data for the sink.

use std::borrow::Cow;
use std::fmt;

/// Why an attempt failed: a kind, a stable code below it, and words for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The family; `error.kind` of a result line.
    pub kind: FailureKind,
    /// Stable name within the family, without its prefix: `nxdomain` of `dns.nxdomain`.
    pub code: &'static str,
    /// What exactly was seen, for a person.
    pub detail: Cow<'static, str>,
}

impl Failure {
    /// A failure of a kind, under a stable code.
    pub fn new(
        kind: FailureKind,
        code: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Failure {
            kind,
            code,
            detail: detail.into(),
        }
    }

    /// Whether `name` means this failure: its kind (`dns`), or kind and code (`dns.servfail`).
    pub fn is_named(&self, name: &str) -> bool {
        match name.split_once('.') {
            Some((kind, code)) => kind == self.kind.name() && code == self.code,
            None => name == self.kind.name(),
        }
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// Its stable name, as `error.code` of a result line has it: `dns.nxdomain`.
    pub fn code(&self) -> String {
        format!("{}.{}", self.kind.name(), self.code)
    }

    /// Whether the same request may end otherwise when it is made later, as far as this tells. What
    /// the crawl itself tries again `RETRY_EXCEPTIONS` says; here belongs also what takes longer to
    /// mend: an unreachable robots.txt, a host that is down, a stopped crawl.
    pub fn is_retryable(&self) -> bool {
        match self.kind {
            FailureKind::Connect
            | FailureKind::Timeout
            | FailureKind::Reset
            | FailureKind::Truncated
            | FailureKind::HostDown => true,
            FailureKind::Dns => matches!(self.code, "timeout" | "servfail"),
            FailureKind::Robots => self.code == "unreachable",
            FailureKind::Cancelled => self.code == "stopped",
            FailureKind::Tls
            | FailureKind::Protocol
            | FailureKind::TooLarge
            | FailureKind::ContentEncoding
            | FailureKind::Redirect
            | FailureKind::BlockedAddress
            | FailureKind::Filtered => false,
        }
    }

    /// Whether no connection came to be, for want of an address or of a host that accepts one: a fault of
    /// the host or of the network, and nothing that a request asked for. Names that do not exist and what
    /// our own machine lacks are none.
    pub fn is_unconnected(&self) -> bool {
        match self.kind {
            FailureKind::Connect => matches!(
                self.code,
                "refused" | "unreachable" | "reset" | "timed_out" | "other" | "proxy_unreachable"
            ),
            FailureKind::Timeout => self.code == "connect",
            FailureKind::Dns => {
                matches!(self.code, "timeout" | "servfail" | "refused" | "malformed")
            }
            _ => false,
        }
    }

    /// Whether no byte of an answer came, with or without a connection. A failed TLS handshake is an
    /// answer; `idle_closed` does not count against the host.
    pub fn is_unanswered(&self) -> bool {
        match self.kind {
            FailureKind::Connect => self.is_unconnected() || self.code == "closed",
            FailureKind::Dns => self.is_unconnected(),
            FailureKind::Timeout => true,
            FailureKind::Reset => self.code != "idle_closed",
            FailureKind::Truncated => matches!(self.code, "head" | "no_reply"),
            _ => false,
        }
    }

    /// Whether another crawl should have what ended so: it was we who ended it (`cancelled.stopped`), and
    /// neither the web nor an order.
    pub fn is_to_be_given_again(&self) -> bool {
        self.is_named("cancelled.stopped")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}: {}", self.kind.name(), self.code, self.detail)
    }
}

/// The families of failures, as they stand in result lines and in `BACKOFF_EXCEPTIONS`.
/// Below each stand its codes, which are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FailureKind {
    /// The name could not be resolved.
    ///
    /// `nxdomain`: there is no such name. `nodata`: it has no address. `servfail`, `refused`, `timeout`,
    /// `malformed`: so went the name servers. `cname_loop`, `name_invalid`; `no_servers`: none is known.
    Dns,
    /// No connection.
    ///
    /// `refused`, `unreachable`, `reset`, `closed`; `timed_out`, by the kernel; `no_port`, `exhausted`: our
    /// machine has none to give; `other`. By a proxy: `proxy_auth`, `proxy_refused`, `proxy_unreachable`,
    /// `proxy_protocol`, `proxy_closed`.
    Connect,
    /// No trust or no handshake.
    ///
    /// The certificate: `untrusted`, `expired`, `not_yet_valid`, `name_mismatch`, `revoked`,
    /// `bad_certificate`. The handshake: `handshake` (nothing in common), `alpn`, `unrecognized_name`,
    /// `client_certificate` (it wants ours), `alert`, `protocol`, `closed`, `name`, `internal`.
    Tls,
    /// A phase took longer than it may.
    ///
    /// `connect`, `tls`, `first_byte`, `idle`, `rate` (`DOWNLOAD_MIN_RATE`); `total`: the whole fetch, by
    /// `DOWNLOAD_TIMEOUT` or the request's own, once there is a connection, or before that where the
    /// request's own is less than what a connection needs; `proxy`: its tunnel.
    Timeout,
    /// The connection was reset.
    ///
    /// `reset`, `timed_out`, `unreachable`, `other`; `idle_closed`: a kept connection ended under the request.
    Reset,
    /// The body ended before its framing said so.
    ///
    /// `body`, `chunks`; `head`, `no_reply`: before that; `close_notify`: it may have been cut by somebody on
    /// the way.
    Truncated,
    /// What came is not HTTP as anyone reads it.
    ///
    /// `not_http`, `version`, `status`, `header`, `content_length`, `transfer_encoding`, `chunk_size`,
    /// `chunk_end`, `switching_protocols`; `unsolicited`: before it was asked.
    Protocol,
    /// Head larger than its limits.
    ///
    /// `status_line`, `header_line`, `header_lines`, `head`, `chunk_extras`, `interim`.
    TooLarge,
    /// The content coding is broken, unknown, or a bomb.
    ///
    /// `unknown`, `broken`, `truncated`, `bomb`, `window`, `too_many`; `absent`: this build lacks its feature.
    ContentEncoding,
    /// A redirect that leads nowhere, in a loop, or too far.
    ///
    /// `invalid`, `loop`, `limit`.
    Redirect,
    /// robots.txt forbids it, or cannot be had.
    ///
    /// `disallowed`, `unreachable`.
    Robots,
    /// The address is not globally routable and was not allowed.
    ///
    /// `not_global`.
    BlockedAddress,
    /// The host was given up after failing too often.
    ///
    /// `gave_up`.
    HostDown,
    /// A filter took it out after it was admitted.
    ///
    /// The [name](crate::Filtered::name) of the filter; `excluded_address`: it leads to one of `EXCLUDE`;
    /// `over_quota`: it costs more than its quota ever holds.
    Filtered,
    /// Somebody wanted its end.
    ///
    /// `stopped`: the crawl was. `asked`: [`Handle::cancel`](crate::Handle::cancel) did. `by_sink`:
    /// [`BodyMode::Cancel`](crate::BodyMode::Cancel) did.
    Cancelled,
}

impl FailureKind {
    /// Every kind, in the order of INTERFACE.
    pub const ALL: [FailureKind; 15] = [
        FailureKind::Dns,
        FailureKind::Connect,
        FailureKind::Tls,
        FailureKind::Timeout,
        FailureKind::Reset,
        FailureKind::Truncated,
        FailureKind::Protocol,
        FailureKind::TooLarge,
        FailureKind::ContentEncoding,
        FailureKind::Redirect,
        FailureKind::Robots,
        FailureKind::BlockedAddress,
        FailureKind::HostDown,
        FailureKind::Filtered,
        FailureKind::Cancelled,
    ];

    /// The name in result lines and settings.
    pub const fn name(self) -> &'static str {
        match self {
            FailureKind::Dns => "dns",
            FailureKind::Connect => "connect",
            FailureKind::Tls => "tls",
            FailureKind::Timeout => "timeout",
            FailureKind::Reset => "reset",
            FailureKind::Truncated => "truncated",
            FailureKind::Protocol => "protocol",
            FailureKind::TooLarge => "too_large",
            FailureKind::ContentEncoding => "content_encoding",
            FailureKind::Redirect => "redirect",
            FailureKind::Robots => "robots",
            FailureKind::BlockedAddress => "blocked_address",
            FailureKind::HostDown => "host_down",
            FailureKind::Filtered => "filtered",
            FailureKind::Cancelled => "cancelled",
        }
    }

    /// The kind of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Why a body that is kept is not whole: `truncated` of a result line and `WARC-Truncated`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncation {
    /// Cut at `DOWNLOAD_MAXSIZE` and kept; no error.
    Length,
    /// Its time ran out.
    Time,
    /// The connection ended.
    Disconnect,
}

impl Truncation {
    /// The word of the WARC specification.
    pub const fn name(self) -> &'static str {
        match self {
            Truncation::Length => "length",
            Truncation::Time => "time",
            Truncation::Disconnect => "disconnect",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_crawl_is_given_what_the_end_of_this_one_cut_off_and_nothing_else() {
        let again = |kind, code| Failure::new(kind, code, "").is_to_be_given_again();
        assert!(again(FailureKind::Cancelled, "stopped"));
        assert!(!again(FailureKind::Cancelled, "asked"));
        assert!(!again(FailureKind::Cancelled, "by_sink"));
        assert!(!again(FailureKind::Timeout, "total"));
        assert!(!again(FailureKind::HostDown, "gave_up"));
    }
}
