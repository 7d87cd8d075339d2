//! One connection of the control interface: reads requests one at a time and writes their replies in order.
//! It does no input or output itself.

use std::time::Duration;

use crate::admin::response::Response;
use crate::base::time::{Instant, Wall};
use crate::wire::http::{InboundReader, InboundRequest};

/// A connection that a client opened.
///
/// Bytes enter by [`Connection::handle_bytes`]; a request leaves by [`Connection::poll_request`] and is answered
/// by [`Connection::respond`] before the next one leaves. A request that is malformed is answered here.
#[derive(Debug)]
pub struct Connection {
    reader: InboundReader,
    /// Received and not read.
    input: Vec<u8>,
    output: Vec<u8>,
    state: State,
    /// When the present wait began.
    since: Instant,
    /// The client sends nothing more.
    has_ended: bool,
    /// A request was answered.
    is_answered: bool,
}

/// The state is named for what is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The rest of a request, or the next one.
    Request,
    /// [`Connection::respond`].
    Response {
        without_body: bool,
        keeps_connection: bool,
    },
    /// The time of the next event of a stream, which ends with the connection.
    Event { next: Instant },
    /// That the last output is sent; if it lingers since some time, also that the client sends nothing more for a
    /// while: that would otherwise reset the connection before it has read the reply.
    Close { lingers_since: Option<Instant> },
}

impl Connection {
    /// A connection that was accepted at `now`.
    pub fn new(now: Instant) -> Self {
        Connection {
            reader: InboundReader::default(),
            input: Vec::new(),
            output: Vec::new(),
            state: State::Request,
            since: now,
            has_ended: false,
            is_answered: false,
        }
    }

    /// Called with received bytes.
    pub fn handle_bytes(&mut self, bytes: &[u8], now: Instant) {
        if let State::Close { lingers_since } = &mut self.state {
            // Not for ever: `since` is when the reply was made.
            if now < self.since + LINGERS_AT_MOST {
                *lingers_since = lingers_since.map(|_| now);
            }
            return;
        }
        // What follows the request for a stream is never answered.
        if self.is_stream() {
            return;
        }
        if self.is_idle() {
            self.since = now;
        }
        self.input.extend_from_slice(bytes);
    }

    /// The client sends nothing more. Requests that are complete are answered; a stream is over.
    pub fn handle_end(&mut self) {
        self.has_ended = true;
        if self.is_stream() || self.state == State::Request && self.input.is_empty() {
            self.state = State::Close {
                lingers_since: None,
            };
        }
    }

    /// Whether more bytes may be received: there is room for them.
    pub fn takes_input(&self) -> bool {
        self.input.len() < INPUT_MAX
    }

