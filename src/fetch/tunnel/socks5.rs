//! A tunnel through a SOCKS5 proxy (RFC 1928, with the passwords of RFC 1929).
//!
//! Hand-written: it takes and returns bytes and touches no socket, as everything in `fetch` does.

use std::net::IpAddr;

use super::{protocol, refused, unauthorized, unreachable};
use crate::fetch::failure::{Failure, FailureKind};
use crate::wire::proxy::{Credentials, Proxy};
use crate::wire::url::{CrawlUrl, Host};

/// The dialogue with a proxy.
///
/// ```text
/// MethodChoice ──► AuthReply ──► ConnectReply ──► tunnel open
///    └── (no credentials) ─────────────────▲
/// ```
#[derive(Debug)]
pub struct Socks5 {
    pub(super) out: Vec<u8>,
    state: State,
    /// The received part of the present answer; at most 262 bytes.
    answer: Vec<u8>,
    credentials: Option<Credentials>,
    /// The request for the tunnel.
    request: Vec<u8>,
}

/// The answer that is awaited from the proxy.
#[derive(Clone, Copy, Debug)]
enum State {
    /// To the greeting: the chosen authentication method.
    MethodChoice,
    /// To user and password.
    AuthReply,
    /// To the request for the tunnel.
    ConnectReply,
}

impl Socks5 {
    pub(super) fn new(proxy: &Proxy, url: &CrawlUrl) -> Result<Self, Failure> {
        let credentials = proxy.credentials().cloned();
        let methods: &[u8] = match credentials {
            Some(_) => &[NO_AUTHENTICATION, USERNAME_PASSWORD],
            None => &[NO_AUTHENTICATION],
        };
        let mut out = vec![VERSION, methods.len() as u8];
        out.extend_from_slice(methods);
        Ok(Socks5 {
            out,
            state: State::MethodChoice,
            answer: Vec::new(),
            credentials,
            request: request(url)?,
        })
    }

    pub(super) fn read(&mut self, input: &mut &[u8]) -> Result<bool, Failure> {
        loop {
            // No byte beyond this answer is consumed: it may be the origin's.
            while self.answer.len() < self.answer_length() {
                let missing = self.answer_length() - self.answer.len();
                let (now, later) = input.split_at(missing.min(input.len()));
                self.answer.extend_from_slice(now);
                *input = later;
                if now.len() < missing {
                    // A failure need not be complete.
                    self.check_version()?;
                    return Ok(false);
                }
                self.check_version()?;
            }
            if self.on_answer()? {
                return Ok(true);
            }
            self.answer.clear();
            if !input.is_empty() {
                return Err(protocol(
                    "the proxy answered before the request was sent".to_owned(),
                ));
            }
        }
    }

    /// Length of the answer, as far as known from its bytes so far.
    fn answer_length(&self) -> usize {
        match (self.state, &*self.answer) {
            (State::MethodChoice | State::AuthReply, _) => 2,
            (State::ConnectReply, [_, _, _, IPV4, ..]) => 4 + 4 + 2,
            (State::ConnectReply, [_, _, _, IPV6, ..]) => 4 + 16 + 2,
            (State::ConnectReply, [_, _, _, NAME, length, ..]) => 5 + usize::from(*length) + 2,
            (State::ConnectReply, [_, _, _, NAME]) => 5,
            (State::ConnectReply, _) => 4,
        }
    }

    /// Detects failures before an answer is complete: another protocol, or a refusal, whose rest
    /// some proxies never send.
    fn check_version(&self) -> Result<(), Failure> {
        match (self.state, &*self.answer) {
            // The answer of RFC 1929 has its own version number, which few proxies get right.
            (State::AuthReply, _) | (_, [] | [VERSION]) => Ok(()),
            (State::ConnectReply, [VERSION, code, ..]) if *code != 0 => Err(reply_failure(*code)),
            (_, [VERSION, ..]) => Ok(()),
            (_, [version, ..]) => Err(protocol(format!(
                "the proxy does not speak SOCKS5: its first byte is {version:#04x}"
            ))),
        }
    }

