//! Proxies: how users write them, and how requests are sent through them.
//!
//! Hand-written: the `url` library drops port 80 after `http`, which has to be written here, and reads the
//! host after `socks5` as any text.

use std::fmt::{self, Write};
use std::str::FromStr;
use std::sync::Arc;

use data_encoding::BASE64;

use super::url::CrawlUrl;

use crate::base::sentence::debug_as_sentence;

/// A proxy for requests: `http://user:password@host:port` or `socks5://user:password@host:port`,
/// with or without credentials.
///
/// - An HTTP proxy receives requests for http pages with their whole URL (RFC 9112, section 3.2.2),
///   and requests for a tunnel to the origin of https pages (RFC 9110, section 9.3.6).
/// - A SOCKS5 proxy (RFC 1928, with the passwords of RFC 1929) tunnels both. It receives names and
///   never resolved addresses; `socks5h`, as other programs call this, means the same.
///
/// In both cases TLS ends at the origin and is verified against its name; the connection to the
/// proxy itself is not encrypted. What a crawl displays and logs of a proxy has no credentials.
///
/// ```
/// use argiope::{Proxy, Request};
///
/// let proxy: Proxy = "socks5://127.0.0.1:9050".parse()?;
/// let request = Request::get("https://example.com/").proxy(proxy);
/// assert!("ftp://127.0.0.1:21".parse::<Proxy>().is_err());
/// # Ok::<(), argiope::ProxyError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Proxy {
    protocol: Protocol,
    host: Box<str>,
    port: u16,
    credentials: Option<Credentials>,
}

/// Protocol spoken with a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1.1.
    Http,
    /// SOCKS version 5.
    Socks5,
}

/// Credentials for a proxy.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// The user name: 1 to 255 bytes, without colons and control characters.
    pub user: Box<str>,
    /// The password: 1 to 255 bytes for SOCKS5, without control characters.
    pub password: Box<str>,
}

/// Way of a request that overrides the setting `PROXY`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// Directly to its origin.
    Direct,
    /// Through this proxy.
    Proxy(Arc<Proxy>),
}

/// Why a text is not a valid proxy.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// The protocol is not supported.
    #[error("a proxy starts with http://, socks5:// or socks5h://")]
    Protocol,
    /// The host is invalid.
    #[error("the host is missing or invalid")]
    Host,
    /// The port is missing or not from 1 to 65535.
    #[error("the port is missing or not from 1 to 65535")]
    Port,
    /// The user name or the password cannot be sent.
    #[error("user and password must have 1 to 255 bytes, with @, :, / and similar percent-encoded")]
    Credentials,
    /// There is text after the port.
    #[error("text after the port is not allowed")]
    Rest,
}

debug_as_sentence!(ProxyError);

impl ProxyError {
    /// Stable error code.
    pub const fn code(self) -> &'static str {
        match self {
            ProxyError::Protocol => "protocol",
            ProxyError::Host => "host",
            ProxyError::Port => "port",
            ProxyError::Credentials => "credentials",
            ProxyError::Rest => "rest",
        }
    }

    /// Returns whether a retry may succeed: never.
    pub const fn is_retryable(self) -> bool {
        false
    }
}

impl Proxy {
    /// Protocol spoken with it.
    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Its host as text, IPv6 in brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The credentials for it.
    pub(crate) fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// The complete URL, credentials included, which can be parsed again.
    pub fn to_url(&self) -> String {
        let scheme = self.scheme();
        let mut text = format!("{scheme}://");
        if let Some(credentials) = &self.credentials {
            encode(&credentials.user, &mut text);
            text.push(':');
            encode(&credentials.password, &mut text);
            text.push('@');
        }
        let _ = write!(text, "{}:{}", self.host, self.port);
        text
    }

    /// The same without the password, for display.
    pub fn to_shown_url(&self) -> String {
        let mut shown = self.clone();
        if let Some(credentials) = &mut shown.credentials {
            credentials.password = PASSWORD_SHOWN.into();
        }
        shown.to_url()
    }

