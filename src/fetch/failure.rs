//! Ways in which an attempt can fail: faults of the web, as data for the sink.

use std::borrow::Cow;
use std::fmt;

use crate::base::sentence::debug_as_sentence;

/// Why an attempt failed: a kind, a stable code, and a description.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The kind; `error.kind` of a result line.
    pub kind: FailureKind,
    /// Stable name within the kind: `nxdomain` of `dns.nxdomain`.
    pub name: &'static str,
    /// Human-readable description of what was observed.
    pub detail: Cow<'static, str>,
}

debug_as_sentence!(Failure);

impl Failure {
    /// A failure of this kind, with one of its stable names.
    ///
    /// # Panics
    /// In a debug build, if [`FailureKind`] does not list the code for this kind.
    pub fn new(
        kind: FailureKind,
        name: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        debug_assert!(
            kind.codes().contains(&name),
            "FailureKind::codes must list each code, and {kind}.{name} is missing"
        );
        Failure {
            kind,
            name,
            detail: detail.into(),
        }
    }

    /// Returns whether `name` matches this failure: its kind (`dns`), or kind and code
    /// (`dns.servfail`).
    pub fn is_named(&self, name: &str) -> bool {
        match name.split_once('.') {
            Some((kind, code)) => kind == self.kind.as_str() && code == self.name,
            None => name == self.kind.as_str(),
        }
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// The stable code as in `error.code` of a result line: `dns.nxdomain`.
    pub fn code(&self) -> String {
        format!("{}.{}", self.kind.as_str(), self.name)
    }

    /// Returns whether the same request may succeed if it is made later, as far as the failure
    /// shows. `RETRY_EXCEPTIONS` decides what the crawl itself retries; this also includes faults
    /// that take longer to mend: an unreachable robots.txt, a host that is down, a stopped crawl.
    pub fn is_retryable(&self) -> bool {
        match self.kind {
            FailureKind::Connect
            | FailureKind::Timeout
            | FailureKind::Reset
            | FailureKind::Truncated
            | FailureKind::HostDown => true,
            FailureKind::Dns => matches!(self.name, "timeout" | "servfail"),
            FailureKind::Robots => self.name == "unreachable",
            FailureKind::Cancelled => self.name == "stopped",
            FailureKind::Internal
            | FailureKind::Tls
            | FailureKind::Protocol
            | FailureKind::TooLarge
            | FailureKind::ContentEncoding
            | FailureKind::Redirect
            | FailureKind::BlockedAddress
            | FailureKind::Filtered => false,
        }
    }

    /// Returns whether no connection was established because there was no address or no host that
    /// accepted it: a fault of the host or the network, independent of the request. Names that do
    /// not exist and shortages of this machine are not included.
    pub fn is_unconnected(&self) -> bool {
        match self.kind {
            FailureKind::Connect => matches!(
                self.name,
                "refused" | "unreachable" | "reset" | "timed_out" | "other" | "proxy_unreachable"
            ),
            FailureKind::Timeout => self.name == "connect",
            FailureKind::Dns => {
                matches!(self.name, "timeout" | "servfail" | "refused" | "malformed")
            }
            _ => false,
        }
    }

    /// Returns whether no byte of an answer arrived, with or without a connection. A failed TLS
    /// handshake is an answer; `idle_closed` does not count against the host.
    pub fn is_unanswered(&self) -> bool {
        match self.kind {
            FailureKind::Connect => self.is_unconnected() || self.name == "closed",
            FailureKind::Dns => self.is_unconnected(),
            FailureKind::Timeout => true,
            FailureKind::Reset => self.name != "idle_closed",
            FailureKind::Truncated => matches!(self.name, "head" | "no_reply"),
            _ => false,
        }
    }

    /// Returns whether another crawl should fetch the URL of this failure: this crawl stopped
    /// (`cancelled.stopped`), and neither the web nor a user caused the failure.
    pub fn should_requeue(&self) -> bool {
        self.is_named("cancelled.stopped")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}: {}", self.kind.as_str(), self.name, self.detail)
    }
}

