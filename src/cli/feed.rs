//! Submits the URLs of the command line and of seeds files to the crawl, from a separate thread.

mod form;

use std::collections::VecDeque;
use std::fmt::Display;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use argiope::settings::{HostsBound, Lack, PublicHosts};
use argiope::{AdmitError, Config, CrawlUrl, Handle, Request, SeedError, SubmitError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use self::form::Form;
use super::Usage;
use super::rejected::Rejected;
use super::seeds::{self, SeedLine, SeedLines, SeedLinesError, is_read_last};
use super::signals::Received;

/// Iterator of the seeds: the URLs of the command line, then the lines of each file. Pipes are read after
/// all regular files, whatever their order on the command line, because reading a pipe may block.
pub struct Seeds {
    named: VecDeque<String>,
    inputs: VecDeque<Input>,
    /// Number of invalid lines that the crawl has not counted yet.
    bad: u64,
    rejected: Rejected,
    /// Whether a pipe is being read, which may block indefinitely.
    is_at_pipe: Arc<AtomicBool>,
    /// The position of the first line of a pipe; `u64::MAX` before there is one.
    pipe_from: Arc<AtomicU64>,
    /// Number of URLs and lines taken. What follows a file that may be read to its end later is not counted: the run
    /// that resumes the crawl takes it again.
    position: u64,
    /// Whether there was such a file.
    is_incomplete: bool,
    /// Bytes of the lines that pipes delivered.
    pipe_bytes: u64,
    /// The seeds after these.
    then: Option<Box<Seeds>>,
}

/// A file or pipe of seeds.
struct Input {
    name: Arc<str>,
    lines: SeedLines<File>,
    /// Whether it is not a regular file: reading may block indefinitely.
    is_pipe: bool,
    form: Form,
}

/// Result of one line.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is taken apart at once"
)]
enum Step {
    Seed(Seed),
    /// A comment or an invalid line.
    Nothing,
    End,
}

/// The request of a line. Whether it can be sent is checked later.
struct Seed {
    request: Request,
    /// Its file and line; `None` for a URL of the command line.
    line: Option<(Arc<str>, u64)>,
    /// Its position in the list of all seeds, from 1.
    position: u64,
    /// Whether a pipe delivered it: no later run can read it again.
    is_of_pipe: bool,
}

/// Seeds that are checked for public hosts before the first request is sent.
const LOOKED_AT_FIRST: usize = 10_000;
/// Time without data after which the writer of a pipe is assumed to wait for results of earlier seeds.
const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

impl Seeds {
    /// Opens every file, so that an unreadable one, and one that is no list, is a usage error before the crawl starts.
    pub fn open(urls: &[String], files: &[PathBuf]) -> Result<Self, Usage> {
        Seeds::open_as(urls, files, |path, lines| match is_read_last(path) {
            // It may block: it is checked when its first line is read.
            true => Ok((lines, true)),
            false => Ok((lines.checked()?, false)),
        })
    }

    /// Opens regular files, wherever they are, that the state of a crawl has. An earlier run took lines of them, so that
    /// they are not checked.
    pub fn open_regular(urls: &[String], files: &[PathBuf]) -> Result<Self, Usage> {
        Seeds::open_as(urls, files, |_, lines| Ok((lines.unchecked(), false)))
    }

    fn open_as(
        urls: &[String],
        files: &[PathBuf],
        prepare: impl Fn(&Path, SeedLines<File>) -> Result<(SeedLines<File>, bool), SeedLinesError>,
    ) -> Result<Self, Usage> {
        let open = |path: &PathBuf| {
            let lines = seeds::open(&path.display().to_string(), "argiope crawl --seeds -");
            let prepared = lines.and_then(|lines| prepare(path, lines));
            let (lines, is_pipe) = prepared.map_err(|error| Usage(format!("--seeds: {error}")))?;
            Ok(Input {
                name: lines.name().into(),
                lines,
                is_pipe,
                form: Form::default(),
            })
        };
        let inputs = files.iter().map(open).collect::<Result<Vec<_>, Usage>>()?;
        let (pipes, files): (Vec<_>, Vec<_>) = inputs.into_iter().partition(|input| input.is_pipe);
        Ok(Seeds {
            named: urls.iter().cloned().collect(),
            inputs: files.into_iter().chain(pipes).collect(),
            bad: 0,
            rejected: Rejected::default(),
            is_at_pipe: Arc::default(),
            pipe_from: Arc::new(AtomicU64::new(u64::MAX)),
            position: 0,
            is_incomplete: false,
            pipe_bytes: 0,
            then: None,
        })
    }

