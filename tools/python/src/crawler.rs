//! A crawl that a program in Python drives.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use argiope::sink::function::FunctionSink;
use argiope::{AdmitError, Config, FinishReason, Turn};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyDict;

use crate::handle::{Handle, Over, request_of};
use crate::page::Page;
use crate::setting::setting;

/// A crawl. `settings` maps names to values, as `{"DOWNLOAD_DELAY": "250ms"}`; a `ValueError` says which
/// cannot be.
///
/// Take a `turn` without patience, wait until `fileno()` is readable, and again: the descriptor carries
/// every deadline. Pages wait in it until they are taken; while a thousand wait it is held back.
#[pyclass(frozen, weakref, module = "argiope")]
pub struct Crawler {
    /// Poisoned by a turn that panicked, and then not touched again.
    crawl: Mutex<Crawl>,
    pages: Waiting,
}

/// Pages that wait, in the order in which they ended. Held for a moment, never while Python runs.
type Waiting = Arc<Mutex<VecDeque<Page>>>;

struct Crawl {
    crawler: Box<argiope::Crawler>,
    /// Why it is over. Its descriptor lives as long as it does: a loop still has to let go of it.
    reason: Option<FinishReason>,
}

/// Pages that wait to be taken before the crawl is held back; those on their way still come.
const PAGES_WAITING: usize = 1000;

#[pymethods]
impl Crawler {
    #[new]
    #[pyo3(signature = (settings = None))]
    fn new(settings: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut config = Config::default();
        for (name, value) in settings.into_iter().flatten() {
            let (name, value): (String, _) = (name.extract()?, setting(&value)?);
            let set = config.with(&name, value);
            config = set.map_err(|error| PyValueError::new_err(error.to_string()))?;
        }
        let pages = Waiting::default();
        let (keeps, room) = (Arc::clone(&pages), Arc::clone(&pages));
        let keep = move |page| {
            let page = Page::from(page);
            locked(&keeps).push_back(page);
        };
        let sink = FunctionSink::new(keep).ready_when(move || locked(&room).len() < PAGES_WAITING);
        let crawler = argiope::Crawler::builder(config).sink(sink).build();
        let crawler = crawler.map_err(|error| match error {
            argiope::SetUpError::Io(_) => PyOSError::new_err(error.to_string()),
            _ => PyValueError::new_err(error.to_string()),
        })?;
        Ok(Crawler {
            crawl: Mutex::new(Crawl {
                crawler: Box::new(crawler),
                reason: None,
            }),
            pages,
        })
    }

    /// What submits requests. The crawl does not end while one lives that is not closed.
    fn handle(&self, py: Python<'_>) -> PyResult<Handle> {
        let crawl = self.crawl(py)?;
        match crawl.reason {
            None => Ok(Handle::new(crawl.crawler.handle())),
            Some(_) => Err(Over::new_err("the crawl is over")),
        }
    }

    /// Submits a request, as a handle's `submit` does, from where the turns are taken: there is always
    /// room.
    #[pyo3(signature = (request, *, tag = 0))]
    fn submit(&self, py: Python<'_>, request: &str, tag: u64) -> PyResult<u64> {
        let request = request_of(request, tag)?;
        let submitted = self.crawl(py)?.crawler.submit(request);
        submitted.map_err(|why| match why {
            AdmitError::Over => Over::new_err(why.to_string()),
            _ => PyValueError::new_err(why.to_string()),
        })
    }

    /// The descriptor to wait for. It lives as long as this does.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.crawl(py)?.crawler.as_raw_fd())
    }

    /// One turn: waits for news for `patience` seconds at most, for ever if it is `None`, and does what
    /// there is to do. Other threads run meanwhile. Whether the crawl goes on.
    #[pyo3(signature = (patience = Some(0.0)))]
    fn turn(&self, py: Python<'_>, patience: Option<f64>) -> PyResult<bool> {
        let patience = patience.map(Duration::try_from_secs_f64).transpose();
        let patience = patience.map_err(|error| PyValueError::new_err(error.to_string()))?;
        py.detach(|| {
            let mut crawl = self.crawl.lock().map_err(|_| broken())?;
            match crawl.crawler.turn(patience) {
                Turn::GoesOn => Ok(true),
                Turn::Over(reason) => {
                    crawl.reason = Some(reason);
                    Ok(false)
                }
            }
        })
    }

    /// The finished pages that wait by now, in the order in which they ended: an iterator that takes
    /// each when it comes to it, so that a loop that stops early leaves the rest.
    fn pages(&self) -> Pages {
        let pages = Arc::clone(&self.pages);
        let left = AtomicUsize::new(locked(&pages).len());
        Pages { pages, left }
    }

    /// How many pages wait.
    #[getter]
    fn waiting(&self) -> usize {
        locked(&self.pages).len()
    }

    /// What was measured so far, with the keys of `stats.json`. Waits for the end of a turn that another
    /// thread takes.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let crawl = self.crawl(py)?;
        let crawler = &crawl.crawler;
        let stats = (crawler.stats()).to_json(&crawler.progress(), &crawler.pacing());
        py.import("json")?.call_method1("loads", (stats,))
    }

    /// Why the crawl is over: `finished`, `shutdown` and others; `None` while it goes on.
    #[getter]
    fn reason(&self, py: Python<'_>) -> PyResult<Option<&'static str>> {
        Ok(self.crawl(py)?.reason.map(FinishReason::as_str))
    }
}

impl Crawler {
    /// Another thread may be in a turn, and wait for the interpreter behind it.
    fn crawl(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Crawl>> {
        self.crawl.lock_py_attached(py).map_err(|_| broken())
    }
}

/// Pages that waited when it was made, and are taken one by one.
#[pyclass(frozen, module = "argiope")]
pub struct Pages {
    pages: Waiting,
    left: AtomicUsize,
}

#[pymethods]
impl Pages {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self) -> Option<Page> {
        let less = |left: usize| left.checked_sub(1);
        self.left.fetch_update(Relaxed, Relaxed, less).ok()?;
        let page = locked(&self.pages).pop_front();
        if page.is_none() {
            // Others took them.
            self.left.store(0, Relaxed);
        }
        page
    }
}

fn broken() -> PyErr {
    PyRuntimeError::new_err("an earlier turn panicked")
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
