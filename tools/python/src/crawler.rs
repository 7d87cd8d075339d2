//! A crawl driven by a program in Python.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use argiope::sink::directory::DirectoryLock;
use argiope::sink::function::FunctionSink;
use argiope::{AdmitError, Config, FinishReason, Turn};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyDict;

use crate::handle::{Handle, Over, request_of};
use crate::kept::Kept;
use crate::page::Page;
use crate::setting::{key, setting};

/// A crawl. `settings` maps names to values, such as `{"DOWNLOAD_DELAY": "250ms"}`; an invalid one raises
/// `ValueError` with its name.
///
/// Call `turn()`, wait until `fileno()` is readable, and repeat: the descriptor also becomes readable at
/// each deadline. While 1000 pages are untaken, or 8 MiB of them, nothing more departs, and bodies are not read on.
///
/// `pages()` has results: the final page of each request and link, with success or failure. With `every_attempt`
/// it also has each robots.txt, each sitemap that was not submitted, and attempts that are not final, because a retry
/// or a redirect follows.
///
/// Handles submit at most `ahead` requests beyond those that are being fetched; then they raise `Full`.
///
/// With `state`, a directory, the state of the crawl is kept there, or the crawl whose state is there is
/// continued: what is still to be fetched, what was seen, and the politeness of each scope. Any end may be
/// continued, `kill -9` and a power cut included; settings are given again. Every `STATE_SYNC` the crawl
/// commits. A commit covers the pages that were passed to `acknowledge`, and waits for those that were ready
/// before it began; the crawl does not end before the last ones are acknowledged. What no commit covers is
/// fetched again in the next run: store each page with its `epoch`, and before the first turn delete those of
/// later epochs than `committed_epoch`. If that is 0, submit the seeds. Raises `OSError` if another process
/// uses the directory, or its state cannot be read.
#[pyclass(frozen, weakref, module = "argiope")]
pub struct Crawler {
    /// Poisoned by a turn that panicked, and then not used again.
    crawl: Mutex<Crawl>,
    pages: Waiting,
    /// With a state: the crawler has further pages, for which there is no room here.
    has_more: AtomicBool,
    /// Epoch of the last commit before this run.
    committed_epoch: u64,
}

/// Untaken pages. The lock is held briefly, never while Python runs.
type Waiting = Arc<Mutex<Untaken>>;

/// Pages in the order in which they ended.
#[derive(Default)]
struct Untaken {
    pages: VecDeque<Page>,
    /// Bytes of their bodies.
    bytes: usize,
}

impl Untaken {
    /// Whether nothing more departs.
    fn is_full(&self) -> bool {
        self.pages.len() >= PAGES_WAITING || self.bytes >= BYTES_WAITING
    }

    fn push(&mut self, page: Page) {
        self.bytes += page.body_bytes();
        self.pages.push_back(page);
    }

    fn pop(&mut self) -> Option<Page> {
        let page = self.pages.pop_front()?;
        self.bytes -= page.body_bytes();
        Some(page)
    }
}

struct Crawl {
    crawler: Box<argiope::Crawler>,
    /// Why it ended. The crawler is kept after that: a loop still has to deregister its descriptor.
    reason: Option<FinishReason>,
    /// With a state. Dropped after the crawler, which writes until then.
    lock: Option<DirectoryLock>,
}

/// With this many untaken pages nothing more departs; requests in flight still end.
const PAGES_WAITING: usize = 1000;

/// And with so many bytes of them, as where results are pulled in Rust.
const BYTES_WAITING: usize = 8 << 20;

/// A turn waits no longer while there is no room for pages.
const PATIENCE_FULL: Duration = Duration::from_millis(10);

