//! A crawl that a program in C drives.

use std::collections::VecDeque;
use std::error::Error;
use std::ffi::{CStr, c_char, c_int};
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use argiope::sink::function::FunctionSink;
use argiope::{Config, Crawler, FinishReason, Page, Request, Turn};

use crate::error::{ArgiopeStatus, guarded, refuse, say};
use crate::handle::{ArgiopeHandle, tell};
use crate::page::{ArgiopeBytes, ArgiopePage};

/// A crawl.
pub struct ArgiopeCrawler {
    /// `None` once a turn panicked: what it held may be in pieces, and is not touched again. Over, it
    /// stays for its descriptor, which a loop still has to let go of.
    crawler: Option<Box<Crawler>>,
    reason: Option<&'static CStr>,
    pages: Arc<Mutex<VecDeque<Page>>>,
    /// What `argiope_stats` gave last.
    stats: String,
    /// Until `argiope_close` more may be submitted, so the crawl does not end.
    feeds: Option<argiope::Handle>,
}

/// Pages that wait to be taken before the crawl is held back; those on their way still come.
const PAGES_WAITING: usize = 1000;

/// Makes a crawler. `settings` is an array of names and values in turn (`"DOWNLOAD_DELAY", "250ms"`)
/// that ends with a null; it may be null itself. Gives null where a setting cannot be, or the kernel
/// refuses. To be given back to `argiope_free`.
///
/// # Safety
/// `settings` is null, or such an array of texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_new(settings: *const *const c_char) -> *mut ArgiopeCrawler {
    guarded(ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        match unsafe { make(settings) } {
            Ok(crawler) => Box::into_raw(Box::new(crawler)),
            Err(error) => {
                say(error);
                ptr::null_mut()
            }
        }
    })
}

/// # Safety
/// As `argiope_new`.
unsafe fn make(mut settings: *const *const c_char) -> Result<ArgiopeCrawler, Box<dyn Error>> {
    let mut config = Config::default();
    // SAFETY: the array's end is a null, and is not gone past.
    while !settings.is_null() && unsafe { !(*settings).is_null() } {
        // SAFETY: as above; behind a name comes its value, or the end.
        let (name, value) = unsafe { (text(*settings)?, *settings.add(1)) };
        if value.is_null() {
            return Err(format!("{name}: a value is missing").into());
        }
        // SAFETY: it is no null, so it is a text.
        config = config.with(name, unsafe { text(value)? })?;
        // SAFETY: two entries were there.
        settings = unsafe { settings.add(2) };
    }
    let pages: Arc<Mutex<VecDeque<Page>>> = Arc::default();
    let (keeps, room) = (Arc::clone(&pages), Arc::clone(&pages));
    let sink = FunctionSink::new(move |page| locked(&keeps).push_back(page))
        .ready_when(move || locked(&room).len() < PAGES_WAITING);
    let crawler = Crawler::builder(config).sink(sink).build()?;
    Ok(ArgiopeCrawler {
        feeds: Some(crawler.handle()),
        crawler: Some(Box::new(crawler)),
        reason: None,
        stats: String::new(),
        pages,
    })
}

/// Submits a request: a URL, or a JSON object with `url` and what else a line of seeds may say
/// (`method`, `headers`, `body_b64`, `scopes`, `priority`, `depth`, `sitemap`, `timeout` in seconds, `body_max` in
/// bytes, `private_headers`, `proxy`, `meta`, `tag`, and true for any of `dont_adjust_delay`,
/// `dont_filter`, `dont_follow`, `dont_merge_cookies`, `dont_send_credentials`, `ignore_robots`). `tag`
/// comes back with its pages; 0 leaves that of the object.
/// Where `id` is not null it gets the request's number, which is `root` of each of its pages.
///
/// `ARGIOPE_FULL` where 4096 wait to be taken in, `ARGIOPE_REFUSED` where it can never be sent,
/// `ARGIOPE_OVER` after the end or `argiope_close`.
///
/// # Safety
/// `crawler` comes from `argiope_new` and is not in use elsewhere; `request` is a text; `id` is null
/// or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_submit(
    crawler: *mut ArgiopeCrawler,
    request: *const c_char,
    tag: u64,
    id: *mut u64,
) -> ArgiopeStatus {
    guarded(ArgiopeStatus::Broken, || {
        // SAFETY: the caller's promises.
        match unsafe { (crawler.as_ref(), text(request)) } {
            (None, _) => refuse("crawler is null"),
            (_, Err(why)) => refuse(why),
            (Some(crawler), Ok(line)) => match &crawler.feeds {
                None => ArgiopeStatus::Over,
                // SAFETY: the caller's promise.
                Some(handle) => unsafe { tell(handle, line, tag, id) },
            },
        }
    })
}

