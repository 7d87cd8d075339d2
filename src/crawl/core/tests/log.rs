//! Captures the warnings that a crawl logs, per thread.

use std::cell::RefCell;
use std::sync::Once;

use log::{LevelFilter, Log, Metadata, Record};

thread_local! {
    static CAPTURED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

struct Capture;

impl Log for Capture {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        CAPTURED
            .with_borrow_mut(|lines| lines.push(format!("{}: {}", record.level(), record.args())));
    }

    fn flush(&self) {}
}

/// Captures this thread's warnings from now on.
pub fn capture() {
    static HERE: Once = Once::new();
    HERE.call_once(|| {
        log::set_logger(&Capture).expect("no other logger is installed");
        log::set_max_level(LevelFilter::Warn);
    });
    captured();
}

/// The lines logged on this thread since the last call.
pub fn captured() -> Vec<String> {
    CAPTURED.take()
}
