//! Proxies by name: what a person writes of one, and how a request goes.

use std::fmt::{self, Write};
use std::str::FromStr;
use std::sync::Arc;

use data_encoding::BASE64;

use super::url::CrawlUrl;

/// A proxy that requests may go through: `http://user:password@host:port` or
/// `socks5://user:password@host:port`, with or without the credentials.
///
/// - An HTTP proxy is asked for http pages by their whole URL (RFC 9112, section 3.2.2), and for a
///   tunnel to the origin of https ones (RFC 9110, section 9.3.6).
/// - A SOCKS5 proxy (RFC 1928, with the passwords of RFC 1929) tunnels both. It is told names, never
///   the addresses behind them: `socks5h`, as others call that, means the same.
///
/// TLS ends at the origin either way and is verified against its name; the proxy itself is spoken to
/// in the clear. What a crawl shows and logs of a proxy has no credentials in it.
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

/// How a proxy is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1.1.
    Http,
    /// SOCKS version 5.
    Socks5,
}

/// Name and password for a proxy.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// The name: 1 to 255 bytes, without colons and control characters.
    pub user: Box<str>,
    /// The password: 1 to 255 bytes for SOCKS5, without control characters.
    pub password: Box<str>,
}

/// How a request goes, where it does not go as the setting `PROXY` says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// To its origin, through no proxy.
    Direct,
    /// Through this proxy.
    Proxy(Arc<Proxy>),
}

/// Why a text names no proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// It does not begin with a protocol that is spoken here.
    #[error("proxies begin with http://, socks5:// or socks5h://")]
    Protocol,
    /// Its host is none.
    #[error("it names no host")]
    Host,
    /// There is no port from 1 to 65535.
    #[error("it names no port")]
    Port,
    /// The name or the password cannot be sent.
    #[error(
        "user and password are 1 to 255 bytes, percent-encoded where they hold @, :, / or the like"
    )]
    Credentials,
    /// There is something behind the port.
    #[error("nothing follows the port")]
    Rest,
}

impl ProxyError {
    /// The stable name.
    pub const fn code(self) -> &'static str {
        match self {
            ProxyError::Protocol => "protocol",
            ProxyError::Host => "host",
            ProxyError::Port => "port",
            ProxyError::Credentials => "credentials",
            ProxyError::Rest => "rest",
        }
    }

    /// Whether another try may end otherwise: never.
    pub const fn is_retryable(self) -> bool {
        false
    }
}

impl Proxy {
    /// How it is spoken to.
    pub fn protocol(&self) -> Protocol {
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

    /// Who we are to it.
    pub fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// The whole of it, credentials included, as it is read again.
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

    /// The same without the password, to be shown.
    pub fn to_shown_url(&self) -> String {
        let mut shown = self.clone();
        if let Some(credentials) = &mut shown.credentials {
            credentials.password = PASSWORD_SHOWN.into();
        }
        shown.to_url()
    }

    /// Whether it is asked for this URL itself, not for a tunnel.
    pub(crate) fn forwards(&self, url: &CrawlUrl) -> bool {
        self.protocol == Protocol::Http && !url.is_https()
    }

    /// The value of Proxy-Authorization (RFC 9110, section 11.7.2), where there are credentials.
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

/// What stands for a password where it would be seen.
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

/// Without its credentials: for logs and messages.
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
        // RFC 1929 counts either in one octet, and has no password of none.
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
    /// The word for no proxy.
    pub(crate) const DIRECT: &str = "direct";

    /// The text that [`Route::from_str`] reads again, credentials included.
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

/// Undoes percent-encoding (RFC 3986, section 2.1).
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

/// The longest name or password: what RFC 1929 can count.
const LENGTH_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    /// Protocol, host, port, user and password.
    type Told<'a> = (Protocol, &'a str, u16, Option<(&'a str, &'a str)>);

    fn check(text: &str, expected: Result<Told<'_>, ProxyError>) {
        let read: Result<Proxy, _> = text.parse();
        let told = read.as_ref().map_err(|error| *error).map(|proxy| {
            let pair = proxy.credentials();
            let pair = pair.map(|pair| (&*pair.user, &*pair.password));
            (proxy.protocol(), proxy.host(), proxy.port(), pair)
        });
        assert_eq!(told, expected, "{text}");
        if let Ok(proxy) = &read {
            assert_eq!(proxy.to_url().parse().as_ref(), Ok(proxy), "read again");
        }
    }

    #[test]
    fn a_proxy_is_a_protocol_a_host_and_a_port_and_perhaps_credentials() {
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
    fn what_names_no_proxy_is_told_why() {
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
    fn a_secret_is_told_to_nobody() {
        let proxy: Proxy = "http://name:secret@proxy.test:3128"
            .parse()
            .expect("a proxy");
        let told = format!("{proxy} {proxy:?} {:?}", proxy.credentials());
        assert!(!told.contains("secret") && !told.contains("name"), "{told}");
        assert_eq!(proxy.to_string(), "http://proxy.test:3128");
        // RFC 7617, section 2.
        let aladdin: Proxy = "http://Aladdin:open%20sesame@a:1".parse().expect("a proxy");
        assert_eq!(
            aladdin.authorization().as_deref(),
            Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")
        );
    }
}
