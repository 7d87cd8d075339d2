//! The two kinds of connection that a server of threads has: plain, and with TLS.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

pub(super) use rustls::ServerConnection;
use rustls::{ServerConfig, StreamOwned};

use super::stamp::{self, Clock};

pub(super) type Tls = StreamOwned<ServerConnection, TcpStream>;

/// A blocking connection.
pub(super) trait Stream: Read + Write {
    /// Waits for bytes; how many, and when they arrived on [`Clock`]'s scale.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<(usize, Duration)>;

    /// Ends the sending side of the stream.
    fn end(&mut self) -> io::Result<()>;

    fn socket(&self) -> &TcpStream;
}

impl Stream for TcpStream {
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<(usize, Duration)> {
        self.peek(&mut [0])?;
        stamp::receive(&*self, buffer, &Clock::read())
    }

    fn end(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Stream for Tls {
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<(usize, Duration)> {
        let count = self.read(buffer)?;
        Ok((count, Clock::read().now))
    }

    fn end(&mut self) -> io::Result<()> {
        self.conn.send_close_notify();
        self.flush()
    }

    fn socket(&self) -> &TcpStream {
        &self.sock
    }
}

/// The server's side of TLS; the handshake happens as bytes are asked for.
pub(super) fn tls(config: Arc<ServerConfig>, stream: TcpStream) -> io::Result<Tls> {
    Ok(StreamOwned::new(session(config)?, stream))
}

/// The session of a new client.
pub(super) fn session(config: TlsConfig) -> io::Result<ServerConnection> {
    ServerConnection::new(config).map_err(io::Error::other)
}

/// The settings of a server's TLS.
pub type TlsConfig = Arc<ServerConfig>;

#[cfg(test)]
pub(super) mod testing {
    //! Both sides of TLS, for tests.

    pub use rustls::crypto::aws_lc_rs::{Ticketer, default_provider};
    pub use rustls::pki_types::PrivatePkcs8KeyDer;
    pub use rustls::version::TLS12;
    pub use rustls::{
        ClientConfig, ClientConnection, HandshakeKind, RootCertStore, ServerConfig, StreamOwned,
    };
}
