//! Decodes content codings in bounded steps: gzip, deflate, br and zstd, also nested.
//!
//! `br` requires the feature `brotli`, `zstd` the feature `zstd`. Codings that this build cannot
//! decode are not requested ([`ACCEPT_ENCODING`]), and rejected with [`CodingError::Absent`].

mod engine;

use std::ops::Range;

pub use crate::base::gzip::inflate;
pub use engine::gzip;

use engine::{Engine, StreamState};

use crate::base::sentence::debug_as_sentence;

/// Limits of a decoded body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Maximum size of the decoded body in bytes; a larger one is cut, which is not an error.
    pub bytes_max: u64,
    /// Maximum ratio of decoded to coded bytes, checked after 1 MiB was decoded, in each layer of
    /// nested codings.
    pub ratio_max: u64,
}

impl Budget {
    /// The most bytes that so many coded ones may decode to.
    pub fn decoded_max(&self, coded: u64) -> u64 {
        let by_ratio = coded.saturating_mul(self.ratio_max);
        self.bytes_max.min(by_ratio.max(RATIO_FREE_BYTES))
    }
}

impl Default for Budget {
    /// 10 MiB, as `DOWNLOAD_MAXSIZE`; 200 to 1, several times the ratio of the most repetitive
    /// pages, and a fifth of what deflate reaches with zeros.
    fn default() -> Self {
        Budget {
            bytes_max: 10 << 20,
            ratio_max: 200,
        }
    }
}

/// State of a [`Decoder`] after some input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeProgress {
    /// It needs more input.
    More,
    /// It needs no more input: the body was cut at the budget's size.
    Full,
    /// The requested amount was decoded: repeat the call to continue, before more input.
    Paused,
}

/// The supported content codings (RFC 9110 section 8.4.1, RFC 7932, RFC 8878).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Coding {
    /// `gzip`, `x-gzip`.
    Gzip,
    /// `deflate`: zlib, or raw deflate, which some servers send.
    Deflate,
    /// `br`.
    Brotli,
    /// `zstd`, with windows of up to 8 MiB (RFC 9659).
    Zstd,
}

/// Why a body cannot be decoded (further). The output so far stays valid.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodingError {
    /// Unknown content coding. The undecoded body may still be useful.
    #[error("unknown content coding {0:?}")]
    Unknown(String),
    /// A coding that this build of the library does not include. The undecoded body may still be
    /// useful.
    #[error("content coding {} needs a feature that is off: {}", .0.as_str(), .0.feature())]
    Absent(Coding),
    /// More than three nested codings.
    #[error("more than {CODINGS_MAX} nested content codings")]
    TooMany,
    /// The bytes are not of this coding, or damaged.
    #[error("the {} stream is broken", .0.as_str())]
    Broken(Coding),
    /// The body ended within the coded stream.
    #[error("the {} stream ends too early", .0.as_str())]
    Truncated(Coding),
    /// A zstd frame requires a window larger than 8 MiB.
    #[error("a zstd frame needs a window larger than 8 MiB")]
    Window,
    /// The body expands beyond the budget's ratio.
    #[error("the body expands beyond the allowed ratio")]
    Bomb,
}

debug_as_sentence!(CodingError);

/// Decodes a body's content codings, piece by piece.
///
/// Memory is bounded by the codings' windows (32 KiB for deflate, 16 MiB for br, 8 MiB for zstd)
/// and a scratch buffer per layer, for any input; one step decodes at most 16 KiB. Bytes after the
/// end of a coded stream are ignored, as in browsers, unless they start another gzip member or zstd
/// frame.
pub struct Decoder {
    /// Starting with the outermost coding.
    layers: Vec<Layer>,
    meter: Meter,
    failed: Option<CodingError>,
}

