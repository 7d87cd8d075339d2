//! Reads on in bodies that were stopped, where there is room and the sink is ready.

use crate::base::bound::Bound;
use crate::base::slab::Key;
use crate::crawl::core::Core;
use crate::crawl::core::pieces::give_to;
use crate::crawl::network::Resumed;
use crate::crawl::network::pieces::{Read, steps_max};
use crate::crawl::network::socket::End;
use crate::io::Io;

/// How many bodies may be given as much as one is given in a turn: some milliseconds' work, and then
/// what is due in the meantime has its turn.
const LONG_READS_PER_TURN: usize = 4;

impl<I: Io> Core<I> {
    /// Reads on where there is room again, as many at once as the room holds reads of.
    pub fn make_room(&mut self) {
        let mut room = self.network.room();
        let mut long_reads = 0;
        let waiting = self.network.paused_len();
        // Each is looked at once; one that must wait again has been read of in the meantime.
        let mut steps = Bound::new("make room", waiting.saturating_mul(2) + 64);
        while self.network.paused_len() > 0 {
            if !steps.step() {
                self.wakeups.turn_again();
                return;
            }
            if !self.output.is_ready() {
                return;
            }
            let Some(resumed) = self.network.resume_next(&mut room, self.now) else {
                return;
            };
            match resumed {
                Resumed::Other => {}
                Resumed::Event(key, news) => self.on_news(key, news),
                Resumed::Reads(key) => {
                    self.read_on(key);
                    let http = self.network.http_of(key);
                    if http.is_some_and(|http| http.gave_way) {
                        long_reads += 1;
                        if long_reads == LONG_READS_PER_TURN {
                            self.wakeups.turn_again();
                            return;
                        }
                    }
                }
            }
        }
    }

    /// Goes on with what was put by of a connection that is read again.
    fn read_on(&mut self, key: Key) {
        let mut unread = self.network.take_unread(key);
        let Some(stamp) = unread.stamp else {
            return;
        };
        let mut used = 0;
        let mut steps = Bound::new("read on", steps_max(unread.bytes.len()));
        while steps.step() {
            let give = give_to(self.output.sink(), &self.flights);
            let network = &mut self.network;
            let Some(read) = network.read_unread(key, &mut unread, &mut used, stamp, give) else {
                return;
            };
            match read {
                Read::Again => {}
                Read::Event(news) | Read::Last(news) => self.on_news(key, news),
                Read::Full => return self.network.hold(key, self.now),
                Read::Enough => return self.hold_for_others(key),
                Read::Held => unreachable!("it was just let go"),
                Read::All => break,
            }
        }
        match unread.end {
            None => self.carry_on_with_request(key),
            Some(End::Ended(stamp)) => self.on_ended(key, stamp),
            Some(End::Failed(error, at)) => self.on_failed(key, error, at),
        }
    }

    /// As much of this body as one turn allows was read: its connection goes on in the next turn.
    pub fn hold_for_others(&mut self, key: Key) {
        let attempt = self.network.http(key).flight;
        let flight = attempt.and_then(|key| self.flights.get(key));
        let number = flight.expect("a reply is somebody's").job.id;
        self.network.hold_for_others(key, number, self.now);
    }
}
