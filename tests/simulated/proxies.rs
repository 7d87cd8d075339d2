//! Proxies of the simulated web: HTTP proxies, which forward requests, and SOCKS5 proxies, which open tunnels. Each may
//! fail for a while.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use argiope::base::time::Instant;
use argiope::io::sim::Answer;
use data_encoding::BASE64;

use super::reply::{Reply, Step};

/// The proxies that there are, as settings name them: by name and by address, with and without a login.
pub const PROXIES: [&str; 4] = [
    "http://plain.example:3128",
    "http://robot:Sesam-1@guarded.example:3128",
    "socks5://robot:Sesam-2@tunnel.example:1080",
    "socks5://192.168.7.4:1080",
];

/// Where a request goes: to the proxy of this number, or directly.
pub type Way = Option<usize>;

/// The way that a setting names.
pub fn way_of(text: &str) -> Way {
    let number = PROXIES.iter().position(|proxy| *proxy == text);
    assert!(number.is_some() || text == "direct", "{text} is no proxy");
    number
}

/// A proxy, and the hosts that it was asked for.
pub struct Proxy {
    /// An address that a crawl may ask only because it is a proxy's.
    pub address: SocketAddr,
    /// Its name, unless settings have its address.
    pub name: Option<&'static str>,
    pub is_socks: bool,
    /// User and password.
    pub login: Option<&'static str>,
    pub failures: Vec<Failure>,
    pub asked: BTreeSet<String>,
}

/// A span in which a proxy fails.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    pub from: Instant,
    pub to: Instant,
    pub how: How,
}

/// How a proxy fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It accepts no connection.
    Connect(Answer),
    /// It rejects whatever login it is sent.
    Login,
    /// It reaches no origin.
    Gateway,
    /// Its rules allow no request.
    Rules,
    Reset,
    /// It ends connections without an answer.
    Close,
    Silence,
}

impl Proxy {
    pub fn all() -> Vec<Self> {
        (1..)
            .zip(PROXIES)
            .map(|(number, url)| Proxy::new(number, url))
            .collect()
    }

    fn new(number: u8, url: &'static str) -> Self {
        let (scheme, rest) = url.split_once("://").expect("a scheme");
        let (login, place) = match rest.split_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, rest),
        };
        let (host, port) = place.split_once(':').expect("a port");
        let port: u16 = port.parse().expect("a port");
        Proxy {
            address: SocketAddr::from(([192, 168, 7, number], port)),
            name: Some(host).filter(|host| host.ends_with(".example")),
            is_socks: scheme == "socks5",
            login,
            failures: Vec::new(),
            asked: BTreeSet::new(),
        }
    }

    pub fn failure(&self, now: Instant) -> Option<How> {
        let mut failures = self.failures.iter();
        let failure = failures.find(|failure| failure.from <= now && now < failure.to);
        failure.map(|failure| failure.how)
    }

    /// The field that each request has on its way to an HTTP proxy, and nowhere else.
    pub fn authorization(&self) -> Option<String> {
        let login = self.login?;
        Some(format!("Basic {}", BASE64.encode(login.as_bytes())))
    }
}

/// The content type of what an HTTP proxy says itself.
pub const SAID_BY_PROXY: &str = "text/x-proxy";

impl How {
    /// What an HTTP proxy answers to a request.
    pub fn step(self) -> Step {
        let says = |status| Step::status(status).with(format!("Content-Type: {SAID_BY_PROXY}"));
        match self {
            How::Login => says(407).with("Proxy-Authenticate: Basic realm=\"a\""),
            How::Gateway => says(502),
            How::Rules => says(403),
            How::Reset => Step::new(Reply::Reset),
            How::Connect(_) | How::Close | How::Silence => Step::new(Reply::Silence),
        }
    }
}

/// The state of the dialogue with a SOCKS5 proxy: what it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Talk {
    Greeting,
    Login,
    Place,
    /// Nothing: the tunnel to this host and port is open.
    Open(String),
}

/// What a SOCKS5 proxy does about a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocksReply {
    Sends(Vec<u8>),
    /// It sends this and ends the connection.
    Ends(Vec<u8>),
    Resets,
    Nothing,
}

