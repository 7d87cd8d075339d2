//! Submits the URLs of the command line and of seeds files to the crawl, from a separate thread.

use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use argiope::settings::{PUBLIC_HOSTS_MAX, PublicHosts};
use argiope::{Config, CrawlOver, CrawlUrl, Handle, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::Usage;
use super::seeds::{self, SeedLine, SeedLines, SeedLinesError};
use super::signals::Received;

/// Iterator of the first requests: the URLs of the command line, then the lines of each file. Pipes
/// come behind all regular files, whatever their order was: a pipe may be silent, and no file waits
/// for it.
pub struct Seeds {
    named: VecDeque<String>,
    inputs: VecDeque<Input>,
    /// Number of invalid lines.
    bad: u64,
    /// Whether a pipe is being read, which may take any time.
    is_at_pipe: Arc<AtomicBool>,
}

/// A file or pipe of seeds.
struct Input {
    name: String,
    lines: SeedLines<File>,
    /// Whether it is no regular file: reading may block for any time.
    is_pipe: bool,
}

/// Result of one line.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is taken apart at once"
)]
enum Step {
    Seed(Request),
    /// A comment or an invalid line.
    Nothing,
    End,
}

/// Seeds looked at for public hosts before the first is sent.
const LOOKED_AT_FIRST: usize = 10_000;
/// After this time without data, the writer of a pipe is assumed to wait for results of earlier seeds.
const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

impl Seeds {
    /// Opens every file now, so that one that cannot be read is a usage error before the crawl begins.
    pub fn open(urls: &[String], files: &[std::path::PathBuf]) -> Result<Self, Usage> {
        let open = |path: &PathBuf| {
            let name = path.display().to_string();
            let lines = seeds::open(&name).map_err(|error| Usage(format!("--seeds: {error}")))?;
            let is_pipe = !lines.source().metadata().is_ok_and(|meta| meta.is_file());
            Ok(Input {
                name,
                lines,
                is_pipe,
            })
        };
        let inputs = files.iter().map(open).collect::<Result<Vec<_>, Usage>>()?;
        let (pipes, files): (Vec<_>, Vec<_>) = inputs.into_iter().partition(|input| input.is_pipe);
        Ok(Seeds {
            named: urls.iter().cloned().collect(),
            inputs: files.into_iter().chain(pipes).collect(),
            bad: 0,
            is_at_pipe: Arc::default(),
        })
    }

    /// Whether a pipe is next.
    fn is_pipe_next(&self) -> bool {
        self.named.is_empty() && self.inputs.front().is_some_and(|input| input.is_pipe)
    }

    /// Whether a pipe is next, and has no data for a while.
    fn pauses(&self) -> bool {
        let Some(Input { lines, .. }) = self.inputs.front() else {
            return false;
        };
        if !self.is_pipe_next() || lines.is_at_hand() {
            return false;
        }
        loop {
            let mut fds = [PollFd::new(lines.source(), PollFlags::IN)];
            match poll(&mut fds, Some(&PAUSE)) {
                Err(Errno::INTR) => {}
                ready => return matches!(ready, Ok(0)),
            }
        }
    }

    /// Returns the next request; invalid lines are logged, counted and skipped.
    ///
    /// # Errors
    /// A file cannot be read any further.
    fn next(&mut self) -> Result<Option<Request>, SeedLinesError> {
        loop {
            match self.step()? {
                Step::Seed(request) => return Ok(Some(request)),
                Step::Nothing => {}
                Step::End => return Ok(None),
            }
        }
    }

