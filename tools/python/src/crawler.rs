//! A crawl driven by a program in Python.

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

/// A crawl. `settings` maps names to values, such as `{"DOWNLOAD_DELAY": "250ms"}`; an invalid one raises
/// `ValueError` with its name.
///
/// Call `turn()`, wait until `fileno()` is readable, and repeat: the descriptor also becomes readable at
/// each deadline. While 1000 pages are untaken, nothing more departs.
#[pyclass(frozen, weakref, module = "argiope")]
pub struct Crawler {
    /// Poisoned by a turn that panicked, and then not used again.
    crawl: Mutex<Crawl>,
    pages: Waiting,
}

/// Untaken pages, in the order in which they ended. The lock is held briefly, never while Python runs.
type Waiting = Arc<Mutex<VecDeque<Page>>>;

struct Crawl {
    crawler: Box<argiope::Crawler>,
    /// Why it ended. The crawler is kept after that: a loop still has to deregister its descriptor.
    reason: Option<FinishReason>,
}

/// With this many untaken pages nothing more departs; requests in flight still end.
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
        let (queue, room) = (Arc::clone(&pages), Arc::clone(&pages));
        let keep = move |page| {
            let page = Page::from(page);
            locked(&queue).push_back(page);
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

    /// A thread-safe handle. The crawl does not end before all its handles are closed or deleted.
    fn handle(&self, py: Python<'_>) -> PyResult<Handle> {
        let crawl = self.crawl(py)?;
        match crawl.reason {
            None => Ok(Handle::new(crawl.crawler.handle())),
            Some(_) => Err(Over::new_err("the crawl is over")),
        }
    }

    /// Submits a request like `Handle.submit`, from the thread that takes the turns. Never raises `Full`.
    #[pyo3(signature = (request, *, tag = 0))]
    fn submit(&self, py: Python<'_>, request: &str, tag: u64) -> PyResult<u64> {
        let request = request_of(request, tag)?;
        let submitted = self.crawl(py)?.crawler.submit(request);
        submitted.map_err(|why| match why {
            AdmitError::Over => Over::new_err(why.to_string()),
            _ => PyValueError::new_err(why.to_string()),
        })
    }

    /// The descriptor to wait for; open as long as the crawler exists.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.crawl(py)?.crawler.as_raw_fd())
    }

    /// Takes one turn: waits at most `patience` seconds for an event, without limit if it is `None`, and
    /// handles what has arrived and what is due. Releases the interpreter lock. Returns whether the crawl
    /// still runs.
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

    /// An iterator over the pages that are untaken now, in the order in which they ended. It takes one page
    /// per step; a loop that stops early leaves the rest in the queue.
    fn pages(&self) -> Pages {
        let pages = Arc::clone(&self.pages);
        let left = AtomicUsize::new(locked(&pages).len());
        Pages { pages, left }
    }

    /// Number of untaken pages.
    #[getter]
    fn waiting(&self) -> usize {
        locked(&self.pages).len()
    }

    /// Current statistics, with the keys of `stats.json`. Blocks while another thread is in a turn.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let crawl = self.crawl(py)?;
        let crawler = &crawl.crawler;
        let stats = (crawler.stats()).to_json(&crawler.progress(), &crawler.pacing());
        py.import("json")?.call_method1("loads", (stats,))
    }

    /// Why the crawl ended: `finished`, `shutdown`, …; `None` while it runs.
    #[getter]
    fn reason(&self, py: Python<'_>) -> PyResult<Option<&'static str>> {
        Ok(self.crawl(py)?.reason.map(FinishReason::as_str))
    }
}

impl Crawler {
    /// Releases the interpreter while it waits: another thread may be in a turn, and need the interpreter
    /// after it.
    fn crawl(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Crawl>> {
        self.crawl.lock_py_attached(py).map_err(|_| broken())
    }
}

/// Iterator over the pages that were untaken when it was created.
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
            // Another iterator took them.
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
