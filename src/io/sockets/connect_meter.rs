//! Measures how long the kernel searches for a connection's local port.
//!
//! A connection that we end first keeps its port for a minute. Once half of the ports for one
//! destination are kept like this, `connect` looks at thousands of ports before it finds a free one: a
//! millisecond or more of processor time, instead of twenty microseconds. It does not fail, so only its
//! duration shows it. The clock readings around the call reveal a slow one at no cost; the next calls
//! are then measured in CPU time, which excludes other processes.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::base::time::Instant;
use crate::io::sockets::socket::Socket;
use crate::io::stamps::Stamps;

/// Measures connects.
#[derive(Debug, Default)]
pub(in crate::io) struct ConnectMeter {
    /// Connects that are still to be measured.
    watched: u32,
    /// CPU time of the last one, if it was measured.
    took: Duration,
}

/// The moments just before and after the system call of a connect.
pub(in crate::io) struct CallSpan {
    pub(in crate::io) before: Instant,
    pub(in crate::io) after: Instant,
}

impl ConnectMeter {
    /// Sends the SYN.
    pub(in crate::io) fn connect(
        &mut self,
        socket: &Socket,
        to: SocketAddr,
        stamps: &Stamps,
    ) -> io::Result<CallSpan> {
        let busy_before = (self.watched > 0).then(busy);
        let before = stamps.now();
        let connected = socket.connect(to);
        let after = stamps.now();
        self.took = busy_before.map_or(Duration::ZERO, |before| busy().saturating_sub(before));
        self.watched = match after.saturating_since(before) >= SLOW {
            true => MEASURED,
            false => self.watched.saturating_sub(1),
        };
        connected.map(|()| CallSpan { before, after })
    }

    /// CPU time of the last connect; zero if it was not measured.
    pub(in crate::io) fn took(&self) -> Duration {
        self.took
    }
}

/// CPU time of our thread.
fn busy() -> Duration {
    let at = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(at.tv_sec.unsigned_abs(), at.tv_nsec.unsigned_abs() as u32)
}

/// A slower connect than this causes the next ones to be measured. Most take twenty to fifty
/// microseconds, unless other processes run meanwhile.
const SLOW: Duration = Duration::from_micros(200);
/// How many are measured then.
const MEASURED: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_does_not_advance_during_a_sleep() {
        let before = busy();
        std::thread::sleep(Duration::from_millis(50));
        let slept = busy() - before;
        assert!(slept < Duration::from_millis(25), "{slept:?}");
    }
}
