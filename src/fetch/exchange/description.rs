//! What is to be asked, and how that looks on the wire.

use std::time::Duration;

use crate::wire::http::{RequestError, RequestHead, UsualFields, write_request};
use crate::wire::proxy::Proxy;

/// What is to be asked.
#[derive(Clone, Copy, Debug)]
pub struct Description<'a> {
    /// The method.
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// The value of Host.
    pub host: &'a str,
    /// The header fields of every request ([`Settings::usual_fields`]).
    ///
    /// [`Settings::usual_fields`]: crate::fetch::settings::Settings::usual_fields
    pub usual: &'a UsualFields,
    /// The request's own header fields; they take the place of the usual ones of the same name.
    pub headers: &'a [(String, String)],
    /// The request's body.
    pub body: Option<&'a [u8]>,
    /// Keep the reply as it came over the wire.
    pub keep_wire: bool,
    /// Bytes of the body to keep, where the settings' limit is not the one (robots.txt).
    pub body_max: Option<u64>,
    /// How long it may take from its release, where the settings' limit is not the one.
    pub timeout: Option<Duration>,
    /// The proxy that is asked for it. `target` is then the whole URL.
    pub proxy: Option<&'a Proxy>,
}

impl Description<'_> {
    /// Appends the head of the request, as it leaves.
    ///
    /// # Errors
    /// It cannot be put on the wire; `out` is then as it was.
    pub fn write_head(&self, out: &mut Vec<u8>) -> Result<(), RequestError> {
        let authorization = self.proxy.and_then(Proxy::authorization);
        write_request(
            out,
            &self.head(authorization.as_deref().unwrap_or_default()),
        )
    }

    /// Whether it can be put on the wire.
    ///
    /// # Errors
    /// It cannot.
    pub fn check(&self) -> Result<(), RequestError> {
        self.head("").check()
    }

    fn head<'a>(&'a self, proxy_authorization: &'a str) -> RequestHead<'a> {
        RequestHead {
            method: self.method,
            target: self.target,
            host: self.host,
            proxy_authorization,
            usual: self.usual,
            headers: self.headers,
            body_bytes: self.body.map(|body| body.len() as u64),
        }
    }
}
