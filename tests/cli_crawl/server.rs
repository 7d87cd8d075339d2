//! A scripted web server on loopback.

use std::net::{IpAddr, TcpListener};
use std::ops::Deref;

use argiope::testkit::server::{self, TlsConfig};

pub use argiope::testkit::http::Step;
pub use argiope::testkit::server::Asked;

/// A server until it is dropped.
pub struct Server(server::Server);

impl Deref for Server {
    type Target = server::Server;

    fn deref(&self) -> &server::Server {
        &self.0
    }
}

impl Server {
    /// A server on 127.0.0.1 with this script.
    pub fn new(script: impl Fn(&Asked) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Server(server::Server::start(script))
    }

    /// A server on another address; `None` where the machine has no such address.
    pub fn on(
        address: IpAddr,
        script: impl Fn(&Asked) -> Vec<Step> + Send + Sync + 'static,
    ) -> Option<Self> {
        let listener = TcpListener::bind((address, 0)).ok()?;
        Some(Server(server::Server::on(listener, None, script)))
    }

    /// A server with TLS.
    pub fn tls(
        config: TlsConfig,
        script: impl Fn(&Asked) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        Server(server::Server::tls(config, script))
    }

    /// A server that accepts and then only takes these steps, without reading requests.
    pub fn deaf(steps: Vec<Step>) -> Self {
        Server(server::Server::deaf(steps))
    }

    /// A URL on this server's address.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    /// The `--resolve` that brings a name here.
    pub fn named(&self, host: &str) -> String {
        format!("{host}:{}:{}", self.port(), self.address().ip())
    }

    /// The targets of the requests so far, without robots.txt, sorted.
    pub fn targets(&self) -> Vec<String> {
        let asked = self.asked();
        let mut targets: Vec<String> = asked.iter().map(|asked| asked.target.clone()).collect();
        targets.retain(|target| target != "/robots.txt");
        targets.sort();
        targets
    }

    /// The one request for a target.
    pub fn only(&self, target: &str) -> Asked {
        let asked = self.asked();
        let mut found = asked.iter().filter(|asked| asked.target == target);
        let only = found
            .next()
            .unwrap_or_else(|| panic!("nobody asked for {target}: {asked:?}"));
        assert!(found.next().is_none(), "{target} was asked for twice");
        only.clone()
    }
}

/// A page.
pub fn page(body: &str) -> Vec<Step> {
    reply(
        "200 OK",
        &["Content-Type: text/html; charset=utf-8"],
        body.as_bytes(),
    )
}

/// A whole reply with its length.
pub fn reply(status: &str, headers: &[&str], body: &[u8]) -> Vec<Step> {
    let length = format!("Content-Length: {}", body.len());
    vec![raw(
        &[&head(status, &[headers, &[&length]].concat()), body].concat()
    )]
}

/// A status line and headers.
pub fn head(status: &str, headers: &[&str]) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status}\r\n");
    for header in headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    head.into_bytes()
}

pub fn raw(bytes: &[u8]) -> Step {
    Step::Send(bytes.to_vec())
}

/// A redirect.
pub fn redirect(status: &str, to: &str) -> Vec<Step> {
    reply(status, &[&format!("Location: {to}")], b"")
}

pub fn not_found() -> Vec<Step> {
    reply("404 Not Found", &["Content-Type: text/plain"], b"no")
}
