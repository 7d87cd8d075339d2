//! A common interface to the decompression libraries, for one stream.

use std::io;

#[cfg(feature = "brotli")]
use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use flate2::{Compression, Decompress, FlushDecompress, Status};
#[cfg(feature = "zstd")]
use zstd::stream::raw::{DParameter, Decoder as ZstdDecoder, Operation};
#[cfg(feature = "zstd")]
use zstd::zstd_safe::{InBuffer, OutBuffer};

use super::{Coding, CodingError};

/// A decompressor.
pub(super) enum Engine {
    Inflate(Decompress),
    #[cfg(feature = "brotli")]
    Brotli(Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>),
    #[cfg(feature = "zstd")]
    Zstd(ZstdDecoder<'static>),
}

/// Result of one run.
pub(super) struct RunResult {
    /// Bytes of input consumed.
    pub(super) used: usize,
    /// Bytes of output written.
    pub(super) decoded: usize,
    /// State of the stream afterwards.
    pub(super) state: StreamState,
}

/// State of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamState {
    /// Not complete.
    More,
    /// It is complete.
    Ended,
    /// It is damaged.
    Broken,
    /// It needs more memory than permitted.
    #[cfg(feature = "zstd")]
    Window,
}

impl Engine {
    pub(super) fn new(coding: Coding) -> Result<Self, CodingError> {
        Ok(match coding {
            Coding::Gzip => Engine::Inflate(Decompress::new_gzip(DEFLATE_WINDOW_LOG)),
            Coding::Deflate => Engine::Inflate(Decompress::new(false)),
            #[cfg(feature = "brotli")]
            Coding::Brotli => Engine::Brotli(Box::new(BrotliState::new_strict(
                StandardAlloc::default(),
                StandardAlloc::default(),
                StandardAlloc::default(),
            ))),
            #[cfg(feature = "zstd")]
            Coding::Zstd => {
                let mut decoder = ZstdDecoder::new().map_err(|_| CodingError::Window)?;
                decoder
                    .set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX))
                    .map_err(|_| CodingError::Window)?;
                Engine::Zstd(decoder)
            }
            #[cfg(not(all(feature = "brotli", feature = "zstd")))]
            absent => return Err(CodingError::Absent(absent)),
        })
    }

    /// Prepares for a stream with these first bytes; returns `false` if no stream starts like that.
    pub(super) fn begin(&mut self, coding: Coding, magic: [u8; 4]) -> bool {
        match (self, coding, magic) {
            (Engine::Inflate(inflate), Coding::Deflate, _) => {
                inflate.reset(is_zlib(magic));
                true
            }
            (engine, Coding::Gzip, [0x1f, 0x8b, ..]) => {
                *engine = Engine::Inflate(Decompress::new_gzip(DEFLATE_WINDOW_LOG));
                true
            }
            // A frame or a skippable frame; the decoder resets itself.
            (_, Coding::Zstd, [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18]) => true,
            _ => false,
        }
    }

    /// Decodes `input` into `output` until one of them is used up.
    pub(super) fn run(&mut self, input: &[u8], output: &mut [u8]) -> RunResult {
        match self {
            Engine::Inflate(inflate) => {
                let before = (inflate.total_in(), inflate.total_out());
                let status = inflate.decompress(input, output, FlushDecompress::None);
                RunResult {
                    used: (inflate.total_in() - before.0) as usize,
                    decoded: (inflate.total_out() - before.1) as usize,
                    state: match status {
                        Ok(Status::Ok | Status::BufError) => StreamState::More,
                        Ok(Status::StreamEnd) => StreamState::Ended,
                        Err(_) => StreamState::Broken,
                    },
                }
            }
            #[cfg(feature = "brotli")]
            Engine::Brotli(state) => {
                let (mut input_left, mut used) = (input.len(), 0);
                let (mut output_left, mut decoded, mut total) = (output.len(), 0, 0);
                let result = BrotliDecompressStream(
                    &mut input_left,
                    &mut used,
                    input,
                    &mut output_left,
                    &mut decoded,
                    output,
                    &mut total,
                    state,
                );
                RunResult {
                    used,
                    decoded,
                    state: match result {
                        BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {
                            StreamState::More
                        }
                        BrotliResult::ResultSuccess => StreamState::Ended,
                        BrotliResult::ResultFailure => StreamState::Broken,
                    },
                }
            }
            #[cfg(feature = "zstd")]
            Engine::Zstd(decoder) => {
                let mut source = InBuffer::around(input);
                let mut target = OutBuffer::around(output);
                let state = match decoder.run(&mut source, &mut target) {
                    Ok(0) => StreamState::Ended,
                    Ok(_) => StreamState::More,
                    // The library distinguishes its errors only by their text.
                    Err(error) if error.to_string().contains("too much memory") => {
                        StreamState::Window
                    }
                    Err(_) => StreamState::Broken,
                };
                RunResult {
                    used: source.pos(),
                    decoded: target.pos(),
                    state,
                }
            }
        }
    }
}

/// The zlib header of RFC 1950 section 2.2: method 8, a window of at most 32 KiB, and a check of
/// both bytes.
fn is_zlib(magic: [u8; 4]) -> bool {
    magic[0] & 0x0f == 8
        && magic[0] >> 4 <= 7
        && u16::from_be_bytes([magic[0], magic[1]]).is_multiple_of(31)
}

/// Compresses with gzip: one member without time and name, so that the result is deterministic.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Compression::default());
    io::Write::write_all(&mut encoder, bytes).expect("writing to a Vec does not fail");
    encoder.finish().expect("writing to a Vec does not fail")
}

/// log2 of deflate's largest window.
const DEFLATE_WINDOW_LOG: u8 = 15;

/// log2 of the largest zstd window that RFC 9659 permits for a content coding.
#[cfg(feature = "zstd")]
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// Encoders for tests; they are here because this file imports the libraries.
#[cfg(test)]
pub(super) mod encode {
    use std::io::Write;

    use flate2::write::{DeflateEncoder, ZlibEncoder};

    use super::Compression;

    pub(crate) fn zlib(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    pub(crate) fn raw_deflate(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[cfg(feature = "zstd")]
    pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
        zstd::bulk::compress(bytes, 3).unwrap()
    }

    /// A frame that declares a window of 2 to the power of `window_log` bytes.
    #[cfg(feature = "zstd")]
    pub(crate) fn zstd_with_window(bytes: &[u8], window_log: u32) -> Vec<u8> {
        let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
        encoder.window_log(window_log).unwrap();
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// Brotli's stored form: a window of 64 KiB, uncompressed meta-blocks, and an empty last one
    /// (RFC 7932 section 9.2).
    #[cfg(feature = "brotli")]
    pub(crate) fn brotli(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for (index, piece) in bytes.chunks(1 << 16).enumerate() {
            let length = (piece.len() - 1) as u32;
            // Flags: not last, four nibbles, length minus one, uncompressed.
            let header = length << 3 | 1 << 19;
            let bits = if index == 0 { header << 1 } else { header };
            out.extend_from_slice(&bits.to_le_bytes()[..3]);
            out.extend_from_slice(piece);
        }
        out.push(if bytes.is_empty() { 0b110 } else { 0b11 });
        out
    }
}
