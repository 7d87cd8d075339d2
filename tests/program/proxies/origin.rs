//! Origins, with and without TLS, that record their requests.

use std::net::SocketAddr;

use argiope::testkit::http::Reply;
use argiope::testkit::server::{Asked, Server};

use crate::authority::Authority;

/// A server on the loopback device.
pub struct Origin {
    pub at: SocketAddr,
    server: Server,
}

impl Origin {
    /// Answers a target.
    pub fn start(answer: fn(&str) -> Reply) -> Self {
        Origin::of(Server::start(answers(answer)))
    }

    /// The same with TLS, under a name that an authority vouches for.
    pub fn tls(authority: &Authority, name: &str, answer: fn(&str) -> Reply) -> Self {
        let config = authority.server(name, |_| {});
        Origin::of(Server::tls(config, answers(answer)))
    }

    fn of(server: Server) -> Self {
        let at = server.address();
        Origin { at, server }
    }

    /// The heads of all requests so far.
    pub fn asked(&self) -> Vec<String> {
        let asked = self.server.asked();
        asked.iter().map(|asked| asked.head.clone()).collect()
    }
}

fn answers(answer: fn(&str) -> Reply) -> impl Fn(&Asked) -> Reply {
    move |asked| answer(&asked.target)
}

pub fn page(body: &'static str) -> Reply {
    Reply::page(body)
}

pub fn redirect(to: &str) -> Reply {
    Reply::redirect(302, to)
}
