//! The work on a page that needs no state of the crawl: what its body is searched for, and what the sink
//! prepares of it. The loop does it in steps, or a helper thread as a whole.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::base::gzip::Gzip;
use crate::base::memory::memory_of;
use crate::base::units::Units;
use crate::base::worker::Compute;
use crate::crawl::pages::finding::{Finding, Step};
use crate::fetch::body::{BodyEnd, UndecodedBody};
use crate::fetch::failure::{Failure, FailureKind};
use crate::sink::Preparation;
use crate::sink::page::Page;
use crate::wire::html::fields::Extraction;

/// A page and the work on it.
pub struct PageWork {
    /// The page; its body is elsewhere while it is searched.
    pub page: Box<Page>,
    /// Its body, if that is to be decoded first.
    undecoded: Option<UndecodedBody>,
    finding: Finding,
    /// The fields that are extracted after the search, on a helper thread alone.
    extraction: Extraction,
    preparation: Wanted,
    /// What a helper thread found, in order.
    found: VecDeque<Step>,
}

/// What the sink prepares of a page.
#[derive(Default)]
enum Wanted {
    /// It was not asked yet.
    #[default]
    Unknown,
    /// Nothing, or no more.
    Nothing,
    /// This; it is complete or not.
    Prepares(Box<dyn Preparation>, bool),
}

/// What a helper thread finds before the loop takes it, in bytes of URLs: links are many times as long
/// once they are resolved.
const FOUND_BYTES: usize = 1 << 20;

/// Memory of something that was found, besides its URL.
const STEP_BYTES: usize = size_of::<Step>();

impl PageWork {
    /// The body of a page is searched for this.
    pub fn new(page: Box<Page>, mut finding: Finding) -> Self {
        let extraction = finding.take_extraction();
        PageWork {
            page,
            undecoded: None,
            finding,
            extraction,
            preparation: Wanted::Unknown,
            found: VecDeque::new(),
        }
    }

    /// The body of a page is decoded. What it is searched for is known only then.
    pub fn undecoded(page: Box<Page>, body: UndecodedBody) -> Self {
        PageWork {
            undecoded: Some(body),
            ..PageWork::new(page, Finding::default())
        }
    }

    /// The body of a page that was decoded is searched for this.
    pub fn set_finding(&mut self, mut finding: Finding) {
        self.extraction = finding.take_extraction();
        self.finding = finding;
    }

    /// Whether fields are still to be extracted, which only a helper thread does.
    pub fn extracts(&self) -> bool {
        !self.extraction.is_empty()
    }

    /// Extracts the fields. A fault of the library costs the page its fields, and nothing else.
    fn extract(&mut self) {
        let extraction = mem::take(&mut self.extraction);
        if extraction.is_empty() {
            return;
        }
        let page = &self.page;
        let extract =
            || extraction.fields_of(&page.body, page.content_type.as_deref(), is_cut_off(page));
        match catch_unwind(AssertUnwindSafe(extract)) {
            Ok(fields) => self.page.fields = fields.map(Box::new),
            Err(_) => log::error!("{}: a fault of ours; the page has no fields", self.page.url),
        }
    }

    /// Decodes the body, if that is to be done.
    fn decode(&mut self) {
        let Some(body) = self.undecoded.take() else {
            return;
        };
        let page = &mut *self.page;
        let end = BodyEnd {
            failure: page.failure.take(),
            truncated: page.truncated,
        };
        let end = body.decode(&page.headers, end, &mut page.body);
        page.failure = end.failure;
        page.truncated = end.truncated;
    }

    /// Whether the sink was not asked what it prepares of the page.
    pub fn needs_preparation(&self) -> bool {
        matches!(self.preparation, Wanted::Unknown)
    }

    /// The sink prepares this of the page.
    pub fn set_preparation(&mut self, preparation: Option<Box<dyn Preparation>>) {
        self.preparation = match preparation {
            None => Wanted::Nothing,
            Some(preparation) => Wanted::Prepares(preparation, false),
        };
    }

    /// The page, and what the sink has prepared of it.
    pub fn into_page(self) -> (Box<Page>, Option<Box<dyn Preparation>>) {
        match self.preparation {
            Wanted::Prepares(prepared, true) => (self.page, Some(prepared)),
            // The sink prepares it when it is put.
            Wanted::Prepares(_, false) | Wanted::Unknown | Wanted::Nothing => (self.page, None),
        }
    }

    /// What is looked for.
    pub fn finding(&self) -> &Finding {
        &self.finding
    }

    /// Whether the body needs no decoding.
    pub fn is_decoded(&self) -> bool {
        self.undecoded.is_none()
    }

    /// Whether the body is searched, and all that was found is taken.
    pub fn is_searched(&self) -> bool {
        self.finding.is_over() && self.found.is_empty()
    }

    /// Whether something that a helper thread found is not taken yet.
    pub fn has_found(&self) -> bool {
        !self.found.is_empty()
    }

