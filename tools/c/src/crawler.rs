//! A crawl driven by a program in C.

use std::collections::VecDeque;
use std::error::Error;
use std::ffi::{CStr, c_char, c_int};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use argiope::sink::directory::DirectoryLock;
use argiope::sink::function::FunctionSink;
use argiope::{AdmitError, Config, Crawler, FinishReason, Page, Turn};

use crate::arguments::{request, text};
use crate::error::{ArgiopeStatus, failed, guarded, refuse, set_error};
use crate::handle::{ArgiopeHandle, accepted};
use crate::kept::Kept;
use crate::page::{ArgiopeBytes, ArgiopePage};

/// A crawl.
pub struct ArgiopeCrawler {
    /// `None` once a turn panicked: its state may be inconsistent and is not used again. It is kept after
    /// the end of the crawl because a loop still has to deregister its descriptor.
    crawler: Option<Box<Crawler>>,
    reason: Option<&'static CStr>,
    /// Untaken pages. With a state the crawler has them.
    pages: Arc<Mutex<VecDeque<Page>>>,
    /// `argiope_next` returns every attempt, not only results.
    every_attempt: bool,
    /// Epoch of the last commit before this run.
    epoch: u64,
    /// The result of the last `argiope_stats`.
    stats: String,
    /// `None` after `argiope_close`. While it lives the crawl does not end.
    handle: Option<argiope::Handle>,
    /// With a state. Dropped after the crawler, which writes until then.
    _lock: Option<DirectoryLock>,
}

/// With this many untaken pages nothing more departs; requests in flight still end.
const PAGES_WAITING: usize = 1000;

/// Creates a crawler. `settings` is a null-terminated array of alternating names and values
/// (`"DOWNLOAD_DELAY", "250ms"`), or null. Returns null on an invalid setting, or if a system call
/// fails. Free it with `argiope_free`.
///
/// # Safety
/// `settings` is null, or such an array of strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_new(settings: *const *const c_char) -> *mut ArgiopeCrawler {
    // SAFETY: the caller's promise.
    guarded(ptr::null_mut(), || made(unsafe { make(settings, None) }))
}

/// Creates a crawler like `argiope_new`, and keeps its state in `folder`, or continues the crawl whose state is
/// there: what is still to be fetched, what was seen, and the politeness of each scope. Any end may be
/// continued, `kill -9` and a power cut included; settings are given again.
///
/// Every `STATE_SYNC` the crawl commits. A commit covers the pages that were passed to
/// `argiope_acknowledge`, and waits for those that were ready before it began; the crawl does not end
/// before the last ones are acknowledged. What no commit covers is fetched again in the next run: store
/// each page with its `epoch`, and before the first turn delete those of later epochs than
/// `argiope_committed_epoch`. If that is 0, submit the seeds.
///
/// Null also if another process uses `folder`, or its state cannot be read.
///
/// # Safety
/// As `argiope_new`; `folder` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_new_with_state(
    settings: *const *const c_char,
    folder: *const c_char,
) -> *mut ArgiopeCrawler {
    guarded(ptr::null_mut(), || {
        // SAFETY: the caller's promises.
        made(
            unsafe { text(folder).map_err(Into::into) }.and_then(|folder| {
                let folder = Some(Path::new(folder));
                // SAFETY: the caller's promise.
                unsafe { make(settings, folder) }
            }),
        )
    })
}

fn made(crawler: Result<ArgiopeCrawler, Box<dyn Error>>) -> *mut ArgiopeCrawler {
    match crawler {
        Ok(crawler) => Box::into_raw(Box::new(crawler)),
        Err(error) => {
            set_error(error);
            ptr::null_mut()
        }
    }
}

/// # Safety
/// As `argiope_new`.
unsafe fn make(
    mut settings: *const *const c_char,
    folder: Option<&Path>,
) -> Result<ArgiopeCrawler, Box<dyn Error>> {
    let mut config = Config::default();
    // SAFETY: the array ends with a null, and nothing is read beyond it.
    while !settings.is_null() && unsafe { !(*settings).is_null() } {
        // SAFETY: as above; a name is followed by its value or by the end.
        let (name, value) = unsafe { (text(*settings)?, *settings.add(1)) };
        if value.is_null() {
            return Err(format!("{name}: a value is missing").into());
        }
        // SAFETY: it is not null, so it is a string.
        config = config.with(name, unsafe { text(value)? })?;
        // SAFETY: two entries were there.
        settings = unsafe { settings.add(2) };
    }
    let pages: Arc<Mutex<VecDeque<Page>>> = Arc::default();
    let kept = folder.map(Kept::open).transpose()?;
    let epoch = kept.as_ref().map_or(0, Kept::epoch);
    let builder = Crawler::builder(config);
    let (builder, lock) = match kept {
        Some(Kept { state, lock }) => {
            let builder = builder.state(state).results_max(PAGES_WAITING);
            // Which of them are returned is decided later.
            let builder = builder.every_attempt();
            (builder, Some(lock))
        }
        None => {
            let (keeps, room) = (Arc::clone(&pages), Arc::clone(&pages));
            let sink = FunctionSink::new(move |page| locked(&keeps).push_back(page))
                .ready_when(move || locked(&room).len() < PAGES_WAITING);
            (builder.sink(sink), None)
        }
    };
    let crawler = builder.build()?;
    Ok(ArgiopeCrawler {
        handle: Some(crawler.handle()),
        crawler: Some(Box::new(crawler)),
        reason: None,
        stats: String::new(),
        pages,
        every_attempt: false,
        epoch,
        _lock: lock,
    })
}