    /// These seeds, then `others`.
    pub fn then(mut self, others: Seeds) -> Self {
        let others = match self.then.take() {
            Some(then) => then.then(others),
            None => others,
        };
        self.then = Some(Box::new(others));
        self
    }

    /// The seeds that can never be sent.
    pub fn rejected(&self) -> Rejected {
        self.rejected.clone()
    }

    /// Skips what an earlier run took: so many URLs and lines. Returns how many there were: fewer where it
    /// read a pipe, too. A damaged file is skipped as far as it was read; the earlier run has reported it.
    ///
    /// # Errors
    /// Reading a file failed.
    pub fn skip(&mut self, count: u64) -> Result<u64, SeedLinesError> {
        while self.position < count {
            match self.take() {
                Taken::End => break,
                Taken::Failed(error) if error.is_of_machine() => return Err(error),
                Taken::Failed(error) => log::debug!("{error}"),
                Taken::Url(_)
                | Taken::Line(..)
                | Taken::BadRow(..)
                | Taken::BadLine(..)
                | Taken::FileEnd => {}
            }
        }
        Ok(self.position)
    }

    /// Splits off the pipes.
    fn split_pipes(&mut self) -> Self {
        let (rejected, is_at_pipe) = (self.rejected.clone(), Arc::clone(&self.is_at_pipe));
        let pipe_from = Arc::clone(&self.pipe_from);
        let position = self.position;
        let mut pipes = VecDeque::new();
        let mut part = Some(self);
        while let Some(seeds) = part {
            let inputs = std::mem::take(&mut seeds.inputs);
            let (own, files): (VecDeque<_>, _) = inputs.into_iter().partition(|own| own.is_pipe);
            seeds.inputs = files;
            pipes.extend(own);
            part = seeds.then.as_deref_mut();
        }
        Seeds {
            named: VecDeque::new(),
            inputs: pipes,
            bad: 0,
            rejected,
            is_at_pipe,
            pipe_from,
            position,
            is_incomplete: false,
            pipe_bytes: 0,
            then: None,
        }
    }

    /// Whether a pipe is next.
    fn is_pipe_next(&self) -> bool {
        self.named.is_empty() && self.inputs.front().is_some_and(|input| input.is_pipe)
    }

    /// Whether a pipe is next, and has had no data for [`PAUSE`].
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

    /// Logs and counts a seed that can never be sent.
    fn reject(&mut self, seed: &Seed, why: &AdmitError) {
        self.bad += u64::from(seed.report(why, &self.rejected));
    }

    /// Logs and counts a line that is no seed, unless an earlier run of the crawl has done so.
    fn reject_line(
        &mut self,
        place: Option<(&str, u64)>,
        text: Option<&str>,
        why: &dyn Display,
        is_of_pipe: bool,
    ) {
        if is_of_pipe || !self.rejected.is_known(place, text) {
            self.bad += 1;
            self.rejected.add(place, text, why);
        }
    }

    /// Takes one URL or line.
    fn step(&mut self) -> Result<Step, SeedLinesError> {
        let (text, line, is_of_pipe) = match self.take() {
            Taken::Url(url) => (url, None, false),
            Taken::Line(name, line, is_of_pipe) => {
                (line.text, Some((name, line.number)), is_of_pipe)
            }
            Taken::BadRow(name, line, (text, error), is_of_pipe) => {
                let place = Some((&*name, line));
                self.reject_line(place, Some(&text), &error, is_of_pipe);
                return Ok(Step::Nothing);
            }
            Taken::BadLine(error, is_of_pipe) => {
                let (place, why) = error.place_and_reason();
                self.reject_line(place, None, &why, is_of_pipe);
                return Ok(Step::Nothing);
            }
            Taken::FileEnd => return Ok(Step::Nothing),
            Taken::Failed(error) => return Err(error),
            Taken::End => return Ok(Step::End),
        };
        let position = self.position;
        Ok(match Request::from_line(&text) {
            Ok(Some(request)) => Step::Seed(Seed {
                request,
                line,
                position,
                is_of_pipe,
            }),
            Ok(None) => Step::Nothing,
            Err(error) => {
                let place = line.as_ref().map(|(name, number)| (&**name, *number));
                self.reject_line(place, Some(&text), &error, is_of_pipe);
                Step::Nothing
            }
        })
    }