    /// Returns whether it forwards requests for this URL instead of opening a tunnel.
    pub(crate) fn forwards(&self, url: &CrawlUrl) -> bool {
        self.protocol == Protocol::Http && !url.is_https()
    }

    /// The value of Proxy-Authorization (RFC 9110, section 11.7.2), if there are credentials.
    pub(crate) fn authorization(&self) -> Option<String> {
        let Credentials { user, password } = self.credentials.as_ref()?;
        let pair = format!("{user}:{password}");
        Some(format!("Basic {}", BASE64.encode(pair.as_bytes())))
    }

    fn scheme(&self) -> &'static str {
        match self.protocol {
            Protocol::Http => "http",
            Protocol::Socks5 => "socks5",
        }
    }
}

/// Replaces a password for display.
const PASSWORD_SHOWN: &str = "***";

impl FromStr for Proxy {
    type Err = ProxyError;

    fn from_str(text: &str) -> Result<Self, ProxyError> {
        let (scheme, rest) = text.trim().split_once("://").ok_or(ProxyError::Protocol)?;
        let protocol = match scheme.to_ascii_lowercase().as_str() {
            "http" => Protocol::Http,
            "socks5" | "socks5h" => Protocol::Socks5,
            _ => return Err(ProxyError::Protocol),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#', '\\']) {
            return Err(ProxyError::Rest);
        }
        let (credentials, place) = match rest.rsplit_once('@') {
            Some((credentials, place)) => (Some(Credentials::read(credentials, protocol)?), place),
            None => (None, rest),
        };
        let (host, port) = place.rsplit_once(':').ok_or(ProxyError::Port)?;
        let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port: u16 = port.parse().map_err(|_| ProxyError::Port)?;
        if port == 0 || !digits {
            return Err(ProxyError::Port);
        }
        let url = CrawlUrl::parse(&format!("http://{host}:{port}/"));
        let url = url.map_err(|_| ProxyError::Host)?;
        if url.port() != port {
            return Err(ProxyError::Host);
        }
        Ok(Proxy {
            protocol,
            host: url.host_str().into(),
            port,
            credentials,
        })
    }
}

/// Without its credentials, for logs and messages.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", self.scheme(), self.host, self.port)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(…)")
    }
}

impl Credentials {
    fn read(text: &str, protocol: Protocol) -> Result<Self, ProxyError> {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        let (user, password) = (decode(user)?, decode(password)?);
        let is_text = |text: &str| !text.chars().any(char::is_control);
        // RFC 1929 has one byte for each length, and no empty password.
        let fits = match protocol {
            Protocol::Http => !user.contains(':'),
            Protocol::Socks5 => !password.is_empty(),
        };
        let is_sound = |text: &str| is_text(text) && text.len() <= LENGTH_MAX;
        match fits && !user.is_empty() && is_sound(&user) && is_sound(&password) {
            true => Ok(Credentials {
                user: user.into(),
                password: password.into(),
            }),
            false => Err(ProxyError::Credentials),
        }
    }
}

impl Route {
    /// The name for no proxy.
    pub(crate) const DIRECT: &str = "direct";

    /// Text for [`Route::from_str`], credentials included.
    pub(crate) fn to_text(&self) -> String {
        match self {
            Route::Direct => Route::DIRECT.to_owned(),
            Route::Proxy(proxy) => proxy.to_url(),
        }
    }
}

impl FromStr for Route {
    type Err = ProxyError;

    fn from_str(text: &str) -> Result<Self, ProxyError> {
        match text {
            Route::DIRECT => Ok(Route::Direct),
            proxy => Ok(Route::Proxy(Arc::new(proxy.parse()?))),
        }
    }
}

