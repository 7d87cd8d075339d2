//! How long the kernel looks for the local port of a connection.
//!
//! A connection that we end first keeps its port for a minute. Once half of the ports for one place are
//! kept so, `connect` looks at thousands of them before it finds a free one, each time: a millisecond or
//! more of our processor, where it takes twenty microseconds otherwise. It does not fail, so only the time
//! tells. The clock that is read around it anyway tells at no cost when it may be so; from then on the
//! processor's clock is read too, which does not count what others had of the processor.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::socket::Socket;
use super::stamps::Stamps;
use crate::base::time::Instant;

/// Watches over what connects cost.
#[derive(Debug, Default)]
pub(super) struct Connects {
    /// Connects that are still to be measured.
    watched: u32,
    /// What the last one cost, where it was measured.
    took: Duration,
}

/// Just before the system call of a connect, and just after it.
pub(super) struct Around {
    pub(super) before: Instant,
    pub(super) after: Instant,
}

impl Connects {
    /// Sends the SYN.
    pub(super) fn connect(
        &mut self,
        socket: &Socket,
        to: SocketAddr,
        stamps: &Stamps,
    ) -> io::Result<Around> {
        let busy_before = (self.watched > 0).then(busy);
        let before = stamps.now();
        let connected = socket.connect(to);
        let after = stamps.now();
        self.took = busy_before.map_or(Duration::ZERO, |before| busy().saturating_sub(before));
        self.watched = match after.saturating_since(before) >= SUSPICIOUS {
            true => WATCHED,
            false => self.watched.saturating_sub(1),
        };
        connected.map(|()| Around { before, after })
    }

    /// What the last connect cost our processor; zero where it was not measured.
    pub(super) fn took(&self) -> Duration {
        self.took
    }
}

/// How long our thread has had the processor.
fn busy() -> Duration {
    let at = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(at.tv_sec.unsigned_abs(), at.tv_nsec.unsigned_abs() as u32)
}

/// A connect that takes so long is followed by ones that are measured. Most take twenty to fifty
/// microseconds, unless others have the processor meanwhile.
const SUSPICIOUS: Duration = Duration::from_micros(200);
/// So many of them.
const WATCHED: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_processors_clock_goes_on_only_while_we_have_it() {
        let before = busy();
        std::thread::sleep(Duration::from_millis(50));
        let slept = busy() - before;
        assert!(slept < Duration::from_millis(25), "{slept:?}");
    }
}