    /// Reads one line.
    fn step(&mut self) -> Result<Step, SeedLinesError> {
        if let Some(url) = self.named.pop_front() {
            return Ok(self.seed(&url, || url.clone()));
        }
        let Some(Input {
            name,
            lines,
            is_pipe,
        }) = self.inputs.front_mut()
        else {
            return Ok(Step::End);
        };
        self.is_at_pipe.store(*is_pipe, Ordering::SeqCst);
        let line = lines.next();
        self.is_at_pipe.store(false, Ordering::SeqCst);
        match line {
            None => {
                self.inputs.pop_front();
                Ok(Step::Nothing)
            }
            Some(Ok(SeedLine { number, text })) => {
                let name = name.clone();
                Ok(self.seed(&text, || format!("{name}:{number}")))
            }
            Some(Err(error)) if error.is_of_one_line() => {
                self.bad += 1;
                log::warn!("{error}");
                Ok(Step::Nothing)
            }
            Some(Err(error)) => {
                self.inputs.pop_front();
                Err(error)
            }
        }
    }

    /// The seed of a line, which stands at this place.
    fn seed(&mut self, line: &str, place: impl FnOnce() -> String) -> Step {
        match read(line) {
            Ok(Some(request)) => Step::Seed(request),
            Ok(None) => Step::Nothing,
            Err(error) => {
                self.bad += 1;
                log::warn!("{}: {error}", place());
                Step::Nothing
            }
        }
    }
}

/// A line's request. Admission would refuse a URL that cannot be read too, but knows no line number.
fn read(line: &str) -> Result<Option<Request>, String> {
    let request = Request::from_line(line).map_err(|error| error.to_string())?;
    if let Some(request) = &request {
        CrawlUrl::parse(&request.url).map_err(|error| format!("{:?}: {error}", request.url))?;
    }
    Ok(request)
}

/// The thread that feeds a crawl.
pub struct Feeder {
    thread: JoinHandle<Unfed>,
    failure: Receiver<String>,
    is_at_pipe: Arc<AtomicBool>,
}

/// Seeds that a crawl did not take before its end.
pub struct Unfed {
    held: VecDeque<Request>,
    seeds: Seeds,
    /// When reading of pipes stops, once known.
    until: Option<Instant>,
    /// The first error that stopped the reading of a file.
    failure: Option<String>,
}

impl Feeder {
    /// The error that ended the seeds early, if any.
    pub fn failure(&self) -> Option<String> {
        self.failure.try_recv().ok()
    }

    /// The seeds that the crawl had not taken when it ended. A pipe that has neither data nor an end
    /// soon is not waited for: then there are none, since every line before it was passed to the crawl.
    /// A pipe without an end is read for `patience`.
    pub fn unfed(self, patience: Duration) -> Option<Unfed> {
        let mut failure = None;
        if !self.ends_soon(&mut failure) {
            warn_of_silence();
            return None;
        }
        let mut unfed = self.thread.join().ok()?;
        // It may have failed since the crawl ended.
        unfed.failure = failure.or_else(|| self.failure.try_recv().ok());
        unfed.until = Some(Instant::now() + patience);
        Some(unfed)
    }