/// Percent-decodes (RFC 3986, section 2.1).
fn decode(text: &str) -> Result<String, ProxyError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = rest.get(..2).ok_or(ProxyError::Credentials)?;
        let nibble = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
        match (nibble(digits[0]), nibble(digits[1])) {
            (Some(high), Some(low)) => bytes.push(high << 4 | low),
            _ => return Err(ProxyError::Credentials),
        }
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| ProxyError::Credentials)
}

/// Percent-encodes all but unreserved characters.
fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte.into());
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

/// Maximum length of user name and password, by RFC 1929.
const LENGTH_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    /// Protocol, host, port, user and password.
    type Parts<'a> = (Protocol, &'a str, u16, Option<(&'a str, &'a str)>);

    fn check(text: &str, expected: Result<Parts<'_>, ProxyError>) {
        let read: Result<Proxy, _> = text.parse();
        let parts = read.as_ref().map_err(|error| *error).map(|proxy| {
            let pair = proxy.credentials();
            let pair = pair.map(|pair| (&*pair.user, &*pair.password));
            (proxy.protocol(), proxy.host(), proxy.port(), pair)
        });
        assert_eq!(parts, expected, "{text}");
        if let Ok(proxy) = &read {
            assert_eq!(proxy.to_url().parse().as_ref(), Ok(proxy), "read again");
        }
    }

    #[test]
    fn a_proxy_has_protocol_host_port_and_optional_credentials() {
        use Protocol::{Http, Socks5};
        check(
            "http://proxy.test:3128",
            Ok((Http, "proxy.test", 3128, None)),
        );
        check("HTTP://Proxy.TEST:80/", Ok((Http, "proxy.test", 80, None)));
        check(
            "socks5://127.0.0.1:1080",
            Ok((Socks5, "127.0.0.1", 1080, None)),
        );
        check("socks5h://[::1]:1080", Ok((Socks5, "[::1]", 1080, None)));
        check("http://us%3aer@proxy.test:1", Err(ProxyError::Credentials));
        check(
            "socks5://us%3aer:p%40ss:w%2F@proxy.test:1",
            Ok((Socks5, "proxy.test", 1, Some(("us:er", "p@ss:w/")))),
        );
        check(
            "http://user@proxy.test:1",
            Ok((Http, "proxy.test", 1, Some(("user", "")))),
        );
    }

    #[test]
    fn an_invalid_proxy_has_a_specific_error() {
        for text in [
            "",
            "proxy.test:80",
            "https://proxy.test:443",
            "socks4://a:1",
        ] {
            check(text, Err(ProxyError::Protocol));
        }
        for text in [
            "http://proxy.test",
            "http://a:0",
            "http://a:+1",
            "http://a:70000",
            "http://a:",
        ] {
            check(text, Err(ProxyError::Port));
        }
        for text in ["http://:80", "http://a b:80", "http://[::1:80"] {
            check(text, Err(ProxyError::Host));
        }
        for text in ["http://a:80/x", "http://a:80?", "http://a:80//"] {
            check(text, Err(ProxyError::Rest));
        }
        let long = "x".repeat(256);
        for user in ["", ":x", "a%0d%0aX:b", "a%f", "a%zz", "%ff:x", &long] {
            check(&format!("http://{user}@a:80"), Err(ProxyError::Credentials));
        }
        check("socks5://user@a:80", Err(ProxyError::Credentials));
    }

    #[test]
    fn a_password_is_never_displayed() {
        let proxy: Proxy = "http://name:secret@proxy.test:3128"
            .parse()
            .expect("a proxy");
        let parts = format!("{proxy} {proxy:?} {:?}", proxy.credentials());
        assert!(
            !parts.contains("secret") && !parts.contains("name"),
            "{parts}"
        );
        assert_eq!(proxy.to_string(), "http://proxy.test:3128");
        // RFC 7617, section 2.
        let aladdin: Proxy = "http://Aladdin:open%20sesame@a:1".parse().expect("a proxy");
        assert_eq!(
            aladdin.authorization().as_deref(),
            Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")
        );
    }
}
