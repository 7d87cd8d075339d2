//! Connections and TLS of the requests that were sent.

use serde::Serialize;

use super::counts::{Counts, Ranking};
use super::line::Line;

/// Counts of requests by connection and TLS.
pub struct ConnectionCounts {
    reuse: Reuse,
    tls: Tls,
    versions: Counts,
    ciphers: Counts,
}

/// Reuse of connections.
#[derive(Clone, Default, Serialize)]
pub struct Reuse {
    /// Requests on a connection that an earlier one had used.
    pub reused: u64,
    /// Requests on a new connection.
    pub new: u64,
    /// Share of `reused` among both; null without requests.
    pub share: Option<f64>,
}

/// TLS.
#[derive(Serialize)]
pub struct Tls {
    /// Requests over TLS, and without.
    pub with_tls: u64,
    pub without_tls: u64,
    /// Handshakes; those that resumed a session.
    pub handshakes: u64,
    pub resumed: u64,
    /// Requests on connections whose certificate was not verified.
    pub unverified: u64,
    /// Requests over TLS by version, and by cipher suite.
    pub versions: Ranking,
    pub ciphers: Ranking,
}

/// Most versions, and cipher suites, that are listed.
const LISTED: usize = 20;

impl ConnectionCounts {
    pub fn new() -> Self {
        let (versions, ciphers) = (Counts::new(), Counts::new());
        ConnectionCounts {
            reuse: Reuse::default(),
            tls: Tls {
                with_tls: 0,
                without_tls: 0,
                handshakes: 0,
                resumed: 0,
                unverified: 0,
                versions: versions.ranked(0),
                ciphers: ciphers.ranked(0),
            },
            versions,
            ciphers,
        }
    }

    pub fn add(&mut self, line: &Line<'_>) {
        if line.sent.is_none() {
            return;
        }
        match line.reused {
            true => self.reuse.reused += 1,
            false => self.reuse.new += 1,
        }
        let Some(tls) = &line.tls else {
            self.tls.without_tls += 1;
            return;
        };
        self.tls.with_tls += 1;
        if line.tls_handshake.is_some() {
            self.tls.handshakes += 1;
            self.tls.resumed += u64::from(tls.resumed);
        }
        self.tls.unverified += u64::from(!tls.verified);
        self.versions.add(&tls.version.0, line.bytes_wire);
        self.ciphers.add(&tls.cipher.0, line.bytes_wire);
    }

    pub fn finished(self) -> (Reuse, Tls) {
        let all = self.reuse.reused + self.reuse.new;
        let share = (all > 0).then(|| self.reuse.reused as f64 / all as f64);
        let reuse = Reuse {
            share,
            ..self.reuse
        };
        let tls = Tls {
            versions: self.versions.ranked(LISTED),
            ciphers: self.ciphers.ranked(LISTED),
            ..self.tls
        };
        (reuse, tls)
    }
}
