//! What a robots.txt says to one agent, in as few octets as it takes: millions of them may be kept.

use std::borrow::Cow;
use std::time::Duration;

use super::pattern::{self, Steps};

/// What a robots.txt says to one agent: compact, to be kept for as long as it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The patterns one after the other, in the order of the file.
    text: Box<str>,
    /// Of each rule whether it allows, the length of its pattern, and how many lines it stands behind
    /// the one before it, as numbers of seven bits an octet.
    heads: Box<[u8]>,
    delay: Option<Duration>,
}

impl Rules {
    /// Rules that forbid everything: what an unreachable robots.txt says (RFC 9309, 2.3.1.4).
    pub fn disallow_all() -> Self {
        let mut packed = Packed::default();
        packed.push(false, "/", 0);
        packed.into_rules(None)
    }

    /// Rules that forbid nothing: what an absent robots.txt says (RFC 9309, 2.3.1.3).
    pub fn allow_all() -> Self {
        Rules::default()
    }

    /// Whether a URL may be fetched, by its path and query.
    ///
    /// The longest pattern that matches decides, Allow among equals; `/robots.txt` itself is
    /// always allowed. A file made to cost more than [`STEPS_MAX`] comparisons forbids: its
    /// owner can have no better wish than to be left alone.
    pub fn allowed(&self, path_and_query: &str) -> Verdict<'_> {
        self.decide(path_and_query).0
    }

    /// The same, and how many comparisons it took.
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

    /// The pause that the file asks for between requests.
    pub fn crawl_delay(&self) -> Option<Duration> {
        self.delay
    }

    /// Bytes on the heap, for whoever keeps many within a bound.
    pub fn heap_size(&self) -> usize {
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

/// Rules that are being collected.
#[derive(Clone, Debug, Default)]
pub(super) struct Packed {
    text: String,
    heads: Vec<u8>,
    line: u32,
}

impl Packed {
    /// One more rule, of this line or a later one than those before.
    pub fn push(&mut self, allow: bool, pattern: &str, line: u32) {
        self.text.push_str(pattern);
        push_number(
            &mut self.heads,
            (pattern.len() as u64) << 1 | u64::from(allow),
        );
        push_number(&mut self.heads, u64::from(line.saturating_sub(self.line)));
        self.line = line;
    }

    /// Those of another group, which stands behind.
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

    /// All of them, as they are kept.
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

/// Whether a URL may be fetched, and who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict<'a> {
    /// It may.
    pub allowed: bool,
    /// The rule that decided; `None` where none matched.
    pub rule: Option<Rule<'a>>,
}

/// One rule, as it was understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule<'a> {
    /// `Allow`, not `Disallow`.
    pub allow: bool,
    /// Its path pattern, percent-encoded in the one spelling used for comparing.
    pub pattern: &'a str,
    /// Its line in the file, from 1.
    pub line: u32,
}

/// How many octets one decision may compare: about two milliseconds of work. The longest honest
/// files known take a tenth.
pub const STEPS_MAX: usize = 1 << 20;