/// Submits a request: a URL, or a JSON object with `url` and the other keys of a seeds line
/// (`method`, `headers`, `body_b64`, `scopes`, `priority`, `depth`, `sitemap`, `timeout` in seconds,
/// `body_max` in bytes, `private_headers`, `proxy`, `meta`, `tag`, and the booleans
/// `dont_adjust_delay`, `dont_filter`, `dont_follow`, `dont_merge_cookies`, `dont_send_credentials`,
/// `ignore_robots`). Its pages have this `tag`; with 0, the tag of the object.
/// Unless `id` is null, the request's number is written to it: the `root` of each of its pages.
///
/// It is never full, so what a page leads to can be submitted at once: do not submit a long list in one go, which would
/// take memory for all of it, but some of it between turns, or from another thread by `argiope_handle_submit`.
/// `ARGIOPE_STATUS_REFUSED`: the request is invalid. `ARGIOPE_STATUS_OVER`: the crawl has ended, or `argiope_close` was
/// called.
///
/// # Safety
/// `crawler` comes from `argiope_new` and is not in use elsewhere; `request` is a string; `id` is null
/// or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_submit(
    crawler: *mut ArgiopeCrawler,
    request: *const c_char,
    tag: u64,
    id: *mut u64,
) -> ArgiopeStatus {
    guarded(ArgiopeStatus::Broken, || {
        // SAFETY: the caller's promises.
        match unsafe { (crawler.as_mut(), text(request)) } {
            (None, _) => refuse("crawler is null"),
            (_, Err(why)) => refuse(why),
            // SAFETY: the caller's promise.
            (Some(crawler), Ok(line)) => unsafe { submit(crawler, line, tag, id) },
        }
    })
}

/// Submits the request in a line of seeds.
///
/// # Safety
/// `id` is null or writable.
unsafe fn submit(
    crawler: &mut ArgiopeCrawler,
    line: &str,
    tag: u64,
    id: *mut u64,
) -> ArgiopeStatus {
    let request = match request(line, tag) {
        Ok(request) => request,
        Err(why) => return refuse(why),
    };
    let is_closed = crawler.handle.is_none() && crawler.reason.is_none();
    if is_closed && crawler.crawler.is_some() {
        let why = "submission is closed: argiope_close was called";
        return failed(ArgiopeStatus::Over, why);
    }
    match crawler.using(|going| going.submit(request)) {
        // SAFETY: the caller's promise.
        Some(Ok(number)) => unsafe { accepted(number, id) },
        Some(Err(error @ AdmitError::Over)) => failed(ArgiopeStatus::Over, error),
        Some(Err(error)) => refuse(error),
        None => ArgiopeStatus::Broken,
    }
}

/// Sets how many requests handles (`argiope_handle_submit`) submit at most beyond those that are being fetched: 10000
/// until then, 1 at least.
///
/// # Safety
/// `crawler` comes from `argiope_new` and is not in use elsewhere.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_set_ahead(crawler: *mut ArgiopeCrawler, requests: usize) {
    guarded((), || {
        // SAFETY: the caller's promise.
        if let Some(crawler) = unsafe { crawler.as_mut() } {
            crawler.using(|going| going.set_ahead(requests));
        }
    });
}

/// Closes submission: the crawl ends when every request has ended and every handle has been freed.
///
/// # Safety
/// `crawler` comes from `argiope_new` and is not in use elsewhere.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_close(crawler: *mut ArgiopeCrawler) {
    guarded((), || {
        // SAFETY: the caller's promise.
        if let Some(crawler) = unsafe { crawler.as_mut() } {
            crawler.handle = None;
        }
    });
}

