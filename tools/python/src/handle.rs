//! What submits requests and steers, from any thread.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use argiope::settings::ScopePatch;
use argiope::{ControlError, Request, SubmitError};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::setting::setting;

create_exception!(
    argiope,
    Full,
    PyException,
    "There is no room now; try again after a turn."
);
create_exception!(argiope, Over, PyException, "The crawl is over.");

/// Feeds a crawl and steers it, from any thread. The crawl does not end while one lives that is not
/// closed.
#[pyclass(frozen, module = "argiope")]
pub struct Handle(Mutex<Option<argiope::Handle>>);

#[pymethods]
impl Handle {
    /// Submits a request; gives its number, which each of its pages has as `root`. Raises `Full` where
    /// there is no room, `Over` after the end or `close`, and `ValueError` where it can never be sent.
    ///
    /// `request` is a URL, or JSON text as a line of seeds has it: an object with `url` and perhaps
    /// `method`, `headers`, `body_b64`, `scopes`, `priority`, `depth`, `sitemap`, `timeout` (seconds),
    /// `body_max` (bytes), `private_headers`, `proxy`, `meta`, `tag`, and true for any of
    /// `dont_adjust_delay`, `dont_filter`, `dont_follow`, `dont_merge_cookies`, `dont_send_credentials`,
    /// `ignore_robots`. A `tag` other than 0 takes the place of that of the text.
    #[pyo3(signature = (request, *, tag = 0))]
    fn submit(&self, request: &str, tag: u64) -> PyResult<u64> {
        let request = request_of(request, tag)?;
        self.with(|handle| submit(handle, request))
    }

    /// Cancels the request of this number, wherever it is.
    fn cancel(&self, id: u64) -> PyResult<()> {
        self.with(|handle| control_result(handle.cancel(id)))
    }

    /// Cancels all that are throttled under this scope.
    fn cancel_scope(&self, name: &str) -> PyResult<()> {
        self.with(|handle| control_result(handle.cancel_scope(name)))
    }

    /// Says something else of a scope from now on: `settings` is its entry of `THROTTLING_SCOPES`, as
    /// `{"delay": "2s"}`; an empty one takes back all that was said of it. `name` may be a host, a scope
    /// of your own, a pattern as `*.example.com`, or `default`.
    fn set_scope(&self, name: &str, settings: &Bound<'_, PyDict>) -> PyResult<()> {
        let patch = patch_of(settings)?;
        self.with(|handle| control_result(handle.set_scope(name, patch)))
    }

    /// Lets nothing more depart until `resume`.
    fn pause(&self) -> PyResult<()> {
        self.with(|handle| {
            handle.pause();
            Ok(())
        })
    }

    /// Lets requests depart again.
    fn resume(&self) -> PyResult<()> {
        self.with(|handle| {
            handle.resume();
            Ok(())
        })
    }

    /// Ends the crawl in good order: what is in flight has `grace` seconds.
    #[pyo3(signature = (grace = 25.0))]
    fn shutdown(&self, grace: f64) -> PyResult<()> {
        let grace = Duration::try_from_secs_f64(grace);
        let grace = grace.map_err(|error| PyValueError::new_err(error.to_string()))?;
        self.with(|handle| {
            handle.shutdown(grace);
            Ok(())
        })
    }

    /// Says that no more comes from this handle.
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

/// The request that a line of seeds says.
pub fn request_of(line: &str, tag: u64) -> PyResult<Request> {
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