/// Says that no more is submitted here: the crawl ends when all is done and no handle lives.
///
/// # Safety
/// `crawler` comes from `argiope_new` and is not in use elsewhere.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_close(crawler: *mut ArgiopeCrawler) {
    guarded((), || {
        // SAFETY: the caller's promise.
        if let Some(crawler) = unsafe { crawler.as_mut() } {
            crawler.feeds = None;
        }
    });
}

/// The descriptor to wait for: readable when a turn is to be taken, which also is when anything is
/// due. The same until `argiope_free`, to which closing it is left. -1 where `crawler` is null or
/// broken.
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

/// One turn: what has arrived is taken, what is due is done, as far as that takes a millisecond or so.
/// Waits for news for `patience` nanoseconds at most, for ever if it is negative. With 0 it does not
/// wait, and sets the descriptor for a wait of yours. `ARGIOPE_OK` while the crawl goes on, then
/// `ARGIOPE_OVER`; pages may be there in either case.
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
    let Some(going) = &mut crawler.crawler else {
        return ArgiopeStatus::Broken;
    };
    match guarded(None, || Some(going.turn(patience))) {
        Some(Turn::GoesOn) => ArgiopeStatus::Ok,
        Some(Turn::Over(reason)) => {
            crawler.reason = Some(named(reason));
            ArgiopeStatus::Over
        }
        None => {
            // To end what is in pieces could panic again.
            std::mem::forget(crawler.crawler.take());
            ArgiopeStatus::Broken
        }
    }
}

/// The next finished page, or null if none waits. To be given back to `argiope_page_free`. While a
/// thousand wait the crawl is held back.
///
/// # Safety
/// As `argiope_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_next(crawler: *mut ArgiopeCrawler) -> *mut ArgiopePage {
    guarded(ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let page =
            unsafe { crawler.as_ref() }.and_then(|crawler| locked(&crawler.pages).pop_front());
        page.map_or(ptr::null_mut(), |page| {
            Box::into_raw(Box::new(ArgiopePage::from(page)))
        })
    })
}

/// What was measured so far: a JSON object with the keys of `stats.json`. Nothing where `crawler` is null
/// or broken. It holds until the next call of this, or `argiope_free`.
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

/// Why the crawl is over (`finished`, `shutdown`, …); null while it goes on. Never to be freed.
///
/// # Safety
/// As `argiope_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_reason(crawler: *const ArgiopeCrawler) -> *const c_char {
    // SAFETY: the caller's promise.
    let reason = unsafe { crawler.as_ref() }.and_then(|crawler| crawler.reason);
    reason.map_or(ptr::null(), CStr::as_ptr)
}

/// A handle for other threads; null once the crawl is over. The crawl does not end while one lives.
/// To be given back to `argiope_handle_free`.
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

/// Ends a crawl at once, and frees it with the pages that were not taken. Its handles say
/// `ARGIOPE_OVER` from then on, and are still to be freed.
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

/// # Safety
/// `text` is null, or a text with a zero at its end that stays as it is meanwhile.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, &'static str> {
    if text.is_null() {
        return Err("a text is null");
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| "a text is not UTF-8")
}

/// The request that a line of seeds says.
pub(crate) fn request(line: &str) -> Result<Request, String> {
    let request = Request::from_line(line).map_err(|error| error.to_string())?;
    request.ok_or_else(|| "there is no URL in it".to_owned())
}

fn locked(pages: &Mutex<VecDeque<Page>>) -> std::sync::MutexGuard<'_, VecDeque<Page>> {
    pages.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The reason with a zero at its end.
fn named(reason: FinishReason) -> &'static CStr {
    match reason {
        FinishReason::Finished => c"finished",
        FinishReason::Shutdown => c"shutdown",
        FinishReason::PageCount => c"closespider_pagecount",
        FinishReason::Timeout => c"closespider_timeout",
        FinishReason::ErrorCount => c"closespider_errorcount",
        FinishReason::SourceFailed => c"source_failed",
        FinishReason::SinkFailed => c"sink_failed",
        FinishReason::BlockedAddress => c"blocked_address",
        FinishReason::Overdue => c"overdue",
        // The library may know more; each of those is added here.
        _ => c"unknown",
    }
}
