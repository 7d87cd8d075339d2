//! Content codings undone in bounded steps: gzip, deflate, br and zstd, also stacked.
//!
//! `br` needs the feature `brotli`, `zstd` the feature of that name. What this build cannot undo it
//! does not ask for ([`ACCEPT_ENCODING`]), and refuses by name ([`CodingError::Absent`]).

mod engine;

use std::ops::Range;

pub use engine::gzip;

use engine::{Engine, Turn};

/// How much a body may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes of decoded body; what is beyond is cut, which is no error.
    pub bytes_max: u64,
    /// Decoded bytes per coded byte, looked at once 1 MiB has been decoded, and in each layer of
    /// a stack.
    pub ratio_max: u64,
}

impl Default for Budget {
    /// 10 MiB, as `DOWNLOAD_MAXSIZE`; 200 to 1, several times what the most repetitive pages
    /// reach, and a fifth of what deflate makes of zeros.
    fn default() -> Self {
        Budget {
            bytes_max: 10 << 20,
            ratio_max: 200,
        }
    }
}

/// What a [`Decoder`] is ready for after some input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More input.
    More,
    /// Nothing more: the body was cut at the budget's bytes, and what fits is kept.
    Full,
    /// Nothing before it is asked again, by the same call: it has decoded as much as was asked for.
    Paused,
}

/// The content codings we undo (RFC 9110 section 8.4.1, RFC 7932, RFC 8878).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// `gzip`, `x-gzip`.
    Gzip,
    /// `deflate`: zlib, or raw as some servers have it.
    Deflate,
    /// `br`.
    Brotli,
    /// `zstd`, with windows of up to 8 MiB (RFC 9659).
    Zstd,
}

/// Why a body cannot be decoded (further). What was decoded before stays valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodingError {
    /// A coding we do not know. The body may still be of use as it came.
    #[error("unknown content coding {0:?}")]
    Unknown(String),
    /// A coding that this build of the library cannot undo. The body may still be of use as it
    /// came.
    #[error("content coding {} needs a feature that is off: {}", .0.name(), .0.feature())]
    Absent(Coding),
    /// More codings over each other than three.
    #[error("more than {CODINGS_MAX} content codings over each other")]
    TooMany,
    /// The bytes are not of this coding, or damaged.
    #[error("the {} stream is broken", .0.name())]
    Broken(Coding),
    /// The body ended within the coded stream.
    #[error("the {} stream ends too early", .0.name())]
    Truncated(Coding),
    /// A zstd frame needs a larger window than 8 MiB.
    #[error("a zstd frame needs a window larger than 8 MiB")]
    Window,
    /// The body expands beyond the budget's ratio.
    #[error("the body expands beyond the allowed ratio")]
    Bomb,
}

/// Undoes a body's content codings, piece by piece.
///
/// Memory is bounded by the codings' windows (32 KiB for deflate, 16 MiB for br, 8 MiB for zstd)
/// and a scratch buffer per layer, whatever the input; one step decodes at most 16 KiB.
/// Bytes after the end of a coded stream are ignored, as browsers do, unless they begin
/// another gzip member or zstd frame.
pub struct Decoder {
    /// The outermost coding first.
    layers: Vec<Layer>,
    meter: Meter,
    failed: Option<CodingError>,
}

impl Decoder {
    /// A decoder for the values of Content-Encoding, all fields in order (RFC 9110 section 8.4).
    /// No value, `identity` and the `none` of some servers mean that bytes pass as they are.
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
        // They are listed in the order they were applied.
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
                has_begun_many: false,
            },
            failed: None,
        })
    }

    /// Whether bytes pass as they are.
    pub fn is_identity(&self) -> bool {
        self.layers.is_empty()
    }

    /// Decodes a piece of the body and appends it to `out`.
    ///
    /// Input that decodes to nothing (empty gzip members, say) costs no memory but has no end
    /// here: bounding what comes on the wire is the caller's.
    ///
    /// # Errors
    /// The first error is returned again ever after. What was appended before is valid; after
    /// [`CodingError::Bomb`] it is at most 1 MiB, or the ratio's share of what came. How much
    /// comes out ahead of damage may depend on how the input was cut; nothing else does.
    pub fn write(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Progress, CodingError> {
        let mut input = input;
        loop {
            match self.write_some(&mut input, u64::MAX, out)? {
                Progress::Paused => {}
                progress => return Ok(progress),
            }
        }
    }

    /// The same, but stops once it has appended `bytes_max` bytes, however much the piece would become,
    /// or has begun so many gzip members or zstd frames that others should have their turn: what is left of it is then in `input`, and some may be left in here though that is empty.
    ///
    /// # Errors
    /// As [`Decoder::write`].
    pub fn write_some(
        &mut self,
        input: &mut &[u8],
        bytes_max: u64,
        out: &mut Vec<u8>,
    ) -> Result<Progress, CodingError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if input.is_empty() && !self.meter.is_paused() {
            return Ok(self.meter.progress());
        }
        self.meter.pause_at = self.meter.kept.saturating_add(bytes_max);
        self.meter.has_begun_many = false;
        pump(&mut self.layers, input, out, &mut self.meter).inspect_err(|error| {
            self.failed = Some(error.clone());
        })
    }

    /// The body has ended. No body at all is an empty one, whatever its codings.
    ///
    /// # Errors
    /// [`CodingError::Truncated`] where a coded stream is incomplete, or the error that
    /// [`Decoder::write`] returned. A body that was cut at its budget is no error.
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

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.layers.iter().map(|layer| layer.coding))
            .finish()
    }
}

