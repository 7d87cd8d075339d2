//! One request and its reply: the HTTP part of an attempt.

mod description;
mod received;
mod outcome;
mod start;

use std::time::Duration;

pub use self::description::Description;
use self::outcome::without_credentials;
pub use self::outcome::{Buffers, Outcome};
use self::received::Received;
use self::start::Start;
use super::body::{Body, BodyMode, Taken};
use super::deadline::{ArrivalMonitor, Deadline, Phase};
use super::failure::{Failure, FailureKind, Truncation};
use super::settings::FetchSettings;
use super::timings::Timings;
use super::tunnel;
use crate::base::memory::{LONG, memory_of};
use crate::base::stamp::Stamp;
use crate::base::time::Instant;
use crate::wire::coding::Budget;
use crate::wire::http::{
    ErrorClass, Framing, Head, HttpError, Item, Limits, RequestError, ResponseReader,
};

/// Result of feeding bytes to an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The final head is complete; the body follows.
    Head,
    /// A full piece of a body in mode [`BodyMode::Take`] is available: call [`Exchange::swap_body`]
    /// before reading more. Or one step of a [long](Exchange::is_long) body was read: other
    /// connections may have their turn before more is read.
    Piece,
    /// The exchange is over.
    Over {
        /// What went wrong; a body cut at its limit is not a failure.
        failure: Option<Failure>,
        /// As far as the reply shows, the connection may carry another exchange.
        reusable: bool,
    },
}

/// One request and its reply.
///
/// ```text
/// Queued ──► AwaitingHead ──► ReadingBody ──► Over
///               └──────── any failure ─────────▲
/// ```
#[derive(Debug, Default)]
pub struct Exchange {
    state: State,
    request: Vec<u8>,
    /// Reads the reply, head and body. Stored here for both because it is expensive to move.
    reader: ResponseReader,
    /// The request goes to a proxy, which forwards it.
    is_forwarded: bool,
    budget: Budget,
    keep_wire: bool,
    defers_decoding: bool,
    body_mode: BodyMode,
    timeout: Option<Duration>,
    /// When its time began, if not with its start.
    begun: Option<Instant>,
    timings: Timings,
    arrivals: ArrivalMonitor,
    /// Stamp of the reply's last bytes.
    last_arrival: Stamp,
    /// Total time during which we did not read although bytes may have arrived.
    paused_for: Duration,
    received: Received,
    /// The first bytes of the body, if they are wanted apart from it.
    start: Option<Box<Start>>,
}

#[derive(Debug, Default)]
enum State {
    /// The request was not handed out yet.
    Queued,
    /// Waits for the final head; interim ones may have arrived.
    AwaitingHead,
    /// The body is arriving.
    ReadingBody(Body),
    /// Nothing more is read.
    #[default]
    Over,
}

impl Exchange {
    /// An exchange that waits for a connection. `timings` contains the phases known so far.
    pub fn new(
        description: &Description<'_>,
        settings: &FetchSettings,
        limits: Limits,
        timings: Timings,
    ) -> Result<Self, RequestError> {
        let mut exchange = Exchange::default();
        exchange.renew(description, settings, limits, timings)?;
        Ok(exchange)
    }

