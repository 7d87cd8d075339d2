//! Ctrl-C, SIGTERM and a terminal that goes away: once ends the crawl in good order, twice at once.

use std::thread;

use argiope::Stopper;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Stops the crawl when a signal asks for it, from now on and until the process ends.
///
/// # Errors
/// The system refuses the signal handler.
pub fn stop_on_signal(stopper: Stopper) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    if !is_ignored(SIGHUP) {
        signals.add_signal(SIGHUP)?;
    }
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for (count, _) in signals.forever().enumerate() {
                if count == 0 {
                    log::info!("stopping: what is in flight is finished; once more stops at once");
                    stopper.stop();
                } else {
                    stopper.stop_now();
                }
            }
        })?;
    Ok(())
}

/// Whether a signal was being ignored when the process began, as `nohup` arranges it.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