    /// Takes one URL or line, and counts it.
    fn take(&mut self) -> Taken {
        if let Some(url) = self.named.pop_front() {
            self.position += u64::from(!self.is_incomplete);
            return Taken::Url(url);
        }
        let Some(Input {
            name,
            lines,
            is_pipe,
            form,
        }) = self.inputs.front_mut()
        else {
            let Some(then) = self.then.take() else {
                return Taken::End;
            };
            self.named = then.named;
            self.inputs = then.inputs;
            self.then = then.then;
            return Taken::FileEnd;
        };
        self.is_at_pipe.store(*is_pipe, Ordering::SeqCst);
        let line = lines.next();
        self.is_at_pipe.store(false, Ordering::SeqCst);
        self.is_incomplete |= matches!(&line, Some(Err(error)) if error.is_of_machine());
        self.position += u64::from(line.is_some() && !self.is_incomplete);
        if *is_pipe && let Some(line) = &line {
            self.pipe_from.fetch_min(self.position, Ordering::SeqCst);
            // With its end.
            self.pipe_bytes += 1 + line.as_ref().map_or(0, |line| line.text.len() as u64);
        }
        match line {
            None => {
                self.inputs.pop_front();
                Taken::FileEnd
            }
            Some(Ok(SeedLine { number, text })) => match form.seed(text) {
                Ok(text) => Taken::Line(Arc::clone(name), SeedLine { number, text }, *is_pipe),
                Err(why) => Taken::BadRow(Arc::clone(name), number, why, *is_pipe),
            },
            Some(Err(error)) if error.is_of_one_line() => Taken::BadLine(error, *is_pipe),
            Some(Err(error)) => {
                self.inputs.pop_front();
                Taken::Failed(error)
            }
        }
    }
}

/// What was taken from the seeds.
enum Taken {
    /// A URL of the command line.
    Url(String),
    /// A line of the file of this name, and whether that is a pipe.
    Line(Arc<str>, SeedLine, bool),
    /// A row without a seed: its file, number, text and error, and whether it is of a pipe.
    BadRow(Arc<str>, u64, (String, SeedError), bool),
    /// A line that cannot be a seed, and whether it is of a pipe.
    BadLine(SeedLinesError, bool),
    /// A file has ended.
    FileEnd,
    /// A file cannot be read on.
    Failed(SeedLinesError),
    /// All have ended.
    End,
}

impl Seed {
    /// Reports why it can never be sent. Returns false if an earlier run of the crawl has done so.
    fn report(&self, why: &AdmitError, to: &Rejected) -> bool {
        let url = &self.request.url;
        let place = (self.line.as_ref()).map(|(name, number)| (&**name, *number));
        if !self.is_of_pipe && to.is_known(place, Some(url)) {
            return false;
        }
        let why = match why {
            AdmitError::Url(error) if place.is_some() => format!("{url:?}: {error}"),
            other => other.to_string(),
        };
        to.add(place, Some(url), &why);
        true
    }
}

/// The thread that submits seeds to a crawl.
pub struct Feeder {
    thread: JoinHandle<Unfed>,
    failure: Receiver<String>,
    is_at_pipe: Arc<AtomicBool>,
    pipe_from: Arc<AtomicU64>,
}

/// Seeds that the crawl had not accepted when it ended.
pub struct Unfed {
    held: VecDeque<Seed>,
    seeds: Seeds,
    /// How long pipes are read; `None`: to their end.
    drain: Option<Drain>,
    /// The first error that stopped the reading of a file.
    failure: Option<String>,
    /// Whether the crawl can be resumed.
    is_resumable: bool,
}

