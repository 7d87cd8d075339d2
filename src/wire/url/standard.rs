//! Parses any URL by the WHATWG standard with the `url` library, including IDNA.

use std::borrow::Cow;
use std::cell::Cell;

use url::{ParseError, Position, Url};

use super::{CrawlUrl, UrlError};
use crate::wire::charset::QueryEncoding;

/// A URL of any scheme.
#[derive(Clone, Debug)]
pub(super) struct Parsed(Url);

impl Parsed {
    pub(super) fn of(url: &CrawlUrl) -> Self {
        Parsed(Url::parse(url.as_str()).expect("a canonical URL parses again"))
    }

    pub(super) fn parse(input: &str) -> Result<Self, UrlError> {
        Ok(Parsed(Url::parse(input).map_err(error_of)?))
    }

    /// Resolves a reference against this URL. Its query is encoded in `encoding`, or else UTF-8;
    /// `lacking` counts the characters that the encoding lacks.
    pub(super) fn join(
        &self,
        reference: &str,
        encoding: Option<QueryEncoding>,
        lacking: &Cell<usize>,
    ) -> Result<Self, UrlError> {
        let reference = match self.scheme() {
            "http" | "https" | "ftp" | "ws" | "wss" => with_two_slashes(reference),
            _ => reference.into(),
        };
        let options = Url::options().base_url(Some(&self.0));
        let url = match encoding {
            None => options.parse(&reference),
            // Tabs and line ends are removed first; the library would encode the parts between them
            // separately.
            Some(encoding) => options
                .encoding_override(Some(&|query| encoding.encode(query, lacking)))
                .parse(&reference.replace(['\t', '\n', '\r'], "")),
        };
        Ok(Parsed(url.map_err(error_of)?))
    }

    pub(super) fn scheme(&self) -> &str {
        self.0.scheme()
    }

    /// The standard's serialization.
    pub(super) fn href(&self) -> &str {
        self.0.as_str()
    }

    /// Path and query.
    pub(super) fn request_target(self) -> Result<String, UrlError> {
        Ok(self.0[Position::BeforePath..Position::AfterQuery].to_owned())
    }

    /// The URL to fetch.
    pub(super) fn into_crawl_url(self) -> Result<CrawlUrl, UrlError> {
        let Parsed(mut url) = self;
        let default_port = match url.scheme() {
            "http" => 80,
            "https" => 443,
            other => return Err(UrlError::Scheme(other.into())),
        };
        url.set_fragment(None);
        if url.has_authority() && (!url.username().is_empty() || url.password().is_some()) {
            // Both fail only for URLs that cannot have a host.
            let _ = url.set_username("");
            let _ = url.set_password(None);
        }
        let host = url.host_str().unwrap_or("");
        let bare = host.trim_end_matches('.');
        if bare.is_empty() {
            return Err(UrlError::NoHost);
        }
        if bare.len() != host.len() {
            let bare = bare.to_owned();
            url.set_host(Some(&bare)).map_err(|_| UrlError::Host)?;
        }
        let port = url.port().unwrap_or(default_port);
        let scheme_end = url.scheme().len() + 3;
        let host_end = scheme_end + url.host_str().map_or(0, str::len);
        CrawlUrl::of_text(String::from(url), host_end, port)
    }
}

/// A host in ASCII, as IDNA has it; `None` if it is none.
pub(in crate::wire) fn ascii_host(host: &str) -> Option<String> {
    match url::Host::parse(host) {
        Ok(url::Host::Domain(domain)) => Some(domain),
        _ => None,
    }
}

/// A reference that starts with more than two slashes names a host like one with two (WHATWG URL,
/// 4.4, "special authority ignore slashes state"). The library rejects it.
fn with_two_slashes(reference: &str) -> Cow<'_, str> {
    let text = reference.trim_start_matches(|c| c <= ' ');
    // Tabs and line ends are removed everywhere.
    let after = text.trim_start_matches(['/', '\\', '\t', '\n', '\r']);
    let run = &text[..text.len() - after.len()];
    match run.matches(['/', '\\']).count() {
        0..=2 => reference.into(),
        _ => format!("//{after}").into(),
    }
}

fn error_of(error: ParseError) -> UrlError {
    match error {
        ParseError::EmptyHost => UrlError::NoHost,
        ParseError::InvalidPort => UrlError::Port,
        ParseError::RelativeUrlWithoutBase
        | ParseError::RelativeUrlWithCannotBeABaseBase
        | ParseError::SetHostOnCannotBeABaseUrl => UrlError::Relative,
        ParseError::Overflow => UrlError::Long,
        _ => UrlError::Host,
    }
}
