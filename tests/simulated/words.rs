//! Pages whose words are a verdict: they ask for patience somewhere in their body, under a 200. A classifier that
//! reads so far judges them by the status that they name.

use std::time::Duration;

use argiope::base::rng::Rng;
use argiope::parts::gzip;
use argiope::{Answer, BodyPart, BodySignal, Classify};
use serde_json::Value;

use super::random::pick;
use super::reply::{Reply, Step};
use super::web::PoliteWeb;

/// The body of a page, and how it is sent.
#[derive(Clone, Debug)]
pub struct Words {
    /// The status of its head.
    pub status: u16,
    /// The status that its words name, and how many octets there are up to their end.
    pub asks: Option<(u16, usize)>,
    /// Octets of the body.
    pub size: usize,
    pub frame: Frame,
    pub is_compressed: bool,
    /// The connection ends after so many octets of what is sent.
    pub broken_off: Option<usize>,
}

/// Where a body ends.
#[derive(Clone, Copy, Debug)]
pub enum Frame {
    Length,
    Chunks,
    Connection,
}

/// Words that a status follows.
const ASKS: &str = "please slow down ";

/// Octets of those and of the status.
const ASKS_SIZE: usize = ASKS.len() + 3;

/// Most bytes of the start of a body that are read.
const START_MAX: usize = 64 << 10;

impl Words {
    /// A small page that asks for patience with this status.
    pub fn asking(status: u16) -> Self {
        Words {
            status: 200,
            asks: Some((status, 60)),
            size: 200,
            frame: Frame::Length,
            is_compressed: false,
            broken_off: None,
        }
    }

    /// A page of any size that asks for patience anywhere, or nowhere.
    pub fn random(rng: &mut Rng) -> Self {
        let size = match rng.below(60) {
            0 => 70_000,
            1..3 => 20_000,
            _ => pick(rng, &[0, 1, 25, 300, 1100]),
        };
        let ends = [ASKS_SIZE, 90, 1000, 1040, 18_000, START_MAX, 66_000];
        let asks = (pick(rng, &[429, 429, 503]), pick(rng, &ends));
        let frame = pick(rng, &[Frame::Length, Frame::Chunks, Frame::Connection]);
        // The connection's end says nothing about what is missing.
        let breaks_off = rng.chance(0.1) && !matches!(frame, Frame::Connection);
        Words {
            status: 200,
            asks: Some(asks).filter(|(_, end)| *end <= size && rng.chance(0.8)),
            size,
            frame,
            is_compressed: rng.chance(0.3),
            broken_off: breaks_off.then(|| rng.below(2000) as usize),
        }
    }

    /// The fields of its head, the body as it is sent, and whether the connection ends behind it.
    pub fn bytes(&self) -> (String, Vec<u8>, bool) {
        let mut body = letters(self.size);
        let mut kind = format!("text/html; size={}", self.size);
        if let Some((status, end)) = self.asks {
            let words = format!("{ASKS}{status}");
            body[end - ASKS_SIZE..end].copy_from_slice(words.as_bytes());
            kind += &format!("; asks={status}; end={end}");
        }
        let mut fields = format!("Content-Type: {kind}\r\n");
        if self.is_compressed {
            body = gzip(&body);
            fields += "Content-Encoding: gzip\r\n";
        }
        match self.frame {
            Frame::Length => fields += &format!("Content-Length: {}\r\n", body.len()),
            Frame::Connection => {}
            Frame::Chunks => {
                fields += "Transfer-Encoding: chunked\r\n";
                let chunks = body.chunks(1000).map(|chunk| {
                    let length = format!("{:x}\r\n", chunk.len());
                    [length.as_bytes(), chunk, b"\r\n"].concat()
                });
                body = chunks
                    .chain([b"0\r\n\r\n".to_vec()])
                    .collect::<Vec<_>>()
                    .concat();
            }
        }
        let is_broken = self.broken_off.is_some_and(|at| at < body.len());
        body.truncate(self.broken_off.unwrap_or(body.len()));
        (
            fields,
            body,
            is_broken || matches!(self.frame, Frame::Connection),
        )
    }
}

/// Letters that no coding makes much shorter.
fn letters(count: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        b'a' + (state >> 24) as u8 % 26
    };
    (0..count).map(|_| next()).collect()
}

/// Some paths of some sites first have pages of words, or have nothing else.
pub fn add_words(rng: &mut Rng, web: &mut PoliteWeb) {
    for site in web.sites.values_mut() {
        if rng.chance(0.3) {
            continue;
        }
        let pages = site.paths.iter_mut();
        for (_, steps) in pages.filter(|(path, _)| path.starts_with("/p")) {
            if rng.chance(0.6) {
                continue;
            }
            let first: Vec<Step> = (0..1 + rng.below(3)).map(|_| step(rng)).collect();
            match rng.chance(0.2) {
                true => *steps = first,
                false => drop(steps.splice(..0, first)),
            }
        }
    }
}

fn step(rng: &mut Rng) -> Step {
    let words = Words::random(rng);
    let has_body = words.size > 0;
    let step = Step::new(Reply::Words(words)).after_ms(rng.below(100));
    match has_body && rng.chance(0.2) {
        true => step.body_after(Duration::from_millis(1 + rng.below(3000))),
        false => step,
    }
}

/// Judges by words in this part of a body.
pub struct ByWords(pub BodyPart);

impl Classify for ByWords {
    fn body_part(&self, _: &Answer<'_>) -> BodyPart {
        self.0
    }

    fn classify_body(&self, _: &Answer<'_>, body: &[u8]) -> BodySignal {
        let mut windows = body.windows(ASKS_SIZE);
        let Some(found) = windows.find(|words| words.starts_with(ASKS.as_bytes())) else {
            return BodySignal::nothing();
        };
        let status = std::str::from_utf8(&found[ASKS.len()..]).expect("a status");
        BodySignal::nothing().status(status.parse().expect("a status"))
    }
}

/// Which part of bodies the classifier of a random crawl reads; `None`: there is no classifier.
pub fn random_part(rng: &mut Rng) -> Option<BodyPart> {
    let starts = [0, 1, 30, 1024, 70_000, usize::MAX];
    match rng.below(4) {
        0 => None,
        1 => Some(BodyPart::Kept),
        _ => Some(BodyPart::Start(pick(rng, &starts))),
    }
}

/// What the server says of a page of words, in its content type.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    pub size: u64,
    /// The status that it asks with, and the octets up to the end of the words.
    pub asks: Option<(u64, u64)>,
}

impl Label {
    /// That of the reply of a result line, if it is such a page.
    pub fn of(line: &Value) -> Option<Self> {
        let kind = line["content_type"].as_str()?;
        let value = |name: &str| -> Option<u64> {
            let mut parameters = kind.split("; ");
            let value = parameters.find_map(|parameter| parameter.strip_prefix(name))?;
            value.parse().ok()
        };
        Some(Label {
            size: value("size=")?,
            asks: value("asks=").zip(value("end=")),
        })
    }

    /// The verdict that is due on its body, if the classifier read so many octets of it.
    pub fn verdict(&self, read: u64) -> Option<u64> {
        let asks = self.asks.filter(|(_, end)| *end <= read);
        asks.map(|(status, _)| status)
    }
}

/// How many octets of a body that has so many the classifier reads. `is_kept`: by the sink.
pub fn read_of(part: Option<BodyPart>, octets: u64, is_kept: bool) -> u64 {
    match part {
        Some(BodyPart::Start(wanted)) => octets.min(wanted.min(START_MAX) as u64),
        Some(_) if is_kept => octets,
        _ => 0,
    }
}
