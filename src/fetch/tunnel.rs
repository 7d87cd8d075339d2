//! A way through a proxy: what is said to it between TCP and whatever the tunnel carries.

mod connect;
mod socks5;

use connect::Connect;
use socks5::Socks5;

use super::failure::{Failure, FailureKind};
use crate::wire::proxy::{Protocol, Proxy};
use crate::wire::url::CrawlUrl;

/// A tunnel that a proxy is asked for: to one origin, before anything else is sent.
///
/// Nothing is sent ahead of the proxy's last word, and nothing beyond it is read: what follows
/// belongs to the origin.
#[derive(Debug)]
pub enum Tunnel {
    /// Through an HTTP proxy.
    Connect(Connect),
    /// Through a SOCKS5 proxy.
    Socks5(Socks5),
}

impl Tunnel {
    /// The tunnel that this proxy must be asked for to fetch this URL. None where the proxy is asked
    /// for the URL itself.
    ///
    /// # Errors
    /// The host's name is too long to be said.
    pub fn new(proxy: &Proxy, url: &CrawlUrl) -> Result<Option<Self>, Failure> {
        Ok(match proxy.protocol() {
            Protocol::Http if proxy.forwards(url) => None,
            Protocol::Http => Some(Tunnel::Connect(Connect::new(proxy, url))),
            Protocol::Socks5 => Some(Tunnel::Socks5(Socks5::new(proxy, url)?)),
        })
    }

    /// Appends what is to be sent to `out`.
    pub fn take_output(&mut self, out: &mut Vec<u8>) {
        let waiting = match self {
            Tunnel::Connect(connect) => &mut connect.out,
            Tunnel::Socks5(socks) => &mut socks.out,
        };
        out.append(waiting);
    }

    /// Takes the proxy's bytes. True when the tunnel stands: the rest of `input` came through it.
    ///
    /// # Errors
    /// There will be no tunnel.
    pub fn handle_bytes(&mut self, input: &mut &[u8]) -> Result<bool, Failure> {
        match self {
            Tunnel::Connect(connect) => connect.read(input),
            Tunnel::Socks5(socks) => socks.read(input),
        }
    }
}

/// The proxy will not.
fn refused(detail: String) -> Failure {
    Failure::new(FailureKind::Connect, "proxy_refused", detail)
}

/// The proxy would, but cannot reach the origin.
fn unreachable(detail: String) -> Failure {
    Failure::new(FailureKind::Connect, UNREACHABLE, detail)
}

/// The proxy wants credentials, or others.
pub(super) fn unauthorized(detail: &'static str) -> Failure {
    Failure::new(FailureKind::Connect, "proxy_auth", detail)
}

/// It is no proxy, or not of this protocol.
fn protocol(detail: String) -> Failure {
    Failure::new(FailureKind::Connect, "proxy_protocol", detail)
}

/// The code of a tunnel whose far end the proxy could not reach.
pub const UNREACHABLE: &str = "proxy_unreachable";

#[cfg(test)]
mod testing {
    use super::*;

    /// What came of a tunnel whose proxy says all this, one answer after the other: what was said to
    /// it, and what followed its last word, or the code of the failure.
    pub fn run(
        tunnel: &mut Tunnel,
        answers: &[&[u8]],
        step: usize,
    ) -> (Vec<u8>, Result<Option<Vec<u8>>, String>) {
        let mut said = Vec::new();
        tunnel.take_output(&mut said);
        for answer in answers {
            for at in (0..answer.len()).step_by(step) {
                let (now, later) = answer[at..].split_at(step.min(answer.len() - at));
                let mut input = now;
                let came = tunnel.handle_bytes(&mut input);
                tunnel.take_output(&mut said);
                match came {
                    Ok(true) => return (said, Ok(Some([input, later].concat()))),
                    Ok(false) => assert!(input.is_empty(), "what is not whole yet is kept"),
                    Err(failure) => {
                        assert_eq!(failure.kind, FailureKind::Connect);
                        assert!(!failure.detail.is_empty());
                        return (said, Err(failure.code.to_owned()));
                    }
                }
            }
        }
        (said, Ok(None))
    }

    pub fn tunnel(proxy: &str, url: &str) -> Option<Tunnel> {
        let proxy: Proxy = proxy.parse().expect("a proxy");
        let url = CrawlUrl::parse(url).expect("a URL");
        Tunnel::new(&proxy, &url).expect("a host that can be said")
    }
}
