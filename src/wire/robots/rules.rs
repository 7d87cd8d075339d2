//! The rules of a robots.txt for one agent, in a compact form, because millions of them may be
//! stored.

use std::borrow::Cow;
use std::time::Duration;

use super::pattern::{self, Steps};

/// The rules of a robots.txt for one agent, in a compact form for storage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The patterns, concatenated in the order of the file.
    text: Box<str>,
    /// For each rule: whether it allows, the length of its pattern, and the number of lines since
    /// the previous rule, as variable-length integers with seven bits per byte.
    heads: Box<[u8]>,
    delay: Option<Duration>,
}

impl Rules {
    /// Rules that forbid everything, for an unreachable robots.txt (RFC 9309, 2.3.1.4).
    pub fn disallow_all() -> Self {
        let mut packed = Packed::default();
        packed.push(false, "/", 0);
        packed.into_rules(None)
    }

    /// Rules that forbid nothing, for a missing robots.txt (RFC 9309, 2.3.1.3).
    pub fn allow_all() -> Self {
        Rules::default()
    }

    /// Decides whether a URL may be fetched, by its path and query.
    ///
    /// The longest matching pattern decides, and Allow wins over an equally long Disallow;
    /// `/robots.txt` itself is always allowed. If the decision needs more than [`STEPS_MAX`]
    /// comparisons the URL is forbidden: only a file built to waste time needs that.
    pub fn allowed(&self, path_and_query: &str) -> Verdict<'_> {
        self.decide(path_and_query).0
    }

    /// The same, with the number of comparisons.
    pub(crate) fn decide(&self, path_and_query: &str) -> (Verdict<'_>, usize) {
        let undecided = Verdict {
            allowed: true,
            rule: None,
        };
        let path = path_and_query.split('?').next().unwrap_or("");
        if self.heads.is_empty() || path == "/robots.txt" {
            return (undecided, 0);
        }
        let path = match path_and_query {
            "" => Cow::Borrowed("/"),
            given => pattern::of_path(given),
        };
        let mut steps = Steps(STEPS_MAX);
        let mut best: Option<Rule<'_>> = None;
        for rule in self.iter() {
            let is_better = best.is_none_or(|best| {
                (rule.pattern.len(), rule.allow) > (best.pattern.len(), best.allow)
            });
            let matches = match is_better {
                true => pattern::matches(rule.pattern, &path, &mut steps),
                false => steps.take(0).map(|()| false),
            };
            match matches {
                Some(true) => best = Some(rule),
                Some(false) => {}
                None => {
                    let forbidden = Verdict {
                        allowed: false,
                        rule: None,
                    };
                    return (forbidden, STEPS_MAX);
                }
            }
        }
        let verdict = Verdict {
            allowed: best.is_none_or(|rule| rule.allow),
            rule: best,
        };
        (verdict, STEPS_MAX - steps.0)
    }

    /// The delay between requests that the file asks for.
    pub fn crawl_delay(&self) -> Option<Duration> {
        self.delay
    }

    /// These rules in a stable form.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let delay = self.delay.map_or(0, |delay| {
            u64::try_from(delay.as_nanos()).map_or(u64::MAX, |nanos| nanos.saturating_add(1))
        });
        let heads = self.heads.len() as u64;
        let numbers = [delay.to_le_bytes(), heads.to_le_bytes()].concat();
        [&numbers[..], &self.heads, self.text.as_bytes()].concat()
    }

    /// Reads what [`Rules::to_bytes`] wrote. `None` if these bytes are not whole rules.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (delay, bytes) = bytes.split_first_chunk().map(read_number)?;
        let (heads, bytes) = bytes.split_first_chunk().map(read_number)?;
        let (heads, text) = bytes.split_at_checked(usize::try_from(heads).ok()?)?;
        let text = std::str::from_utf8(text).ok()?;
        let mut rest = (heads, text, 0_u32);
        while !rest.0.is_empty() {
            let length = usize::try_from(take_whole_number(&mut rest.0)? >> 1).ok()?;
            let lines = u32::try_from(take_whole_number(&mut rest.0)?).ok()?;
            rest.2 = rest.2.checked_add(lines)?;
            rest.1 = rest.1.split_at_checked(length)?.1;
        }
        rest.1.is_empty().then(|| Rules {
            text: text.into(),
            heads: heads.into(),
            delay: delay.checked_sub(1).map(Duration::from_nanos),
        })
    }

    /// Heap memory in bytes, for a bounded store of rules.
    pub(crate) fn heap_size(&self) -> usize {
        self.text.len() + self.heads.len()
    }

    pub(super) fn iter(&self) -> Iter<'_> {
        Iter {
            text: &self.text,
            heads: &self.heads,
            line: 0,
        }
    }
}

