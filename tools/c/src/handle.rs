//! Thread-safe control handle.

use std::error::Error;
use std::ffi::c_char;
use std::time::Duration;

use argiope::serde_json::{self, Value};
use argiope::settings::ScopePatch;
use argiope::{ControlError, Handle, SubmitError};

use crate::arguments::{request, text};
use crate::error::{ArgiopeStatus, failed, guarded, refuse};

/// Submits requests to a crawl and controls it, from any thread; each call wakes the crawl at once.
pub struct ArgiopeHandle(pub(crate) Handle);

/// Submits a request like `argiope_submit`, from any thread. Does not block.
///
/// `ARGIOPE_STATUS_FULL`: 10000 requests of handles (`argiope_set_ahead`) wait beyond those that are being fetched, or
/// 4096 wait for the next turn. There is room again as requests are fetched, for which the thread that takes the turns
/// takes the pages as well: submit it again then.
///
/// # Safety
/// `handle` comes from `argiope_handle`; `request` is a string; `id` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_handle_submit(
    handle: *const ArgiopeHandle,
    request: *const c_char,
    tag: u64,
    id: *mut u64,
) -> ArgiopeStatus {
    guarded(ArgiopeStatus::Broken, || {
        // SAFETY: the caller's promises.
        match unsafe { (handle.as_ref(), text(request)) } {
            (None, _) => refuse("handle is null"),
            (_, Err(why)) => refuse(why),
            // SAFETY: the caller's promise.
            (Some(handle), Ok(line)) => unsafe { submit(&handle.0, line, tag, id) },
        }
    })
}

/// Cancels the request with this number, queued or in flight: its final page has the error
/// `cancelled.asked`.
///
/// # Safety
/// `handle` comes from `argiope_handle`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_handle_cancel(
    handle: *const ArgiopeHandle,
    id: u64,
) -> ArgiopeStatus {
    guarded(ArgiopeStatus::Broken, || {
        // SAFETY: the caller's promise.
        match unsafe { handle.as_ref() } {
            None => refuse("handle is null"),
            Some(handle) => status_of(handle.0.cancel(id)),
        }
    })
}

/// Cancels all requests of a scope.
///
/// # Safety
/// As `argiope_handle_cancel`; `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_handle_cancel_scope(
    handle: *const ArgiopeHandle,
    name: *const c_char,
) -> ArgiopeStatus {
    guarded(ArgiopeStatus::Broken, || {
        // SAFETY: the caller's promises.
        match unsafe { (handle.as_ref(), text(name)) } {
            (None, _) => refuse("handle is null"),
            (_, Err(why)) => refuse(why),
            (Some(handle), Ok(name)) => status_of(handle.0.cancel_scope(name)),
        }
    })
}

/// Changes the settings of a scope; `{}` removes earlier changes. `settings` is an entry of
/// `THROTTLING_SCOPES`, a JSON object such as `{"delay": "2s"}`. `name` is a host, a scope of your own,
/// a pattern such as `*.example.com`, or `default`.
///
/// # Safety
/// As `argiope_handle_cancel`; `name` and `settings` are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_handle_set_scope(
    handle: *const ArgiopeHandle,
    name: *const c_char,
    settings: *const c_char,
) -> ArgiopeStatus {
    guarded(ArgiopeStatus::Broken, || {
        // SAFETY: the caller's promises.
        match unsafe { (handle.as_ref(), text(name), text(settings)) } {
            (None, ..) => refuse("handle is null"),
            (_, Err(why), _) | (_, _, Err(why)) => refuse(why),
            (Some(handle), Ok(name), Ok(settings)) => match patch(settings) {
                Err(why) => refuse(why),
                Ok(patch) => status_of(handle.0.set_scope(name, patch)),
            },
        }
    })
}

/// Pauses or resumes departures.
///
/// # Safety
/// As `argiope_handle_cancel`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_handle_pause(handle: *const ArgiopeHandle, paused: bool) {
    guarded((), || {
        // SAFETY: the caller's promise.
        match (unsafe { handle.as_ref() }, paused) {
            (None, _) => {}
            (Some(handle), true) => handle.0.pause(),
            (Some(handle), false) => handle.0.resume(),
        }
    });
}

/// Shuts the crawl down: nothing more departs; requests in flight have `grace` nanoseconds to finish,
/// and are then cancelled.
///
/// # Safety
/// As `argiope_handle_cancel`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_handle_shutdown(handle: *const ArgiopeHandle, grace: u64) {
    guarded((), || {
        // SAFETY: the caller's promise.
        if let Some(handle) = unsafe { handle.as_ref() } {
            handle.0.shutdown(Duration::from_nanos(grace));
        }
    });
}

/// Frees a handle. The crawl can end once all its handles are freed.
///
/// # Safety
/// As `argiope_handle_cancel`; the pointer is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_handle_free(handle: *mut ArgiopeHandle) {
    guarded((), || {
        if !handle.is_null() {
            // SAFETY: it came from `Box::into_raw`, and is given back once.
            drop(unsafe { Box::from_raw(handle) });
        }
    });
}

/// Parses a scope's entry.
fn patch(settings: &str) -> Result<ScopePatch, Box<dyn Error>> {
    let settings: Value = serde_json::from_str(settings)?;
    Ok(settings.to_string().parse()?)
}

fn status_of(result: Result<(), ControlError>) -> ArgiopeStatus {
    match result {
        Ok(()) => ArgiopeStatus::Ok,
        Err(error @ ControlError::Busy) => failed(ArgiopeStatus::Full, error),
        Err(error @ ControlError::Over) => failed(ArgiopeStatus::Over, error),
        Err(error) => refuse(error),
    }
}

/// Submits the request in a line of seeds.
///
/// # Safety
/// `id` is null or writable.
unsafe fn submit(handle: &Handle, line: &str, tag: u64, id: *mut u64) -> ArgiopeStatus {
    let request = match request(line, tag) {
        Ok(request) => request,
        Err(why) => return refuse(why),
    };
    match handle.try_submit(request) {
        // SAFETY: the caller's promise.
        Ok(number) => unsafe { accepted(number, id) },
        Err(error @ SubmitError::Full(_)) => failed(ArgiopeStatus::Full, error),
        Err(error @ SubmitError::Over(_)) => failed(ArgiopeStatus::Over, error),
        Err(error) => refuse(error),
    }
}

/// Writes the number of a request.
///
/// # Safety
/// `id` is null or writable.
pub(crate) unsafe fn accepted(number: u64, id: *mut u64) -> ArgiopeStatus {
    if !id.is_null() {
        // SAFETY: the caller's promise.
        unsafe { id.write(number) };
    }
    ArgiopeStatus::Ok
}
