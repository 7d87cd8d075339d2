//! What other threads of a program in C hold of a crawl.

use std::error::Error;
use std::ffi::c_char;
use std::time::Duration;

use argiope::serde_json::{self, Value};
use argiope::settings::ScopePatch;
use argiope::{ControlError, Handle, SubmitError};

use crate::crawler::{request, text};
use crate::error::{ArgiopeStatus, guarded, refuse};

/// Feeds a crawl and steers it, from any thread; each call wakes a sleeping crawl at once.
pub struct ArgiopeHandle(pub(crate) Handle);

/// Submits a request, as `argiope_submit`. Never waits.
///
/// # Safety
/// `handle` comes from `argiope_handle`; `request` is a text; `id` is null or may be written to.
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
            (Some(handle), Ok(line)) => unsafe { tell(&handle.0, line, tag, id) },
        }
    })
}

/// Cancels the request of this number, wherever it is: its last page fails as `cancelled.asked`.
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

/// Cancels all that are throttled under this scope.
///
/// # Safety
/// As `argiope_handle_cancel`; `name` is a text.
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

/// Says something else of a scope from now on. `settings` is its entry of `THROTTLING_SCOPES`, a JSON
/// object as `{"delay": "2s"}`; an empty one takes back all that was said of it. `name` may be a host, a
/// scope of your own, a pattern as `*.example.com`, or `default`.
///
/// # Safety
/// As `argiope_handle_cancel`; `name` and `settings` are texts.
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

/// Lets nothing more depart, or lets requests depart again.
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

/// Ends the crawl in good order: nothing more is sent, what is in flight is finished within `grace`
/// nanoseconds and then cancelled.
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

/// Gives a handle back. The crawl may end after the last.
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

/// What a scope's entry says.
fn patch(settings: &str) -> Result<ScopePatch, Box<dyn Error>> {
    let settings: Value = serde_json::from_str(settings)?;
    Ok(settings.to_string().parse()?)
}

fn status_of(result: Result<(), ControlError>) -> ArgiopeStatus {
    match result {
        Ok(()) => ArgiopeStatus::Ok,
        Err(ControlError::Busy) => ArgiopeStatus::Full,
        Err(ControlError::Over) => ArgiopeStatus::Over,
        Err(error) => refuse(error),
    }
}

/// Submits what the line says.
///
/// # Safety
/// `id` is null or may be written to.
pub(crate) unsafe fn tell(handle: &Handle, line: &str, tag: u64, id: *mut u64) -> ArgiopeStatus {
    let request = match request(line) {
        Ok(request) if tag == 0 => request,
        Ok(request) => request.tag(tag),
        Err(why) => return refuse(why),
    };
    match handle.try_submit(request) {
        Ok(number) => {
            if !id.is_null() {
                // SAFETY: the caller's promise.
                unsafe { id.write(number) };
            }
            ArgiopeStatus::Ok
        }
        Err(SubmitError::Full(_)) => ArgiopeStatus::Full,
        Err(SubmitError::Over(_)) => ArgiopeStatus::Over,
        Err(error) => refuse(error),
    }
}
