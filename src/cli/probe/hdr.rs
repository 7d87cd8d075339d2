//! Writes a probe's HDR log: version 1.3, nanoseconds, one interval per second.
//!
//! The latency from due has no tag, because tools read lines without a tag by default; each other
//! measure has its tag. A thread encodes the log, because encoding would delay requests.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, UNIX_EPOCH};

use argiope::probe::{Measure, ProbeInterval};
use argiope::{Spread, Wall, WriteError};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{
    IntervalLogWriterBuilder, IntervalLogWriterError, Tag,
};

use super::output::Output;

/// A log that is being written.
pub struct HdrLog {
    intervals: Sender<ProbeInterval>,
    writer: JoinHandle<io::Result<()>>,
    path: PathBuf,
}

impl HdrLog {
    /// Starts writing to `output`, for a probe that started at `started`.
    pub fn begin(output: Output, started: Wall) -> io::Result<Self> {
        let path = output.path().to_owned();
        let file = BufWriter::new(output);
        let (intervals, inbox) = channel();
        let writer = thread::Builder::new()
            .name("hdr log".to_owned())
            .spawn(move || write(file, started, &inbox))?;
        Ok(HdrLog {
            intervals,
            writer,
            path,
        })
    }

    /// Adds an interval, if there is one.
    pub fn put(&self, interval: Option<ProbeInterval>) {
        if let Some(interval) = interval {
            // `finish` returns the error of a failed writer.
            let _ = self.intervals.send(interval);
        }
    }

    /// Writes the remaining intervals, and returns the error of writing, if any.
    pub fn finish(self) -> Result<(), WriteError> {
        drop(self.intervals);
        let written = self.writer.join().expect("the writer does not panic");
        written.map_err(|cause| WriteError::new(self.path, &cause))
    }
}

fn write(mut file: impl Write, started: Wall, inbox: &Receiver<ProbeInterval>) -> io::Result<()> {
    let mut serializer = V2DeflateSerializer::new();
    let version = env!("CARGO_PKG_VERSION");
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment(&format!("[Logged with argiope {version}]"))
        .add_comment("[Histogram log format version 1.3]")
        .add_comment("[Values in nanoseconds; without a tag: latency from due]")
        .with_start_time(UNIX_EPOCH + Duration::from_nanos(started.0))
        .begin_log_with(&mut file, &mut serializer)?;
    // 250 KB, reused for each interval.
    let mut histogram =
        Histogram::new_with_bounds(1, LONGEST, DIGITS).expect("these bounds are valid");
    for interval in inbox {
        let start = interval.start.saturating_since(started);
        for (measure, spread) in &interval.spreads {
            let tag = match measure {
                Measure::Due => None,
                other => Some(Tag::new(other.as_str()).expect("names have no commas")),
            };
            fill(&mut histogram, spread);
            log.write_histogram(&histogram, start, interval.length, tag)
                .map_err(|error| match error {
                    IntervalLogWriterError::IoError(error) => error,
                    IntervalLogWriterError::SerializeError(error) => io::Error::other(error),
                })?;
        }
    }
    file.flush()
}

/// Replaces the content of a histogram by that of a spread.
fn fill(histogram: &mut Histogram<u64>, spread: &Spread) {
    histogram.reset();
    for (span, count) in spread.buckets() {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(LONGEST);
        histogram.saturating_record_n(nanos, count);
    }
}

/// Range and precision of a spread: 1 h, three significant digits.
const LONGEST: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;
