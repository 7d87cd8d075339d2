//! A tunnel through an HTTP proxy (RFC 9110, section 9.3.6).

use super::{protocol, refused, unauthorized, unreachable};
use crate::fetch::failure::Failure;
use crate::wire::http::{Item, Limits, ResponseReader};
use crate::wire::proxy::Proxy;
use crate::wire::url::CrawlUrl;

/// A CONNECT request and the wait for its reply.
#[derive(Debug)]
pub struct Connect {
    pub(super) out: Vec<u8>,
    reader: ResponseReader,
}

impl Connect {
    pub(super) fn new(proxy: &Proxy, url: &CrawlUrl) -> Self {
        // The port is always included, because there is no scheme to imply it.
        let place = format!("{}:{}", url.host_str(), url.port());
        let mut out = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n");
        if let Some(authorization) = proxy.authorization() {
            out.push_str(&format!("Proxy-Authorization: {authorization}\r\n"));
        }
        out.push_str("\r\n");
        Connect {
            out: out.into_bytes(),
            // A successful reply has no body, whatever its head declares; of any other reply only
            // the head matters.
            reader: ResponseReader::new(true, Limits::default()),
        }
    }

    pub(super) fn read(&mut self, input: &mut &[u8]) -> Result<bool, Failure> {
        let head = loop {
            match self.reader.next(input) {
                Ok(None) => return Ok(false),
                Ok(Some(Item::Head(head))) => break head,
                Ok(Some(_)) => {}
                Err(error) => {
                    return Err(protocol(format!("the proxy does not speak HTTP: {error}")));
                }
            }
        };
        let answered = || {
            let reason = String::from_utf8_lossy(head.reason()).into_owned();
            format!("the proxy answered {} {reason}", head.status)
        };
        match head.status {
            200..=299 => Ok(true),
            407 => Err(unauthorized(
                "the proxy requires credentials or rejected those sent (407)",
            )),
            // The statuses of a gateway that could not reach the origin.
            502..=504 => Err(unreachable(answered())),
            _ => Err(refused(answered())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{run, tunnel};

    const PLAIN: &str = "http://proxy.test:3128";

    /// Asserts the same result for every split of a proxy's answer.
    fn check(answer: &str, expected: Result<Option<&str>, &str>) {
        let expected = expected
            .map(|rest| rest.map(|rest| rest.as_bytes().to_vec()))
            .map_err(str::to_owned);
        for step in 1..=answer.len() {
            let mut tunnel = tunnel(PLAIN, "https://a.test/x").expect("a tunnel");
            let (sent, came) = run(&mut tunnel, &[answer.as_bytes()], step);
            assert_eq!(
                String::from_utf8_lossy(&sent),
                "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n"
            );
            assert_eq!(came, expected, "{answer:?} by {step}");
        }
    }

    #[test]
    fn a_tunnel_is_open_after_the_head_of_any_2xx() {
        check("HTTP/1.1 200 OK\r\n\r\n", Ok(Some("")));
        check(
            "HTTP/1.0 200 Connection established\r\n\r\nbytes",
            Ok(Some("bytes")),
        );
        check(
            "HTTP/1.1 204 So\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
            Ok(Some("abc")),
        );
        check(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nX: y\r\n\r\n",
            Ok(Some("")),
        );
        check("HTTP/1.1 200 OK\r\nX: y\r\n", Ok(None));
    }

    #[test]
    fn every_other_proxy_answer_is_a_failure_with_a_code() {
        check(
            "HTTP/1.1 407 No\r\nProxy-Authenticate: Basic\r\n\r\n",
            Err("proxy_auth"),
        );
        check(
            "HTTP/1.1 403 No\r\nContent-Length: 5\r\n\r\n",
            Err("proxy_refused"),
        );
        check(
            "HTTP/1.1 301 There\r\nLocation: /\r\n\r\n",
            Err("proxy_refused"),
        );
        for status in [502, 503, 504] {
            let answer = format!("HTTP/1.1 {status} Gone\r\n\r\n");
            check(&answer, Err("proxy_unreachable"));
        }
        check("SSH-2.0-OpenSSH_9.6\r\n\r\n", Err("proxy_protocol"));
        check("HTTP/1.1 101 Other\r\n\r\n", Err("proxy_protocol"));
    }

    #[test]
    fn only_https_uses_connect_with_port_and_credentials() {
        assert!(tunnel(PLAIN, "http://a.test/").is_none());
        let mut tunnel =
            tunnel("http://Aladdin:open%20sesame@p:1", "https://[::1]:8443/").expect("a tunnel");
        let mut sent = Vec::new();
        tunnel.take_output(&mut sent);
        assert_eq!(
            String::from_utf8_lossy(&sent),
            "CONNECT [::1]:8443 HTTP/1.1\r\nHost: [::1]:8443\r\n\
             Proxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n\r\n"
        );
    }
}