impl Decoder {
    /// A decoder for the values of Content-Encoding, all fields in order (RFC 9110 section 8.4).
    /// Without a value, or with `identity` or the non-standard `none`, bytes are copied.
    ///
    /// # Errors
    /// [`CodingError::Unknown`], [`CodingError::Absent`] and [`CodingError::TooMany`].
    pub fn new<'a>(
        content_encoding_values: impl IntoIterator<Item = &'a [u8]>,
        budget: Budget,
    ) -> Result<Self, CodingError> {
        let mut layers = Vec::new();
        for name in content_encoding_values
            .into_iter()
            .flat_map(|value| value.split(|&byte| byte == b','))
            .map(<[u8]>::trim_ascii)
        {
            let Some(coding) = Coding::from_name(name)? else {
                continue;
            };
            if layers.len() == CODINGS_MAX {
                return Err(CodingError::TooMany);
            }
            layers.push(Layer::new(coding)?);
        }
        // They are listed in the order in which they were applied.
        layers.reverse();
        if let Some(layer) = layers.first_mut() {
            layer.is_outermost = true;
        }
        Ok(Decoder {
            layers,
            meter: Meter {
                budget,
                wire: 0,
                kept: 0,
                pause_at: u64::MAX,
                started_many: false,
            },
            failed: None,
        })
    }

    /// Returns whether bytes are copied without decoding.
    pub fn is_identity(&self) -> bool {
        self.layers.is_empty()
    }

    /// Decodes a piece of the body and appends it to `out`.
    ///
    /// Input that decodes to nothing (such as empty gzip members) needs no memory but is not
    /// limited here: the caller must limit the bytes on the wire.
    ///
    /// # Errors
    /// The first error is returned again by every later call. Output before it is valid; after
    /// [`CodingError::Bomb`] it is at most 1 MiB, or the ratio's share of the input. Only the
    /// amount of output before damage may depend on how the input was split.
    pub fn write(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<DecodeProgress, CodingError> {
        let mut input = input;
        loop {
            match self.write_some(&mut input, u64::MAX, out)? {
                DecodeProgress::Paused => {}
                progress => return Ok(progress),
            }
        }
    }

    /// The same, but stops after it has appended `bytes_max` bytes, or has started so many gzip
    /// members or zstd frames that it should yield: the rest of the piece is then in `input`, and
    /// more output may be pending in the decoder even if `input` is empty.
    ///
    /// # Errors
    /// As [`Decoder::write`].
    pub fn write_some(
        &mut self,
        input: &mut &[u8],
        bytes_max: u64,
        out: &mut Vec<u8>,
    ) -> Result<DecodeProgress, CodingError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if input.is_empty() && !self.meter.is_paused() {
            return Ok(self.meter.progress());
        }
        self.meter.pause_at = self.meter.kept.saturating_add(bytes_max);
        self.meter.started_many = false;
        pump(&mut self.layers, input, out, &mut self.meter).inspect_err(|error| {
            self.failed = Some(error.clone());
        })
    }

    /// Ends the body. A body without any bytes is empty, whatever its codings.
    ///
    /// # Errors
    /// [`CodingError::Truncated`] if a coded stream is incomplete, or the error that
    /// [`Decoder::write`] returned. A body that was cut at its budget is not an error.
    pub fn finish(&mut self) -> Result<(), CodingError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.meter.is_full() {
            return Ok(());
        }
        match self.layers.iter().find(|layer| !layer.may_end()) {
            Some(layer) => Err(CodingError::Truncated(layer.coding)),
            None => Ok(()),
        }
    }
}

/// Whether the values of Content-Encoding name gzip and nothing else.
pub(crate) fn is_gzip<'a>(content_encoding_values: impl IntoIterator<Item = &'a [u8]>) -> bool {
    only(content_encoding_values) == Some(Coding::Gzip)
}

/// The only coding that the values of Content-Encoding name; `None` if it is unknown or not the only one.
pub(crate) fn only<'a>(
    content_encoding_values: impl IntoIterator<Item = &'a [u8]>,
) -> Option<Coding> {
    let mut values = content_encoding_values.into_iter();
    let coding = Coding::from_name(values.next()?.trim_ascii()).ok()??;
    values.next().is_none().then_some(coding)
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.layers.iter().map(|layer| layer.coding))
            .finish()
    }
}

impl Coding {
    /// The registered name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Coding::Gzip => "gzip",
            Coding::Deflate => "deflate",
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
        }
    }

    /// The feature that includes its decoder.
    const fn feature(self) -> &'static str {
        match self {
            Coding::Gzip | Coding::Deflate => "none, it is always included",
            Coding::Brotli => "brotli",
            Coding::Zstd => "zstd",
        }
    }

    /// The coding with a name, in any case; `None` for names that mean no coding.
    fn from_name(name: &[u8]) -> Result<Option<Self>, CodingError> {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if name.is_empty() || is("identity") || is("none") {
            Ok(None)
        } else if is("gzip") || is("x-gzip") {
            Ok(Some(Coding::Gzip))
        } else if is("deflate") {
            Ok(Some(Coding::Deflate))
        } else if is("br") {
            Ok(Some(Coding::Brotli))
        } else if is("zstd") {
            Ok(Some(Coding::Zstd))
        } else {
            let name = String::from_utf8_lossy(&name[..name.len().min(NAME_BYTES_SHOWN)]);
            Err(CodingError::Unknown(name.into_owned()))
        }
    }
}