    /// Reuses an exchange that is over, with its memory and in its place.
    ///
    /// # Errors
    /// The request cannot be written; the exchange can then only be renewed again.
    pub fn renew(
        &mut self,
        description: &Description<'_>,
        settings: &FetchSettings,
        limits: Limits,
        timings: Timings,
    ) -> Result<(), RequestError> {
        let varies = description.target.len() + description.host.len();
        self.request.clear();
        self.request
            .reserve(varies + description.usual.length() + REQUEST_REST);
        description.write_head(&mut self.request)?;
        let body = description.body.unwrap_or_default();
        self.request.extend_from_slice(body);
        self.received.clear();
        // All fields are named, so that none keeps its old value by mistake.
        let Exchange {
            state,
            request: _,
            reader,
            is_forwarded,
            budget,
            keep_wire,
            defers_decoding,
            body_mode,
            timeout,
            begun,
            timings: timings_here,
            arrivals,
            last_arrival,
            paused_for,
            received,
            start,
        } = self;
        *state = State::Queued;
        let spare_head = std::mem::take(&mut received.spare_head);
        *reader =
            ResponseReader::new(description.method == "HEAD", limits).in_memory_of(spare_head);
        *is_forwarded = description.proxy.is_some();
        *budget = Budget {
            bytes_max: description.body_max.unwrap_or(settings.body_max),
            ratio_max: u64::from(settings.ratio_max),
        };
        *keep_wire = description.keep_wire;
        *defers_decoding = description.defers_decoding;
        *body_mode = BodyMode::Keep;
        *timeout = description.timeout;
        *begun = None;
        *timings_here = timings;
        *arrivals = ArrivalMonitor::new(settings);
        *last_arrival = Stamp::default();
        *paused_for = Duration::ZERO;
        *start = None;
        Ok(())
    }

    /// The time for the whole exchange began at this instant, and not with its start.
    pub fn set_begun(&mut self, at: Instant) {
        self.begun = Some(at);
    }

    /// Gives an exchange that is over buffers to reuse.
    pub fn refill(&mut self, buffers: Buffers) {
        self.request = buffers.request;
        self.received.wire = buffers.wire;
        self.received.body = buffers.body;
        self.received.spare_head = buffers.head;
    }

    /// Returns the request's bytes, which count as on their way from now on.
    pub fn hand_out(&mut self) -> &[u8] {
        assert!(self.is_queued(), "a request is handed out once");
        self.state = State::AwaitingHead;
        &self.request
    }

    /// Reports the departure of the request: the time just before the system call that sent its
    /// first byte. It may have been up to `slack` later.
    pub fn handle_sent(&mut self, at: Instant, slack: Duration) {
        if self.timings.sent.is_none() {
            self.timings.sent = Some(at);
            self.timings.sent_slack = slack;
        }
    }

    /// Consumes bytes of the reply. Call it until it returns `None`; after `Over` the rest of
    /// `input` belongs to no reply.
    pub fn handle_bytes(&mut self, input: &mut &[u8], arrival: Stamp) -> Option<Step> {
        let offered = input.len();
        let step = self.read(input, arrival);
        if input.len() < offered {
            let taken = offered - input.len();
            self.arrivals.record(arrival.at, taken as u64);
            self.last_arrival = arrival;
        }
        step
    }

    /// Reports an arrival that is not yet bytes of the reply (part of a TLS record); it ends a
    /// silence.
    pub fn handle_activity(&mut self, at: Instant) {
        self.arrivals.touch(at);
    }

    /// Reading resumes after we paused it for `waited`, which counts against none of its limits.
    pub fn handle_resumed(&mut self, waited: Duration, now: Instant) {
        self.paused_for += waited;
        self.arrivals.resume(now);
    }

    /// The connection ended. `whole`: nothing can have been cut unnoticed; with TLS, close_notify
    /// arrived.
    pub fn handle_end(&mut self, whole: bool) -> Step {
        let finished = match &mut self.state {
            State::AwaitingHead | State::ReadingBody(_) => self.reader.finish(),
            State::Queued => Err(HttpError::NoReply),
            State::Over => unreachable!("an exchange that is over gets no more events"),
        };
        match finished {
            // The body ended with its last bytes; now it is known that no more follow.
            Ok(_) if whole => self.complete(false, self.last_arrival),
            Ok(_) => self.fail(Failure::new(
                FailureKind::Truncated,
                "close_notify",
                "the connection ended without TLS close_notify, which marks the end of this body",
            )),
            Err(error) => self.fail(http_failure(error)),
        }
    }