impl Coding {
    /// The registered name.
    pub const fn name(self) -> &'static str {
        match self {
            Coding::Gzip => "gzip",
            Coding::Deflate => "deflate",
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
        }
    }

    /// The feature that brings what undoes it.
    const fn feature(self) -> &'static str {
        match self {
            Coding::Gzip | Coding::Deflate => "none, it is always there",
            Coding::Brotli => "brotli",
            Coding::Zstd => "zstd",
        }
    }

    /// The coding of a name, in any case; none where it stands for no coding.
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
    /// The stable name within `content_encoding`.
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

    /// Whether another try may end otherwise: what was cut off may come whole.
    pub const fn is_retryable(&self) -> bool {
        matches!(self, CodingError::Truncated(_))
    }
}

/// What came in and what went out, against the budget.
struct Meter {
    budget: Budget,
    /// Coded bytes that were used up: what is decoded is weighed against these, not against what
    /// happens to have arrived.
    wire: u64,
    /// Decoded bytes, what was cut included.
    kept: u64,
    /// How many of these are asked for until now.
    pause_at: u64,
    /// It paused because a layer has begun many streams.
    has_begun_many: bool,
}

impl Meter {
    fn is_full(&self) -> bool {
        self.kept > self.budget.bytes_max
    }

    fn is_paused(&self) -> bool {
        self.kept >= self.pause_at || self.has_begun_many
    }

    /// Appends what fits of as much as is asked for, which it takes.
    fn keep(&mut self, bytes: &mut &[u8], out: &mut Vec<u8>) -> Progress {
        let within = |room: u64| usize::try_from(room).unwrap_or(usize::MAX);
        let asked = bytes.len().min(within(self.pause_at - self.kept));
        let (taken, later) = bytes.split_at(asked);
        *bytes = later;
        let room = self.budget.bytes_max.saturating_sub(self.kept);
        out.extend_from_slice(&taken[..taken.len().min(within(room))]);
        self.kept = self.kept.saturating_add(taken.len() as u64);
        self.progress()
    }

    fn progress(&self) -> Progress {
        if self.is_full() {
            Progress::Full
        } else if self.is_paused() {
            Progress::Paused
        } else {
            Progress::More
        }
    }

    /// Every layer answers for its own output: a bomb within a stack need not show at its end.
    fn weigh(&self, decoded: u64) -> Result<(), CodingError> {
        let allowed = self.wire.saturating_mul(self.budget.ratio_max);
        if decoded > RATIO_FREE_BYTES && decoded > allowed {
            return Err(CodingError::Bomb);
        }
        Ok(())
    }
}

/// Drives a piece through the layers, a step of the outermost at a time.
fn pump(
    layers: &mut [Layer],
    input: &mut &[u8],
    out: &mut Vec<u8>,
    meter: &mut Meter,
) -> Result<Progress, CodingError> {
    if meter.is_full() {
        return Ok(Progress::Full);
    }
    let Some((layer, inner)) = layers.split_first_mut() else {
        return Ok(meter.keep(input, out));
    };
    loop {
        // What was left when it paused goes on first; the layers within may have something, too.
        let mut rest = &layer.scratch[layer.left.clone()];
        let progress = pump(inner, &mut rest, out, meter)?;
        layer.left.start = layer.left.end - rest.len();
        if progress != Progress::More {
            return Ok(progress);
        }
        if layer.begun >= STREAMS_AT_ONCE {
            layer.begun = 0;
            meter.has_begun_many = true;
            return Ok(Progress::Paused);
        }
        let before = input.len();
        let decoded = layer.step(input)?;
        if layer.is_outermost {
            meter.wire += (before - input.len()) as u64;
        }
        if decoded == 0 && input.is_empty() && !layer.has_failed() {
            return Ok(Progress::More);
        }
        layer.left = 0..decoded;
        layer.decoded += decoded as u64;
        meter.weigh(layer.decoded)?;
    }
}

