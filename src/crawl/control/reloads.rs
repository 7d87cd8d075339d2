//! Requests to read the configuration anew and their answers, shared by a crawl, signals and threads that read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::crawl::config::Config;

/// Requests and answers on their way.
#[derive(Debug, Default)]
pub struct Reloads {
    /// A signal has asked for a reload.
    is_asked: AtomicBool,
    /// Whether there are answers.
    is_answered: AtomicBool,
    answers: Mutex<Vec<NumberedAnswer>>,
}

/// The number of a request, and the configuration or why there is none.
type NumberedAnswer = (u64, Result<Box<Config>, String>);

impl Reloads {
    /// A signal asks for a reload.
    pub fn ask(&self) {
        self.is_asked.store(true, Ordering::SeqCst);
    }

    /// Whether a signal has asked since the last call.
    pub fn take_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed) && self.is_asked.swap(false, Ordering::SeqCst)
    }

    /// An answer to the request of this number.
    pub fn answer(&self, number: u64, config: Result<Box<Config>, String>) {
        self.locked().push((number, config));
        self.is_answered.store(true, Ordering::SeqCst);
    }

    /// The next answer.
    pub fn take_answer(&self) -> Option<NumberedAnswer> {
        if !self.is_answered.load(Ordering::Relaxed) {
            return None;
        }
        let mut answers = self.locked();
        let answer = answers.pop();
        self.is_answered
            .store(!answers.is_empty(), Ordering::SeqCst);
        answer
    }

    fn locked(&self) -> MutexGuard<'_, Vec<NumberedAnswer>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
