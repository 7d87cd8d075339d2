//! Facts of a connection, for the result line of the request that it carried.

use std::net::SocketAddr;

use crate::fetch::connection::Connection;
use crate::fetch::tls::{Certificates, TlsInfo};

/// Facts of the connection that carried an attempt, for its result line.
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