/// One coding being undone.
struct Layer {
    coding: Coding,
    engine: Engine,
    place: Place,
    scratch: Box<[u8]>,
    /// What of it has not been handed on.
    left: Range<usize>,
    /// Bytes it has decoded.
    decoded: u64,
    /// It reads what came on the wire.
    is_outermost: bool,
    /// Streams behind the first that it has begun since it last paused.
    begun: u32,
}

/// Where in a coded body we are.
enum Place {
    /// Nothing has come.
    Start,
    /// In a stream.
    Within,
    /// Before a stream whose first bytes decide: what kind of deflate it is, or whether it is
    /// another member or frame at all.
    Between {
        first: bool,
        magic: [u8; 4],
        len: usize,
    },
    /// Past the end; what follows is ignored.
    Over,
    /// At the damage.
    Failed(CodingError),
}

impl Layer {
    fn new(coding: Coding) -> Result<Self, CodingError> {
        Ok(Layer {
            coding,
            engine: Engine::new(coding)?,
            place: Place::Start,
            scratch: vec![0; STEP_BYTES].into_boxed_slice(),
            left: 0..0,
            decoded: 0,
            is_outermost: false,
            begun: 0,
        })
    }

    /// Whether the body may end here.
    fn may_end(&self) -> bool {
        match self.place {
            Place::Start | Place::Over => true,
            Place::Within | Place::Failed(_) => false,
            Place::Between { first, .. } => !first,
        }
    }

    /// Whether the next step says what is wrong.
    fn has_failed(&self) -> bool {
        matches!(self.place, Place::Failed(_))
    }

    /// Decodes into the scratch buffer, using up some of `input`; says how many bytes. Nothing
    /// decoded and nothing left means that more input is needed.
    fn step(&mut self, input: &mut &[u8]) -> Result<usize, CodingError> {
        match &mut self.place {
            Place::Over => {
                *input = &[];
                Ok(0)
            }
            Place::Start if input.is_empty() => Ok(0),
            Place::Start => {
                self.place = match self.coding {
                    Coding::Deflate => Place::between(true),
                    _ => Place::Within,
                };
                Ok(0)
            }
            Place::Within => self.run(input),
            Place::Failed(error) => Err(error.clone()),
            Place::Between { magic, len, .. } => {
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
                    self.place = Place::Over;
                    return Ok(0);
                }
                self.place = Place::Within;
                self.begun += 1;
                self.run(&mut &magic[..wanted])
            }
        }
    }

    fn run(&mut self, input: &mut &[u8]) -> Result<usize, CodingError> {
        let ran = self.engine.run(input, &mut self.scratch);
        let stuck = ran.used == 0 && ran.decoded == 0 && !input.is_empty();
        *input = &input[ran.used..];
        match ran.turn {
            Turn::More if stuck => return Err(CodingError::Broken(self.coding)),
            Turn::More => {}
            Turn::Ended => {
                self.place = match self.coding {
                    Coding::Gzip | Coding::Zstd => Place::between(false),
                    Coding::Deflate | Coding::Brotli => Place::Over,
                }
            }
            // What was decoded ahead of the damage is handed on first.
            Turn::Broken => self.place = Place::Failed(CodingError::Broken(self.coding)),
            #[cfg(feature = "zstd")]
            Turn::Window => self.place = Place::Failed(CodingError::Window),
        }
        Ok(ran.decoded)
    }
}

impl Place {
    fn between(first: bool) -> Self {
        Place::Between {
            first,
            magic: [0; 4],
            len: 0,
        }
    }
}

/// What a request's Accept-Encoding says: the codings that this build can undo.
pub const ACCEPT_ENCODING: &str = match (cfg!(feature = "brotli"), cfg!(feature = "zstd")) {
    (true, true) => "gzip, deflate, br, zstd",
    (true, false) => "gzip, deflate, br",
    (false, true) => "gzip, deflate, zstd",
    (false, false) => "gzip, deflate",
};

/// The same, with zstd or without.
pub const fn accept_encoding(zstd: bool) -> &'static str {
    match (zstd, cfg!(feature = "brotli")) {
        (true, _) => ACCEPT_ENCODING,
        (false, true) => "gzip, deflate, br",
        (false, false) => "gzip, deflate",
    }
}

/// Codings over each other; the web has one, mistakes have two.
const CODINGS_MAX: usize = 3;

/// Streams that are begun before it pauses: each takes some microseconds, however short it is.
const STREAMS_AT_ONCE: u32 = 16;

/// Bytes that one step decodes at most.
const STEP_BYTES: usize = 16 << 10;

/// Decoded bytes below which no ratio is looked at.
const RATIO_FREE_BYTES: u64 = 1 << 20;

/// Bytes of an unknown coding's name that an error quotes.
const NAME_BYTES_SHOWN: usize = 40;

#[cfg(test)]
mod tests;
