//! Reads the arguments of functions: strings and requests.

use std::ffi::{CStr, c_char};

use argiope::Request;

/// # Safety
/// `text` is null, or a string that ends with a zero and does not change during the call.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, &'static str> {
    if text.is_null() {
        return Err("a string is null");
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| "a string is not UTF-8")
}

/// The request in a line of seeds. A `tag` other than 0 replaces that of the line.
pub(crate) fn request(line: &str, tag: u64) -> Result<Request, String> {
    let request = Request::from_line(line).map_err(|error| error.to_string())?;
    let request = request.ok_or_else(|| "the request has no URL".to_owned())?;
    Ok(match tag {
        0 => request,
        tag => request.tag(tag),
    })
}
