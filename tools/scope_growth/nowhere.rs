//! A back end without a kernel: time that jumps, servers that answer at once, a disk that keeps nothing.
//!
//! It costs next to nothing, so that what is measured is the crawl above it. Connections and
//! replies take a fixed time each; nothing is ever lost, refused or cut.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use argiope::base::disk::DiskJob;
use argiope::base::time::{Instant, Wall};
use argiope::io::{Accepted, Chunk, Close, Endpoint, Event, Io, IoKind, Stamp, Token, Waker};

/// How long a connection takes, and how long a reply does.
const LATENCY: Duration = Duration::from_millis(5);
/// A busy loop finds this much to do at once.
const TURN: u64 = 1_000_000;
const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n";
/// One link, to a page that no other page led to.
const BODY: &str = "<html><body><p>To <a href=\"/0000000000\">another page</a></p></body></html>";
const DIGITS: usize = 10;

/// See the file's head.
pub struct Nowhere {
    now: Instant,
    /// What is going to happen. All takes the same time, so what was begun first happens first.
    coming: VecDeque<(Instant, Token, What)>,
    /// The generation that has each slot, by slot.
    open: Vec<Option<u32>>,
    /// Requests that leave with the next submit.
    outbox: Vec<(Token, bool)>,
    news: Vec<Event>,
    /// Replies as they lie in memory, and those that are not read.
    replies: Vec<Vec<u8>>,
    free: Vec<u32>,
    served: u64,
}

#[derive(Clone, Copy)]
enum What {
    Established,
    Reply,
}

impl Nowhere {
    pub fn new() -> Self {
        Nowhere {
            now: Instant::START,
            coming: VecDeque::new(),
            open: Vec::new(),
            outbox: Vec::new(),
            news: Vec::new(),
            replies: Vec::new(),
            free: Vec::new(),
            served: 0,
        }
    }

    fn is_open(&self, token: Token) -> bool {
        self.open.get(token.slot as usize) == Some(&Some(token.generation))
    }

    fn happen(&mut self, token: Token, what: What) -> Event {
        let stamp = Stamp::exact(self.now);
        match what {
            What::Established => Event::Connected {
                token,
                started: self.now - LATENCY,
                stamp,
            },
            What::Reply => Event::Received {
                token,
                chunk: self.reply(),
                stamp,
            },
        }
    }

    /// A page with a link of its own.
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

impl Io for Nowhere {
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
        self.coming
            .push_back((self.now + LATENCY, token, What::Established));
    }

    fn local(&self, _token: Token) -> Option<SocketAddr> {
        None
    }

    fn open_datagram(&mut self, _token: Token, _to: SocketAddr) {
        unreachable!("every name is known");
    }

    fn listen(&mut self, _token: Token, _at: &Endpoint) -> io::Result<()> {
        unreachable!("nothing is served");
    }

    fn accept(&mut self, _token: Token, _accepted: Accepted) {
        unreachable!("nothing is served");
    }

    fn send(&mut self, token: Token, _bytes: &[u8], mark: bool) {
        self.outbox.push((token, mark));
    }

    fn set_reading(&mut self, _token: Token, _on: bool) {}

    fn close(&mut self, token: Token, _how: Close) {
        if self.is_open(token) {
            self.open[token.slot as usize] = None;
        }
    }

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
                self.news.push(Event::Sent {
                    token,
                    at: self.now,
                    slack: Duration::ZERO,
                    left_by: self.now,
                });
            }
            self.coming
                .push_back((self.now + LATENCY, token, What::Reply));
        }
        self.outbox = outbox;
    }

    fn wait(&mut self, until: Option<Instant>, events: &mut Vec<Event>) {
        let next = self.coming.front().map(|(at, ..)| *at);
        let target = next.into_iter().chain(until).min();
        if self.news.is_empty()
            && let Some(target) = target
            && target > self.now
        {
            let turns = target.as_nanos().div_ceil(TURN);
            self.now = Instant::from_nanos(turns * TURN);
        }
        let open = &self.open;
        events.extend(self.news.drain(..).filter(|event| {
            let of_open = |token: Token| open[token.slot as usize] == Some(token.generation);
            event.token().is_none_or(of_open)
        }));
        while let Some((at, token, what)) = self.coming.front().copied()
            && at <= self.now
        {
            self.coming.pop_front();
            if self.is_open(token) {
                let event = self.happen(token, what);
                events.push(event);
            }
        }
    }

    fn queued_events(&self) -> &[Event] {
        &self.news
    }

    fn has_pending(&self) -> bool {
        !self.news.is_empty()
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
