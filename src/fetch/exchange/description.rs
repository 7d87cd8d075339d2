//! The description of a request, and its form on the wire.

use std::time::Duration;

use crate::wire::http::{RequestError, RequestHead, UsualFields, write_request};
use crate::wire::proxy::Proxy;

/// The description of a request.
#[derive(Clone, Copy, Debug)]
pub struct Description<'a> {
    /// The method.
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// The value of the Host field.
    pub host: &'a str,
    /// The header fields of every request ([`FetchSettings::usual_fields`]).
    ///
    /// [`FetchSettings::usual_fields`]: crate::fetch::settings::FetchSettings::usual_fields
    pub usual: &'a UsualFields,
    /// The request's own header fields; they replace usual ones with the same name.
    pub headers: &'a [(String, String)],
    /// The request's body.
    pub body: Option<&'a [u8]>,
    /// Whether to keep the reply as received from the wire.
    pub keep_wire: bool,
    /// Whether the content coding of a kept body may be left undecoded: [`Outcome::undecoded`](super::Outcome).
    pub defers_decoding: bool,
    /// Maximum size of the body, if it differs from the settings (robots.txt).
    pub body_max: Option<u64>,
    /// Timeout measured from its release, if it differs from the settings.
    pub timeout: Option<Duration>,
    /// The proxy that forwards it. `target` is then the whole URL.
    pub proxy: Option<&'a Proxy>,
}

impl Description<'_> {
    /// Appends the head of the request as sent.
    ///
    /// # Errors
    /// It cannot be written; `out` is unchanged.
    pub fn write_head(&self, out: &mut Vec<u8>) -> Result<(), RequestError> {
        let authorization = self.proxy.and_then(Proxy::authorization);
        write_request(
            out,
            &self.head(authorization.as_deref().unwrap_or_default()),
        )
    }

    /// Checks that the request can be written.
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