    /// Whether the thread ends: its end of the channel goes with it. It does not while it waits for a
    /// pipe. Notes why, if it fails.
    fn ends_soon(&self, failure: &mut Option<String>) -> bool {
        loop {
            match self.failure.recv_timeout(PIPE_PATIENCE) {
                Ok(why) => *failure = Some(why),
                Err(RecvTimeoutError::Disconnected) => return true,
                Err(RecvTimeoutError::Timeout) if self.is_at_pipe.load(Ordering::SeqCst) => {
                    return false;
                }
                // The thread reads a regular file, which has an end, or submits a seed, where it stops.
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

impl Unfed {
    /// The error that stopped the reading of a file, if any.
    pub fn failure(self) -> Option<String> {
        self.failure
    }
}

impl Iterator for Unfed {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if let Some(held) = self.held.pop_front() {
            return Some(held);
        }
        loop {
            if self.seeds.pauses() {
                warn_of_silence();
                self.seeds.inputs.pop_front();
            } else if self.seeds.is_pipe_next() && self.until.is_some_and(|at| at <= Instant::now())
            {
                log::warn!(
                    "--seeds: a pipe has no end (STOP_GRACE); what was not read of it is saved nowhere"
                );
                self.seeds.inputs.clear();
            }
            match self.seeds.next() {
                Ok(request) => return request,
                // The next file may be whole.
                Err(error) => {
                    let error = format!("--seeds: {error}");
                    log::warn!("{error}");
                    self.failure.get_or_insert(error);
                }
            }
        }
    }
}

fn warn_of_silence() {
    log::warn!("--seeds: a pipe has neither data nor an end; what it gives later is saved nowhere");
}

/// How long a pipe may take to give a line or its end, once the crawl is over.
const PIPE_PATIENCE: Duration = Duration::from_millis(300);

/// Submits seeds from a separate thread until they end.
///
/// The first seeds are looked at before anything is sent: a crawl of many public hosts that names
/// no contact does not begin. Where seeds come one by one through a pipe it ends at the host that is
/// one too many.
///
/// `None` where a signal asks to stop before anything was passed to the crawl.
///
/// # Errors
/// No contact is given for a crawl of many public hosts.
pub fn feed(
    mut seeds: Seeds,
    handle: Handle,
    config: &Config,
    received: &Received,
) -> Result<Option<Feeder>, anyhow::Error> {
    let mut public = PublicHosts::new(config);
    let mut first = VecDeque::new();
    let mut failed = None;
    // Where no contact is missing, nothing but the first is waited for: seeds may trickle in.
    let looked_at = if public.counts_names() {
        LOOKED_AT_FIRST
    } else {
        1
    };
    while first.len() < looked_at && (first.is_empty() || !seeds.pauses()) {
        if received.stops() > 0 {
            return Ok(None);
        }
        match seeds.step() {
            Ok(Step::Seed(request)) => {
                if !admits(&mut public, &request) {
                    return Err(no_contact().into());
                }
                first.push_back(request);
            }
            Ok(Step::Nothing) => {}
            Ok(Step::End) => break,
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    if let Some(error) = failed {
        return Err(Usage(format!("--seeds: {error}")).into());
    }
    if first.is_empty() {
        return Err(Usage(
            "the seeds hold no URL; write one a line, like https://example.com/".to_owned(),
        )
        .into());
    }
    let (say, failure) = sync_channel(1);
    let is_at_pipe = Arc::clone(&seeds.is_at_pipe);
    let thread = thread::Builder::new()
        .name("seeds".to_owned())
        .spawn(move || {
            let fail = |what: String| {
                let _ = say.try_send(what);
                handle.stopper().stop();
            };
            let mut held = first;
            loop {
                handle.count_bad_seeds(std::mem::take(&mut seeds.bad));
                let request = match held.pop_front() {
                    Some(looked_at) => looked_at,
                    None => match seeds.next() {
                        Ok(Some(request)) => request,
                        Ok(None) => break,
                        Err(error) => {
                            fail(format!("--seeds: {error}"));
                            break;
                        }
                    },
                };
                if !admits(&mut public, &request) {
                    fail(no_contact().0);
                    held.push_front(request);
                    break;
                }
                if let Err(CrawlOver(request)) = handle.submit_seed(request) {
                    held.push_front(*request);
                    break;
                }
            }
            handle.count_bad_seeds(std::mem::take(&mut seeds.bad));
            Unfed {
                held,
                seeds,
                until: None,
                failure: None,
            }
        })?;
    Ok(Some(Feeder {
        thread,
        failure,
        is_at_pipe,
    }))
}

/// Returns whether requests to the seed's host are allowed. Invalid URLs are reported elsewhere.
fn admits(public: &mut PublicHosts, request: &Request) -> bool {
    CrawlUrl::parse(&request.url).map_or(true, |url| public.admits(&url))
}

/// A crawl of too many public hosts names no contact.
fn no_contact() -> Usage {
    Usage(format!(
        "a crawl of more than {PUBLIC_HOSTS_MAX} public hosts must name a contact; \
         add --contact with a URL or mail address that their owners can turn to"
    ))
}
