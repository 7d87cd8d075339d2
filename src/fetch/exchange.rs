//! One request and its reply: the HTTP part of an attempt, from bytes out to everything the sink is told.

mod description;
mod received;
mod outcome;

use std::time::Duration;

pub use self::description::Description;
use self::outcome::without_credentials;
pub use self::outcome::{Buffers, Outcome};
use self::received::{LONG, Received};
use super::body::{Body, Taken};
use super::body_mode::BodyMode;
use super::deadline::{Deadline, Phase, Pulse};
use super::failure::{Failure, FailureKind, Truncation};
use super::settings::Settings;
use super::timings::{Arrival, Timings};
use super::tunnel;
use crate::base::memory::memory_of;
use crate::base::time::Instant;
use crate::wire::coding::Budget;
use crate::wire::http::{
    ErrorClass, Framing, Head, HttpError, Item, Limits, RequestError, ResponseReader,
};

/// What came of feeding an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The final head is complete; the body follows.
    Head,
    /// As much of a body that is [taken](BodyMode::Take) is there as a piece may be:
    /// [`Exchange::swap_body`], before more is read. Or as much of a [long](Exchange::is_long) one was
    /// kept as one step may be: others may have their turn before more is read.
    Piece,
    /// The exchange is over.
    Over {
        /// What went wrong; a body cut at its limit is no failure.
        failure: Option<Failure>,
        /// As far as the reply goes, the connection may carry another exchange.
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
    /// Reads the reply, head and body: it lies here for both, since it is large to be moved.
    reader: ResponseReader,
    /// A proxy is asked, which forwards it.
    is_forwarded: bool,
    budget: Budget,
    keep_wire: bool,
    body_mode: BodyMode,
    timeout: Option<Duration>,
    timings: Timings,
    pulse: Pulse,
    /// How the last bytes of the reply arrived.
    arrived: Arrival,
    /// How long we did not read what had perhaps arrived.
    kept_waiting: Duration,
    received: Received,
}

#[derive(Debug, Default)]
enum State {
    /// The request has not been handed out.
    Queued,
    /// No final head yet, interim ones perhaps.
    AwaitingHead,
    /// The body is on its way.
    ReadingBody(Body),
    /// Nothing more is taken.
    #[default]
    Over,
}

impl Exchange {
    /// An exchange that waits for a connection. `timings` holds what is known so far.
    pub fn new(
        description: &Description<'_>,
        settings: &Settings,
        limits: Limits,
        timings: Timings,
    ) -> Result<Self, RequestError> {
        let mut exchange = Exchange::default();
        exchange.renew(description, settings, limits, timings)?;
        Ok(exchange)
    }

    /// Makes a new one of one that is over, in its memory and where it lies.
    ///
    /// # Errors
    /// The request cannot be put on the wire; then this is good for nothing but to be renewed again.
    pub fn renew(
        &mut self,
        description: &Description<'_>,
        settings: &Settings,
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
        self.received.start_anew();
        // All fields are named, so that none can be left as it was.
        let Exchange {
            state,
            request: _,
            reader,
            is_forwarded,
            budget,
            keep_wire,
            body_mode,
            timeout,
            timings: timings_here,
            pulse,
            arrived,
            kept_waiting,
            received,
        } = self;
        *state = State::Queued;
        let room = std::mem::take(&mut received.room);
        *reader = ResponseReader::new(description.method == "HEAD", limits).in_memory_of(room);
        *is_forwarded = description.proxy.is_some();
        *budget = Budget {
            bytes_max: description.body_max.unwrap_or(settings.body_max),
            ratio_max: u64::from(settings.ratio_max),
        };
        *keep_wire = description.keep_wire;
        *body_mode = BodyMode::Keep;
        *timeout = description.timeout;
        *timings_here = timings;
        *pulse = Pulse::new(settings);
        *arrived = Arrival::default();
        *kept_waiting = Duration::ZERO;
        Ok(())
    }

    /// Gives one that is over memory to be renewed in.
    pub fn refill(&mut self, buffers: Buffers) {
        self.request = buffers.request;
        self.received.wire = buffers.wire;
        self.received.body = buffers.body;
        self.received.room = buffers.head;
    }

    /// The request's bytes, which are now on their way.
    pub fn hand_out(&mut self) -> &[u8] {
        assert!(self.is_queued(), "a request is handed out once");
        self.state = State::AwaitingHead;
        &self.request
    }

