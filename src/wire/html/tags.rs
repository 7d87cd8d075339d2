//! Reads the relevant tags of a page in bounded steps: adapts the tokenizer library to bodies in
//! any encoding, and reads text and plain tags without it.

mod skim;

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;
use std::mem;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use html5gum::{Emitter, Error, Reader, State, Tokenizer};

use super::element::{Attribute, Kind, Marks, Name, TextState, VALUE_MAX, text_of};
use crate::base::units::Units;
use crate::wire::charset::{Detection, Recoder};

/// The tags of a page that concern links, read in steps, and a record of what they say.
#[derive(Debug)]
pub(super) struct Tags<B: AsRef<[u8]>, M: Marks> {
    tokenizer: Tokenizer<BodyReader<B, M>, LinkEmitter<M>>,
    shared: Shared<M>,
}

/// State that the reader and the emitter share: the tokenizer owns both.
#[derive(Debug)]
struct Shared<M>(Arc<Mutex<Record<M>>>);

#[derive(Debug)]
struct Record<M> {
    marks: M,
    /// Cost of marks that the reader has not spent yet.
    cost: usize,
    /// Units that the reader has spent beyond its quantum, or within it at the end of the page.
    beyond: usize,
    /// Whether the last tag put the tokenizer into the data state, which it then leaves for tags, comments
    /// and CDATA only: false within the text of a `title`, a `script` and the like.
    is_data: bool,
}

impl<M> Shared<M> {
    /// It is never locked for longer than a call, and by one thread at a time.
    fn lock(&self) -> MutexGuard<'_, Record<M>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M> Clone for Shared<M> {
    fn clone(&self) -> Self {
        Shared(Arc::clone(&self.0))
    }
}

impl<B: AsRef<[u8]>, M: Marks> Tags<B, M> {
    /// The tags of a body with a known encoding. `resources`: include those of page resources.
    pub fn new(body: B, encoding: &Detection, resources: bool, marks: M) -> Self {
        Tags::with_quantum(body, encoding, resources, marks, QUANTUM)
    }

    fn with_quantum(
        body: B,
        encoding: &Detection,
        resources: bool,
        marks: M,
        quantum: usize,
    ) -> Self {
        let shared = Shared(Arc::new(Mutex::new(Record {
            marks,
            cost: 0,
            beyond: 0,
            is_data: true,
        })));
        let reader = BodyReader {
            shared: shared.clone(),
            resources,
            input: Input {
                body,
                at: encoding.start(),
                recoder: encoding.recoder(),
                text: Vec::new(),
                text_at: 0,
            },
            left: quantum,
            quantum,
            matched: false,
        };
        let emitter = LinkEmitter::new(resources, shared.clone());
        Tags {
            tokenizer: Tokenizer::new_with_emitter(reader, emitter),
            shared,
        }
    }

    /// Reads more of the page. Returns whether it is read to its end; if not, the units are spent.
    pub fn step(&mut self, units: &mut Units) -> bool {
        while !units.is_spent() {
            let is_over = self.tokenizer.next().is_none();
            let mut shared = self.shared.lock();
            units.spend(mem::take(&mut shared.beyond));
            if is_over {
                units.spend(mem::take(&mut shared.cost));
                return true;
            }
            units.spend(QUANTUM);
        }
        false
    }

    /// What is recorded.
    pub fn marks<T>(&self, of: impl FnOnce(&M) -> T) -> T {
        of(&self.shared.lock().marks)
    }

    /// What the page says, once it is read.
    pub fn into_marks(self) -> M {
        drop(self.tokenizer);
        let record = Arc::into_inner(self.shared.0).expect("the tokenizer had the other owners");
        let record = record.into_inner();
        record.unwrap_or_else(PoisonError::into_inner).marks
    }
}

