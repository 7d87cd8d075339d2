//! What is kept of a connection for the request that it carried.

use std::net::SocketAddr;

use crate::fetch::connection::Connection;
use crate::fetch::tls::{Certificates, TlsInfo};

/// The connection that carried an attempt, as its result line tells of it.
#[derive(Clone, Debug, Default)]
pub struct Carrier {
    pub remote: Option<SocketAddr>,
    pub local: Option<SocketAddr>,
    pub reused: bool,
    pub tls: Option<TlsInfo>,
    pub certificates: Certificates,
}

impl Carrier {
    pub fn of(connection: &Connection) -> Self {
        Carrier {
            remote: Some(connection.remote()),
            local: connection.local(),
            reused: connection.used() > 1,
            tls: connection.tls(),
            certificates: connection.certificates(),
        }
    }
}
