//! A crawl that a program in Python drives.

use std::mem;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use argiope::sink::function::FunctionSink;
use argiope::{Config, Refused, Turn};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyDict, PyList};

use crate::handle::{Handle, Over, request_of};
use crate::page::Page;
use crate::setting::setting;

/// A crawl. `settings` maps names to values, as `{"DOWNLOAD_DELAY": "250ms"}`; a `ValueError` says which
/// cannot be.
///
/// Take a `turn` without patience, wait until `fileno()` is readable, and again: the descriptor carries
/// every deadline. Pages wait in it until they are taken; while a thousand wait it is held back, to which
/// those do not count that were taken and are still to be looked at.
#[pyclass(frozen, weakref, module = "argiope")]
pub struct Crawler {
    /// Poisoned by a turn that panicked, and then not touched again.
    crawl: Mutex<Crawl>,
    pages: Arc<Mutex<Vec<Page>>>,
    /// Pages that were taken and given back, before all in `pages`.
    given_back: Mutex<Vec<Py<Page>>>,
}

struct Crawl {
    crawler: Box<argiope::Crawler>,
    /// Why it is over. Its descriptor lives as long as it does: a loop still has to let go of it.
    reason: Option<&'static str>,
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
        let pages: Arc<Mutex<Vec<Page>>> = Arc::default();
        let (keeps, room) = (Arc::clone(&pages), Arc::clone(&pages));
        let sink = FunctionSink::new(move |page| locked(&keeps).push(Page::from(page)))
            .ready_when(move || locked(&room).len() < PAGES_WAITING);
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
            given_back: Mutex::default(),
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
            Refused::Over => Over::new_err(why.to_string()),
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

    /// The finished pages that wait, a list, in the order in which they ended.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let given_back = mem::take(&mut *locked(&self.given_back));
        let pages = mem::take(&mut *locked(&self.pages));
        if given_back.is_empty() {
            return PyList::new(py, pages);
        }
        let list = PyList::new(py, given_back)?;
        pages.into_iter().try_for_each(|page| list.append(page))?;
        Ok(list)
    }

    /// Gives back pages that were taken and not looked at: whoever takes next has them first.
    fn give_back(&self, pages: Vec<Py<Page>>) {
        locked(&self.given_back).splice(..0, pages);
    }

    /// What was measured so far, with the keys of `stats.json`. Waits for the end of a turn that another
    /// thread takes.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let crawl = self.crawl(py)?;
        let crawler = &crawl.crawler;
        let stats = (crawler.stats()).to_json(&crawler.progress(), &crawler.pacing());
        py.import("json")?
            .call_method1("loads", (stats.to_string(),))
    }

    /// Why the crawl is over: `finished`, `shutdown` and others; `None` while it goes on.
    #[getter]
    fn reason(&self, py: Python<'_>) -> PyResult<Option<&'static str>> {
        Ok(self.crawl(py)?.reason)
    }
}

impl Crawler {
    /// Another thread may be in a turn, and wait for the interpreter behind it.
    fn crawl(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Crawl>> {
        self.crawl.lock_py_attached(py).map_err(|_| broken())
    }
}

fn broken() -> PyErr {
    PyRuntimeError::new_err("an earlier turn panicked")
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