/// Reads a body as UTF-8 and limits how much is read at once.
///
/// An error makes the tokenizer return, and it continues afterwards as if there was none. It reads
/// once per round of its loops, at the beginning, except after a character reference: no error is
/// returned there.
#[derive(Debug)]
struct BodyReader<B, M> {
    shared: Shared<M>,
    resources: bool,
    input: Input<B>,
    /// Units left before the next pause.
    left: usize,
    /// Units between two pauses.
    quantum: usize,
    /// The last read was a successful comparison.
    matched: bool,
}

/// A body, and how far it is read.
#[derive(Debug)]
struct Input<B> {
    body: B,
    /// Offset up to which the body was read.
    at: usize,
    recoder: Option<Box<Recoder>>,
    /// Converted text, and the offset up to which it was read.
    text: Vec<u8>,
    text_at: usize,
}

/// The error that interrupts the tokenizer after a quantum.
#[derive(Debug)]
struct Paused;

impl fmt::Display for Paused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the budget of this step is used up")
    }
}

impl std::error::Error for Paused {}

impl<B: AsRef<[u8]>> Input<B> {
    /// The next `wanted` bytes, or all that are left.
    fn rest(&mut self, wanted: usize) -> &[u8] {
        let body = self.body.as_ref();
        let Some(recoder) = &mut self.recoder else {
            return &body[self.at..];
        };
        while self.text.len() - self.text_at < wanted && self.at < body.len() {
            self.text.drain(..self.text_at);
            self.text_at = 0;
            let end = body.len().min(self.at + RECODED_AT_ONCE);
            recoder.decode(&body[self.at..end], end == body.len(), &mut self.text);
            self.at = end;
        }
        &self.text[self.text_at..]
    }

    fn advance(&mut self, length: usize) {
        match self.recoder {
            None => self.at += length,
            Some(_) => self.text_at += length,
        }
    }

    /// Reads so many of the bytes that [`Input::rest`] returned.
    fn take(&mut self, length: usize) -> &[u8] {
        self.advance(length);
        let (text, end) = match self.recoder {
            None => (self.body.as_ref(), self.at),
            Some(_) => (&self.text[..], self.text_at),
        };
        &text[end - length..end]
    }
}

impl<B, M> BodyReader<B, M> {
    fn spend(&mut self, units: usize) {
        let beyond = units.saturating_sub(self.left);
        self.left -= units - beyond;
        if beyond > 0 {
            self.shared.lock().beyond += beyond;
        }
    }

    /// The page is read: what was spent of this quantum counts.
    fn end(&mut self) {
        let spent = self.quantum - mem::replace(&mut self.left, self.quantum);
        self.shared.lock().beyond += spent;
    }

    fn pause(&mut self) -> Result<(), Paused> {
        if self.left > 0 || mem::take(&mut self.matched) {
            return Ok(());
        }
        self.left = self.quantum;
        Err(Paused)
    }
}

impl<B: AsRef<[u8]>, M: Marks> Reader for BodyReader<B, M> {
    type Error = Paused;

    #[inline]
    fn read_byte(&mut self) -> Result<Option<u8>, Paused> {
        self.pause()?;
        let Some(octet) = self.input.rest(1).first().copied() else {
            self.end();
            return Ok(None);
        };
        self.input.advance(1);
        self.spend(1 + READ_UNITS);
        Ok(Some(octet))
    }

    fn try_read_string(&mut self, wanted: &[u8], case_sensitive: bool) -> Result<bool, Paused> {
        self.spend(COMPARED_UNITS);
        let rest = self.input.rest(wanted.len());
        let matched = rest.get(..wanted.len()).is_some_and(|there| {
            there == wanted || !case_sensitive && there.eq_ignore_ascii_case(wanted)
        });
        if matched {
            self.input.advance(wanted.len());
            self.matched = true;
        }
        Ok(matched)
    }

