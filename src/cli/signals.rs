//! Ctrl-C and SIGTERM: once ends the crawl in good order, twice at once.

use std::thread;

use argiope::Stopper;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Stops the crawl when a signal asks for it, from now on and until the process ends.
///
/// # Errors
/// The system refuses the signal handler.
pub fn stop_on_signal(stopper: Stopper) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
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