    /// Ends the exchange with a failure; what was received is kept.
    pub fn fail(&mut self, failure: Failure) -> Step {
        self.defer_decoding();
        let is_cancelled = failure.kind == FailureKind::Cancelled;
        let failure = match self.release() {
            Some(Taken::Cut { over }) => {
                self.received.drop_last(over);
                match is_cancelled {
                    true => failure,
                    false => return self.cut(self.last_arrival),
                }
            }
            Some(Taken::Bomb(bomb)) if !is_cancelled => bomb,
            Some(Taken::Bomb(_) | Taken::All | Taken::Some) | None => failure,
        };
        if self.received.head.is_some() {
            self.received.truncated = match failure.kind {
                FailureKind::Timeout | FailureKind::Cancelled => Some(Truncation::Time),
                // A decompression bomb: the body would exceed its limit.
                FailureKind::ContentEncoding => Some(Truncation::Length),
                _ => Some(Truncation::Disconnect),
            };
        }
        self.state = State::Over;
        // It may contain part of a head.
        self.reader = ResponseReader::default();
        Step::Over {
            failure: Some(failure),
            reusable: false,
        }
    }

    /// Deadline of the present phase. The peer is silent since `silent_from` at the earliest.
    pub fn deadline(&self, silent_from: Instant, settings: &FetchSettings) -> Deadline {
        // Time in which the request waited for its turn, on a ready connection, does not count.
        let held = match (self.timings.ready, self.timings.sent) {
            (Some(ready), Some(sent)) => sent.saturating_since(ready.max(self.timings.started)),
            _ => Duration::ZERO,
        };
        let ours = held + self.paused_for;
        let begun = self.begun.unwrap_or(self.timings.started);
        let timeout = self.timeout.unwrap_or(settings.download_timeout);
        let total = Deadline::new(begun + timeout + ours, Phase::Total);
        let reply = match (self.timings.first_byte, self.timings.sent) {
            (Some(_), _) => self.arrivals.deadline(settings),
            (None, Some(sent)) => {
                let from = silent_from.max(sent + self.paused_for);
                Some(Deadline::new(
                    from + settings.first_byte_timeout,
                    Phase::FirstByte,
                ))
            }
            (None, None) => None,
        };
        reply.map_or(total, |reply| total.or(reply))
    }

    /// Returns whether the request was not handed out yet.
    pub fn is_queued(&self) -> bool {
        matches!(self.state, State::Queued)
    }

    /// Returns whether any byte of a reply has arrived, interim ones included.
    pub fn has_begun(&self) -> bool {
        self.arrivals.has_begun()
    }

    /// Returns whether bytes that arrived at `at`, the first of all, cannot answer this request
    /// because it had not departed. Stamps of two clocks are compared, so a small difference is
    /// tolerated.
    pub fn is_unasked(&self, at: Instant) -> bool {
        let before = |sent: Instant| at + STAMP_TOLERANCE < sent;
        !self.has_begun() && (self.is_queued() || self.timings.sent.is_some_and(before))
    }

    /// The final head, once complete.
    pub fn head(&self) -> Option<&Head> {
        self.received.head.as_ref()
    }

    /// Sets how the body is wanted, right after the head.
    pub fn set_body_mode(&mut self, body_mode: BodyMode) {
        self.body_mode = body_mode;
        self.keep_wire &= body_mode == BodyMode::Keep;
        if let State::ReadingBody(body) = &mut self.state {
            body.set_body_mode(body_mode);
        }
    }

    /// The body is read in pieces, as with [`BodyMode::Take`], and up to the usual limit: its length alone is wanted.
    /// Called right after the head.
    pub fn count_body(&mut self) {
        self.body_mode = BodyMode::Take;
        self.keep_wire = false;
        if let State::ReadingBody(body) = &mut self.state {
            body.hold_nothing();
        }
    }

    /// The first bytes of the body are wanted, whatever its mode. Called right after the head.
    pub fn want_start(&mut self, bytes: usize) {
        self.start = Some(Box::new(Start::new(bytes)));
    }

    /// Whether all wanted bytes of the start are decoded, and the body has not ended: true once. In mode
    /// [`BodyMode::Take`] those count that were taken.
    pub fn poll_start(&mut self) -> bool {
        let Some(start) = &mut self.start else {
            return false;
        };
        let length = match self.body_mode {
            BodyMode::Keep => self.received.body.len(),
            BodyMode::Take | BodyMode::Skip | BodyMode::Cancel => start.bytes().len(),
        };
        matches!(self.state, State::ReadingBody(_)) && start.poll_complete(length)
    }

