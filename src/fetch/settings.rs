//! Settings of fetching one page.

use std::time::Duration;

use crate::wire::coding::accept_encoding;
use crate::wire::http::{RequestError, UsualFields};
use crate::wire::login::Login;

/// Limits and defaults of one fetch.
#[derive(Clone, Debug, PartialEq)]
pub struct FetchSettings {
    /// `USER_AGENT`, including the contact.
    pub user_agent: String,
    /// Header fields of every request, in order, unless the request replaces them. Credentials
    /// among them are sent only to the origins of the seeds.
    pub headers: Vec<(String, String)>,
    /// `HTTP_USER`: user name and password for the origins that get the credentials in `headers`.
    pub user: Option<Login>,
    /// `CREDENTIAL_ORIGINS`: origins (`https://api.example.com`) besides those of the seeds that
    /// receive the credentials in `headers`; `*` means all.
    pub credential_origins: Vec<String>,
    /// `PRIVATE_HEADERS`: names of fields that count as credentials besides `Authorization`,
    /// `Cookie` and `Host`, in `headers` and in a request's own fields.
    pub private_headers: Vec<String>,
    /// `ACCEPT_ZSTD`: whether to accept zstd; `None`: only if no WARC files are written, because
    /// common WARC readers do not decode it.
    pub zstd: Option<bool>,
    /// `CONNECT_TIMEOUT`: until TCP is established.
    pub connect_timeout: Duration,
    /// `TLS_TIMEOUT`: for the handshake.
    pub tls_timeout: Duration,
    /// `FIRST_BYTE_TIMEOUT`: from the request's departure to the first byte of the final reply.
    pub first_byte_timeout: Duration,
    /// `IDLE_TIMEOUT`: maximum silence within a reply.
    pub idle_timeout: Duration,
    /// `DOWNLOAD_TIMEOUT`: for the whole fetch, from its release.
    pub download_timeout: Duration,
    /// `DOWNLOAD_MAXSIZE`: maximum size of a body in bytes, on the wire and decoded; a longer body
    /// is cut.
    pub body_max: u64,
    /// `DOWNLOAD_MIN_RATE`: minimum rate of a body in bytes per second over 30 s; 0 disables it.
    pub rate_min: u64,
    /// `DECODED_RATIO_MAX`: maximum ratio of decoded to coded size of a body (beyond 1 MiB).
    pub ratio_max: u32,
    /// `KEEPALIVE_TIMEOUT`: how long an idle connection is kept.
    pub keepalive_timeout: Duration,
    /// `COOKIES_ENABLED`: cookies from replies are stored and sent with later requests. So are they with
    /// `COOKIES_FILE`.
    pub cookies: bool,
    /// `KEEPALIVE_MAX`: maximum number of idle connections in total, as far as there are files for them. The default is
    /// enough for the hosts that one core keeps busy at a page a second each.
    pub keepalive_max: usize,
}

impl FetchSettings {
    /// The header fields of every request, encoded once. Later changes of the settings do not
    /// affect them.
    ///
    /// # Errors
    /// `headers` or `user_agent` cannot be sent.
    pub fn usual_fields(&self) -> Result<UsualFields, RequestError> {
        let ours = [
            ("User-Agent", &*self.user_agent),
            ("Accept", ACCEPT),
            (
                "Accept-Encoding",
                accept_encoding(self.zstd.unwrap_or(true)),
            ),
        ];
        UsualFields::new(&ours, &self.headers)
    }
}

/// The usual Accept field of browsers, so that servers send the usual page.
const ACCEPT: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

impl Default for FetchSettings {
    fn default() -> Self {
        FetchSettings {
            user_agent: concat!("argiope/", env!("CARGO_PKG_VERSION")).to_owned(),
            headers: Vec::new(),
            user: None,
            credential_origins: Vec::new(),
            private_headers: Vec::new(),
            zstd: None,
            connect_timeout: Duration::from_secs(10),
            tls_timeout: Duration::from_secs(10),
            first_byte_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(20),
            download_timeout: Duration::from_secs(120),
            body_max: 10 * 1024 * 1024,
            rate_min: 100,
            ratio_max: 200,
            keepalive_timeout: Duration::from_secs(15),
            // A crawl of many hosts is not a returning visitor.
            cookies: false,
            keepalive_max: 16_384,
        }
    }
}