/// The descriptor to wait for. It is readable when there is work for a turn: bytes, commands, or a
/// deadline that has passed. It stays the same until `argiope_free`, which closes it. -1 if `crawler`
/// is null or broken.
///
/// # Safety
/// As `argiope_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_fd(crawler: *const ArgiopeCrawler) -> c_int {
    guarded(-1, || {
        // SAFETY: the caller's promise.
        let crawler = unsafe { crawler.as_ref() }.and_then(|crawler| crawler.crawler.as_ref());
        crawler.map_or(-1, |crawler| crawler.as_raw_fd())
    })
}

/// Takes one turn: handles what has arrived and what is due, for about a millisecond. Waits at most
/// `patience` nanoseconds for an event; a negative value waits without limit. With 0 it does not wait,
/// and sets the deadline of the descriptor for your own wait. Returns `ARGIOPE_STATUS_OK` while the crawl runs,
/// then `ARGIOPE_STATUS_OVER`; pages may be ready in both cases.
///
/// # Safety
/// As `argiope_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_turn(
    crawler: *mut ArgiopeCrawler,
    patience: i64,
) -> ArgiopeStatus {
    // SAFETY: the caller's promise.
    let Some(crawler) = (unsafe { crawler.as_mut() }) else {
        return refuse("crawler is null");
    };
    let patience = u64::try_from(patience).ok().map(Duration::from_nanos);
    match crawler.using(|going| going.turn(patience)) {
        Some(Turn::GoesOn) => ArgiopeStatus::Ok,
        Some(Turn::Over(reason)) => {
            crawler.reason = Some(named(reason));
            ArgiopeStatus::Over
        }
        None => ArgiopeStatus::Broken,
    }
}

impl ArgiopeCrawler {
    /// Calls the crawler, unless an earlier call panicked. `None` after a panic, with its message.
    fn using<T>(&mut self, work: impl FnOnce(&mut Crawler) -> T) -> Option<T> {
        let Some(going) = &mut self.crawler else {
            set_error("broken: an earlier call panicked");
            return None;
        };
        let done = guarded(None, || Some(work(going)));
        if done.is_none() {
            // Dropping it could panic again.
            std::mem::forget(self.crawler.take());
        }
        done
    }
}

/// From now on `argiope_next` also returns each robots.txt, each sitemap that was not submitted, and attempts that
/// are not final, because a retry or a redirect follows.
///
/// # Safety
/// As `argiope_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_every_attempt(crawler: *mut ArgiopeCrawler) {
    guarded((), || {
        // SAFETY: the caller's promise.
        if let Some(crawler) = unsafe { crawler.as_mut() } {
            crawler.every_attempt = true;
        }
    });
}

/// The next result, or null: the final page of a request or of a link, with success or failure. Free it with
/// `argiope_page_free`. While 1000 pages are untaken, nothing more departs.
///
/// # Safety
/// As `argiope_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_next(crawler: *mut ArgiopeCrawler) -> *mut ArgiopePage {
    guarded(ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let page = unsafe { crawler.as_mut() }.and_then(next);
        page.map_or(ptr::null_mut(), |page| {
            Box::into_raw(Box::new(ArgiopePage::from(page)))
        })
    })
}

fn next(crawler: &mut ArgiopeCrawler) -> Option<Page> {
    loop {
        let page = locked(&crawler.pages).pop_front();
        let page = page.or_else(|| crawler.crawler.as_mut()?.try_next_result())?;
        if crawler.every_attempt || page.is_result() {
            return Some(page);
        }
        // The program does not know of it.
        crawler.crawler.as_mut()?.acknowledge(page.id);
    }
}

/// Acknowledges a page of a crawl with a state, by its `id`: the program does not lose it any more.
/// Acknowledge each that was returned, failures included, in any order, and before you wait for more pages: the
/// crawl may wait for that.
///
/// # Safety
/// As `argiope_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_acknowledge(crawler: *mut ArgiopeCrawler, id: u64) {
    guarded((), || {
        // SAFETY: the caller's promise.
        let crawler = unsafe { crawler.as_mut() };
        if let Some(going) = crawler.and_then(|crawler| crawler.crawler.as_mut()) {
            going.acknowledge(id);
        }
    });
}

/// Epoch of the last commit before this run; 0 if there was none, without a state, and if `crawler` is null.
///
/// # Safety
/// As `argiope_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_committed_epoch(crawler: *const ArgiopeCrawler) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { crawler.as_ref() }.map_or(0, |crawler| crawler.epoch)
}

/// Current statistics: a JSON object with the keys of `stats.json`. Empty if `crawler` is null or
/// broken. Valid until the next `argiope_stats` or `argiope_free`.
///
/// # Safety
/// As `argiope_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_stats(crawler: *mut ArgiopeCrawler) -> ArgiopeBytes {
    guarded(ArgiopeBytes::from(""), || {
        // SAFETY: the caller's promise.
        let Some(crawler) = (unsafe { crawler.as_mut() }) else {
            return "".into();
        };
        let measured = crawler.crawler.as_ref().map(|going| {
            let stats = going.stats();
            stats.to_json(&going.progress(), &going.pacing())
        });
        crawler.stats = measured.unwrap_or_default();
        crawler.stats.as_str().into()
    })
}