    /// The wanted start of the body, as far as it is decoded.
    pub fn start(&self) -> &[u8] {
        let body = &self.received.body;
        match (&self.start, self.body_mode) {
            (None, _) => &[],
            (Some(start), BodyMode::Keep) => &body[..start.wanted().min(body.len())],
            (Some(start), _) => start.bytes(),
        }
    }

    /// Mode of the body.
    pub fn body_mode(&self) -> BodyMode {
        self.body_mode
    }

    /// Takes the available bytes of a body in mode [`BodyMode::Take`], and leaves the empty buffer
    /// `into` in its place. Returns `false` if there are none.
    pub fn swap_body(&mut self, into: &mut Vec<u8>) -> bool {
        let body = &mut self.received.body;
        if self.body_mode != BodyMode::Take || body.is_empty() {
            return false;
        }
        self.received.taken += body.len() as u64;
        if let Some(start) = &mut self.start {
            start.add(body);
        }
        std::mem::swap(body, into);
        true
    }

    /// Returns whether a body is arriving that is kept, and that is long or may expand.
    pub fn is_long(&self) -> bool {
        let is_kept =
            matches!(self.state, State::ReadingBody(_)) && self.body_mode == BodyMode::Keep;
        is_kept && (self.received.body.len() >= LONG || self.expands())
    }

    /// Returns whether a body is arriving that may expand.
    pub fn expands(&self) -> bool {
        match (&self.state, &self.received.head) {
            (State::ReadingBody(body), Some(head)) => body.expands(&head.headers),
            _ => false,
        }
    }

    /// Bytes of the body so far, without those that were taken.
    pub fn body_length(&self) -> usize {
        self.received.body.len()
    }

    /// Bytes of the reply read from the wire so far.
    pub fn wire_length(&self) -> u64 {
        self.received.wire_bytes
    }

    /// The phases so far.
    pub fn timings(&self) -> &Timings {
        &self.timings
    }

    /// The phases so far, to add another.
    pub fn timings_mut(&mut self) -> &mut Timings {
        &mut self.timings
    }

    /// Bytes of memory of its buffers.
    pub fn memory(&self) -> usize {
        let Received { wire, body, .. } = &self.received;
        let held = match &self.state {
            State::ReadingBody(body) => body.memory(),
            _ => 0,
        };
        let start = self.start.as_ref().map_or(0, |start| start.memory());
        self.request.capacity() + memory_of(wire) + memory_of(body) + held + start
    }

    /// Everything known about the exchange, for the sink.
    pub fn into_outcome(mut self) -> Outcome {
        self.take_outcome()
    }

    /// The same, for an exchange that will be renewed. It is empty afterwards.
    // Inlined, and without a copy of all that was received: both are large.
    #[inline]
    pub fn take_outcome(&mut self) -> Outcome {
        let received = &mut self.received;
        let head = received.head.take();
        let wire = std::mem::take(&mut received.wire);
        Outcome {
            timings: self.timings,
            request_bytes: match self.state {
                State::Queued => Vec::new(),
                _ if self.is_forwarded => without_credentials(std::mem::take(&mut self.request)),
                _ => std::mem::take(&mut self.request),
            },
            response_bytes: if head.is_some() { wire } else { Vec::new() },
            head_length: received.head_bytes,
            bytes_wire: received.wire_bytes,
            head,
            chunked: received.framing == Some(Framing::Chunked),
            body: std::mem::take(&mut received.body),
            undecoded: received.undecoded.take(),
            body_mode: self.body_mode,
            bytes_taken: received.taken,
            start: self.start.take().map(|start| start.into_bytes()),
            truncated: received.truncated,
        }
    }