    #[inline]
    fn read_until<'b>(
        &'b mut self,
        needle: &[u8],
        _: &'b mut [u8; 4],
    ) -> Result<Option<&'b [u8]>, Paused> {
        self.pause()?;
        let mut cost = READ_UNITS;
        let rest = self.input.rest(1);
        let rest = &rest[..rest.len().min(self.left.max(1))];
        if rest.is_empty() {
            self.end();
            return Ok(None);
        }
        let mut shared = (needle == DATA).then(|| self.shared.lock());
        let found = match &mut shared {
            Some(shared) if shared.is_data => {
                cost += mem::take(&mut shared.cost);
                let left = self.left;
                skim::tags(rest, self.resources, |element, values| {
                    cost += element.record(|attribute| values.get(attribute), &mut shared.marks);
                    cost < left
                })
            }
            _ => skim::first_of(rest, needle),
        };
        drop(shared);
        let length = found.unwrap_or(rest.len()).max(1);
        self.spend(length + cost);
        Ok(Some(self.input.take(length)))
    }
}

/// The bytes for which the tokenizer looks in the data state, and in the text of `title` and `textarea`.
const DATA: &[u8] = b"&<\0\r";

/// Units between two pauses.
const QUANTUM: usize = 4096;

/// Cost of comparing the input with a wanted text; after `&` there may be dozens.
const COMPARED_UNITS: usize = 2;

/// Cost of a tokenizer step besides the bytes it reads: a page that consists only of tags has one
/// per byte.
const READ_UNITS: usize = 2;

/// Bytes converted at once.
const RECODED_AT_ONCE: usize = 2048;

/// The tag being read.
#[derive(Debug, Default)]
struct Tag {
    name: Vec<u8>,
    is_end: bool,
    self_closing: bool,
    /// The name of the attribute being read, truncated to the relevant length.
    attribute: Vec<u8>,
    /// The attribute being read, if its value is relevant.
    kept: Option<Attribute>,
    /// Ranges of the values in `text`, by attribute; the first of duplicates counts.
    values: [Option<Range<usize>>; Attribute::COUNT],
    /// The attributes before the one being read, with or without values: a bit for each.
    before: u16,
    /// The values.
    text: Vec<u8>,
}

impl Tag {
    fn begin(&mut self, is_end: bool) {
        self.name.clear();
        self.is_end = is_end;
        self.self_closing = false;
        self.attribute.clear();
        self.kept = None;
        self.values = Default::default();
        self.before = 0;
        self.text.clear();
    }

    fn begin_attribute(&mut self) {
        if let Some(before) = Attribute::of(&self.attribute) {
            self.before |= 1 << before as u16;
        }
        self.attribute.clear();
        self.kept = None;
    }

    fn value(&self, attribute: Attribute) -> Option<Cow<'_, str>> {
        let range = self.values[attribute as usize].clone()?;
        Some(text_of(&self.text[range]))
    }
}

/// Longer names of tags and attributes are not relevant.
const NAME_MAX: usize = 16;

/// Receives the tokenizer's events and keeps what is relevant.
#[derive(Debug)]
struct LinkEmitter<M> {
    resources: bool,
    tag: Tag,
    last_start_tag: Vec<u8>,
    /// Nesting depth in `svg` or `math`, where other rules apply to raw text and CDATA.
    foreign_depth: u32,
    shared: Shared<M>,
}

impl<M> LinkEmitter<M> {
    fn new(resources: bool, shared: Shared<M>) -> Self {
        LinkEmitter {
            resources,
            tag: Tag::default(),
            last_start_tag: Vec::new(),
            foreign_depth: 0,
            shared,
        }
    }

    /// The kind of the tag being read.
    fn kind(&self) -> Kind {
        Kind::of(Name::of(&self.tag.name), self.resources)
    }
}

impl<M: Marks> Emitter for LinkEmitter<M> {
    /// What is found is recorded.
    type Token = Infallible;

    fn init_start_tag(&mut self) {
        self.tag.begin(false);
    }

    fn init_end_tag(&mut self) {
        self.tag.begin(true);
    }

    fn push_tag_name(&mut self, name: &[u8]) {
        push_bounded(&mut self.tag.name, name, NAME_MAX + 1);
    }

    fn set_self_closing(&mut self) {
        self.tag.self_closing = true;
    }

