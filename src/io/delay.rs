//! How long our thread was ready to run and did not, by the scheduler's own account.
//!
//! An io_uring takes bytes from their sockets as they come, unless our thread has no processor to do
//! it with: then two segments may have come before the first was looked at, and only the second one's
//! stamp is left. How long that was is how far a stamp may be off. And what leaves between two looks
//! at the clock left as much later, at most.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The scheduler's account of the thread that made this.
#[derive(Debug)]
pub(super) struct RunDelay {
    /// `None` where the kernel keeps no account.
    account: Option<File>,
    /// Nanoseconds waited, as of the last look.
    waited: u64,
}

impl RunDelay {
    /// Nobody's.
    pub(super) const fn none() -> Self {
        RunDelay {
            account: None,
            waited: 0,
        }
    }

    pub(super) fn start() -> Self {
        let account = File::open("/proc/thread-self/schedstat").ok();
        let mut delay = RunDelay { account, waited: 0 };
        match delay.read() {
            Some(waited) => delay.waited = waited,
            None => delay.account = None,
        }
        delay
    }

    /// How long it waited since the last look; `None` where nobody knows.
    pub(super) fn since_last(&mut self) -> Option<Duration> {
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

/// The second of three numbers: time on a processor, time waited for one, how often it had one.
fn parse(text: &[u8]) -> Option<u64> {
    let mut numbers = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
    let (_, waited, times) = (numbers.next()?, numbers.next()?, numbers.next()?);
    // A kernel that keeps no account writes zeroes; a thread that reads this has run once at least.
    (times != "0").then(|| waited.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_of_zeroes_is_none() {
        assert_eq!(parse(b"1200 345 6\n"), Some(345));
        assert_eq!(parse(b"1200 0 6\n"), Some(0));
        assert_eq!(parse(b"0 0 0\n"), None);
        assert_eq!(parse(b"1200 345"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn time_waited_is_told_once() {
        let mut delay = RunDelay::start();
        // What is waited for between a look and a stamp of ours is in no account of ours.
        let began = std::time::Instant::now();
        let Some(_) = delay.since_last() else {
            crate::base::loud::skip("this kernel keeps no account of delays");
            return;
        };
        let first = delay.since_last().expect("there is an account");
        assert!(first <= began.elapsed() + Duration::from_millis(1));
    }
}
