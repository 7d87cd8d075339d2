//! Who may read and who may change a crawl.

use std::net::{IpAddr, SocketAddr};

use crate::admin::response::Response;
use crate::wire::http::InboundRequest;

/// How a client reached the control interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// By the socket in the crawl's directory: its file's permissions have admitted the client.
    Unix {
        /// The client's user.
        uid: u32,
    },
    /// By TCP, from this address.
    Tcp {
        /// The client's.
        from: SocketAddr,
    },
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    /// Answered to anybody who can connect: liveness.
    None,
    /// It reads the crawl's state.
    Read,
    /// It changes the crawl.
    Change,
}

/// The rules of access by TCP.
#[derive(Clone, Default)]
pub struct Access {
    /// The token that allows everything.
    token: Option<Vec<u8>>,
}

impl Access {
    /// Access with this token. Without one, nothing may be changed by TCP.
    pub fn new(token: Option<Vec<u8>>) -> Self {
        Access { token }
    }

    /// Whether a request may do this: `Err` has the reply otherwise.
    ///
    /// By the Unix socket everything is allowed. By TCP a change needs the token, and so does reading unless the
    /// client is on this machine and no proxy. Without a token the Host field must name an IP address or
    /// `localhost`: a page whose name was bound to our address (DNS rebinding) has another name there.
    pub fn check(
        &self,
        request: &InboundRequest,
        via: Via,
        wants: Permission,
    ) -> Result<(), Response> {
        let Via::Tcp { from } = via else {
            return Ok(());
        };
        match self.authorization(request) {
            Some(true) => return Ok(()),
            Some(false) => {
                return Err(unauthorized("the token is not that of --admin-token-file"));
            }
            None => {}
        }
        if !names_an_address(request) {
            return Err(Response::error(
                421,
                "the Host field must name an IP address or localhost, unless the request has the token",
            ));
        }
        let is_local = from.ip().to_canonical().is_loopback() && !is_forwarded(request);
        match wants {
            Permission::None => Ok(()),
            Permission::Read if is_local => Ok(()),
            Permission::Change if self.token.is_none() => Err(Response::error(
                403,
                "changes need --admin-token-file; the socket control.sock in the crawl's directory needs no token",
            )),
            Permission::Read | Permission::Change => Err(unauthorized(
                "the request needs the token of --admin-token-file: Authorization: Bearer TOKEN",
            )),
        }
    }

    /// Whether the request has the token; `None` if it has none at all.
    fn authorization(&self, request: &InboundRequest) -> Option<bool> {
        let value = request.headers.get("authorization")?;
        let (scheme, given) = value.split_at_checked(7)?;
        if !scheme.eq_ignore_ascii_case(b"bearer ") {
            return Some(false);
        }
        let token = self.token.as_deref().unwrap_or_default();
        Some(!token.is_empty() && equal(token, given.trim_ascii()))
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Access")
    }
}

fn unauthorized(message: &str) -> Response {
    Response::error(401, message).with("WWW-Authenticate", "Bearer")
}

/// Whether a proxy says that it forwards the request of somebody else.
fn is_forwarded(request: &InboundRequest) -> bool {
    let fields = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];
    fields
        .iter()
        .any(|name| request.headers.get(name).is_some())
}

/// Compares in a time that depends on the lengths only.
fn equal(token: &[u8], given: &[u8]) -> bool {
    let length = token.len() ^ given.len();
    let both = token.iter().zip(given);
    let different = both.fold(length, |all, (a, b)| all | usize::from(a ^ b));
    std::hint::black_box(different) == 0
}