    /// The request departed: just before the system call that sent its first byte.
    /// It may have been `slack` later.
    pub fn handle_sent(&mut self, at: Instant, slack: Duration) {
        if self.timings.sent.is_none() {
            self.timings.sent = Some(at);
            self.timings.slack = slack;
        }
    }

    /// Takes bytes of the reply. Call until it returns `None`; after `Over` the rest of `input`
    /// belongs to no reply.
    pub fn handle_bytes(&mut self, input: &mut &[u8], arrival: Arrival) -> Option<Step> {
        let offered = input.len();
        let step = self.read(input, arrival);
        if input.len() < offered {
            let taken = offered - input.len();
            self.pulse.beat(arrival.at, taken as u64);
            self.arrived = arrival;
        }
        step
    }

    /// Something arrived that has yet to become bytes of the reply (part of a TLS record): no
    /// silence.
    pub fn handle_activity(&mut self, at: Instant) {
        self.pulse.touch(at);
    }

    /// It is read again after we kept it waiting, which counts against none of its limits.
    pub fn handle_resumed(&mut self, waited: Duration, now: Instant) {
        self.kept_waiting += waited;
        self.pulse.resume(now);
    }

    /// The connection ended. `whole` says that nothing can have been cut off unseen: with TLS,
    /// that close_notify came.
    pub fn handle_end(&mut self, whole: bool) -> Step {
        let finished = match &mut self.state {
            State::AwaitingHead | State::ReadingBody(_) => self.reader.finish(),
            State::Queued => Err(HttpError::NoReply),
            State::Over => unreachable!("an exchange that is over hears no more"),
        };
        match finished {
            // The last bytes were the body's; that they were the last ones is all that is new.
            Ok(_) if whole => self.complete(false, self.arrived),
            Ok(_) => self.fail(Failure::new(
                FailureKind::Truncated,
                "close_notify",
                "the connection ended without TLS close_notify, which would have been the body's end",
            )),
            Err(error) => self.fail(http_failure(error)),
        }
    }

    /// Ends the exchange with a failure; what came is kept.
    pub fn fail(&mut self, failure: Failure) -> Step {
        if self.received.head.is_some() {
            self.received.truncated = match failure.kind {
                FailureKind::Timeout | FailureKind::Cancelled => Some(Truncation::Time),
                // A bomb: the body would have been too long.
                FailureKind::ContentEncoding => Some(Truncation::Length),
                _ => Some(Truncation::Disconnect),
            };
        }
        self.state = State::Over;
        // It may hold a head that came in part.
        self.reader = ResponseReader::default();
        Step::Over {
            failure: Some(failure),
            reusable: false,
        }
    }

    /// When the present phase is out of time.
    pub fn deadline(&self, settings: &Settings) -> Deadline {
        // A wait for its turn, on a connection that was ready, is no part of the fetch.
        let held = match (self.timings.ready, self.timings.sent) {
            (Some(ready), Some(sent)) => sent.saturating_since(ready.max(self.timings.started)),
            _ => Duration::ZERO,
        };
        let ours = held + self.kept_waiting;
        let total = Deadline::new(
            self.timings.started + self.timeout.unwrap_or(settings.download_timeout) + ours,
            Phase::Total,
        );
        let reply = match (self.timings.first_byte, self.timings.sent) {
            (Some(_), _) => self.pulse.deadline(settings),
            (None, Some(sent)) => {
                let at = sent + settings.first_byte_timeout + self.kept_waiting;
                Some(Deadline::new(at, Phase::FirstByte))
            }
            (None, None) => None,
        };
        reply.map_or(total, |reply| total.or(reply))
    }

    /// Whether the request has not been handed out yet.
    pub fn is_queued(&self) -> bool {
        matches!(self.state, State::Queued)
    }

    /// Whether any byte of a reply has come, interim ones included.
    pub fn has_begun(&self) -> bool {
        self.pulse.has_begun()
    }

    /// Whether bytes that arrived at `at`, the first of all, answer something other than this
    /// request: it had not left. Stamps of two clocks are compared, so a little is forgiven.
    pub fn is_unasked(&self, at: Instant) -> bool {
        let before = |sent: Instant| at + STAMPS_AGREE < sent;
        !self.has_begun() && (self.is_queued() || self.timings.sent.is_some_and(before))
    }