/// The kinds of failures, as named in result lines and in `BACKOFF_EXCEPTIONS`. The codes of each
/// kind are listed below it and are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FailureKind {
    /// The name could not be resolved.
    ///
    /// `nxdomain`: the name does not exist. `nodata`: it has no address. `servfail`, `refused`,
    /// `timeout`, `malformed`: results of the name servers. `cname_loop`, `name_invalid`;
    /// `no_servers`: no name server is known.
    Dns,
    /// The connection could not be established.
    ///
    /// `refused`, `unreachable`, `reset`, `closed`; `timed_out`, by the kernel; `no_port`,
    /// `exhausted`: this machine has no port or socket left; `other`. By a proxy: `proxy_auth`,
    /// `proxy_refused`, `proxy_unreachable`, `proxy_protocol`, `proxy_closed`.
    Connect,
    /// The certificate or the TLS handshake failed.
    ///
    /// Certificate: `untrusted`, `expired`, `not_yet_valid`, `name_mismatch`, `revoked`,
    /// `bad_certificate`. Handshake: `handshake` (nothing in common), `alpn`, `unrecognized_name`,
    /// `client_certificate` (the server requires ours), `alert`, `protocol`, `closed`, `name`,
    /// `internal`.
    Tls,
    /// A phase exceeded its timeout.
    ///
    /// `connect`, `tls`, `first_byte`, `idle`, `rate` (`DOWNLOAD_MIN_RATE`); `total`: the whole
    /// fetch, by `DOWNLOAD_TIMEOUT` or the request's own timeout, after a connection was
    /// established, or before that if the request's own timeout is shorter than a connection needs;
    /// `proxy`: its tunnel; `dns`: the same as `total`, of a request to a watched target of a probe
    /// that waited for a name server.
    Timeout,
    /// The connection was reset.
    ///
    /// `reset`, `timed_out`, `unreachable`, `other`; `exhausted`: this machine has no memory left for
    /// it; `idle_closed`: a kept connection was closed during the request.
    Reset,
    /// The body ended before the end given by its framing.
    ///
    /// `body`, `chunks`; `head`, `no_reply`: before the body; `close_notify`: the body may have
    /// been cut on the way.
    Truncated,
    /// The reply is not valid HTTP.
    ///
    /// `not_http`, `version`, `status`, `header`, `content_length`, `transfer_encoding`,
    /// `chunk_size`, `chunk_end`, `switching_protocols`; `unsolicited`: bytes before the request.
    Protocol,
    /// The head is larger than its limits.
    ///
    /// `status_line`, `header_line`, `header_lines`, `head`, `chunk_extras`, `interim`.
    TooLarge,
    /// The content coding is broken, unknown, or a decompression bomb.
    ///
    /// `unknown`, `broken`, `truncated`, `bomb`, `window`, `too_many`; `absent`: this build lacks
    /// its feature.
    ContentEncoding,
    /// A redirect to an invalid URL, in a loop, or beyond the limit.
    ///
    /// `invalid`, `loop`, `limit`.
    Redirect,
    /// robots.txt forbids the URL, or is unavailable.
    ///
    /// `disallowed`, `unreachable`.
    Robots,
    /// The address is not globally routable and was not allowed.
    ///
    /// `not_global`.
    BlockedAddress,
    /// The crawl gave up on the host after too many failures.
    ///
    /// `gave_up`.
    HostDown,
    /// A filter rejected the request after it was admitted.
    ///
    /// The [name](crate::Filtered::as_str) of the filter; `excluded_address`: the host has an address
    /// in `EXCLUDE`; `over_quota`: the request costs more than its whole quota; `no_contact`: the host
    /// is a public one beyond the tenth, and `CONTACT` is not set; `robots_ignored`: it is one beyond
    /// `ROBOTSTXT_IGNORED_HOSTS_MAX`, and robots.txt is not obeyed.
    Filtered,
    /// The request was cancelled.
    ///
    /// `stopped`: the crawl was stopped. `outcome_unknown`: the request is not idempotent, and the crawl
    /// ended after it may have been sent; it is not sent again. `asked`: by [`Handle::cancel`](crate::Handle::cancel).
    /// `by_sink`: by [`BodyMode::Cancel`](crate::BodyMode::Cancel).
    Cancelled,
    /// A fault of Argiope's: the page has no links, and no body if that was not decoded yet.
    ///
    /// `panic`: in a helper thread (`WORKERS`).
    Internal,
}

