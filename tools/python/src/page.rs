//! A finished attempt, as Python sees it.

use argiope::Instant;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A finished attempt: a page, a robots.txt, a sitemap, or what went wrong.
#[pyclass(frozen, module = "argiope")]
pub struct Page(
    /// Boxed: it goes from the crawl's queue to the interpreter's object as it lies.
    Box<argiope::Page>,
);

impl From<argiope::Page> for Page {
    fn from(page: argiope::Page) -> Self {
        Page(Box::new(page))
    }
}

#[pymethods]
impl Page {
    /// Number of the attempt.
    #[getter]
    fn id(&self) -> u64 {
        self.0.id
    }

    /// Number of the request that it descends from by retries and redirects.
    #[getter]
    fn root(&self) -> u64 {
        self.0.root
    }

    /// What that was tagged with.
    #[getter]
    fn tag(&self) -> u64 {
        self.0.tag
    }

    /// Whether no retry or redirect goes on from here.
    #[getter]
    fn is_final(&self) -> bool {
        self.0.is_final
    }

    /// `page`, `robots` or `sitemap`.
    #[getter]
    fn kind(&self) -> &'static str {
        self.0.kind.as_str()
    }

    /// The URL, canonical.
    #[getter]
    fn url(&self) -> &str {
        &self.0.url
    }

    /// Where a redirect leads.
    #[getter]
    fn redirect(&self) -> Option<&str> {
        self.0.redirect.as_deref()
    }

    /// The status of the reply.
    #[getter]
    fn status(&self) -> Option<u16> {
        self.0.status
    }

    /// What went wrong, as `kind.code`.
    #[getter]
    fn error(&self) -> Option<String> {
        let failure = self.0.failure.as_ref()?;
        Some(format!("{}.{}", failure.kind.as_str(), failure.code))
    }

    /// The same in words.
    #[getter]
    fn error_detail(&self) -> Option<&str> {
        Some(&self.0.failure.as_ref()?.detail)
    }

    /// The Content-Type field.
    #[getter]
    fn content_type(&self) -> Option<&str> {
        self.0.content_type.as_deref()
    }

    /// The fields of the reply, in order, as sent.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let fields = self.0.headers.iter();
        let bytes = |text: &[u8]| PyBytes::new(py, text);
        fields
            .map(|(name, value)| (bytes(name.as_ref()), bytes(value)))
            .collect()
    }

    /// The body, decoded.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.body)
    }

    /// Seconds from departure to the last byte of the head, by the kernel's clock.
    #[getter]
    fn server_latency(&self) -> Option<f64> {
        self.0
            .timings
            .server_latency()
            .map(|span| span.as_secs_f64())
    }

    /// Seconds by which it left late, of our own making.
    #[getter]
    fn lateness(&self) -> Option<f64> {
        self.0.timings.lateness().map(|span| span.as_secs_f64())
    }

    /// When it left, in seconds since the crawl began.
    #[getter]
    fn sent(&self) -> Option<f64> {
        let sent = self.0.timings.sent?;
        Some(sent.saturating_since(Instant::START).as_secs_f64())
    }

    /// The JSON text that the request had for `meta`.
    #[getter]
    fn meta(&self) -> Option<&str> {
        self.0.meta()
    }

    /// Names of the scopes that it was throttled under.
    #[getter]
    fn scopes(&self) -> Vec<String> {
        self.0.scopes.clone()
    }

    fn __repr__(&self) -> String {
        let how = match (self.0.status, self.error()) {
            (_, Some(error)) => error,
            (Some(status), None) => status.to_string(),
            (None, None) => "nothing".to_owned(),
        };
        format!("<Page {how} {}>", self.0.url)
    }
}
