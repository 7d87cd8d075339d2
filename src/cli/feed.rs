//! From the command line's URLs and seeds files to the crawl, in a thread of its own.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use argiope::settings::{PUBLIC_HOSTS_MAX, PublicHosts};
use argiope::{Closed, Config, CrawlUrl, Handle, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Usage;
use super::seeds::{self, SeedLine, SeedLines, SeedLinesError};

/// The requests to begin with, one after the other: the URLs named, then each file's lines. Standard
/// input comes behind all files, whatever their order was: it may be silent, and none waits for it.
pub struct Seeds {
    named: VecDeque<String>,
    files: VecDeque<(String, SeedLines<Box<dyn std::io::Read + Send>>)>,
    /// Lines that were no seed.
    bad: u64,
}

/// Seeds looked at for public hosts before the first is sent.
const LOOKED_AT_FIRST: usize = 10_000;
/// Who says nothing for so long waits for an answer to what was said before.
const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

impl Seeds {
    /// Opens every file now, so that one that cannot be read is a usage error and not a late surprise.
    pub fn open(urls: &[String], files: &[std::path::PathBuf]) -> Result<Self, Usage> {
        let open = |path: &Path| {
            let name = path.display().to_string();
            seeds::open(&name)
                .map(|lines| (name, lines))
                .map_err(|error| Usage(format!("--seeds: {error}")))
        };
        let (stdin, files): (Vec<_>, Vec<_>) =
            (files.iter()).partition(|path| path.as_os_str() == "-");
        Ok(Seeds {
            named: urls.iter().cloned().collect(),
            files: (files.into_iter().chain(stdin))
                .map(|path| open(path))
                .collect::<Result<_, _>>()?,
            bad: 0,
        })
    }

    /// Whether some of it comes from standard input, which may make us wait.
    fn reads_stdin(&self) -> bool {
        self.files.iter().any(|(name, _)| name == "-")
    }

    /// Whether standard input is next.
    fn is_at_stdin(&self) -> bool {
        let next = self.files.front();
        self.named.is_empty() && next.is_some_and(|(name, _)| name == "-")
    }

    /// Whether standard input is next, and says nothing for a while.
    fn pauses(&self) -> bool {
        let Some((_, lines)) = self.files.front() else {
            return false;
        };
        if !self.is_at_stdin() || lines.is_at_hand() {
            return false;
        }
        let stdin = io::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&PAUSE)), Ok(0))
    }

    /// The next request; lines that are none are named, counted, and passed over.
    ///
    /// # Errors
    /// A file cannot be read any further.
    fn next(&mut self) -> Result<Option<Request>, SeedLinesError> {
        while let Some(url) = self.named.pop_front() {
            match read(&url) {
                Ok(Some(request)) => return Ok(Some(request)),
                Ok(None) => {}
                Err(error) => self.name_bad(&url, &error),
            }
        }
        while let Some((name, lines)) = self.files.front_mut() {
            match lines.next() {
                None => {
                    self.files.pop_front();
                }
                Some(Ok(SeedLine { number, text })) => match read(&text) {
                    Ok(Some(request)) => return Ok(Some(request)),
                    Ok(None) => {}
                    Err(error) => {
                        let place = format!("{name}:{number}");
                        self.name_bad(&place, &error);
                    }
                },
                Some(Err(error)) if error.is_of_one_line() => {
                    self.bad += 1;
                    log::warn!("{error}");
                }
                Some(Err(error)) => {
                    self.files.pop_front();
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    fn name_bad(&mut self, place: &str, error: &str) {
        self.bad += 1;
        log::warn!("{place}: {error}");
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
    may_block: bool,
}

/// Seeds that a crawl did not take before its end.
pub struct Unfed {
    held: VecDeque<Request>,
    seeds: Seeds,
    /// When standard input is read no further, once that is known.
    until: Option<Instant>,
    /// Why a file was not read to its end: the first, where there are several.
    failure: Option<String>,
}

impl Feeder {
    /// Why the seeds ended before their end, if they did.
    pub fn failure(&self) -> Option<String> {
        self.failure.try_recv().ok()
    }

    /// The seeds that the crawl had not taken when it ended. If standard input has neither data nor an
    /// end soon, it is not waited for: every line read from it so far was passed to the crawl, and so
    /// was every file. Standard input that goes on is read for `patience`.
    pub fn unfed(self, patience: Duration) -> Option<Unfed> {
        let mut failure = None;
        if self.may_block && !self.ends_soon(&mut failure) {
            warn_of_silence();
            return None;
        }
        let mut unfed = self.thread.join().ok()?;
        // It may have failed since the crawl ended.
        unfed.failure = failure.or_else(|| self.failure.try_recv().ok());
        unfed.until = Some(Instant::now() + patience);
        Some(unfed)
    }

    /// Whether the thread ends before patience does: its end of the channel goes with it. Notes why, if
    /// it fails.
    fn ends_soon(&self, failure: &mut Option<String>) -> bool {
        let patience = Instant::now() + STDIN_PATIENCE;
        loop {
            let left = patience.saturating_duration_since(Instant::now());
            match self.failure.recv_timeout(left) {
                Ok(why) => *failure = Some(why),
                Err(error) => return error == RecvTimeoutError::Disconnected,
            }
        }
    }
}

impl Unfed {
    /// Why a file was not read to its end, if one was not.
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
            // Behind it there is no file.
            if self.seeds.pauses() {
                warn_of_silence();
                self.seeds.files.clear();
            } else if self.seeds.is_at_stdin() && self.until.is_some_and(|at| at <= Instant::now())
            {
                log::warn!(
                    "--seeds: standard input goes on and on (STOP_GRACE); what was not read of it \
                     is in no file"
                );
                self.seeds.files.clear();
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
    log::warn!(
        "--seeds: standard input has neither data nor an end; what comes of it later is in no file"
    );
}

/// How long standard input may take to say that it has no more, once the crawl is over.
const STDIN_PATIENCE: Duration = Duration::from_millis(300);

/// Feeds a crawl from a thread of its own until the seeds end.
///
/// The first seeds are looked at before anything is sent: a crawl of many public hosts that names
/// no contact does not begin. Where seeds come one by one through a pipe it ends at the host that is
/// one too many.
///
/// # Errors
/// No contact is given for a crawl of many public hosts.
pub fn feed(mut seeds: Seeds, handle: Handle, config: &Config) -> Result<Feeder, anyhow::Error> {
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
        match seeds.next() {
            Ok(Some(request)) => {
                if !admits(&mut public, &request) {
                    return Err(no_contact().into());
                }
                first.push_back(request);
            }
            Ok(None) => break,
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
    let may_block = seeds.reads_stdin();
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
                if let Err(Closed(request)) = handle.submit_seed(request) {
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
    Ok(Feeder {
        thread,
        failure,
        may_block,
    })
}

/// Whether the host of a seed may be asked. What is no URL is refused elsewhere.
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
