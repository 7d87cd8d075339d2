//! Progress on stderr while a crawl runs: one live line, or plain lines if stderr is not a terminal.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use argiope::{Progress, Stats};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::stderr;

/// Shows the progress of a crawl.
pub struct Shown {
    display: Display,
    next: Instant,
    last: (Duration, u64, u64),
}

enum Display {
    Nothing,
    /// The methods used here ignore write errors.
    Live(ProgressBar),
    Lines,
}

/// Interval between updates of the live line.
const LIVE_EVERY: Duration = Duration::from_millis(250);
/// Interval between plain lines.
const LINE_EVERY: Duration = Duration::from_secs(10);

impl Shown {
    /// Progress on stderr; with `quiet`, none.
    pub fn new(quiet: bool) -> Self {
        let display = if quiet {
            Display::Nothing
        } else if std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_style(ProgressStyle::with_template("{msg}").expect("a valid template"));
            Display::Live(bar)
        } else {
            Display::Lines
        };
        let patience = match display {
            Display::Lines => LINE_EVERY,
            _ => LIVE_EVERY,
        };
        Shown {
            display,
            next: Instant::now() + patience,
            last: (Duration::ZERO, 0, 0),
        }
    }

    /// Time until the next line is due.
    pub fn patience(&self) -> Duration {
        match self.display {
            Display::Live(_) => LIVE_EVERY,
            Display::Nothing | Display::Lines => Duration::from_secs(1),
        }
    }

    /// Shows the current state, if an update is due.
    pub fn show(&mut self, stats: &Stats, progress: impl FnOnce() -> Progress) {
        if !self.is_time() {
            return;
        }
        let line = self.line(stats, &progress());
        self.show_line(|| line);
    }

    /// Writes a line on request, even with `quiet`.
    pub fn report(&mut self, stats: &Stats, progress: &Progress) {
        let line = self.line(stats, progress);
        match &self.display {
            Display::Live(bar) => bar.suspend(|| stderr::write_line(&line)),
            Display::Lines | Display::Nothing => stderr::write_line(&line),
        }
    }

    /// Says on a terminal that the crawl stops, and what it waits for.
    pub fn note_stop(&self, progress: &Progress, grace: Duration) {
        let Display::Live(bar) = &self.display else {
            return;
        };
        let line = stopping(progress.in_flight as u64, grace);
        bar.suspend(|| stderr::write_line(&line));
    }

    /// The line, with rates since the last one.
    fn line(&mut self, stats: &Stats, progress: &Progress) -> String {
        let span = (progress.elapsed.saturating_sub(self.last.0)).as_secs_f64();
        let rate = |now: u64, before: u64| (now - before) as f64 / span.max(1e-9);
        let mut line = format!(
            "{}  {} pages  {:.0} pages/s  {} in flight  {} queued  {} scopes waiting  {} errors  {}/s",
            clock(progress.elapsed),
            stats.pages,
            rate(stats.pages, self.last.1),
            progress.in_flight,
            progress.queued,
            progress.scopes_waiting,
            stats.errors(),
            bytes(rate(stats.bytes_wire, self.last.2) as u64),
        );
        if let Some(next) = progress.outage_open {
            let _ = write!(line, "  NETWORK DOWN, next probe in {}", clock(next));
        }
        if let Some(next) = progress.hosts_held_next {
            let _ = write!(
                line,
                "  {} {} held, next in {}",
                progress.hosts_held,
                if progress.hosts_held == 1 {
                    "host"
                } else {
                    "hosts"
                },
                clock(next)
            );
        }
        self.last = (progress.elapsed, stats.pages, stats.bytes_wire);
        match progress.disk_full_for {
            None => line,
            Some(since) => format!("{line}  disk full for {}", clock(since)),
        }
    }

    /// Shows a line, if one is due.
    pub fn show_line(&mut self, line: impl FnOnce() -> String) {
        if !self.is_time() {
            return;
        }
        let line = line();
        match &self.display {
            Display::Live(bar) => {
                bar.set_message(line);
                bar.tick();
                self.next = Instant::now() + LIVE_EVERY;
            }
            Display::Lines => {
                stderr::write_line(&line);
                self.next = Instant::now() + LINE_EVERY;
            }
            Display::Nothing => {}
        }
    }

    fn is_time(&self) -> bool {
        !matches!(self.display, Display::Nothing) && Instant::now() >= self.next
    }

    /// Clears the live line.
    pub fn end(&self) {
        if let Display::Live(bar) = &self.display {
            bar.finish_and_clear();
        }
    }
}

/// `1:02:03`, or `2:03`.
pub fn clock(span: Duration) -> String {
    let seconds = span.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

/// What a crawl that stops waits for.
fn stopping(in_flight: u64, grace: Duration) -> String {
    let what = match in_flight {
        0 => return "stopping: no request is in flight".to_owned(),
        1 => "1 request".to_owned(),
        count => format!("{count} requests"),
    };
    format!(
        "stopping: waiting for {what} in flight, up to {} s; a second signal stops at once",
        grace.as_secs_f64()
    )
}

/// `1.5 MB`.
pub fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 1000.0 {
            return if unit == "B" {
                format!("{value:.0} {unit}")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}

/// `12.3 ms`, `4.5 s`.
pub fn span(span: Duration) -> String {
    let seconds = span.as_secs_f64();
    if seconds >= 1.0 {
        format!("{seconds:.2} s")
    } else if seconds >= 1e-3 {
        format!("{:.1} ms", seconds * 1e3)
    } else {
        format!("{:.0} µs", seconds * 1e6)
    }
}