/// Whether there is one Host field, with an IP address or `localhost`, with or without a port.
fn names_an_address(request: &InboundRequest) -> bool {
    let mut hosts = request.headers.get_all("host");
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return false;
    };
    let Ok(host) = std::str::from_utf8(host) else {
        return false;
    };
    if host.parse::<SocketAddr>().is_ok() || host.parse::<IpAddr>().is_ok() {
        return true;
    }
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    if bare.is_some_and(|bare| bare.parse::<IpAddr>().is_ok()) {
        return true;
    }
    let (name, port) = host.split_once(':').unwrap_or((host, "0"));
    name.eq_ignore_ascii_case("localhost") && port.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::http::InboundReader;

    const LOCAL: &str = "127.0.0.1:8080";

    /// The status of the refusal of a request with these fields; `None` if it is allowed.
    fn check(access: &Access, fields: &str, from: &str, wants: Permission) -> Option<u16> {
        let from = from.parse().expect("an address");
        let head = format!("GET / HTTP/1.1\r\n{fields}\r\n");
        let request = InboundReader::default().read(&mut head.as_bytes());
        let request = request.expect("it is sound").expect("it is complete");
        let checked = access.check(&request, Via::Tcp { from }, wants);
        checked.err().map(|response| response.status)
    }

    fn with_token() -> Access {
        Access::new(Some(b"secret".to_vec()))
    }

    const HOST: &str = "Host: 127.0.0.1:8080\r\n";
    const TOKEN: &str = "Host: crawl.example\r\nAuthorization: Bearer secret\r\n";
    const WRONG: &str = "Host: 127.0.0.1\r\nAuthorization: Bearer secrets\r\n";

    #[test]
    fn anything_is_allowed_by_the_unix_socket() {
        let request = InboundRequest::default();
        let via = Via::Unix { uid: 1000 };
        let checked = with_token().check(&request, via, Permission::Change);
        assert_eq!(checked, Ok(()));
    }

    #[test]
    fn a_change_by_tcp_needs_the_token() {
        let change = |access: &Access, fields| check(access, fields, LOCAL, Permission::Change);
        assert_eq!(change(&Access::default(), HOST), Some(403));
        assert_eq!(change(&Access::default(), TOKEN), Some(401));
        assert_eq!(change(&with_token(), HOST), Some(401));
        assert_eq!(change(&with_token(), WRONG), Some(401));
        assert_eq!(change(&with_token(), TOKEN), None);
        let basic = "Host: 127.0.0.1\r\nAuthorization: Basic secret\r\n";
        assert_eq!(change(&with_token(), basic), Some(401));
    }

    #[test]
    fn reading_needs_the_token_unless_the_client_is_on_this_machine() {
        let read = |from, fields: &str| check(&with_token(), fields, from, Permission::Read);
        assert_eq!(read(LOCAL, HOST), None);
        assert_eq!(read("[::1]:5", "Host: [::1]:80\r\n"), None);
        assert_eq!(read("[::ffff:127.0.0.1]:5", HOST), None);
        assert_eq!(read("192.0.2.1:5", HOST), Some(401));
        assert_eq!(read("192.0.2.1:5", TOKEN), None);
        let alive = check(&with_token(), HOST, "192.0.2.1:5", Permission::None);
        assert_eq!(alive, None);
        // A proxy on this machine serves others.
        for field in [
            "X-Forwarded-For: 192.0.2.1",
            "Via: 1.1 proxy",
            "Forwarded: for=192.0.2.1",
        ] {
            let fields = format!("{HOST}{field}\r\n");
            assert_eq!(read(LOCAL, &fields), Some(401), "{field}");
        }
    }

    #[test]
    fn a_name_that_was_bound_to_our_address_is_refused() {
        let read = |fields: &str| check(&Access::default(), fields, LOCAL, Permission::Read);
        assert_eq!(read("Host: evil.example:8080\r\n"), Some(421));
        assert_eq!(read("Host: localhost.evil.example\r\n"), Some(421));
        assert_eq!(read(""), Some(421));
        assert_eq!(read("Host: localhost\r\nHost: evil.example\r\n"), Some(421));
        for host in [
            "localhost:8080",
            "LOCALHOST",
            "127.0.0.1",
            "[::1]",
            "10.0.0.1:80",
        ] {
            let fields = format!("Host: {host}\r\n");
            assert_eq!(read(&fields), None, "{host}");
        }
    }
}
