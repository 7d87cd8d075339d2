//! Programs written from the documentation alone, with the crates that such programs use. They run
//! against servers on loopback; tests check their output and the servers' records.

#[allow(dead_code, reason = "other tests ask it for more")]
#[path = "../loopback/mod.rs"]
mod loopback;

mod harvest;
mod harvesting;

mod link_checker;
mod link_checking;

mod exporter;
mod exporting;

#[allow(dead_code, reason = "its main is a user's to run")]
#[path = "../../examples/sqlite.rs"]
mod sqlite;
mod storing;

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// No program here takes longer, however busy the machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Does this on a thread of its own, and fails where it has no end.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, comes) = channel();
    let worker = thread::spawn(move || drop(done.send(work())));
    let outcome = comes.recv_timeout(PATIENCE);
    if outcome.is_err() && worker.is_finished() {
        worker.join().expect("it does not panic");
    }
    outcome.expect("it ends")
}