    /// The final head, once it is complete.
    pub fn head(&self) -> Option<&Head> {
        self.received.head.as_ref()
    }

    /// Says what is wanted of the body, when the head has just come.
    pub fn set_body_mode(&mut self, body_mode: BodyMode) {
        self.body_mode = body_mode;
        self.keep_wire &= body_mode == BodyMode::Keep;
        if let State::ReadingBody(body) = &mut self.state {
            body.set_body_mode(body_mode);
        }
    }

    /// What is wanted of the body.
    pub fn body_mode(&self) -> BodyMode {
        self.body_mode
    }

    /// Takes what there is of a body that is [taken](BodyMode::Take) while it comes, and leaves `into`
    /// in its place, which is empty. False where there is nothing.
    pub fn swap_body(&mut self, into: &mut Vec<u8>) -> bool {
        let body = &mut self.received.body;
        if self.body_mode != BodyMode::Take || body.is_empty() {
            return false;
        }
        self.received.taken += body.len() as u64;
        std::mem::swap(body, into);
        true
    }

    /// Whether a body is coming that is kept, and that is long or may become more than what comes.
    pub fn is_long(&self) -> bool {
        let is_kept =
            matches!(self.state, State::ReadingBody(_)) && self.body_mode == BodyMode::Keep;
        is_kept && (self.received.body.len() >= LONG || self.expands())
    }

    /// Whether a body is coming that may become more than what comes.
    pub fn expands(&self) -> bool {
        match (&self.state, &self.received.head) {
            (State::ReadingBody(body), Some(head)) => body.expands(&head.headers),
            _ => false,
        }
    }

    /// Bytes of the body so far, but for those that were taken.
    pub fn body_length(&self) -> usize {
        self.received.body.len()
    }

    /// Bytes of the reply that were read of the wire so far.
    pub fn wire_length(&self) -> u64 {
        self.received.wire_bytes
    }

    /// The phases so far.
    pub fn timings(&self) -> &Timings {
        &self.timings
    }

    /// The phases so far, for who knows of another.
    pub fn timings_mut(&mut self) -> &mut Timings {
        &mut self.timings
    }

    /// Bytes of memory that its buffers hold.
    pub fn memory(&self) -> usize {
        let Received { wire, body, .. } = &self.received;
        self.request.capacity() + memory_of(wire) + memory_of(body)
    }

    /// Everything that is known, for the sink.
    pub fn into_outcome(mut self) -> Outcome {
        self.take_outcome()
    }

    /// The same of an exchange whose own memory is wanted for another one. Nothing is left of it.
    pub fn take_outcome(&mut self) -> Outcome {
        let received = std::mem::take(&mut self.received);
        let begun = received.head.is_some();
        Outcome {
            timings: self.timings,
            request_bytes: match self.state {
                State::Queued => Vec::new(),
                _ if self.is_forwarded => without_credentials(std::mem::take(&mut self.request)),
                _ => std::mem::take(&mut self.request),
            },
            response_bytes: if begun { received.wire } else { Vec::new() },
            head_length: received.head_bytes,
            bytes_wire: received.wire_bytes,
            head: received.head,
            chunked: received.framing == Some(Framing::Chunked),
            body: received.body,
            body_mode: self.body_mode,
            bytes_taken: received.taken,
            truncated: received.truncated,
        }
    }

