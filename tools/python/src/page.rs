//! A finished attempt, for Python.

use argiope::Instant;
use argiope::sink::files::write_line;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

/// A finished attempt: a page, a robots.txt or a sitemap, or its failure.
#[pyclass(frozen, module = "argiope")]
pub struct Page(
    /// Boxed, so that it moves from the crawl's queue to the Python object without a copy.
    Box<argiope::Page>,
);

impl From<argiope::Page> for Page {
    fn from(page: argiope::Page) -> Self {
        Page(Box::new(page))
    }
}

impl Page {
    /// Bytes of its body.
    pub fn body_bytes(&self) -> usize {
        self.0.body.len()
    }
}

#[pymethods]
impl Page {
    /// Number of the attempt.
    #[getter]
    fn id(&self) -> u64 {
        self.0.id
    }

    /// Number of the submitted request that retries and redirects led here from.
    #[getter]
    fn root(&self) -> u64 {
        self.0.root
    }

    /// Tag of that request.
    #[getter]
    fn tag(&self) -> u64 {
        self.0.tag
    }

    /// Whether no retry or redirect follows.
    #[getter]
    fn is_final(&self) -> bool {
        self.0.is_final
    }

    /// `page`, `robots` or `sitemap`.
    #[getter]
    fn kind(&self) -> &'static str {
        self.0.kind.as_str()
    }

    /// The canonical URL.
    #[getter]
    fn url(&self) -> &str {
        &self.0.url
    }

    /// Target of a redirect.
    #[getter]
    fn redirect(&self) -> Option<&str> {
        self.0.redirect.as_deref()
    }

    /// Number of the attempt that led to it: a retry, a redirect or a link.
    #[getter]
    fn parent(&self) -> Option<u64> {
        self.0.parent
    }

    /// Whether the request was submitted, or is the redirect of one that was.
    #[getter]
    fn seed(&self) -> bool {
        self.0.seed
    }

    /// The method.
    #[getter]
    fn method(&self) -> &str {
        &self.0.method
    }

    /// Number of links followed from a seed.
    #[getter]
    fn depth(&self) -> u32 {
        self.0.depth
    }

    /// Number of the attempt at this URL, from 1.
    #[getter]
    fn attempt(&self) -> u32 {
        self.0.attempt
    }

    /// Why `body` is not complete: `length` (cut at the limit and kept), `time` or `disconnect`.
    #[getter]
    fn truncated(&self) -> Option<&'static str> {
        Some(self.0.truncated?.as_str())
    }

    /// The address of the server, `ADDRESS:PORT`.
    #[getter]
    fn remote(&self) -> Option<String> {
        Some(self.0.remote?.to_string())
    }

    /// The own address of the connection, `ADDRESS:PORT`.
    #[getter]
    fn local(&self) -> Option<String> {
        Some(self.0.local?.to_string())
    }

    /// Whether the connection had carried an exchange before.
    #[getter]
    fn reused(&self) -> bool {
        self.0.reused
    }

    /// Bytes of the reply as received.
    #[getter]
    fn bytes_wire(&self) -> u64 {
        self.0.bytes_wire
    }

    /// Seconds that each phase took: `dns`, `connect`, `tls`, `request`, `first_byte`, `headers` and `body`; `None`
    /// for one that did not happen, as on a kept connection.
    #[getter]
    fn spans<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let spans = self.0.timings.spans();
        let phases = [
            ("dns", spans.dns),
            ("connect", spans.connect),
            ("tls", spans.tls),
            ("request", spans.request),
            ("first_byte", spans.first_byte),
            ("headers", spans.headers),
            ("body", spans.body),
        ];
        let seconds = PyDict::new(py);
        for (phase, span) in phases {
            seconds.set_item(phase, span.map(|span| span.as_secs_f64()))?;
        }
        Ok(seconds)
    }

    /// Everything that the page's line in `results.jsonl` has, as a dict with its keys.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut line = Vec::new();
        write_line(&self.0, None, &mut line);
        let line = PyBytes::new(py, &line);
        py.import("json")?.call_method1("loads", (line,))
    }

    /// The status of the reply.
    #[getter]
    fn status(&self) -> Option<u16> {
        self.0.status
    }

    /// The failure as `kind.code`.
    #[getter]
    fn error(&self) -> Option<String> {
        let failure = self.0.failure.as_ref()?;
        Some(format!("{}.{}", failure.kind.as_str(), failure.name))
    }

    /// Detail of the failure, as text.
    #[getter]
    fn error_detail(&self) -> Option<&str> {
        Some(&self.0.failure.as_ref()?.detail)
    }

    /// The Content-Type header.
    #[getter]
    fn content_type(&self) -> Option<&str> {
        self.0.content_type.as_deref()
    }

    /// The fields of `EXTRACT` by their names, with `None` where nothing matched; `None` if none were looked for.
    #[getter]
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(fields) = &self.0.fields else {
            return Ok(None);
        };
        let values = PyDict::new(py);
        for (name, value) in fields.iter() {
            values.set_item(name, value)?;
        }
        Ok(Some(values))
    }

    /// The headers of the reply, in order, as sent.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let fields = self.0.headers.iter();
        let bytes = |text: &[u8]| PyBytes::new(py, text);
        fields
            .map(|(name, value)| (bytes(name.as_ref()), bytes(value)))
            .collect()
    }

    /// The decoded body.
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

    /// Seconds by which it departed later than due, because the crawl was busy.
    #[getter]
    fn lateness(&self) -> Option<f64> {
        self.0.timings.lateness().map(|span| span.as_secs_f64())
    }

    /// The attempt's start, its release by the throttle, in seconds since the start of the crawl.
    #[getter]
    fn started(&self) -> f64 {
        seconds_of(self.0.timings.started)
    }

    /// When throttling allowed the departure, in seconds since the start of the crawl.
    #[getter]
    fn due(&self) -> Option<f64> {
        self.0.timings.due.map(seconds_of)
    }

    /// Departure, in seconds since the start of the crawl.
    #[getter]
    fn sent(&self) -> Option<f64> {
        self.0.timings.sent.map(seconds_of)
    }

    /// The request's `meta`, as JSON text.
    #[getter]
    fn meta(&self) -> Option<&str> {
        self.0.meta()
    }

    /// Names of its scopes.
    #[getter]
    fn scopes(&self) -> Vec<String> {
        self.0.scopes.clone()
    }

    /// The epoch whose commit covers it, in a crawl with a state.
    #[getter]
    fn epoch(&self) -> Option<u64> {
        Some(self.0.epoch?.0)
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

/// Seconds since the start of the crawl.
fn seconds_of(at: Instant) -> f64 {
    at.saturating_since(Instant::START).as_secs_f64()
}