    /// The next request; `None` if none is complete or the last one was not answered yet.
    pub fn poll_request(&mut self, now: Instant, wall: Wall) -> Option<InboundRequest> {
        if self.state != State::Request || self.input.is_empty() {
            return None;
        }
        let mut rest = self.input.as_slice();
        let read = self.reader.read(&mut rest);
        let used = self.input.len() - rest.len();
        self.input.drain(..used);
        if self.reader.take_continue() {
            self.output
                .extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        match read {
            Ok(Some(request)) => {
                self.state = State::Response {
                    without_body: request.method == "HEAD",
                    keeps_connection: request.keeps_connection,
                };
                Some(request)
            }
            Ok(None) => {
                if self.has_ended {
                    self.state = State::Close {
                        lingers_since: None,
                    };
                }
                None
            }
            Err(error) => {
                self.state = State::Response {
                    without_body: false,
                    keeps_connection: false,
                };
                self.input = Vec::new();
                let response = Response::error(error.status(), &error.to_string());
                self.respond(&response, now, wall);
                self.state = State::Close {
                    lingers_since: Some(now),
                };
                None
            }
        }
    }

    /// Answers the last request.
    pub fn respond(&mut self, response: &Response, now: Instant, wall: Wall) {
        let State::Response {
            without_body,
            keeps_connection,
        } = self.state
        else {
            unreachable!("a request is answered once");
        };
        response.write(&mut self.output, without_body, keeps_connection, wall);
        self.is_answered = true;
        let is_last = !keeps_connection || self.has_ended && self.input.is_empty();
        self.state = match is_last {
            false => State::Request,
            true => State::Close {
                lingers_since: None,
            },
        };
        self.since = now;
    }

    /// The same, after which no more calls are taken.
    pub fn respond_and_close(&mut self, response: &Response, now: Instant, wall: Wall) {
        if let State::Response {
            keeps_connection, ..
        } = &mut self.state
        {
            *keeps_connection = false;
        }
        self.respond(response, now, wall);
    }

    /// Answers the last request with a stream of events, the first of which is due at once.
    pub fn respond_with_stream(&mut self, now: Instant, wall: Wall) {
        let State::Response { without_body, .. } = self.state else {
            unreachable!("a request is answered once");
        };
        Response::of(200, "text/event-stream", Vec::new()).write_endless(&mut self.output, wall);
        self.input = Vec::new();
        self.state = match without_body || self.has_ended {
            true => State::Close {
                lingers_since: None,
            },
            false => State::Event { next: now },
        };
        self.since = now;
    }

    /// Whether it is a stream whose next event is due.
    pub fn is_event_due(&self, now: Instant) -> bool {
        matches!(self.state, State::Event { next } if next <= now)
    }

    /// Whether it is a stream.
    pub fn is_stream(&self) -> bool {
        matches!(self.state, State::Event { .. })
    }

    /// Sends an event on a stream; the next one is due [`EVENT_INTERVAL`] later.
    pub fn send_event(&mut self, event: &[u8], now: Instant) {
        debug_assert!(self.is_stream(), "events are sent on streams");
        self.output.extend_from_slice(event);
        self.since = now;
        self.state = State::Event {
            next: now + EVENT_INTERVAL,
        };
    }

    /// Moves the bytes to be sent to `into`.
    pub fn take_output(&mut self, into: &mut Vec<u8>) {
        into.append(&mut self.output);
    }

    /// Whether it is to be closed once all output is sent.
    pub fn is_over(&self, now: Instant) -> bool {
        match self.state {
            State::Close { lingers_since } => {
                let is_quiet = |since| now >= since + LINGERS_FOR;
                self.has_ended || lingers_since.is_none_or(is_quiet)
            }
            _ => false,
        }
    }

    /// When it is closed if nothing happens: a request has to be complete, and a reply or an event to be read, in
    /// [`REQUEST_MAX`]; between two requests it is kept for [`IDLE_MAX`].
    pub fn deadline(&self, has_unsent: bool) -> Instant {
        let is_waiting = self.is_answered && self.is_idle() || self.is_stream();
        let most = match is_waiting && !has_unsent {
            true => IDLE_MAX,
            false => REQUEST_MAX,
        };
        self.since + most
    }

    /// Since when it waits for the next request, if it was answered before; nothing is to be sent.
    pub fn kept_since(&self) -> Option<Instant> {
        let is_kept = self.is_answered && self.is_idle() && self.output.is_empty();
        is_kept.then_some(self.since)
    }

    /// Since when it waits for its first request, of which nothing has come.
    pub fn silent_since(&self) -> Option<Instant> {
        let is_silent = !self.is_answered && self.is_idle() && self.output.is_empty();
        is_silent.then_some(self.since)
    }

    /// Whether it waits for the first byte of a request.
    fn is_idle(&self) -> bool {
        self.state == State::Request && self.input.is_empty() && self.reader.is_empty()
    }
}

/// Received bytes that wait for the requests before them to be answered.
const INPUT_MAX: usize = 64 << 10;

/// Time between two events of a stream: an event and the last one of a crawl are two in a second at most.
pub const EVENT_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum time for a request to arrive, and for its reply to be read.
pub const REQUEST_MAX: Duration = Duration::from_secs(10);

/// Time for which a client of a malformed request has to send nothing before it is closed, and the longest wait for
/// that.
const LINGERS_FOR: Duration = Duration::from_millis(100);
const LINGERS_AT_MOST: Duration = Duration::from_secs(2);

/// Maximum time between two requests.
pub const IDLE_MAX: Duration = Duration::from_secs(75);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::START + Duration::from_secs(seconds)
    }

    fn output(connection: &mut Connection) -> String {
        let mut bytes = Vec::new();
        connection.take_output(&mut bytes);
        String::from_utf8(bytes).expect("it is text")
    }

    fn answer(connection: &mut Connection, words: &str) {
        connection.respond(&Response::text(200, words), at(0), Wall(0));
    }

    #[test]
    fn requests_that_come_together_are_answered_one_after_the_other() {
        let mut connection = Connection::new(at(0));
        connection.handle_bytes(b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n", at(0));
        let first = connection.poll_request(at(0), Wall(0));
        assert_eq!(first.expect("it is complete").target, "/a");
        assert_eq!(connection.poll_request(at(0), Wall(0)), None);
        answer(&mut connection, "one");
        let second = connection.poll_request(at(0), Wall(0));
        assert_eq!(second.expect("it is complete").target, "/b");
        answer(&mut connection, "two");
        let replies = output(&mut connection);
        assert!(replies.find("one") < replies.find("two"), "{replies}");
        assert!(!connection.is_over(at(0)));
    }

    #[test]
    fn a_malformed_request_is_answered_and_ends_the_connection() {
        let mut connection = Connection::new(at(0));
        connection.handle_bytes(b"NONSENSE\r\nGET / HTTP/1.1\r\n\r\n", at(0));
        assert_eq!(connection.poll_request(at(0), Wall(0)), None);
        let reply = output(&mut connection);
        assert!(reply.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{reply}");
        assert!(reply.contains("Connection: close\r\n"), "{reply}");
        connection.handle_bytes(b"GET / HTTP/1.1\r\n\r\n", at(0));
        assert_eq!(connection.poll_request(at(0), Wall(0)), None);
        // What it still sends is dropped for a while.
        let after = |millis| at(0) + Duration::from_millis(millis);
        assert!(connection.takes_input() && !connection.is_over(after(99)));
        connection.handle_bytes(b"more", after(90));
        assert!(!connection.is_over(after(189)) && connection.is_over(after(190)));
        connection.handle_bytes(b"more", at(3));
        assert!(connection.is_over(at(3)));
        connection.handle_end();
        assert!(connection.is_over(at(0)));
    }

    #[test]
    fn a_head_request_gets_the_length_and_no_body() {
        let mut connection = Connection::new(at(0));
        connection.handle_bytes(b"HEAD / HTTP/1.1\r\n\r\n", at(0));
        assert!(connection.poll_request(at(0), Wall(0)).is_some());
        answer(&mut connection, "four");
        let reply = output(&mut connection);
        assert!(reply.contains("Content-Length: 4\r\n"), "{reply}");
        assert!(reply.ends_with("\r\n\r\n"), "{reply}");
    }

    #[test]
    fn a_client_that_ends_its_side_gets_its_replies() {
        let mut connection = Connection::new(at(0));
        connection.handle_bytes(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", at(0));
        connection.handle_end();
        assert!(connection.poll_request(at(0), Wall(0)).is_some());
        answer(&mut connection, "words");
        assert!(output(&mut connection).ends_with("words"));
        assert!(connection.is_over(at(0)));
        let mut kept = Connection::new(at(0));
        kept.handle_bytes(b"GET / HTTP/1.1\r\n\r\nGET / HT", at(0));
        kept.handle_end();
        assert!(kept.poll_request(at(0), Wall(0)).is_some());
        answer(&mut kept, "words");
        assert!(!kept.is_over(at(0)));
        // The rest of a request does not come.
        assert_eq!(kept.poll_request(at(0), Wall(0)), None);
        assert!(kept.is_over(at(0)));
        let mut idle = Connection::new(at(0));
        idle.handle_end();
        assert!(idle.is_over(at(0)));
    }

    #[test]
    fn a_request_has_ten_seconds_from_its_first_byte_and_the_first_one_from_the_connection() {
        assert_eq!(Connection::new(at(5)).deadline(false), at(15));
        let mut connection = Connection::new(at(0));
        connection.handle_bytes(b"GET / HTTP/1.1\r\n\r\n", at(0));
        assert!(connection.poll_request(at(0), Wall(0)).is_some());
        answer(&mut connection, "words");
        output(&mut connection);
        assert_eq!(connection.deadline(false), at(75));
        assert_eq!(connection.deadline(true), at(10));
        connection.handle_bytes(b"GET / HT", at(70));
        assert_eq!(connection.poll_request(at(70), Wall(0)), None);
        connection.handle_bytes(b"TP/1.1\r\n", at(75));
        assert_eq!(connection.deadline(false), at(80));
    }

    /// A connection that was asked for a stream at the start.
    fn stream(request: &[u8]) -> Connection {
        let mut connection = Connection::new(at(0));
        connection.handle_bytes(request, at(0));
        assert!(connection.poll_request(at(0), Wall(0)).is_some());
        connection.respond_with_stream(at(0), Wall(0));
        connection
    }

    #[test]
    fn a_stream_has_no_length_and_an_event_each_second() {
        let mut connection = stream(b"GET /v1/events HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n");
        let head = output(&mut connection);
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("Connection: close\r\n"), "{head}");
        assert!(!head.contains("Content-Length"), "{head}");
        assert!(connection.is_event_due(at(0)));
        connection.send_event(b"data: 1\n\n", at(0));
        assert!(!connection.is_event_due(at(0)));
        assert!(connection.is_event_due(at(1)));
        assert_eq!(output(&mut connection), "data: 1\n\n");
        // What came with the request, or after it, is no request.
        connection.handle_bytes(b"GET / HTTP/1.1\r\n\r\n", at(1));
        assert_eq!(connection.poll_request(at(1), Wall(0)), None);
        assert!(!connection.is_over(at(0)));
        connection.handle_end();
        assert!(connection.is_over(at(0)));
    }

    #[test]
    fn a_stream_is_closed_when_an_event_is_not_read_in_ten_seconds() {
        let mut connection = stream(b"GET /v1/events HTTP/1.1\r\n\r\n");
        connection.send_event(b"data: 1\n\n", at(100));
        assert_eq!(connection.deadline(true), at(110));
        assert_eq!(connection.deadline(false), at(175));
    }

    #[test]
    fn a_head_request_for_a_stream_gets_no_event() {
        let connection = stream(b"HEAD /v1/events HTTP/1.1\r\n\r\n");
        assert!(connection.is_over(at(0)));
        assert!(!connection.is_event_due(at(1)));
    }

    #[test]
    fn bytes_that_wait_are_bounded() {
        let mut connection = Connection::new(at(0));
        let request = b"GET / HTTP/1.1\r\n\r\n";
        connection.handle_bytes(&request.repeat(INPUT_MAX / request.len()), at(0));
        assert!(connection.takes_input());
        connection.handle_bytes(request, at(0));
        assert!(!connection.takes_input());
        assert!(connection.poll_request(at(0), Wall(0)).is_some());
        assert!(connection.takes_input());
    }
}