    fn init_attribute(&mut self) {
        self.tag.begin_attribute();
    }

    fn push_attribute_name(&mut self, name: &[u8]) {
        push_bounded(&mut self.tag.attribute, name, NAME_MAX + 1);
    }

    fn init_attribute_value(&mut self) {
        let matters = !self.tag.is_end && self.kind().element().is_some();
        self.tag.kept = Attribute::of(&self.tag.attribute)
            .filter(|kept| matters && self.tag.before >> *kept as u16 & 1 == 0);
        if let Some(kept) = self.tag.kept {
            let start = self.tag.text.len();
            self.tag.values[kept as usize] = Some(start..start);
        }
    }

    fn push_attribute_value(&mut self, value: &[u8]) {
        let Some(kept) = self.tag.kept else { return };
        let Some(range) = &mut self.tag.values[kept as usize] else {
            return;
        };
        push_bounded(&mut self.tag.text, value, range.start + VALUE_MAX);
        range.end = self.tag.text.len();
    }

    fn emit_current_tag(&mut self) -> Option<State> {
        let kind = self.kind();
        let is_foreign = kind == Kind::Foreign;
        let mut shared = self.shared.lock();
        if self.tag.is_end {
            self.foreign_depth -= u32::from(is_foreign && self.foreign_depth > 0);
            shared.is_data = true;
            return None;
        }
        self.foreign_depth += u32::from(is_foreign && !self.tag.self_closing);
        if let Some(element) = kind.element() {
            let tag = &self.tag;
            shared.cost += element.record(|attribute| tag.value(attribute), &mut shared.marks);
        }
        let is_empty = self.foreign_depth > 0 && self.tag.self_closing;
        let state = match kind {
            Kind::Text(text, _) if !is_empty => Some(state_of(text)),
            _ => None,
        };
        shared.is_data = state.is_none();
        drop(shared);
        mem::swap(&mut self.last_start_tag, &mut self.tag.name);
        state
    }

    fn current_is_appropriate_end_tag_token(&mut self) -> bool {
        self.tag.is_end && self.tag.name == self.last_start_tag
    }

    fn adjusted_current_node_present_but_not_in_html_namespace(&mut self) -> bool {
        self.foreign_depth > 0
    }

    fn set_last_start_tag(&mut self, name: Option<&[u8]>) {
        self.last_start_tag = name.unwrap_or_default().to_vec();
    }

    fn should_emit_errors(&mut self) -> bool {
        false
    }

    fn pop_token(&mut self) -> Option<Infallible> {
        None
    }

    // Text, comments and doctypes contain no links.
    fn emit_eof(&mut self) {}
    fn emit_error(&mut self, _: Error) {}
    fn emit_string(&mut self, _: &[u8]) {}
    fn init_comment(&mut self) {}
    fn push_comment(&mut self, _: &[u8]) {}
    fn emit_current_comment(&mut self) {}
    fn init_doctype(&mut self) {}
    fn push_doctype_name(&mut self, _: &[u8]) {}
    fn set_force_quirks(&mut self) {}
    fn set_doctype_public_identifier(&mut self, _: &[u8]) {}
    fn set_doctype_system_identifier(&mut self, _: &[u8]) {}
    fn push_doctype_public_identifier(&mut self, _: &[u8]) {}
    fn push_doctype_system_identifier(&mut self, _: &[u8]) {}
    fn emit_current_doctype(&mut self) {}
}

fn push_bounded(to: &mut Vec<u8>, more: &[u8], length_max: usize) {
    let room = length_max.saturating_sub(to.len());
    to.extend_from_slice(&more[..more.len().min(room)]);
}

/// The state in which the tokenizer reads such a text.
fn state_of(text: TextState) -> State {
    match text {
        TextState::RcData => State::RcData,
        TextState::RawText => State::RawText,
        TextState::ScriptData => State::ScriptData,
        TextState::PlainText => State::PlainText,
    }
}

#[cfg(test)]
mod tests;