impl CodingError {
    /// The stable code within `content_encoding`.
    pub const fn code(&self) -> &'static str {
        match self {
            CodingError::Unknown(_) => "unknown",
            CodingError::Absent(_) => "absent",
            CodingError::TooMany => "too_many",
            CodingError::Broken(_) => "broken",
            CodingError::Truncated(_) => "truncated",
            CodingError::Window => "window",
            CodingError::Bomb => "bomb",
        }
    }

    /// Returns whether a retry may succeed: a truncated body may be complete the next time.
    pub const fn is_retryable(&self) -> bool {
        matches!(self, CodingError::Truncated(_))
    }
}

/// Counts input and output against the budget.
struct Meter {
    budget: Budget,
    /// Coded bytes consumed: the ratio is computed from these, not from all bytes that have
    /// arrived.
    wire: u64,
    /// Decoded bytes, including those that were cut.
    kept: u64,
    /// The requested total of these.
    pause_at: u64,
    /// It paused because a layer has started many streams.
    started_many: bool,
}

impl Meter {
    fn is_full(&self) -> bool {
        self.kept > self.budget.bytes_max
    }

    fn is_paused(&self) -> bool {
        self.kept >= self.pause_at || self.started_many
    }

    /// Appends as much of `bytes` as the budget and the request permit, and advances it.
    fn keep(&mut self, bytes: &mut &[u8], out: &mut Vec<u8>) -> DecodeProgress {
        let within = |room: u64| usize::try_from(room).unwrap_or(usize::MAX);
        let asked = bytes.len().min(within(self.pause_at - self.kept));
        let (taken, later) = bytes.split_at(asked);
        *bytes = later;
        let room = self.budget.bytes_max.saturating_sub(self.kept);
        out.extend_from_slice(&taken[..taken.len().min(within(room))]);
        self.kept = self.kept.saturating_add(taken.len() as u64);
        self.progress()
    }

    fn progress(&self) -> DecodeProgress {
        if self.is_full() {
            DecodeProgress::Full
        } else if self.is_paused() {
            DecodeProgress::Paused
        } else {
            DecodeProgress::More
        }
    }

    /// Checks the ratio of one layer: a bomb in nested codings need not show in the final output.
    fn weigh(&self, decoded: u64) -> Result<(), CodingError> {
        let allowed = self.wire.saturating_mul(self.budget.ratio_max);
        if decoded > RATIO_FREE_BYTES && decoded > allowed {
            return Err(CodingError::Bomb);
        }
        Ok(())
    }
}

/// Passes a piece through the layers, one step of the outermost at a time.
fn pump(
    layers: &mut [Layer],
    input: &mut &[u8],
    out: &mut Vec<u8>,
    meter: &mut Meter,
) -> Result<DecodeProgress, CodingError> {
    if meter.is_full() {
        return Ok(DecodeProgress::Full);
    }
    let Some((layer, inner)) = layers.split_first_mut() else {
        return Ok(meter.keep(input, out));
    };
    loop {
        // Continues with what was left at the pause; inner layers may have output pending, too.
        let mut rest = &layer.scratch[layer.left.clone()];
        let progress = pump(inner, &mut rest, out, meter)?;
        layer.left.start = layer.left.end - rest.len();
        if progress != DecodeProgress::More {
            return Ok(progress);
        }
        if layer.started >= STREAMS_AT_ONCE {
            layer.started = 0;
            meter.started_many = true;
            return Ok(DecodeProgress::Paused);
        }
        let before = input.len();
        let decoded = layer.step(input)?;
        if layer.is_outermost {
            meter.wire += (before - input.len()) as u64;
        }
        if decoded == 0 && input.is_empty() && !layer.has_failed() {
            return Ok(DecodeProgress::More);
        }
        layer.left = 0..decoded;
        layer.decoded += decoded as u64;
        meter.weigh(layer.decoded)?;
    }
}

/// One coding being decoded.
struct Layer {
    coding: Coding,
    engine: Engine,
    position: Position,
    scratch: Box<[u8]>,
    /// The part of the scratch buffer that was not passed on yet.
    left: Range<usize>,
    /// Bytes decoded so far.
    decoded: u64,
    /// Its input comes from the wire.
    is_outermost: bool,
    /// Number of streams after the first one started since the last pause.
    started: u32,
}

/// Position in a coded body.
enum Position {
    /// Before the first byte.
    Start,
    /// Within a stream.
    Within,
    /// Before a stream whose first bytes decide which kind of deflate it is, or whether it is
    /// another member or frame at all.
    Between {
        first: bool,
        magic: [u8; 4],
        len: usize,
    },
    /// After the end; further input is ignored.
    Over,
    /// At damaged data.
    Failed(CodingError),
}

