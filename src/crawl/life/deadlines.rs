//! Until when a connection is waited for.

use super::flight::Socket;
use crate::base::slab::Key;
use crate::base::time::Instant;
use crate::crawl::core::Core;
use crate::crawl::timer::Timer;
use crate::io::Io;

impl<I: Io> Core<I> {
    /// Sees to the deadline of what a connection waits for.
    pub fn arm(&mut self, key: Key) {
        if let Some(Socket::Http(http)) = self.sockets.get(key)
            && let Some(deadline) = http.connection.deadline(&self.config.fetch)
        {
            self.arm_at(key, deadline.at);
        }
    }

    fn arm_at(&mut self, key: Key, at: Instant) {
        self.deadlines.arm_by(Timer::Socket(key.slot), at);
    }

    /// A connection's timer came round.
    pub fn on_socket_timeout(&mut self, slot: u32) {
        let Some(key) = self.sockets.key_of(slot) else {
            return;
        };
        let Some(Socket::Http(http)) = self.sockets.get_mut(key) else {
            return;
        };
        if http.paused.is_some() {
            // We keep it waiting, not it us.
            self.arm_at(key, self.now + self.config.fetch.idle_timeout);
            return;
        }
        match http.connection.handle_timeout(&self.config.fetch, self.now) {
            Some(news) => self.on_news(key, news),
            None => self.arm(key),
        }
    }
}
