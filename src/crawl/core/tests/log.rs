//! What a crawl logs, heard by the thread that runs it.

use std::cell::RefCell;
use std::sync::Once;

use log::{LevelFilter, Log, Metadata, Record};

thread_local! {
    static HEARD: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

struct Ear;

impl Log for Ear {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        HEARD.with_borrow_mut(|heard| heard.push(format!("{}: {}", record.level(), record.args())));
    }

    fn flush(&self) {}
}

/// From now on this thread's warnings are heard.
pub fn listen() {
    static HERE: Once = Once::new();
    HERE.call_once(|| {
        log::set_logger(&Ear).expect("nobody else listens");
        log::set_max_level(LevelFilter::Warn);
    });
    heard();
}

/// What was said on this thread since the last time.
pub fn heard() -> Vec<String> {
    HEARD.take()
}