    /// Whether nothing of the work is left.
    pub fn is_complete(&self) -> bool {
        let is_prepared = match self.preparation {
            Wanted::Unknown => false,
            Wanted::Nothing => true,
            Wanted::Prepares(_, is_complete) => is_complete,
        };
        is_prepared && self.is_decoded() && self.is_searched() && !self.extracts()
    }

    /// The next thing that a helper thread found.
    pub fn poll_found(&mut self) -> Option<Step> {
        self.found.pop_front()
    }

    /// Continues the search on this thread.
    pub fn search(&mut self, units: &mut Units) -> Step {
        let step = self.finding.step(units);
        if let Step::Over { .. } = step {
            self.end_search();
        }
        step
    }

    /// Continues with what the sink prepares, on this thread; returns whether that is complete.
    pub fn prepare(&mut self, units: &mut Units) -> bool {
        let Wanted::Prepares(preparation, is_complete) = &mut self.preparation else {
            return true;
        };
        if *is_complete {
            return true;
        }
        let before = units.left();
        let mut left = before;
        *is_complete = preparation.step(&self.page, &mut left);
        let is_complete = *is_complete;
        units.spend((before - left.min(before)) as usize);
        is_complete
    }

    /// Does all that the sink prepares, on a helper thread.
    fn complete_preparation(&mut self, gzip: &mut Gzip) {
        if let Wanted::Prepares(preparation, is_complete) = &mut self.preparation
            && !mem::replace(is_complete, true)
        {
            preparation.complete(&self.page, gzip);
        }
    }

    /// Ends the search: what was not found yet is dropped, as is what was not taken.
    pub fn cancel(&mut self) {
        self.found.clear();
        self.end_search();
        self.extraction = Extraction::default();
    }

    /// Ends the work at once: the sink prepares the page when it is put.
    pub fn cut_short(&mut self) {
        self.cancel();
        if !self.is_complete() {
            self.preparation = Wanted::Nothing;
        }
    }

    /// The work ended in a panic with this message: the page has no links, and the sink prepares it itself.
    pub fn fail(&mut self, message: &str) {
        self.undecoded = None;
        self.cancel();
        self.preparation = Wanted::Nothing;
        let failure = Failure::new(
            FailureKind::Internal,
            "panic",
            format!("the work on this page ended in a fault of ours: {message}"),
        );
        self.page.failure.get_or_insert(failure);
    }

    /// The page has its body again.
    fn end_search(&mut self) {
        mem::take(&mut self.finding).end(&mut self.page);
    }

    /// Bytes that it holds. With `has_record` the sink makes a record of its reply, a copy.
    pub fn memory(&self, has_record: bool) -> usize {
        let page = &self.page;
        let copies = if has_record { 2 } else { 1 };
        let found: usize = self.found.iter().map(bytes_of).sum();
        let reply = copies * memory_of(&page.response_bytes);
        let undecoded = self.undecoded.as_ref().map_or(0, UndecodedBody::memory);
        let fields = page.fields.as_ref().map_or(0, |fields| fields.memory());
        memory_of(&page.body) + reply + self.finding.memory() + found + undecoded + fields
    }

    /// Bytes that its body is expected to take once it is decoded; 0 if it is.
    pub fn memory_decoded(&self) -> usize {
        let undecoded = self.undecoded.as_ref();
        undecoded.map_or(0, UndecodedBody::memory_decoded)
    }
}

impl Compute for PageWork {
    /// Decodes the body; searches it, as far as [`FOUND_BYTES`] allow; then extracts the fields and prepares the
    /// page.
    fn run(&mut self, gzip: &mut Gzip) {
        self.decode();
        let mut bytes = 0;
        while !self.finding.is_over() {
            match self.search(&mut Units::unbounded()) {
                Step::Paused => {}
                found => {
                    bytes += bytes_of(&found);
                    self.found.push_back(found);
                    if bytes >= FOUND_BYTES {
                        return;
                    }
                }
            }
        }
        self.extract();
        self.complete_preparation(gzip);
    }
}

/// Whether a part of the body is missing. A content coding that ends early leaves the part before that, of a reply
/// that is complete on the wire.
fn is_cut_off(page: &Page) -> bool {
    let failure = page.failure.as_ref();
    let is_undecoded = failure.is_some_and(|own| own.kind == FailureKind::ContentEncoding);
    page.truncated.is_some() || is_undecoded
}

/// Memory of something that was found.
fn bytes_of(found: &Step) -> usize {
    STEP_BYTES
        + match found {
            Step::Link(link) => link.url.as_str().len(),
            Step::Page(url) | Step::Sitemap(url) => url.as_str().len(),
            Step::Rules(_, rules) => rules.heap_size(),
            Step::TooLong | Step::Paused | Step::Over { .. } => 0,
        }
}

impl fmt::Debug for PageWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageWork")
            .field("url", &self.page.url)
            .field("found", &self.found.len())
            .finish_non_exhaustive()
    }
}