/// Rules under construction.
#[derive(Clone, Debug, Default)]
pub(super) struct Packed {
    text: String,
    heads: Vec<u8>,
    line: u32,
}

impl Packed {
    /// Adds a rule, in this line or a later one than those before.
    pub fn push(&mut self, allow: bool, pattern: &str, line: u32) {
        self.text.push_str(pattern);
        push_number(
            &mut self.heads,
            (pattern.len() as u64) << 1 | u64::from(allow),
        );
        push_number(&mut self.heads, u64::from(line.saturating_sub(self.line)));
        self.line = line;
    }

    /// Adds the rules of a later group.
    pub fn append(&mut self, other: &Packed) {
        let rules = Iter {
            text: &other.text,
            heads: &other.heads,
            line: 0,
        };
        for rule in rules {
            self.push(rule.allow, rule.pattern, rule.line);
        }
    }

    /// Converts to the final form.
    pub fn into_rules(self, delay: Option<Duration>) -> Rules {
        Rules {
            text: self.text.into(),
            heads: self.heads.into(),
            delay,
        }
    }
}

pub(super) struct Iter<'a> {
    text: &'a str,
    heads: &'a [u8],
    line: u32,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Rule<'a>;

    fn next(&mut self) -> Option<Rule<'a>> {
        let head = take_number(&mut self.heads)?;
        self.line += take_number(&mut self.heads)? as u32;
        let (pattern, rest) = self.text.split_at((head >> 1) as usize);
        self.text = rest;
        Some(Rule {
            allow: head & 1 == 1,
            pattern,
            line: self.line,
        })
    }
}

fn push_number(heads: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        heads.push(number as u8 | 0x80);
        number >>= 7;
    }
    heads.push(number as u8);
}

fn take_number(heads: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (octet, rest) = heads.split_first()?;
        *heads = rest;
        number |= u64::from(octet & 0x7f) << shift;
        if octet & 0x80 == 0 {
            break;
        }
    }
    Some(number)
}

/// The same, of octets that may be no number: `None` if it ends early or has more than 64 bits.
fn take_whole_number(heads: &mut &[u8]) -> Option<u64> {
    let length = 1 + heads.iter().position(|octet| octet & 0x80 == 0)?;
    (length <= 9).then(|| take_number(heads))?
}

fn read_number<'a>((number, rest): (&[u8; 8], &'a [u8])) -> (u64, &'a [u8]) {
    (u64::from_le_bytes(*number), rest)
}

/// Whether a URL may be fetched, and the rule that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdict<'a> {
    /// Whether it may be fetched.
    pub allowed: bool,
    /// The rule that decided; `None` if none matched.
    pub rule: Option<Rule<'a>>,
}

/// One rule as parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rule<'a> {
    /// `Allow` if true, else `Disallow`.
    pub allow: bool,
    /// Its path pattern, normalised for comparison.
    pub pattern: &'a str,
    /// Its line in the file, from 1.
    pub line: u32,
}

/// Maximum number of bytes compared for one decision: about two milliseconds. The longest
/// legitimate files known take a tenth.
pub const STEPS_MAX: usize = 1 << 20;
