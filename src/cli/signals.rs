//! Signals: a first SIGINT or SIGTERM stops a crawl gracefully, a second one at once; other signals do not
//! end it. Before a crawl can be stopped, the process ends.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use std::{process, thread};

use argiope::Stopper;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;

/// The signals that the process has received.
#[derive(Clone, Debug, Default)]
pub struct Received {
    stops: Arc<Stops>,
    reports: Arc<AtomicBool>,
    /// Whether SIGHUP reloads the settings in place of a stop.
    reloads: Arc<AtomicBool>,
    /// What a stop signal does; `None` while it has its default action.
    on_stop: Arc<Mutex<Option<OnStop>>>,
}

/// What a stop signal does.
enum OnStop {
    /// It ends the process, after this.
    Exit(Box<dyn Fn() + Send>),
    /// It stops the crawl.
    Stop(Stopper),
    /// It wakes [`Received::wait_for_stop`].
    Wake,
}

impl fmt::Debug for OnStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OnStop::Exit(_) => "Exit",
            OnStop::Stop(_) => "Stop",
            OnStop::Wake => "Wake",
        })
    }
}

/// Number of stop signals so far; threads can wait for the next one.
#[derive(Debug, Default)]
struct Stops {
    count: Mutex<usize>,
    more: Condvar,
}

impl Stops {
    /// Adds one; returns the previous number.
    fn add(&self) -> usize {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count += 1;
        self.more.notify_all();
        *count - 1
    }
}

impl Received {
    /// Installs handlers for the signals that must not end the process. `SIGUSR1` and `SIGUSR2` request a
    /// line of progress. With `SIGXFSZ` handled, a file at its size limit is an error of that write.
    ///
    /// # Errors
    /// A signal handler cannot be installed.
    pub fn watch() -> io::Result<Self> {
        let received = Received::default();
        for signal in [SIGUSR1, SIGUSR2] {
            flag::register(signal, Arc::clone(&received.reports))?;
        }
        flag::register(SIGXFSZ, Arc::default())?;
        Ok(received)
    }

    /// Stops the crawl on SIGINT and SIGTERM, until the process ends.
    ///
    /// # Errors
    /// The signal handler cannot be installed, or the thread cannot be started.
    pub fn stop_on_signal(&self, stopper: Stopper) -> io::Result<()> {
        self.on_signal(OnStop::Stop(stopper))
    }

    /// Ends the process on the same signals, with exit code 3, until [`Received::stop_on_signal`] is called. Before
    /// that it calls `release`.
    ///
    /// # Errors
    /// The signal handler cannot be installed, or the thread cannot be started.
    pub fn exit_on_signal(&self, release: impl Fn() + Send + 'static) -> io::Result<()> {
        self.on_signal(OnStop::Exit(Box::new(release)))
    }

    /// Makes [`Received::wait_for_stop`] return on the same signals.
    ///
    /// # Errors
    /// The signal handler cannot be installed, or the thread cannot be started.
    pub fn wake_on_signal(&self) -> io::Result<()> {
        self.on_signal(OnStop::Wake)
    }

    fn on_signal(&self, on_stop: OnStop) -> io::Result<()> {
        let mut present = self.on_stop.lock().unwrap_or_else(PoisonError::into_inner);
        if present.replace(on_stop).is_some() {
            // The thread is there.
            return Ok(());
        }
        drop(present);
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGQUIT, SIGXCPU])?;
        if !is_ignored(SIGHUP) {
            signals.add_signal(SIGHUP)?;
        }
        let received = self.clone();
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for signal in signals.forever() {
                    match signal == SIGHUP && received.reloads.load(Ordering::SeqCst) {
                        true => received.reload(),
                        false => received.stop(),
                    }
                }
            })?;
        Ok(())
    }

    /// From now on SIGHUP reloads the settings of the crawl, unless the process began with a controlling terminal: then
    /// the signal says that the terminal is gone, and stops the crawl.
    pub fn reload_on_hangup(&self) {
        let has_terminal = has_controlling_terminal();
        self.reloads.store(!has_terminal, Ordering::SeqCst);
    }

    /// Handles SIGHUP without a terminal.
    fn reload(&self) {
        let on_stop = self.on_stop.lock();
        let on_stop = on_stop.unwrap_or_else(PoisonError::into_inner);
        match &*on_stop {
            Some(OnStop::Stop(stopper)) => stopper.reload(),
            Some(OnStop::Exit(_) | OnStop::Wake) | None => {
                log::info!("the crawl has not started: there is nothing to reload");
            }
        }
    }

    /// Handles a stop signal.
    fn stop(&self) {
        let is_first = self.stops.add() == 0;
        let on_stop = self.on_stop.lock();
        let on_stop = on_stop.unwrap_or_else(PoisonError::into_inner);
        match &*on_stop {
            Some(OnStop::Stop(stopper)) if is_first => {
                stopper.stop();
                drop(on_stop);
                // Last, because writing to a full pipe on stderr may block.
                log::info!(
                    "stopping: waiting for requests in flight; a second signal stops at once"
                );
            }
            Some(OnStop::Stop(stopper)) => stopper.stop_now(),
            Some(OnStop::Exit(release)) => {
                release();
                log::info!("stopped before the crawl started");
                process::exit(STOPPED);
            }
            Some(OnStop::Wake) | None => {}
        }
    }

    /// Number of stop signals received.
    pub fn stops(&self) -> usize {
        let count = self.stops.count.lock();
        *count.unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until more than `beyond` stop signals were received, at most `longest`. Returns whether they
    /// were.
    pub fn wait_for_stop(&self, beyond: usize, longest: Duration) -> bool {
        let count = self.stops.count.lock();
        let count = count.unwrap_or_else(PoisonError::into_inner);
        let more = &self.stops.more;
        let waited = more.wait_timeout_while(count, longest, |count| *count <= beyond);
        let (count, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *count > beyond
    }

    /// Returns whether a line of progress was requested since the last call.
    pub fn take_report(&self) -> bool {
        self.reports.swap(false, Ordering::SeqCst)
    }
}

/// The exit code of a crawl that was stopped.
const STOPPED: i32 = 3;

/// Whether a signal was ignored when the process started, as with `nohup`.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Whether the process has a controlling terminal: the field `tty_nr` of its status (proc_pid_stat(5)).
fn has_controlling_terminal() -> bool {
    let status = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, in parentheses, may contain anything.
    let fields = status.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let terminal = fields.split(' ').nth(4);
    terminal.is_some_and(|terminal| terminal != "0")
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_waiter_is_woken_by_the_next_stop_and_not_by_an_earlier_one() {
        const LONG: Duration = Duration::from_secs(60);
        let received = Received::default();
        received.stops.add();
        assert!(!received.wait_for_stop(1, Duration::from_millis(1)));
        let began = Instant::now();
        let stops = Arc::clone(&received.stops);
        let signal = thread::spawn(move || stops.add());
        assert!(received.wait_for_stop(1, LONG));
        assert!(began.elapsed() < LONG);
        assert_eq!(signal.join().expect("it ends"), 1);
        assert_eq!(received.stops(), 2);
    }
}