impl Feeder {
    /// The error that ended the seeds early, or else the first of a file that cannot be read to its end, if any.
    pub fn failure(&self) -> Option<String> {
        self.failure.try_iter().last()
    }

    /// Whether a pipe delivered the seed at this position.
    pub fn is_of_pipe(&self) -> impl Fn(u64) -> bool + use<> {
        // Pipes are read last.
        let first = self.pipe_from.load(Ordering::SeqCst);
        move |position| position >= first
    }

    /// The seeds that the crawl had not accepted when it ended. `None` if the thread is blocked on a pipe for
    /// longer than [`PIPE_PATIENCE`]: it had submitted every line before. A pipe that does not end is read for
    /// `patience`, up to [`DRAINED_MAX`], and no longer than to a second stop signal.
    pub fn unfed(self, patience: Duration, received: &Received) -> Option<Unfed> {
        let mut failure = None;
        if !self.ends_soon(&mut failure) {
            warn_silent_pipe();
            return None;
        }
        let mut unfed = self.thread.join().ok()?;
        // The thread may have failed after the crawl ended.
        unfed.failure = self.failure.try_iter().last().or(failure);
        unfed.drain = Some(Drain {
            until: Instant::now() + patience,
            received: received.clone(),
        });
        Some(unfed)
    }

