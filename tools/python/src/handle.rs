//! Thread-safe control handle.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use argiope::settings::ScopePatch;
use argiope::{ControlError, Request, SubmitError};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::setting::{setting, text};

create_exception!(
    argiope,
    Full,
    PyException,
    "The crawl has no room for more requests: take turns and the pages, then try again."
);
create_exception!(argiope, Over, PyException, "The crawl has ended.");

/// Submits requests to a crawl and controls it, from any thread. The crawl does not end before all its
/// handles are closed or deleted.
#[pyclass(frozen, module = "argiope")]
pub struct Handle(Mutex<Option<argiope::Handle>>);

#[pymethods]
impl Handle {
    /// Submits a request; returns its number, which is the `root` of each of its pages. Raises `Full` while the
    /// crawl has as many requests ahead of what it fetches as it accepts (`Crawler(ahead=…)`), or 4096 that
    /// are not admitted: there is room again as requests are fetched, for which the pages have to be taken as well.
    /// What a page leads to is submitted by `Crawler.submit`, which is never full. Raises `Over` after the end or
    /// `close`; and `ValueError` if the request is invalid.
    ///
    /// `request` is a URL, a dict, or the JSON text of one: with `url` and optionally `method`,
    /// `headers`, `body_b64` (in a dict also `body`, bytes), `scopes`, `priority`, `depth`, `sitemap`,
    /// `timeout` (seconds), `body_max` (bytes), `private_headers`, `proxy`, `meta`, `tag`, and the booleans
    /// `dont_adjust_delay`, `dont_filter`, `dont_follow`, `dont_merge_cookies`, `dont_send_credentials`,
    /// `ignore_robots`. A `tag` other than 0 replaces that of the dict.
    #[pyo3(signature = (request, *, tag = 0))]
    fn submit(&self, request: &Bound<'_, PyAny>, tag: u64) -> PyResult<u64> {
        let request = request_of(request, tag)?;
        self.with(|handle| submit(handle, request))
    }

    /// Cancels the request with this number, queued or in flight.
    fn cancel(&self, id: u64) -> PyResult<()> {
        self.with(|handle| control_result(handle.cancel(id)))
    }

    /// Cancels all requests of a scope.
    fn cancel_scope(&self, name: &str) -> PyResult<()> {
        self.with(|handle| control_result(handle.cancel_scope(name)))
    }

    /// Changes the settings of a scope; `{}` removes earlier changes. `settings` is an entry of
    /// `THROTTLING_SCOPES`, such as `{"delay": "2s"}`. `name` is a host, a scope of your own, a pattern such
    /// as `*.example.com`, or `default`.
    fn set_scope(&self, name: &str, settings: &Bound<'_, PyDict>) -> PyResult<()> {
        let patch = patch_of(settings)?;
        self.with(|handle| control_result(handle.set_scope(name, patch)))
    }

    /// Pauses departures until `resume`.
    fn pause(&self) -> PyResult<()> {
        self.with(|handle| {
            handle.pause();
            Ok(())
        })
    }

    /// Resumes departures.
    fn resume(&self) -> PyResult<()> {
        self.with(|handle| {
            handle.resume();
            Ok(())
        })
    }

    /// Shuts the crawl down: nothing more departs; requests in flight have `grace` seconds to finish.
    #[pyo3(signature = (grace = 25.0))]
    fn shutdown(&self, grace: f64) -> PyResult<()> {
        let grace = Duration::try_from_secs_f64(grace);
        let grace = grace.map_err(|error| PyValueError::new_err(error.to_string()))?;
        self.with(|handle| {
            handle.shutdown(grace);
            Ok(())
        })
    }

    /// Closes this handle.
    fn close(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl Handle {
    pub fn new(handle: argiope::Handle) -> Self {
        Handle(Mutex::new(Some(handle)))
    }

    fn with<T>(&self, work: impl FnOnce(&argiope::Handle) -> PyResult<T>) -> PyResult<T> {
        let handle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*handle {
            Some(handle) => work(handle),
            None => Err(Over::new_err("the handle is closed")),
        }
    }
}

fn submit(handle: &argiope::Handle, request: Request) -> PyResult<u64> {
    handle.try_submit(request).map_err(|error| match error {
        SubmitError::Full(_) => Full::new_err(error.to_string()),
        SubmitError::Over(_) => Over::new_err(error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    })
}

fn patch_of(settings: &Bound<'_, PyDict>) -> PyResult<ScopePatch> {
    setting(settings)?
        .to_string()
        .parse::<ScopePatch>()
        .map_err(|error| PyValueError::new_err(error.to_string()))
}

/// A request: a line of seeds, or a dict with the keys of one.
pub fn request_of(request: &Bound<'_, PyAny>, tag: u64) -> PyResult<Request> {
    let line = match request.cast::<PyDict>() {
        Ok(keys) => setting(with_encoded_body(keys)?.as_any())?.to_string(),
        Err(_) => {
            let line = request.cast::<PyString>().map_err(|_| {
                let kind = request.get_type();
                PyValueError::new_err(format!("a request is a str or a dict, not {kind}"))
            })?;
            text(line)?
        }
    };
    let line = line.as_str();
    let refused = |why: String| PyValueError::new_err(why);
    let request = Request::from_line(line).map_err(|error| refused(error.to_string()))?;
    let request = request.ok_or_else(|| refused(format!("there is no URL in {line:?}")))?;
    Ok(match tag {
        0 => request,
        tag => request.tag(tag),
    })
}

fn control_result(result: Result<(), ControlError>) -> PyResult<()> {
    result.map_err(|error| match error {
        ControlError::Busy => Full::new_err(error.to_string()),
        ControlError::Over => Over::new_err(error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    })
}

/// The keys of a request, with the body in the form of a seeds line.
fn with_encoded_body<'py>(keys: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
    let Some(body) = keys.get_item("body")? else {
        return Ok(keys.clone());
    };
    let keys = keys.copy()?;
    keys.del_item("body")?;
    let body = body
        .cast::<PyBytes>()
        .map_err(|_| PyValueError::new_err(format!("`body` is bytes, not {}", body.get_type())))?;
    let base64 = keys.py().import("base64")?;
    let encoded = base64.call_method1("b64encode", (body,))?;
    keys.set_item("body_b64", encoded.call_method1("decode", ("ascii",))?)?;
    Ok(keys)
}