impl Layer {
    fn new(coding: Coding) -> Result<Self, CodingError> {
        Ok(Layer {
            coding,
            engine: Engine::new(coding)?,
            position: Position::Start,
            scratch: vec![0; STEP_BYTES].into_boxed_slice(),
            left: 0..0,
            decoded: 0,
            is_outermost: false,
            started: 0,
        })
    }

    /// Returns whether the body may end here.
    fn may_end(&self) -> bool {
        match self.position {
            Position::Start | Position::Over => true,
            Position::Within | Position::Failed(_) => false,
            Position::Between { first, .. } => !first,
        }
    }

    /// Returns whether the next step reports an error.
    fn has_failed(&self) -> bool {
        matches!(self.position, Position::Failed(_))
    }

    /// Decodes some of `input` into the scratch buffer; returns the number of bytes. If nothing was
    /// decoded and nothing is left, more input is needed.
    fn step(&mut self, input: &mut &[u8]) -> Result<usize, CodingError> {
        match &mut self.position {
            Position::Over => {
                *input = &[];
                Ok(0)
            }
            Position::Start if input.is_empty() => Ok(0),
            Position::Start => {
                self.position = match self.coding {
                    Coding::Deflate => Position::between(true),
                    _ => Position::Within,
                };
                Ok(0)
            }
            Position::Within => self.run(input),
            Position::Failed(error) => Err(error.clone()),
            Position::Between { magic, len, .. } => {
                let wanted = match self.coding {
                    Coding::Zstd => 4,
                    _ => 2,
                };
                let take = (wanted - *len).min(input.len());
                magic[*len..*len + take].copy_from_slice(&input[..take]);
                *input = &input[take..];
                *len += take;
                if *len < wanted {
                    return Ok(0);
                }
                let magic = *magic;
                if !self.engine.begin(self.coding, magic) {
                    self.position = Position::Over;
                    return Ok(0);
                }
                self.position = Position::Within;
                self.started += 1;
                self.run(&mut &magic[..wanted])
            }
        }
    }

    fn run(&mut self, input: &mut &[u8]) -> Result<usize, CodingError> {
        let ran = self.engine.run(input, &mut self.scratch);
        let stuck = ran.used == 0 && ran.decoded == 0 && !input.is_empty();
        *input = &input[ran.used..];
        match ran.state {
            StreamState::More if stuck => return Err(CodingError::Broken(self.coding)),
            StreamState::More => {}
            StreamState::Ended => {
                self.position = match self.coding {
                    Coding::Gzip | Coding::Zstd => Position::between(false),
                    Coding::Deflate | Coding::Brotli => Position::Over,
                }
            }
            // The output before the damage is passed on first.
            StreamState::Broken => {
                self.position = Position::Failed(CodingError::Broken(self.coding))
            }
            #[cfg(feature = "zstd")]
            StreamState::Window => self.position = Position::Failed(CodingError::Window),
        }
        Ok(ran.decoded)
    }
}

impl Position {
    fn between(first: bool) -> Self {
        Position::Between {
            first,
            magic: [0; 4],
            len: 0,
        }
    }
}

/// The value of Accept-Encoding: the codings that this build can decode.
pub const ACCEPT_ENCODING: &str = match (cfg!(feature = "brotli"), cfg!(feature = "zstd")) {
    (true, true) => "gzip, deflate, br, zstd",
    (true, false) => "gzip, deflate, br",
    (false, true) => "gzip, deflate, zstd",
    (false, false) => "gzip, deflate",
};

/// The same, with or without zstd.
pub const fn accept_encoding(zstd: bool) -> &'static str {
    match (zstd, cfg!(feature = "brotli")) {
        (true, _) => ACCEPT_ENCODING,
        (false, true) => "gzip, deflate, br",
        (false, false) => "gzip, deflate",
    }
}

/// Maximum number of nested codings; servers use one, or two by mistake.
const CODINGS_MAX: usize = 3;

/// Streams started before the decoder pauses: each costs some microseconds, however short it is.
const STREAMS_AT_ONCE: u32 = 16;

/// Maximum number of bytes decoded by one step.
const STEP_BYTES: usize = 16 << 10;

/// Decoded bytes below which the ratio is not checked.
const RATIO_FREE_BYTES: u64 = 1 << 20;

/// Bytes of an unknown coding's name that are quoted in the error.
const NAME_BYTES_SHOWN: usize = 40;

#[cfg(test)]
mod tests;