impl FailureKind {
    /// All kinds, in the order of INTERFACE.
    pub const ALL: [FailureKind; 16] = [
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
        FailureKind::Internal,
    ];

    /// The name in result lines and settings.
    pub const fn as_str(self) -> &'static str {
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
            FailureKind::Internal => "internal",
        }
    }

    /// All codes of this kind: documented for users in `docs/reference/errors.md`.
    pub(crate) const fn codes(self) -> &'static [&'static str] {
        match self {
            FailureKind::Dns => &[
                "nxdomain",
                "nodata",
                "servfail",
                "refused",
                "timeout",
                "malformed",
                "cname_loop",
                "name_invalid",
                "no_servers",
            ],
            FailureKind::Connect => &[
                "refused",
                "unreachable",
                "reset",
                "closed",
                "timed_out",
                "no_port",
                "exhausted",
                "other",
                "proxy_auth",
                "proxy_refused",
                "proxy_unreachable",
                "proxy_protocol",
                "proxy_closed",
            ],
            FailureKind::Tls => &[
                "untrusted",
                "expired",
                "not_yet_valid",
                "name_mismatch",
                "revoked",
                "bad_certificate",
                "handshake",
                "alpn",
                "unrecognized_name",
                "client_certificate",
                "alert",
                "protocol",
                "closed",
                "name",
                "internal",
            ],
            FailureKind::Timeout => &[
                "connect",
                "proxy",
                "tls",
                "first_byte",
                "idle",
                "rate",
                "total",
                "dns",
            ],
            FailureKind::Reset => &[
                "reset",
                "timed_out",
                "unreachable",
                "exhausted",
                "other",
                "idle_closed",
            ],
            FailureKind::Truncated => &["body", "chunks", "head", "no_reply", "close_notify"],
            FailureKind::Protocol => &[
                "not_http",
                "version",
                "status",
                "header",
                "content_length",
                "transfer_encoding",
                "chunk_size",
                "chunk_end",
                "switching_protocols",
                "unsolicited",
            ],
            FailureKind::TooLarge => &[
                "status_line",
                "header_line",
                "header_lines",
                "head",
                "chunk_extras",
                "interim",
            ],
            FailureKind::ContentEncoding => &[
                "unknown",
                "broken",
                "truncated",
                "bomb",
                "window",
                "too_many",
                "absent",
            ],
            FailureKind::Redirect => &["invalid", "loop", "limit"],
            FailureKind::Robots => &["disallowed", "unreachable"],
            FailureKind::BlockedAddress => &["not_global"],
            FailureKind::HostDown => &["gave_up"],
            FailureKind::Filtered => &[
                "duplicate",
                "url_length",
                "depth",
                "path_repeat",
                "offsite",
                "not_allowed",
                "denied",
                "excluded",
                "excluded_address",
                "max_pages_per_host",
                "max_pages_per_domain",
                "max_bytes_per_domain",
                "frontier_full",
                "links_per_page",
                "sitemap_depth",
                "max_sitemaps_per_host",
                "over_quota",
                "no_contact",
                "robots_ignored",
            ],
            FailureKind::Cancelled => &["stopped", "outcome_unknown", "asked", "by_sink"],
            FailureKind::Internal => &["panic"],
        }
    }

    /// The kind with this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why a kept body is incomplete: `truncated` of a result line and `WARC-Truncated`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Truncation {
    /// Cut at `DOWNLOAD_MAXSIZE` and kept; not an error.
    Length,
    /// A timeout expired.
    Time,
    /// The connection ended.
    Disconnect,
}

impl Truncation {
    /// The name in the WARC specification.
    pub const fn as_str(self) -> &'static str {
        match self {
            Truncation::Length => "length",
            Truncation::Time => "time",
            Truncation::Disconnect => "disconnect",
        }
    }
}

impl fmt::Display for Truncation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_from_stopping_the_crawl_are_given_to_another_crawl() {
        let again = |kind, code| Failure::new(kind, code, "").should_requeue();
        assert!(again(FailureKind::Cancelled, "stopped"));
        assert!(!again(FailureKind::Cancelled, "asked"));
        assert!(!again(FailureKind::Cancelled, "by_sink"));
        assert!(!again(FailureKind::Timeout, "total"));
        assert!(!again(FailureKind::HostDown, "gave_up"));
    }
}
