//! Tunnels through a proxy: the exchange with the proxy between TCP and the tunnelled protocol.

mod connect;
mod socks5;

use connect::Connect;
use socks5::Socks5;

use super::failure::{Failure, FailureKind};
use crate::wire::proxy::{Protocol, Proxy};
use crate::wire::url::CrawlUrl;

/// A tunnel to one origin, requested from a proxy before anything else is sent.
///
/// Nothing is sent before the proxy's last answer, and no byte after it is consumed: these belong
/// to the origin.
#[derive(Debug)]
pub enum Tunnel {
    /// Through an HTTP proxy.
    Connect(Connect),
    /// Through a SOCKS5 proxy.
    Socks5(Socks5),
}

impl Tunnel {
    /// The tunnel needed to fetch this URL through this proxy. `None` if the proxy forwards the
    /// request itself.
    ///
    /// # Errors
    /// The host name is too long for the protocol.
    pub fn new(proxy: &Proxy, url: &CrawlUrl) -> Result<Option<Self>, Failure> {
        Ok(match proxy.protocol() {
            Protocol::Http if proxy.forwards(url) => None,
            Protocol::Http => Some(Tunnel::Connect(Connect::new(proxy, url))),
            Protocol::Socks5 => Some(Tunnel::Socks5(Socks5::new(proxy, url)?)),
        })
    }

    /// Appends the bytes to send to `out`.
    pub fn take_output(&mut self, out: &mut Vec<u8>) {
        let waiting = match self {
            Tunnel::Connect(connect) => &mut connect.out,
            Tunnel::Socks5(socks) => &mut socks.out,
        };
        out.append(waiting);
    }

    /// Consumes the proxy's bytes. Returns `true` when the tunnel is open: the rest of `input` came
    /// through it.
    ///
    /// # Errors
    /// The tunnel cannot be opened.
    pub fn handle_bytes(&mut self, input: &mut &[u8]) -> Result<bool, Failure> {
        match self {
            Tunnel::Connect(connect) => connect.read(input),
            Tunnel::Socks5(socks) => socks.read(input),
        }
    }
}

/// The proxy refuses.
fn refused(detail: String) -> Failure {
    Failure::new(FailureKind::Connect, "proxy_refused", detail)
}

/// The proxy cannot reach the origin.
fn unreachable(detail: String) -> Failure {
    Failure::new(FailureKind::Connect, UNREACHABLE, detail)
}

/// The proxy requires credentials, or rejects those given.
pub(super) fn unauthorized(detail: &'static str) -> Failure {
    Failure::new(FailureKind::Connect, "proxy_auth", detail)
}

/// The peer is not a proxy of this protocol.
fn protocol(detail: String) -> Failure {
    Failure::new(FailureKind::Connect, "proxy_protocol", detail)
}

/// The code of a tunnel whose proxy could not reach the origin.
pub const UNREACHABLE: &str = "proxy_unreachable";

#[cfg(test)]
mod testing {
    use super::*;

    /// Runs a tunnel whose proxy sends these answers. Returns all that was sent to it, and the
    /// bytes after its last answer, or the code of the failure.
    pub fn run(
        tunnel: &mut Tunnel,
        answers: &[&[u8]],
        step: usize,
    ) -> (Vec<u8>, Result<Option<Vec<u8>>, String>) {
        let mut sent = Vec::new();
        tunnel.take_output(&mut sent);
        for answer in answers {
            for at in (0..answer.len()).step_by(step) {
                let (now, later) = answer[at..].split_at(step.min(answer.len() - at));
                let mut input = now;
                let came = tunnel.handle_bytes(&mut input);
                tunnel.take_output(&mut sent);
                match came {
                    Ok(true) => return (sent, Ok(Some([input, later].concat()))),
                    Ok(false) => assert!(
                        input.is_empty(),
                        "an incomplete answer is consumed and stored"
                    ),
                    Err(failure) => {
                        assert_eq!(failure.kind, FailureKind::Connect);
                        assert!(!failure.detail.is_empty());
                        return (sent, Err(failure.name.to_owned()));
                    }
                }
            }
        }
        (sent, Ok(None))
    }

    pub fn tunnel(proxy: &str, url: &str) -> Option<Tunnel> {
        let proxy: Proxy = proxy.parse().expect("a proxy");
        let url = CrawlUrl::parse(url).expect("a URL");
        Tunnel::new(&proxy, &url).expect("a host that fits the protocol")
    }
}