    fn read(&mut self, input: &mut &[u8], arrival: Stamp) -> Option<Step> {
        loop {
            let read = match &mut self.state {
                State::AwaitingHead => self.read_head(input, arrival),
                State::ReadingBody(_) => self.read_body(input, arrival),
                State::Queued | State::Over => return None,
            };
            match read {
                Read::More => return None,
                Read::Again => {}
                Read::Done(step) => return Some(step),
            }
        }
    }

    fn read_head(&mut self, input: &mut &[u8], arrival: Stamp) -> Read {
        let before = *input;
        let item = self.reader.next(input);
        self.received.take(before, input, self.keep_wire);
        match item {
            Err(error) => Read::Done(self.fail(http_failure(error))),
            Ok(None) => {
                if !self.reader.has_begun() {
                    // Blank lines before a reply are not part of it.
                    self.received.discard();
                } else {
                    self.timings.begin_reply(arrival);
                }
                Read::More
            }
            Ok(Some(Item::Head(head))) if self.is_forwarded && head.status == 407 => {
                // This status is the proxy's, not the origin's.
                let detail = "the proxy requires credentials or rejected those sent (407)";
                Read::Done(self.fail(tunnel::unauthorized(detail)))
            }
            Ok(Some(Item::Head(head))) => {
                self.timings.begin_reply(arrival);
                self.timings.headers = Some(arrival);
                let framing = self.reader.framing();
                // Other replies may lead to another request at once.
                let defers = self.defers_decoding && head.status == 200;
                self.received
                    .take_head(head, framing, self.budget.bytes_max);
                self.state = State::ReadingBody(Body::new(self.budget, framing, defers));
                Read::Done(Step::Head)
            }
            Ok(Some(_)) => {
                // An interim reply: the final one follows.
                self.received.discard();
                self.timings.first_byte = None;
                Read::Again
            }
        }
    }

    fn read_body(&mut self, input: &mut &[u8], arrival: Stamp) -> Read {
        let State::ReadingBody(body) = &mut self.state else {
            unreachable!("called only in state ReadingBody");
        };
        let (wire_max, decoded_max) = match self.body_mode {
            BodyMode::Take => (
                WIRE_STEP,
                PIECE_MAX.saturating_sub(self.received.body.len()),
            ),
            BodyMode::Keep | BodyMode::Skip | BodyMode::Cancel => (usize::MAX, usize::MAX),
        };
        if decoded_max == 0 {
            return Read::Done(Step::Piece);
        }
        let head = self.received.head.as_ref();
        let expands = body.expands(&head.expect("a body follows its head").headers);
        let is_long = expands || self.received.body.len() >= LONG;
        let decoded_max = match self.body_mode {
            BodyMode::Keep if is_long => KEPT_STEP,
            _ => decoded_max,
        };
        if self.body_mode == BodyMode::Keep {
            match expands {
                true if body.needs_no_room() => {}
                true => self
                    .received
                    .make_room(KEPT_STEP, Some(self.budget.bytes_max)),
                false => self.received.make_room(input.len().min(decoded_max), None),
            }
        }
        let Received {
            head, body: out, ..
        } = &mut self.received;
        let headers = &head.as_ref().expect("a body follows its head").headers;
        if let Some(taken) = body.resume(headers, decoded_max, out) {
            return self.took(taken, arrival);
        }
        if let Some(reusable) = body.ended() {
            return Read::Done(self.complete(reusable, arrival));
        }
        let (mut now, _) = input.split_at(input.len().min(wire_max).min(decoded_max));
        let before = now;
        let item = self.reader.next(&mut now);
        self.received.take(before, now, self.keep_wire);
        *input = &input[before.len() - now.len()..];
        match item {
            Err(error) => Read::Done(self.fail(http_failure(error))),
            Ok(None) if input.is_empty() => Read::More,
            Ok(Some(Item::Body(piece))) => {
                let Received {
                    head, body: out, ..
                } = &mut self.received;
                let headers = &head.as_ref().expect("a body follows its head").headers;
                if let Some(start) = &mut self.start
                    && self.body_mode == BodyMode::Skip
                {
                    start.add_coded(piece, headers);
                }
                let taken = body.take(piece, headers, decoded_max, out);
                self.took(taken, arrival)
            }
            Ok(Some(Item::End { reusable })) => {
                let Received {
                    head, body: out, ..
                } = &mut self.received;
                let headers = &head.as_ref().expect("a body follows its head").headers;
                match body.end(reusable, headers, decoded_max, out) {
                    Some(taken) => self.took(taken, arrival),
                    None => Read::Done(self.complete(reusable, arrival)),
                }
            }
            Ok(_) => Read::Again,
        }
    }