    /// Handles a complete answer. Returns `true` if it was the last.
    fn on_answer(&mut self) -> Result<bool, Failure> {
        self.state = match (self.state, self.answer[1]) {
            (State::MethodChoice, NO_AUTHENTICATION) => {
                self.out.append(&mut self.request);
                State::ConnectReply
            }
            (State::MethodChoice, USERNAME_PASSWORD) if self.credentials.is_some() => {
                let credentials = self
                    .credentials
                    .take()
                    .expect("credentials are present in this state");
                self.out.push(PASSWORDS_VERSION);
                for text in [&credentials.user, &credentials.password] {
                    self.out.push(text.len() as u8);
                    self.out.extend_from_slice(text.as_bytes());
                }
                State::AuthReply
            }
            (State::MethodChoice, NONE_ACCEPTABLE) => {
                return Err(unauthorized(
                    "the proxy requires credentials or rejected those sent",
                ));
            }
            (State::MethodChoice, method) => {
                return Err(protocol(format!(
                    "the proxy chose authentication method {method}, which was not offered"
                )));
            }
            (State::AuthReply, 0) => {
                self.out.append(&mut self.request);
                State::ConnectReply
            }
            (State::AuthReply, _) => {
                return Err(unauthorized("the proxy refused user or password"));
            }
            (State::ConnectReply, _) => {
                return match self.answer[3] {
                    IPV4 | IPV6 | NAME => Ok(true),
                    kind => Err(protocol(format!("unknown address type {kind}"))),
                };
            }
        };
        Ok(false)
    }
}

/// The request for a tunnel to the origin of a URL. A name is sent as it is: the proxy resolves it.
fn request(url: &CrawlUrl) -> Result<Vec<u8>, Failure> {
    let mut request = vec![VERSION, CONNECT, 0];
    match url.host() {
        Host::Address(IpAddr::V4(address)) => {
            request.push(IPV4);
            request.extend_from_slice(&address.octets());
        }
        Host::Address(IpAddr::V6(address)) => {
            request.push(IPV6);
            request.extend_from_slice(&address.octets());
        }
        Host::Name(name) => {
            let Ok(length) = u8::try_from(name.len()) else {
                return Err(Failure::new(
                    FailureKind::Dns,
                    "name_invalid",
                    "the host's name is longer than 255 bytes",
                ));
            };
            request.extend_from_slice(&[NAME, length]);
            request.extend_from_slice(name.as_bytes());
        }
    }
    request.extend_from_slice(&url.port().to_be_bytes());
    Ok(request)
}

/// The meaning of the reply field of RFC 1928, section 6.
fn reply_failure(code: u8) -> Failure {
    let detail = |words: &str| format!("the proxy reports: {words} ({code})");
    match code {
        2 => refused(detail("not allowed by its rules")),
        3 => unreachable(detail("network unreachable")),
        4 => unreachable(detail("host unreachable")),
        5 => unreachable(detail("connection refused")),
        6 => unreachable(detail("TTL expired")),
        7 => refused(detail("command not supported")),
        8 => refused(detail("address type not supported")),
        _ => refused(detail("general failure")),
    }
}

const VERSION: u8 = 5;
const PASSWORDS_VERSION: u8 = 1;
const NO_AUTHENTICATION: u8 = 0;
const USERNAME_PASSWORD: u8 = 2;
const NONE_ACCEPTABLE: u8 = 0xff;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

#[cfg(test)]
mod tests {
    use super::super::testing::{run, tunnel};

    const GRANTED: &[u8] = &[5, 0, 0, 1, 127, 0, 0, 1, 0, 80];

    /// Asserts the same result for every split of a proxy's answers. `expected`: everything that is
    /// sent to it.
    fn check(
        proxy: &str,
        url: &str,
        answers: &[&[u8]],
        expected: &[&[u8]],
        came: Result<Option<&[u8]>, &str>,
    ) {
        let longest = answers.iter().map(|answer| answer.len()).max();
        for step in 1..=longest.expect("an answer") {
            let mut tunnel = tunnel(proxy, url).expect("a tunnel");
            let (sent, what) = run(&mut tunnel, answers, step);
            assert_eq!(sent, expected.concat(), "{answers:?} by {step}");
            let expected = came.map(|rest| rest.map(<[u8]>::to_vec));
            assert_eq!(
                what,
                expected.map_err(str::to_owned),
                "{answers:?} by {step}"
            );
        }
    }

