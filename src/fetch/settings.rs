//! What a user may say about the fetching of one page.

use std::time::Duration;

use crate::wire::coding::accept_encoding;
use crate::wire::http::{RequestError, UsualFields};

/// Limits and habits of one fetch.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `USER_AGENT`, with the contact already in it.
    pub user_agent: String,
    /// Sent with every request, in order, unless the request says otherwise. Credentials among them go to
    /// the origins of the seeds alone.
    pub headers: Vec<(String, String)>,
    /// `CREDENTIAL_ORIGINS`: origins (`https://api.example.com`) that get the credentials among `headers`
    /// beside those of the seeds; `*` is all of them.
    pub credential_origins: Vec<String>,
    /// `PRIVATE_HEADERS`: names of fields that are credentials beside `Authorization`, `Cookie` and
    /// `Host`, among `headers` and among a request's own.
    pub private_headers: Vec<String>,
    /// `ACCEPT_ZSTD`: zstd is among the codings asked for; `None`: where no WARC files are written, whose
    /// common readers do not undo it.
    pub zstd: Option<bool>,
    /// `CONNECT_TIMEOUT`: until TCP is established.
    pub connect_timeout: Duration,
    /// `TLS_TIMEOUT`: for the handshake.
    pub tls_timeout: Duration,
    /// `FIRST_BYTE_TIMEOUT`: from the request's departure to the first byte of the final reply.
    pub first_byte_timeout: Duration,
    /// `IDLE_TIMEOUT`: the longest silence within a reply.
    pub idle_timeout: Duration,
    /// `DOWNLOAD_TIMEOUT`: a whole fetch, from its release.
    pub download_timeout: Duration,
    /// `DOWNLOAD_MAXSIZE`: bytes of a body, on the wire and decoded; what is over is cut and the rest kept.
    pub body_max: u64,
    /// `DOWNLOAD_MIN_RATE`: bytes a second that a body must bring over 30 s. 0 switches it off.
    pub rate_min: u64,
    /// `DECODED_RATIO_MAX`: how many times larger than its coded form a body may become (beyond 1 MiB).
    pub ratio_max: u32,
    /// `KEEPALIVE_TIMEOUT`: how long a connection waits for its next request.
    pub keepalive_timeout: Duration,
    /// `COOKIES_ENABLED`: cookies that replies set are kept, and sent with later requests.
    pub cookies: bool,
    /// `KEEPALIVE_MAX`: connections that may wait, in all.
    pub keepalive_max: usize,
}

impl Settings {
    /// The header fields of every request, written once for all of them. They do not follow what is
    /// changed here later.
    ///
    /// # Errors
    /// `headers` or `user_agent` cannot be put on the wire.
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

/// What a page may be; the field's habit, so that a page looks as it does to others.
const ACCEPT: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

impl Default for Settings {
    fn default() -> Self {
        Settings {
            user_agent: concat!("argiope/", env!("CARGO_PKG_VERSION")).to_owned(),
            headers: Vec::new(),
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
            // A crawl of many hosts is nobody who comes back.
            cookies: false,
            keepalive_max: 4096,
        }
    }
}