    /// Waits for the thread to end, which closes its channel; false if it stays blocked on a pipe. Stores its
    /// error in `failure`.
    fn ends_soon(&self, failure: &mut Option<String>) -> bool {
        loop {
            match self.failure.recv_timeout(PIPE_PATIENCE) {
                Ok(why) => *failure = Some(why),
                Err(RecvTimeoutError::Disconnected) => return true,
                Err(RecvTimeoutError::Timeout) if self.is_at_pipe.load(Ordering::SeqCst) => {
                    return false;
                }
                // The thread reads a regular file, which ends, or submits a seed, which fails after the crawl.
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

/// Up to when the pipes of a crawl that has ended are read.
#[derive(Clone, Debug)]
struct Drain {
    until: Instant,
    received: Received,
}

impl Drain {
    /// Why no more is read of a pipe that has delivered so many bytes since, if that is so.
    fn end(&self, bytes: u64) -> Option<&'static str> {
        if self.received.stops() >= 2 {
            Some("a pipe did not end before a second signal")
        } else if bytes >= DRAINED_MAX {
            Some("a pipe has more than 256 MiB beyond what the crawl took")
        } else if self.until <= Instant::now() {
            Some("a pipe did not end within STOP_GRACE")
        } else {
            None
        }
    }
}

impl Unfed {
    /// All of these seeds.
    pub fn all_of(seeds: Seeds) -> Self {
        Unfed {
            held: VecDeque::new(),
            seeds,
            drain: None,
            failure: None,
            is_resumable: true,
        }
    }

    /// Splits off what pipes deliver.
    pub fn split_pipes(&mut self) -> Self {
        let held = std::mem::take(&mut self.held).into_iter();
        let (pipes, files): (VecDeque<_>, _) = held.partition(|seed| seed.is_of_pipe);
        self.held = files;
        Unfed {
            held: pipes,
            seeds: self.seeds.split_pipes(),
            drain: self.drain.clone(),
            failure: None,
            is_resumable: self.is_resumable,
        }
    }

    /// The error that stopped the reading of a file, if any.
    pub fn failure(self) -> Option<String> {
        self.failure
    }
}

impl Iterator for Unfed {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if let Some(held) = self.held.pop_front() {
            return Some(held.request);
        }
        loop {
            if self.seeds.pauses() {
                warn_silent_pipe();
                self.seeds.inputs.pop_front();
            } else if self.seeds.is_pipe_next()
                && let Some(drain) = &self.drain
                && let Some(why) = drain.end(self.seeds.pipe_bytes)
            {
                log::warn!("--seeds: {why}; its unread lines are not saved");
                self.seeds.inputs.clear();
            }
            // One line at a time: comments may have no end, either.
            match self.seeds.step() {
                Ok(Step::Seed(seed)) => match CrawlUrl::parse(&seed.request.url) {
                    Ok(_) => return Some(seed.request),
                    Err(error) => self.seeds.reject(&seed, &AdmitError::Url(error)),
                },
                Ok(Step::Nothing) => {}
                Ok(Step::End) => return None,
                // Continue with the next file.
                Err(error) => {
                    let error = of_file(&error, self.is_resumable);
                    log::warn!("{error}");
                    self.failure.get_or_insert(error);
                }
            }
        }
    }
}

fn warn_silent_pipe() {
    log::warn!(
        "--seeds: a pipe has no data and did not end; lines that arrive later are not saved"
    );
}

/// Maximum time that a pipe may be without data after the crawl has ended.
const PIPE_PATIENCE: Duration = Duration::from_millis(300);

/// Bytes of a pipe that are saved after the crawl has ended: they are written twice, to the state and to pending.jsonl.
const DRAINED_MAX: u64 = 256 << 20;

/// The crawl that is given seeds.
#[derive(Clone, Copy, Debug)]
pub struct FeedOf {
    /// Whether it is resumed: it may have no seeds.
    pub is_resumed: bool,
    /// Whether it has a state, from which it can be resumed.
    pub is_resumable: bool,
}

/// Submits seeds from a separate thread until they end.
///
/// The first seeds are checked before anything is sent: a crawl of more public hosts than its [`HostsBound`] does not
/// start. If seeds arrive slowly through a pipe, the crawl ends at
/// the first host above the limit.
///
/// A file that cannot be read to its end is reported, and the next one is read.
///
/// `None` if a stop signal arrives before the first seed is submitted.
///
/// # Errors
/// The seeds have too many public hosts for a crawl without a contact; or the crawl is new, and there are none, or
/// they cannot be read.
pub fn feed(
    mut seeds: Seeds,
    handle: Handle,
    config: &Config,
    received: &Received,
    of: FeedOf,
) -> Result<Option<Feeder>, anyhow::Error> {
    let FeedOf {
        is_resumed,
        is_resumable,
    } = of;
    let mut public = PublicHosts::new(config);
    let mut first = VecDeque::new();
    let mut failed = Vec::new();
    // With a contact, only the first seed is awaited, because a pipe may deliver the others slowly.
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
            Ok(Step::Seed(seed)) => match CrawlUrl::parse(&seed.request.url) {
                Ok(url) if public.admits(&url) => first.push_back(seed),
                Ok(_) => return Err(too_many(&public).into()),
                Err(error) => seeds.reject(&seed, &AdmitError::Url(error)),
            },
            Ok(Step::Nothing) => {}
            Ok(Step::End) => break,
            Err(error) => {
                failed.push(error);
                if seeds.is_incomplete && is_resumable {
                    break;
                }
            }
        }
    }
    if let (Some(error), true, false) = (failed.first(), first.is_empty(), is_resumed) {
        // There is no crawl to be resumed.
        return Err(Usage(format!("--seeds: {error}")).into());
    }
    let mut failures = Vec::new();
    for error in failed {
        let error = of_file(&error, is_resumable);
        log::warn!("{error}");
        failures.push(error);
    }
    if first.is_empty() && !is_resumed {
        let invalid = match seeds.rejected.count() {
            0 => String::new(),
            1 => " (1 line is invalid)".to_owned(),
            count => format!(" ({count} lines are invalid)"),
        };
        return Err(Usage(format!(
            "the seeds contain no URL{invalid}; give one per line, like https://example.com/"
        ))
        .into());
    }
    // One of a file, and one that ends the seeds.
    let (report, failure) = sync_channel(2);
    let file_report = report.clone();
    let is_at_pipe = Arc::clone(&seeds.is_at_pipe);
    let pipe_from = Arc::clone(&seeds.pipe_from);
    let thread = thread::Builder::new()
        .name("seeds".to_owned())
        .spawn(move || {
            let mut has_failed = false;
            let mut report_file = |error: String| {
                if !std::mem::replace(&mut has_failed, true) {
                    let _ = file_report.try_send(error);
                }
            };
            failures.into_iter().for_each(&mut report_file);
            let fail = |what: String| {
                let _ = report.try_send(what);
                handle.stopper().stop();
            };
            let mut held = first;
            loop {
                handle.count_bad_seeds(std::mem::take(&mut seeds.bad));
                if held.is_empty() && seeds.is_incomplete && is_resumable {
                    // The run that resumes the crawl takes all from there: none is taken twice.
                    break;
                }
                let Seed {
                    request,
                    line,
                    position,
                    is_of_pipe,
                } = match held.pop_front() {
                    Some(checked) => checked,
                    None => match seeds.step() {
                        Ok(Step::Seed(seed)) => seed,
                        Ok(Step::Nothing) => continue,
                        Ok(Step::End) => {
                            if !seeds.is_incomplete {
                                handle.end_seeds();
                            }
                            break;
                        }
                        Err(error) => {
                            let error = of_file(&error, is_resumable);
                            log::warn!("{error}");
                            report_file(error);
                            continue;
                        }
                    },
                };
                if !admits(&mut public, &request) {
                    fail(too_many(&public).0);
                    held.push_front(Seed {
                        request,
                        line,
                        position,
                        is_of_pipe,
                    });
                    break;
                }
                match handle.submit_seed_at(request, position) {
                    Ok(()) => {}
                    Err(SubmitError::Rejected { request, why }) => {
                        let request = *request;
                        Seed {
                            request,
                            line,
                            position,
                            is_of_pipe,
                        }
                        .report(&why, &seeds.rejected);
                    }
                    Err(over) => {
                        let request = over.into_request();
                        held.push_front(Seed {
                            request,
                            line,
                            position,
                            is_of_pipe,
                        });
                        break;
                    }
                }
            }
            handle.count_bad_seeds(std::mem::take(&mut seeds.bad));
            Unfed {
                held,
                seeds,
                drain: None,
                failure: None,
                is_resumable,
            }
        })?;
    Ok(Some(Feeder {
        thread,
        failure,
        is_at_pipe,
        pipe_from,
    }))
}