    #[test]
    fn the_proxy_resolves_names_and_later_bytes_are_not_consumed() {
        let ask = [&[5, 1, 0, 3, 6][..], b"a.test", &[0, 80]].concat();
        let named = [&[5, 0, 0, 3, 3][..], b"abc", &[1, 2]].concat();
        let sixth = [&[5, 0, 0, 4][..], &[7; 16], &[1, 2]].concat();
        for granted in [GRANTED, &named, &sixth] {
            check(
                "socks5://p:1",
                "http://a.test/",
                &[&[5, 0], &[granted, b"\x05\x00rest"].concat()],
                &[&[5, 1, 0], &ask],
                Ok(Some(b"\x05\x00rest")),
            );
        }
        check(
            "socks5://p:1",
            "http://a.test/",
            &[&[5, 0], &GRANTED[..9]],
            &[&[5, 1, 0], &ask],
            Ok(None),
        );
    }

    #[test]
    fn an_address_is_sent_as_an_address() {
        check(
            "socks5://p:1",
            "https://127.0.0.1:8443/",
            &[&[5, 0], GRANTED],
            &[&[5, 1, 0], &[5, 1, 0, 1, 127, 0, 0, 1, 0x20, 0xfb]],
            Ok(Some(b"")),
        );
        let mut sixth = vec![5, 1, 0, 4];
        sixth.extend_from_slice(&std::net::Ipv6Addr::LOCALHOST.octets());
        sixth.extend_from_slice(&[0x01, 0xbb]);
        check(
            "socks5://p:1",
            "https://[::1]/",
            &[&[5, 0], GRANTED],
            &[&[5, 1, 0], &sixth],
            Ok(Some(b"")),
        );
    }

    #[test]
    fn credentials_are_sent_only_if_the_proxy_requires_them() {
        let ask: &[u8] = &[5, 1, 0, 1, 127, 0, 0, 1, 0, 80];
        let check = |answers: &[&[u8]], expected: &[&[u8]], came| {
            check(
                "socks5://user:pass@p:1",
                "http://127.0.0.1/",
                answers,
                expected,
                came,
            );
        };
        let hello: &[u8] = &[5, 2, 0, 2];
        let login: &[u8] = b"\x01\x04user\x04pass";
        check(&[&[5, 0], GRANTED], &[hello, ask], Ok(Some(b"")));
        check(
            &[&[5, 2], &[1, 0], GRANTED],
            &[hello, login, ask],
            Ok(Some(b"")),
        );
        check(
            &[&[5, 2], &[5, 0], GRANTED],
            &[hello, login, ask],
            Ok(Some(b"")),
        );
        check(&[&[5, 2], &[1, 1]], &[hello, login], Err("proxy_auth"));
        check(&[&[5, 0xff]], &[hello], Err("proxy_auth"));
        check(&[&[5, 1]], &[hello], Err("proxy_protocol"));
    }

    #[test]
    fn every_other_socks_answer_is_a_failure_with_a_code() {
        let ask: &[u8] = &[5, 1, 0, 1, 127, 0, 0, 1, 0, 80];
        let check = |answers: &[&[u8]], asked: bool, code| {
            let expected: &[&[u8]] = if asked {
                &[&[5, 1, 0], ask]
            } else {
                &[&[5, 1, 0]]
            };
            check(
                "socks5://p:1",
                "http://127.0.0.1/",
                answers,
                expected,
                Err(code),
            );
        };
        check(&[b"HTTP/1.1 400 No\r\n\r\n"], false, "proxy_protocol");
        check(&[&[4, 0]], false, "proxy_protocol");
        check(&[&[5, 2]], false, "proxy_protocol");
        check(&[&[5, 0xff]], false, "proxy_auth");
        for (code, name) in [
            (1, "proxy_refused"),
            (2, "proxy_refused"),
            (3, "proxy_unreachable"),
            (4, "proxy_unreachable"),
            (5, "proxy_unreachable"),
            (6, "proxy_unreachable"),
            (7, "proxy_refused"),
            (8, "proxy_refused"),
            (99, "proxy_refused"),
        ] {
            // Some proxies never send the rest.
            check(&[&[5, 0], &[5, code]], true, name);
            check(&[&[5, 0], &[5, code, 0, 1, 0, 0, 0, 0, 0, 0]], true, name);
        }
        check(&[&[5, 0], &[5, 0, 0, 9, 1, 2, 3]], true, "proxy_protocol");
        check(&[&[5, 0], &[6, 0, 0, 1]], true, "proxy_protocol");
    }

    #[test]
    fn an_answer_before_its_request_is_a_failure() {
        let mut tunnel = tunnel("socks5://p:1", "http://a.test/").expect("a tunnel");
        let both = [&[5, 0], GRANTED].concat();
        let (_, came) = run(&mut tunnel, &[&both], both.len());
        assert_eq!(came, Err("proxy_protocol".to_owned()));
    }
}
