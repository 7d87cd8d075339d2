//! Gzip members that are wholly in memory: in half the time that a stream takes, but in one step.

#![expect(
    unsafe_code,
    reason = "its safe crate does not return where a member ends"
)]

mod members;
mod reading;

use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;

use libdeflate_sys::{
    libdeflate_alloc_compressor, libdeflate_alloc_decompressor, libdeflate_compressor,
    libdeflate_decompressor, libdeflate_free_compressor, libdeflate_free_decompressor,
    libdeflate_gzip_compress, libdeflate_gzip_compress_bound, libdeflate_gzip_decompress_ex,
    libdeflate_result_LIBDEFLATE_SUCCESS as SUCCESS,
};

pub use self::members::Gzip;
#[cfg(test)]
pub(crate) use self::members::{gunzip, gunzip_members};
pub use self::reading::MemberReader;

/// The highest level.
pub const LEVEL_MAX: u32 = 12;

/// Makes gzip members.
pub struct Deflater(NonNull<libdeflate_compressor>);

impl Deflater {
    /// At this level: 0 stores, higher ones take longer and save more, up to [`LEVEL_MAX`].
    ///
    /// # Panics
    /// There is no memory for its state, up to some MiB.
    pub fn new(level: u32) -> Self {
        let level = level.min(LEVEL_MAX) as i32;
        // SAFETY: levels from 0 to 12 are allowed.
        let state = NonNull::new(unsafe { libdeflate_alloc_compressor(level) });
        Deflater(state.expect("memory for the state of a compressor"))
    }

    /// Appends the bytes to `out` as one member.
    pub fn member(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        // SAFETY: has no preconditions.
        let most = unsafe { libdeflate_gzip_compress_bound(self.0.as_ptr(), bytes.len()) };
        out.reserve(most);
        // SAFETY: the input is initialized and as long as stated; the output is spare memory of the vector,
        // which has `most` bytes at least.
        let length = unsafe {
            libdeflate_gzip_compress(
                self.0.as_ptr(),
                bytes.as_ptr().cast::<c_void>(),
                bytes.len(),
                out.spare_capacity_mut().as_mut_ptr().cast::<c_void>(),
                most,
            )
        };
        assert!((1..=most).contains(&length), "the bound is an upper one");
        // SAFETY: this many bytes of the spare memory were written, and no more than it has.
        unsafe { out.set_len(out.len() + length) };
    }
}

// SAFETY: the state is plain memory that only its owner accesses.
unsafe impl Send for Deflater {}

impl Drop for Deflater {
    fn drop(&mut self) {
        // SAFETY: it was allocated by the library and is freed once.
        unsafe { libdeflate_free_compressor(self.0.as_ptr()) };
    }
}

impl fmt::Debug for Deflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Deflater")
    }
}

/// Appends the content of the only gzip member in `coded`, and returns whether it has: if it is not
/// complete, valid and alone, or has more than `decoded_max` bytes, nothing is appended.
///
/// It decides the usual case only. All others, the faulty ones among them, are left to a decoder of streams.
pub fn inflate(coded: &[u8], decoded_max: usize, out: &mut Vec<u8>) -> bool {
    let [0x1f, 0x8b, _, flags, .., a, b, c, d] = *coded else {
        return false;
    };
    // The length at its end, if one member is all (RFC 1952, 2.3.1).
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    if flags & FLAGS_LEFT != 0 || length > decoded_max {
        return false;
    }
    let Some(inflater) = Inflater::new() else {
        return false;
    };
    let capacity = out.capacity();
    out.reserve_exact(length);
    let (mut used, mut decoded) = (0, 0);
    // SAFETY: the input is initialized and as long as stated; the output is spare memory of the vector,
    // which has `length` bytes at least; the numbers live as long as the call.
    let result = unsafe {
        libdeflate_gzip_decompress_ex(
            inflater.0.as_ptr(),
            coded.as_ptr().cast::<c_void>(),
            coded.len(),
            out.spare_capacity_mut().as_mut_ptr().cast::<c_void>(),
            length,
            &mut used,
            &mut decoded,
        )
    };
    if result != SUCCESS || used != coded.len() {
        // The length may be an invention.
        out.shrink_to(capacity);
        return false;
    }
    assert!(decoded <= length, "the library stays within the output");
    // SAFETY: this many bytes of the spare memory were written, and no more than it has.
    unsafe { out.set_len(out.len() + decoded) };
    true
}

/// The state of the library for a call.
struct Inflater(NonNull<libdeflate_decompressor>);

impl Inflater {
    /// `None` if there is no memory.
    fn new() -> Option<Self> {
        // SAFETY: has no preconditions.
        NonNull::new(unsafe { libdeflate_alloc_decompressor() }).map(Inflater)
    }
}

impl Drop for Inflater {
    fn drop(&mut self) {
        // SAFETY: it was allocated by the library and is freed once.
        unsafe { libdeflate_free_decompressor(self.0.as_ptr()) };
    }
}

/// Members with these flags are left to the decoder: the checksum of the header, which the library does not
/// check, and reserved ones.
const FLAGS_LEFT: u8 = 0xe2;