impl Talk {
    /// Takes the next whole message from what was sent.
    pub fn take(&self, unread: &mut Vec<u8>) -> Option<Vec<u8>> {
        let at = |place: usize| unread.get(place).map(|octet| usize::from(*octet));
        let length = match self {
            Talk::Greeting => 2 + at(1)?,
            Talk::Login => 3 + at(1)? + at(2 + at(1)?)?,
            Talk::Place if at(3)? == 3 => 7 + at(4)?,
            Talk::Place => 10,
            Talk::Open(_) => return None,
        };
        (unread.len() >= length).then(|| unread.drain(..length).collect())
    }

    /// Answers a message. `fails`: how the proxy fails now, for all hosts. `deaf`: how a host answers the proxy.
    ///
    /// # Errors
    /// The message is none that this proxy may get.
    pub fn answer(
        &mut self,
        message: &[u8],
        proxy: &Proxy,
        fails: Option<How>,
        deaf: impl FnOnce(&str) -> Option<Answer>,
    ) -> Result<SocksReply, String> {
        match fails {
            Some(How::Login) if proxy.login.is_none() => return Ok(SocksReply::Ends(vec![5, 255])),
            Some(How::Login) if *self == Talk::Login => return Ok(SocksReply::Ends(vec![1, 1])),
            Some(How::Close) => return Ok(SocksReply::Ends(Vec::new())),
            Some(How::Reset) if *self == Talk::Place => return Ok(SocksReply::Resets),
            Some(How::Silence) if *self == Talk::Place => return Ok(SocksReply::Nothing),
            _ => {}
        }
        let reply = |code: u8| vec![5, code, 0, 1, 0, 0, 0, 0, 0, 0];
        match self {
            Talk::Greeting => {
                let methods: &[u8] = match proxy.login {
                    Some(_) => &[5, 2, 0, 2],
                    None => &[5, 1, 0],
                };
                if message != methods {
                    return Err(format!("the greeting {message:?}"));
                }
                *self = match proxy.login {
                    Some(_) => Talk::Login,
                    None => Talk::Place,
                };
                Ok(SocksReply::Sends(vec![5, methods[methods.len() - 1]]))
            }
            Talk::Login => {
                let (user, password) = proxy.login.and_then(|it| it.split_once(':')).expect("one");
                let mut due = vec![1];
                for text in [user, password] {
                    due.push(text.len() as u8);
                    due.extend_from_slice(text.as_bytes());
                }
                if message != due {
                    return Err(format!("the login {message:?}"));
                }
                *self = Talk::Place;
                Ok(SocksReply::Sends(vec![1, 0]))
            }
            Talk::Place => {
                let (name, port) = match message {
                    [5, 1, 0, 3, _, rest @ ..] => rest.split_at(rest.len() - 2),
                    _ => return Err(format!("a request for no name: {message:?}")),
                };
                let name = String::from_utf8_lossy(name);
                let host = match u16::from_be_bytes([port[0], port[1]]) {
                    80 => name.into_owned(),
                    port => format!("{name}:{port}"),
                };
                match (fails, deaf(&host)) {
                    (Some(How::Gateway), _) | (_, Some(Answer::Unreachable | Answer::NoRoute)) => {
                        return Ok(SocksReply::Ends(reply(4)));
                    }
                    (_, Some(Answer::Refuse)) => return Ok(SocksReply::Ends(reply(5))),
                    (Some(How::Rules), _) => return Ok(SocksReply::Ends(reply(2))),
                    (_, Some(Answer::Silence)) => return Ok(SocksReply::Nothing),
                    _ => {}
                }
                *self = Talk::Open(host);
                Ok(SocksReply::Sends(reply(0)))
            }
            Talk::Open(_) => unreachable!("no message is taken from a tunnel"),
        }
    }

    /// The host that a message asks for, if it does.
    pub fn host(&self) -> Option<&str> {
        match self {
            Talk::Open(host) => Some(host),
            _ => None,
        }
    }
}
