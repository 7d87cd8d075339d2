//! Which connections are read: all, until buffered bodies fill their room or the sink is busy.

use super::flight::Socket;
use crate::base::bound::Bound;
use crate::base::slab::Key;
use crate::crawl::core::{Core, token_of};
use crate::io::Io;

/// How many bodies may be given as much as one is given in a turn: some milliseconds' work, and then
/// what is due in the meantime has its turn.
const LONG_READS_PER_TURN: usize = 4;

impl<I: Io> Core<I> {
    /// Whether the bodies that are buffered have reached their bound.
    pub fn is_full(&self) -> bool {
        self.buffered as u64 >= self.config.buffered_bodies_max
    }

    /// Counts anew what a connection buffers.
    pub fn recount(&mut self, key: Key) {
        let total = self.buffered;
        self.buffered = self.http(key).recount(total);
    }

    /// Whether no more should be read of a connection for now: there is no room, or the sink is busy.
    pub fn must_wait(&self, key: Key) -> bool {
        !self.sink.is_ready() || self.is_full() && self.favoured != Some(key) && self.fills(key)
    }

    /// Reads no more of a connection until there is room.
    pub fn pause(&mut self, key: Key) {
        self.http(key).paused = Some(self.now);
        self.io.set_reading(token_of(key), false);
        if self.favoured == Some(key) {
            self.paused.push_front(key);
        } else {
            self.paused.push_back(key);
        }
    }

    /// Reads on where there is room again, as many at once as the room holds reads of. Where there
    /// is none, room that only the end of a body can make, one connection reads on all the same
    /// until its exchange is over: the bound is exceeded by one body at most, beside what each
    /// connection had read when it was stopped.
    pub fn make_room(&mut self) {
        // What is read is kept twice, as it came and decoded, in memory that grows by doubling.
        let at_once = (self.config.io.read_budget as u64).saturating_mul(4);
        let bound = self.config.buffered_bodies_max;
        let mut room = bound.saturating_sub(self.buffered as u64);
        let mut long_reads = 0;
        // Each is looked at once; one that must wait again has been read of in the meantime.
        let mut steps = Bound::new("make room", self.paused.len().saturating_mul(2) + 64);
        while let Some(key) = self.paused.front().copied() {
            if !steps.step() {
                self.unfinished = true;
                return;
            }
            if !self.sink.is_ready() {
                return;
            }
            let mut place = 0;
            if room < at_once && self.fills(key) {
                match self.favoured.filter(|_| self.favours_one()) {
                    // It may have given way to others, which are before it now.
                    Some(favoured) => {
                        let places = self.paused.iter().position(|key| *key == favoured);
                        let Some(waits) = places else {
                            return;
                        };
                        place = waits;
                    }
                    None => self.favoured = Some(key),
                }
            }
            room = room.saturating_sub(at_once);
            let key = self.paused.remove(place).expect("it stands there");
            if let Some(Socket::Http(http)) = self.sockets.get_mut(key)
                && !http.held
                && let Some(since) = http.paused.take()
            {
                let waited = self.now.saturating_since(since);
                http.connection.handle_resumed(waited, self.now);
                // Its timer may have come round at others' turn each time.
                let settings = &self.config.fetch;
                if let Some(news) = http.connection.handle_timeout(settings, self.now) {
                    self.on_news(key, news);
                    continue;
                }
                self.io.set_reading(token_of(key), true);
                self.read_on(key);
                let http = self.sockets.get(key).and_then(Socket::http);
                if http.is_some_and(|http| http.gave_way) {
                    long_reads += 1;
                    if long_reads == LONG_READS_PER_TURN {
                        self.unfinished = true;
                        return;
                    }
                }
            }
        }
    }

    /// Whether there still is a connection that reads on without room.
    fn favours_one(&self) -> bool {
        self.favoured.is_some_and(|key| self.fills(key))
    }

    /// Whether reading on takes room, and coming to the end makes some: what a sink takes in pieces
    /// does neither.
    fn fills(&self, key: Key) -> bool {
        let http = self.sockets.get(key).and_then(Socket::http);
        http.is_some_and(|http| http.connection.exchange().is_some() && !http.is_taken())
    }
}