#[pymethods]
impl Crawler {
    #[new]
    #[pyo3(signature = (settings = None, *, state = None, every_attempt = false, ahead = 10_000))]
    fn new(
        settings: Option<&Bound<'_, PyDict>>,
        state: Option<PathBuf>,
        every_attempt: bool,
        ahead: usize,
    ) -> PyResult<Self> {
        let mut config = Config::default();
        for (name, value) in settings.into_iter().flatten() {
            let (name, value) = (key(&name)?, setting(&value)?);
            let set = config.with(&name, value);
            config = set.map_err(|error| PyValueError::new_err(error.to_string()))?;
        }
        let pages = Waiting::default();
        let kept = state.map(|folder| Kept::open(&folder)).transpose()?;
        let committed_epoch = kept.as_ref().map_or(0, Kept::epoch);
        if ahead == 0 {
            return Err(PyValueError::new_err("`ahead` is 1 at least"));
        }
        let builder = argiope::Crawler::builder(config).ahead(ahead);
        let builder = match every_attempt {
            true => builder.every_attempt(),
            false => builder,
        };
        let (builder, lock) = match kept {
            Some(Kept { state, lock }) => (builder.state(state), Some(lock)),
            None => {
                let (queue, room) = (Arc::clone(&pages), Arc::clone(&pages));
                let keep = move |page: argiope::Page| {
                    if every_attempt || page.is_result() {
                        locked(&queue).push(Page::from(page));
                    }
                };
                let sink = FunctionSink::new(keep).ready_when(move || !locked(&room).is_full());
                (builder.sink(sink), None)
            }
        };
        let crawler = builder.build().map_err(|error| match error {
            argiope::SetUpError::Io(_) => PyOSError::new_err(error.to_string()),
            _ => PyValueError::new_err(error.to_string()),
        })?;
        Ok(Crawler {
            crawl: Mutex::new(Crawl {
                crawler: Box::new(crawler),
                reason: None,
                lock,
            }),
            pages,
            has_more: AtomicBool::new(false),
            committed_epoch,
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
    fn submit(&self, py: Python<'_>, request: &Bound<'_, PyAny>, tag: u64) -> PyResult<u64> {
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
        // Soon a thread that takes pages needs the crawl.
        let patience = match self.has_more.load(Relaxed) {
            true => Some(patience.unwrap_or(PATIENCE_FULL).min(PATIENCE_FULL)),
            false => patience,
        };
        py.detach(|| {
            let mut crawl = self.crawl.lock().map_err(|_| broken())?;
            let turn = crawl.crawler.turn(patience);
            self.pull(&mut crawl);
            match turn {
                Turn::GoesOn => Ok(true),
                Turn::Over(reason) => {
                    crawl.reason = Some(reason);
                    Ok(false)
                }
            }
        })
    }

    /// Takes the turns in the running asyncio loop, as `drive()` does: `async for page in crawler`.
    fn __aiter__<'py>(this: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let module = this.py().import("argiope")?;
        module.call_method1("drive", (this,))
    }

    /// An iterator over the pages that are untaken now, in the order in which they ended. It takes one page
    /// per step; a loop that stops early leaves the rest in the queue.
    fn pages(this: Py<Self>) -> Pages {
        let left = AtomicUsize::new(locked(&this.get().pages).pages.len());
        Pages {
            crawler: this,
            left,
        }
    }

    /// Acknowledges a page of a crawl with a state, by its `id`: the program does not lose it any more.
    /// Acknowledge each that was taken, failures included, in any order, and before waiting for more pages:
    /// the crawl may wait for that. Blocks while another thread is in a turn.
    fn acknowledge(&self, py: Python<'_>, id: u64) -> PyResult<()> {
        self.crawl(py)?.crawler.acknowledge(id);
        Ok(())
    }

    /// Epoch of the last commit before this run; 0 if there was none, and without a state.
    #[getter]
    fn committed_epoch(&self) -> u64 {
        self.committed_epoch
    }

    /// Number of untaken pages.
    #[getter]
    fn waiting(&self) -> usize {
        locked(&self.pages).pages.len()
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

    /// With a state: takes what waits in the crawler, as far as there is room.
    fn pull(&self, crawl: &mut Crawl) {
        if crawl.lock.is_none() {
            return;
        }
        let mut pages = locked(&self.pages);
        let mut has_more = true;
        while has_more && !pages.is_full() {
            let page = crawl.crawler.try_next_result();
            has_more = page.is_some();
            if let Some(page) = page {
                pages.push(Page::from(page));
            }
        }
        self.has_more.store(has_more, Relaxed);
    }

    /// The next untaken page.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Page>> {
        let mut pages = locked(&self.pages);
        let page = pages.pop();
        let is_empty = pages.pages.is_empty();
        drop(pages);
        if is_empty && self.has_more.load(Relaxed) {
            // The crawl waits until they are taken.
            let mut crawl = self.crawl(py)?;
            self.pull(&mut crawl);
        }
        Ok(page)
    }
}

/// Iterator over the pages that were untaken when it was created.
#[pyclass(frozen, module = "argiope")]
pub struct Pages {
    crawler: Py<Crawler>,
    left: AtomicUsize,
}

#[pymethods]
impl Pages {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Page>> {
        let less = |left: usize| left.checked_sub(1);
        if self.left.fetch_update(Relaxed, Relaxed, less).is_err() {
            return Ok(None);
        }
        let page = self.crawler.get().next(py)?;
        if page.is_none() {
            // Another iterator took them.
            self.left.store(0, Relaxed);
        }
        Ok(page)
    }
}

fn broken() -> PyErr {
    PyRuntimeError::new_err("an earlier turn panicked")
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
