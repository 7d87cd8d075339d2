//! Result lines for `--results`, written by a thread, so that a slow disk or reader does not delay
//! requests.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::{io, mem, thread};

use argiope::sink::files::write_line;
use argiope::{Page, Sink, WriteError};

use super::output::Output;

/// Sink that buffers lines and passes them to a thread.
pub struct Lines {
    batch: Vec<u8>,
    /// `None` once all lines were passed on.
    batches: Option<Sender<Vec<u8>>>,
    shared: Arc<Shared>,
}

/// The receiving end, which writes the lines.
pub struct Writer {
    batches: Receiver<Vec<u8>>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Bytes passed on and not yet written.
    held: AtomicUsize,
    /// Whether the thread has ended.
    is_done: AtomicBool,
    failure: OnceLock<WriteError>,
}

/// A sink of lines and its writer.
pub fn lines() -> (Lines, Writer) {
    let shared: Arc<Shared> = Arc::default();
    let (to, batches) = channel();
    let lines = Lines {
        batch: Vec::new(),
        batches: Some(to),
        shared: Arc::clone(&shared),
    };
    (lines, Writer { batches, shared })
}

impl Writer {
    /// Starts the thread that writes all lines to `output`.
    pub fn start(self, output: Output) -> io::Result<()> {
        let thread = thread::Builder::new().name("result lines".to_owned());
        thread.spawn(move || self.write(output)).map(|_| ())
    }

    fn write(self, mut output: Output) {
        let write_all = || {
            for batch in self.batches {
                output.write_all(&batch)?;
                self.shared.held.fetch_sub(batch.len(), Ordering::SeqCst);
            }
            output.sync()
        };
        if let Err(cause) = write_all() {
            let path = output.path().to_owned();
            // The only writer fails only once.
            let _ = self.shared.failure.set(WriteError::new(path, &cause));
        }
        self.shared.is_done.store(true, Ordering::SeqCst);
    }
}

impl Lines {
    fn hand_over(&mut self) {
        if let Some(batches) = &self.batches
            && !self.batch.is_empty()
        {
            let batch = mem::take(&mut self.batch);
            self.shared.held.fetch_add(batch.len(), Ordering::SeqCst);
            // A failed writer has stored its error.
            let _ = batches.send(batch);
        }
    }
}

impl Sink for Lines {
    fn put(&mut self, page: &mut Page) {
        write_line(page, None, &mut self.batch);
        if self.batch.len() >= BATCH_SIZE {
            self.hand_over();
        }
    }

    fn is_ready(&self) -> bool {
        self.shared.held.load(Ordering::SeqCst) <= HELD_MAX
    }

    fn flush(&mut self) {
        self.hand_over();
    }

    fn finish(&mut self) {
        self.hand_over();
        self.batches = None;
    }

    fn is_done(&self) -> bool {
        self.shared.is_done.load(Ordering::SeqCst)
    }

    fn failure(&self) -> Option<&WriteError> {
        self.shared.failure.get()
    }
}

/// Bytes per write, so that the cost of the system call per line is negligible. Flushed each second.
const BATCH_SIZE: usize = 64 << 10;
/// Unwritten bytes at which reading of replies pauses: tens of thousands of lines.
const HELD_MAX: usize = 64 << 20;
