//! How long our thread was runnable and did not run, from the scheduler's statistics.
//!
//! io_uring copies bytes from sockets as they arrive, unless our thread has no processor to do it on:
//! then two segments may arrive before the first is copied, and only the second one's stamp is left. The
//! wait is how far a stamp may be off. Likewise, bytes sent between two readings of the clock left at
//! most so much later.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The scheduler's statistics of the thread that made this.
#[derive(Debug)]
pub(in crate::io) struct RunDelay {
    /// `None` where the kernel keeps no statistics.
    account: Option<File>,
    /// Nanoseconds waited, as of the last reading.
    waited: u64,
}

impl RunDelay {
    /// Of no thread.
    pub(in crate::io) const fn none() -> Self {
        RunDelay {
            account: None,
            waited: 0,
        }
    }

    pub(in crate::io) fn start() -> Self {
        let account = File::open("/proc/thread-self/schedstat").ok();
        let mut delay = RunDelay { account, waited: 0 };
        match delay.read() {
            Some(waited) => delay.waited = waited,
            None => delay.account = None,
        }
        delay
    }

    /// Time waited since the last reading; `None` if unknown.
    pub(in crate::io) fn since_last(&mut self) -> Option<Duration> {
        let waited = self.read()?;
        let since = waited.saturating_sub(self.waited);
        self.waited = waited;
        Some(Duration::from_nanos(since))
    }

    fn read(&self) -> Option<u64> {
        let mut text = [0; 96];
        let length = self.account.as_ref()?.read_at(&mut text, 0).ok()?;
        parse(text.get(..length)?)
    }
}

/// The second of three numbers: time on a processor, time waited for one, times scheduled.
fn parse(text: &[u8]) -> Option<u64> {
    let mut numbers = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
    let (_, waited, times) = (numbers.next()?, numbers.next()?, numbers.next()?);
    // A kernel without statistics writes zeroes; a thread that reads this was scheduled at least once.
    (times != "0").then(|| waited.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_zeroes_are_none() {
        assert_eq!(parse(b"1200 345 6\n"), Some(345));
        assert_eq!(parse(b"1200 0 6\n"), Some(0));
        assert_eq!(parse(b"0 0 0\n"), None);
        assert_eq!(parse(b"1200 345"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn time_waited_is_reported_once() {
        let mut delay = RunDelay::start();
        // A wait between a reading and our clock is in neither.
        let began = std::time::Instant::now();
        let Some(_) = delay.since_last() else {
            crate::base::loud::skip("this kernel keeps no scheduler statistics");
            return;
        };
        let first = delay.since_last().expect("there are statistics");
        assert!(first <= began.elapsed() + Duration::from_millis(1));
    }
}