    /// Continues after a piece of the body was decoded.
    fn took(&mut self, taken: Taken, arrival: Stamp) -> Read {
        match taken {
            // A few bytes may expand to many.
            Taken::Some if self.body_mode == BodyMode::Keep => Read::Done(Step::Piece),
            Taken::All if self.body_mode == BodyMode::Keep && self.received.body.len() >= LONG => {
                Read::Done(Step::Piece)
            }
            Taken::All | Taken::Some => Read::Again,
            Taken::Cut { over } => {
                self.received.drop_last(over);
                Read::Done(self.cut(arrival))
            }
            Taken::Bomb(failure) => Read::Done(self.fail(failure)),
        }
    }

    /// The reply is complete.
    fn complete(&mut self, reusable: bool, arrival: Stamp) -> Step {
        if self.received.framing != Some(Framing::None) {
            self.timings.body = Some(arrival);
        }
        self.defer_decoding();
        let failure = self.body().finish();
        self.state = State::Over;
        Step::Over { failure, reusable }
    }

    /// The body has reached its limit: the part within it is kept, and nothing more is read.
    fn cut(&mut self, arrival: Stamp) -> Step {
        self.timings.body = Some(arrival);
        self.received.truncated = Some(Truncation::Length);
        let failure = self.body().coding_failure();
        self.state = State::Over;
        Step::Over {
            failure,
            reusable: false,
        }
    }

    /// Nothing more arrives of a body: if it is to be decoded elsewhere, it leaves with the outcome.
    fn defer_decoding(&mut self) {
        if let State::ReadingBody(body) = &mut self.state {
            self.received.undecoded = body.take_undecoded();
        }
    }

    /// Decodes what was held of a body that will not be complete.
    fn release(&mut self) -> Option<Taken> {
        let Received {
            head, body: out, ..
        } = &mut self.received;
        match (&mut self.state, head) {
            (State::ReadingBody(body), Some(head)) => {
                let mut taken = body.release(&head.headers, usize::MAX, out);
                while taken == Some(Taken::Some) {
                    taken = body.resume(&head.headers, usize::MAX, out);
                }
                taken
            }
            _ => None,
        }
    }

    fn body(&mut self) -> &mut Body {
        match &mut self.state {
            State::ReadingBody(body) => body,
            _ => unreachable!("called only in state ReadingBody"),
        }
    }
}

/// Result of one reading step.
enum Read {
    /// More input is needed.
    More,
    /// The input may contain more.
    Again,
    /// A step to report to the caller.
    Done(Step),
}

/// Converts an HTTP error to a failure.
fn http_failure(error: HttpError) -> Failure {
    let kind = match error.class() {
        ErrorClass::TooLarge => FailureKind::TooLarge,
        ErrorClass::Truncated => FailureKind::Truncated,
        ErrorClass::Protocol => FailureKind::Protocol,
    };
    Failure::new(kind, error.code(), error.to_string())
}

/// Typical bytes of a request besides its target, Host and the usual fields.
const REQUEST_REST: usize = 64;

/// Maximum size of a piece of a body, after content decoding.
const PIECE_MAX: usize = 64 << 10;

/// Bytes of a long body that are read or decoded in one step if it is kept.
pub const KEPT_STEP: usize = 128 << 10;

/// Bytes of the wire that are read at once for pieces; what is left when a piece is full is stored
/// separately.
const WIRE_STEP: usize = 16 << 10;

/// How far a kernel stamp and our own clock may disagree.
const STAMP_TOLERANCE: Duration = Duration::from_micros(100);

#[cfg(test)]
mod tests;