    fn read(&mut self, input: &mut &[u8], arrival: Arrival) -> Option<Step> {
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

    fn read_head(&mut self, input: &mut &[u8], arrival: Arrival) -> Read {
        let before = *input;
        let item = self.reader.next(input);
        self.received.take(before, input, self.keep_wire);
        match item {
            Err(error) => Read::Done(self.fail(http_failure(error))),
            Ok(None) => {
                if !self.reader.has_begun() {
                    // Blank lines ahead of a reply are no part of it.
                    self.received.start_again();
                } else {
                    self.timings.begin_reply(arrival);
                }
                Read::More
            }
            Ok(Some(Item::Head(head))) if self.is_forwarded && head.status == 407 => {
                // The proxy's word, and none of the origin's.
                let detail = "the proxy wants credentials, or others (407)";
                Read::Done(self.fail(tunnel::unauthorized(detail)))
            }
            Ok(Some(Item::Head(head))) => {
                self.timings.begin_reply(arrival);
                self.timings.end_headers(arrival);
                let framing = self.reader.framing();
                self.received
                    .take_head(head, framing, self.budget.bytes_max);
                self.state = State::ReadingBody(Body::new(self.budget));
                Read::Done(Step::Head)
            }
            Ok(Some(_)) => {
                // An interim reply: the final one begins after it.
                self.received.start_again();
                self.timings.first_byte = None;
                Read::Again
            }
        }
    }

    fn read_body(&mut self, input: &mut &[u8], arrival: Arrival) -> Read {
        let State::ReadingBody(body) = &mut self.state else {
            unreachable!("only a body on its way is read");
        };
        let (wire_max, room) = match self.body_mode {
            BodyMode::Take => (
                WIRE_STEP,
                PIECE_MAX.saturating_sub(self.received.body.len()),
            ),
            BodyMode::Keep | BodyMode::Skip | BodyMode::Cancel => (usize::MAX, usize::MAX),
        };
        if room == 0 {
            return Read::Done(Step::Piece);
        }
        let head = self.received.head.as_ref();
        let expands = body.expands(&head.expect("a body follows its head").headers);
        let is_long = expands || self.received.body.len() >= LONG;
        let room = match self.body_mode {
            BodyMode::Keep if is_long => KEPT_STEP,
            _ => room,
        };
        if self.body_mode == BodyMode::Keep {
            match expands {
                true => self
                    .received
                    .make_room(KEPT_STEP, Some(self.budget.bytes_max)),
                false => self.received.make_room(input.len().min(room), None),
            }
        }
        let Received {
            head, body: out, ..
        } = &mut self.received;
        let headers = &head.as_ref().expect("a body follows its head").headers;
        if let Some(taken) = body.go_on(headers, room, out) {
            return self.took(taken, arrival);
        }
        let (mut now, _) = input.split_at(input.len().min(wire_max).min(room));
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
                let taken = body.take(piece, headers, room, out);
                self.took(taken, arrival)
            }
            Ok(Some(Item::End { reusable })) => Read::Done(self.complete(reusable, arrival)),
            Ok(_) => Read::Again,
        }
    }

    /// What follows from what became of a piece of the body.
    fn took(&mut self, taken: Taken, arrival: Arrival) -> Read {
        match taken {
            // A few bytes may become many.
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

    /// The reply is whole.
    fn complete(&mut self, reusable: bool, arrival: Arrival) -> Step {
        if self.received.framing != Some(Framing::None) {
            self.timings.end_body(arrival);
        }
        let failure = self.body().finish();
        self.state = State::Over;
        Step::Over { failure, reusable }
    }

    /// The body has reached its limit: what fits is kept, and nothing more is read.
    fn cut(&mut self, arrival: Arrival) -> Step {
        self.timings.end_body(arrival);
        self.received.truncated = Some(Truncation::Length);
        let failure = self.body().trouble();
        self.state = State::Over;
        Step::Over {
            failure,
            reusable: false,
        }
    }

    fn body(&mut self) -> &mut Body {
        match &mut self.state {
            State::ReadingBody(body) => body,
            _ => unreachable!("only a body on its way ends"),
        }
    }
}

/// What a bit of reading came to.
enum Read {
    /// More input is needed.
    More,
    /// There may be more in the input.
    Again,
    /// Something the caller wants to hear.
    Done(Step),
}

/// A failure of HTTP's, as the sink knows failures.
fn http_failure(error: HttpError) -> Failure {
    let kind = match error.class() {
        ErrorClass::TooLarge => FailureKind::TooLarge,
        ErrorClass::Truncated => FailureKind::Truncated,
        ErrorClass::Protocol => FailureKind::Protocol,
    };
    Failure::new(kind, error.code(), error.to_string())
}

/// Bytes of an ordinary request beside its target, Host and the usual fields, or a few more.
const REQUEST_REST: usize = 64;

/// Bytes of a body that one piece has at most, content codings undone.
const PIECE_MAX: usize = 64 << 10;

/// Bytes of a long body that are read or decoded in one step where it is kept.
pub const KEPT_STEP: usize = 128 << 10;

/// Bytes of the wire that are read at once for pieces: what is left of them, when a piece is whole, is
/// kept apart.
const WIRE_STEP: usize = 16 << 10;

/// How far a kernel's stamp and our own clock may disagree about one moment.
const STAMPS_AGREE: Duration = Duration::from_micros(100);

#[cfg(test)]
mod tests;