/// The error of a file that cannot be read to its end, and what can be done.
fn of_file(error: &SeedLinesError, is_resumable: bool) -> String {
    if let SeedLinesError::NotLines { .. } = error {
        return format!("--seeds: {error}");
    }
    let remedy = match (error.is_of_machine(), is_resumable) {
        (true, true) => "once it can be read, continue with --resume",
        (false, true) => "add a mended copy of it with --resume --seeds COPY",
        (_, false) => "mend it, and crawl the rest of it by another --seeds",
    };
    format!("--seeds: {error}: {remedy}")
}

/// Returns whether requests to the seed's host are allowed. Invalid URLs are reported elsewhere.
fn admits(public: &mut PublicHosts, request: &Request) -> bool {
    !public.counts() || CrawlUrl::parse(&request.url).map_or(true, |url| public.admits(&url))
}

/// The error of a crawl of too many public hosts.
fn too_many(public: &PublicHosts) -> Usage {
    let bound = public.bound().expect("hosts are refused at a bound");
    let HostsBound { most, .. } = bound;
    Usage(match bound.lack {
        Lack::Contact => format!(
            "a crawl of more than {most} public hosts needs a contact; \
             add --contact with your URL or mail address for site operators"
        ),
        Lack::Robots => format!(
            "--ignore-robots: the seeds have more than {most} public hosts; {}",
            bound.remedy()
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_state_of_a_crawl_has_is_read_whatever_it_begins_with() {
        let folder = tempfile::tempdir().expect("a folder");
        for begins in ["<br>\n", "a\0b\n", "[\"a.test\"]\n"] {
            let path = folder.path().join("seeds");
            std::fs::write(&path, format!("{begins}http://b.test/\n")).expect("a file");
            let path = [path];
            assert!(Seeds::open(&[], &path).is_err(), "{begins:?}");
            let mut seeds = Seeds::open_regular(&[], &path).expect("it is opened");
            // That line was taken by an earlier run.
            assert_eq!(seeds.skip(1).ok(), Some(1), "{begins:?}");
            let urls = Unfed::all_of(seeds).map(|request| request.url);
            assert!(urls.eq(["http://b.test/".to_owned()]), "{begins:?}");
        }
    }
}
