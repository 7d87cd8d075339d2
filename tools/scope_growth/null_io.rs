//! A back end without a kernel: virtual time, servers with a fixed latency, no disk.
//!
//! It uses almost no processor time, so that the crawl above it is measured. Every connection and every
//! reply takes the same time and succeeds.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use argiope::base::disk::DiskJob;
use argiope::base::time::{Instant, Wall};
use argiope::io::{
    Accepted, Chunk, Close, Endpoint, Event, Io, IoKind, Stamp, Token, Waker, WorkerJob,
};

/// Time to connect, and time to reply.
const LATENCY: Duration = Duration::from_millis(5);
/// Length of a turn in virtual time, in nanoseconds.
const TURN: u64 = 1_000_000;
const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n";
/// A page with one link, to a new page.
const BODY: &str = "<html><body><p>To <a href=\"/0000000000\">another page</a></p></body></html>";
const DIGITS: usize = 10;

/// The back end.
pub struct NullIo {
    now: Instant,
    /// Future events, in order: each takes the same time.
    pending: VecDeque<(Instant, Token, Pending)>,
    /// The generation of each open slot.
    open: Vec<Option<u32>>,
    /// Requests sent at the next submit.
    outbox: Vec<(Token, bool)>,
    ready: Vec<Event>,
    /// Buffers of replies, and the free ones.
    replies: Vec<Vec<u8>>,
    free: Vec<u32>,
    served: u64,
}

#[derive(Clone, Copy)]
enum Pending {
    Established,
    Reply,
}

impl NullIo {
    pub fn new() -> Self {
        NullIo {
            now: Instant::START,
            pending: VecDeque::new(),
            open: Vec::new(),
            outbox: Vec::new(),
            ready: Vec::new(),
            replies: Vec::new(),
            free: Vec::new(),
            served: 0,
        }
    }

    fn is_open(&self, token: Token) -> bool {
        self.open.get(token.slot as usize) == Some(&Some(token.generation))
    }

    fn event(&mut self, token: Token, kind: Pending) -> Event {
        let stamp = Stamp::exact(self.now);
        match kind {
            Pending::Established => Event::Connected {
                token,
                started: self.now - LATENCY,
                stamp,
            },
            Pending::Reply => Event::Received {
                token,
                chunk: self.reply(),
                stamp,
            },
        }
    }

    /// A page whose link is new.
    fn reply(&mut self) -> Chunk {
        let buffer = self.free.pop().unwrap_or_else(|| {
            let page = format!("{HEAD}Content-Length: {}\r\n\r\n{BODY}", BODY.len());
            self.replies.push(page.into_bytes());
            (self.replies.len() - 1) as u32
        });
        self.served += 1;
        let reply = &mut self.replies[buffer as usize];
        let link = reply.len() - BODY.len() + BODY.find('0').expect("the body has a link");
        let mut rest = self.served;
        for digit in reply[link..link + DIGITS].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        Chunk {
            buffer,
            length: reply.len() as u32,
        }
    }
}

impl Io for NullIo {
    fn kind(&self) -> IoKind {
        IoKind::Simulated
    }

    fn now(&self) -> Instant {
        self.now
    }

    fn wall_at_start(&self) -> Wall {
        Wall(1_767_225_600_000_000_000)
    }

    fn capacity(&self) -> usize {
        16_384
    }

    fn connect(&mut self, token: Token, _to: SocketAddr) {
        let slot = token.slot as usize;
        if self.open.len() <= slot {
            self.open.resize(slot + 1, None);
        }
        self.open[slot] = Some(token.generation);
        self.pending
            .push_back((self.now + LATENCY, token, Pending::Established));
    }

    fn local(&self, _token: Token) -> Option<SocketAddr> {
        None
    }

    fn open_datagram(&mut self, _token: Token, _to: SocketAddr) {
        unreachable!("RESOLVE covers every name");
    }

    fn listen(&mut self, _token: Token, _at: &Endpoint) -> io::Result<()> {
        unreachable!("the crawl does not listen");
    }

    fn accept(&mut self, _token: Token, _accepted: Accepted) {
        unreachable!("the crawl does not listen");
    }

    fn send(&mut self, token: Token, _bytes: &[u8], mark: bool) {
        self.outbox.push((token, mark));
    }

    fn set_reading(&mut self, _token: Token, _on: bool) {}

    fn unsent(&self, _: Token) -> usize {
        0
    }

    fn has_unread(&self, _: Token) -> bool {
        false
    }

    fn close(&mut self, token: Token, _how: Close) {
        if self.is_open(token) {
            self.open[token.slot as usize] = None;
        }
    }

    fn compute(&mut self, _job: WorkerJob) {}

    fn disk(&mut self, _job: DiskJob) {
        unreachable!("the sink writes nothing");
    }

    fn submit(&mut self) {
        let mut outbox = std::mem::take(&mut self.outbox);
        for (token, mark) in outbox.drain(..) {
            if !self.is_open(token) {
                continue;
            }
            if mark {
                self.ready.push(Event::Sent {
                    token,
                    at: self.now,
                    slack: Duration::ZERO,
                    left_by: self.now,
                });
            }
            self.pending
                .push_back((self.now + LATENCY, token, Pending::Reply));
        }
        self.outbox = outbox;
    }

    fn wait(&mut self, until: Option<Instant>, events: &mut Vec<Event>) {
        let next = self.pending.front().map(|(at, ..)| *at);
        let target = next.into_iter().chain(until).min();
        if self.ready.is_empty()
            && let Some(target) = target
            && target > self.now
        {
            let turns = target.as_nanos().div_ceil(TURN);
            self.now = Instant::from_nanos(turns * TURN);
        }
        let open = &self.open;
        events.extend(self.ready.drain(..).filter(|event| {
            let of_open = |token: Token| open[token.slot as usize] == Some(token.generation);
            event.token().is_none_or(of_open)
        }));
        while let Some((at, token, kind)) = self.pending.front().copied()
            && at <= self.now
        {
            self.pending.pop_front();
            if self.is_open(token) {
                let event = self.event(token, kind);
                events.push(event);
            }
        }
    }

    fn queued_events(&self) -> &[Event] {
        &self.ready
    }

    fn has_pending(&self) -> bool {
        !self.ready.is_empty()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn arm(&mut self, _until: Option<Instant>) {}

    fn waker(&self) -> Waker {
        Waker::new(|| {})
    }

    fn bytes(&self, chunk: &Chunk) -> &[u8] {
        &self.replies[chunk.buffer as usize][..chunk.length as usize]
    }

    fn release(&mut self, chunk: Chunk) {
        self.free.push(chunk.buffer);
    }
}