/// Why the crawl ended (`finished`, `shutdown`, …); null while it runs. Must not be freed.
///
/// # Safety
/// As `argiope_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_reason(crawler: *const ArgiopeCrawler) -> *const c_char {
    // SAFETY: the caller's promise.
    let reason = unsafe { crawler.as_ref() }.and_then(|crawler| crawler.reason);
    reason.map_or(ptr::null(), CStr::as_ptr)
}

/// A handle for other threads; null once the crawl has ended. The crawl does not end before all its
/// handles are freed, with `argiope_handle_free`.
///
/// # Safety
/// As `argiope_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_handle(crawler: *const ArgiopeCrawler) -> *mut ArgiopeHandle {
    guarded(ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        match unsafe { crawler.as_ref() }.map(|crawler| (&crawler.crawler, crawler.reason)) {
            Some((Some(crawler), None)) => Box::into_raw(Box::new(ArgiopeHandle(crawler.handle()))),
            _ => ptr::null_mut(),
        }
    })
}

/// Ends the crawl at once, and frees it and its untaken pages. Its handles return `ARGIOPE_STATUS_OVER` from
/// then on, and must still be freed.
///
/// # Safety
/// As `argiope_close`; the pointer is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_free(crawler: *mut ArgiopeCrawler) {
    guarded((), || {
        if !crawler.is_null() {
            // SAFETY: it came from `Box::into_raw`, and is given back once.
            drop(unsafe { Box::from_raw(crawler) });
        }
    });
}

fn locked(pages: &Mutex<VecDeque<Page>>) -> std::sync::MutexGuard<'_, VecDeque<Page>> {
    pages.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The reason as a zero-terminated string.
fn named(reason: FinishReason) -> &'static CStr {
    match reason {
        FinishReason::Finished => c"finished",
        FinishReason::Shutdown => c"shutdown",
        FinishReason::PageCount => c"closespider_pagecount",
        FinishReason::Timeout => c"closespider_timeout",
        FinishReason::ErrorCount => c"closespider_errorcount",
        FinishReason::ByteCount => c"closespider_bytecount",
        FinishReason::SourceFailed => c"source_failed",
        FinishReason::SinkFailed => c"sink_failed",
        FinishReason::BlockedAddress => c"blocked_address",
        FinishReason::Overdue => c"overdue",
        // A reason that a later version of the library adds.
        _ => c"unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::argiope_error;
    use crate::handle::{argiope_handle_free, argiope_handle_submit};

    #[test]
    fn after_a_panic_each_call_returns_that() {
        let config = Config::default().with("ROBOTSTXT_OBEY", "false");
        let config = config.and_then(|config| config.with("RETRY_TIMES", "0"));
        let crawler = Crawler::builder(config.expect("sound settings"))
            .sink(|_: Page| panic!("the sink"))
            .build()
            .expect("a crawler");
        let mut crawler = ArgiopeCrawler {
            handle: Some(crawler.handle()),
            crawler: Some(Box::new(crawler)),
            reason: None,
            stats: String::new(),
            pages: Arc::default(),
            every_attempt: false,
            epoch: 0,
            _lock: None,
        };
        let (crawler, url) = (&raw mut crawler, c"http://127.0.0.1:9/".as_ptr());
        let message = || {
            // SAFETY: no other function is called before it is read.
            let text = unsafe { CStr::from_ptr(argiope_error()) };
            text.to_str().expect("UTF-8").to_owned()
        };
        // SAFETY: the crawler and the string are valid, and used here alone.
        unsafe {
            let handle = argiope_handle(crawler);
            let submit = || argiope_submit(crawler, url, 0, ptr::null_mut());
            assert_eq!(submit(), ArgiopeStatus::Ok);
            let mut status = ArgiopeStatus::Ok;
            while status == ArgiopeStatus::Ok {
                status = argiope_turn(crawler, -1);
            }
            assert_eq!(status, ArgiopeStatus::Broken);
            assert_eq!(message(), "broken: the sink");
            assert_eq!(submit(), ArgiopeStatus::Broken);
            assert_eq!(message(), "broken: an earlier call panicked");
            assert_eq!(argiope_turn(crawler, 0), ArgiopeStatus::Broken);
            let late = argiope_handle_submit(handle, url, 0, ptr::null_mut());
            assert_eq!(late, ArgiopeStatus::Over);
            assert!(message().contains("over"));
            argiope_handle_free(handle);
        }
    }
}
