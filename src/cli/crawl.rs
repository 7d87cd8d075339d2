//! `argiope crawl`: crawls from URLs and seeds files into an output directory.

use std::fs::{self, File, Metadata};
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::Context;
use argiope::FinishReason;
use argiope::settings::SettingSource;
use argiope::sink::directory::{self, DirectoryError, DirectoryLock, InUse, NewFolders};
use argiope::sink::files::{FileSink, FileSinkOptions, Results, Rotation, WarcOptions};
use argiope::{Builder, Config, Crawler, Filtered, Progress, SetUpError, State, StateError, Turn};
use serde_json::Value;

use super::Usage;
use super::admin;
use super::allocator;
use super::args::Crawl;
use super::cdxj;
use super::closing::{self, Closing};
use super::environment;
use super::feed::{self, FeedOf, Seeds};
use super::filtered::FilteredLink;
use super::flag_values::FlagNames;
use super::hints;
use super::left;
use super::mistakes;
use super::pending;
use super::progress::Shown;
use super::rejected::{NAME as REJECTED, Rejected};
use super::reload::Sources;
use super::resume::{self, Resumed, RunInputs};
use super::room::{Room, is_full};
use super::signals::Received;
use super::stderr;
use super::stdout;
use super::summary::summary;

/// Runs the command; returns its exit code.
pub fn run(
    config: Config,
    args: Crawl,
    resumed: Option<Resumed>,
    received: Received,
) -> anyhow::Result<i32> {
    let args = Arc::new(args);
    let sources = Sources {
        args: Arc::clone(&args),
        stored: (resumed.as_ref()).map(|resumed| resumed.inputs.settings.clone()),
    };
    let to = match args.resume {
        true => mistakes::Given::Resume,
        false => mistakes::Given::Crawl,
    };
    mistakes::check_urls(&args.urls, to)?;
    mistakes::check_seeds(&args.seeds)?;
    check_outputs(&args)?;
    check_warc(&config, &args)?;
    let seeds = Seeds::open(&args.urls, &args.seeds)?;
    let inputs = inputs(&args.seeds)?;
    let continues_stdout = (resumed.as_ref()).is_some_and(|resumed| resumed.inputs.to_stdout);
    let to_stdout = args.results.is_some() || continues_stdout;
    if to_stdout {
        stdout::check()?;
    }
    let stdout = match to_stdout {
        true => Some(metadata_of(&io::stdout()).context("cannot look at standard output")?),
        false => None,
    };
    let out = match (&args.out, to_stdout && !args.resume) {
        (Some(out), _) => Some(out.clone()),
        (None, true) => None,
        (None, false) => Some(PathBuf::from("crawl")),
    };
    let mut options = sink_options(&config, out.as_deref(), to_stdout)?;
    let filtered = match (args.filtered_file(), &out) {
        (Some(file), Some(out)) => Some(FilteredLink::new(file, &config, out)?),
        _ => None,
    };
    // Dropped last: the crawler writes until it is dropped.
    let lock: Arc<OnceLock<DirectoryLock>> =
        (resumed.as_ref()).map_or_else(Arc::default, |resumed| Arc::clone(&resumed.lock));
    let is_resumed = resumed.is_some();
    // The hosts of all that has been given are sent what is for those of seeds.
    let earlier = (resumed.iter()).flat_map(|resumed| &resumed.inputs.lists);
    let (mut all_urls, mut has_lists) = (args.urls.clone(), !args.seeds.is_empty());
    for list in earlier {
        all_urls.extend_from_slice(&list.urls);
        has_lists |= list.has_files();
    }
    let mut given = RunInputs::of(&config, &args.urls, &args.seeds, to_stdout);
    let mut seeds = seeds;
    let in_use = InUse {
        inputs: &inputs,
        output: stdout.as_ref(),
    };
    let mut kept_inputs = Vec::new();
    if let (Some(out), false) = (&out, is_resumed) {
        kept_inputs = directory::kept_inputs(out, in_use).map_err(refused)?;
        given.follow(&kept_inputs);
    }
    let state = match (resumed, &out) {
        (Some(resumed), Some(out)) => {
            if !has_state(&config) {
                return Err(Usage("--resume: STATE is false; set it to true".to_owned()).into());
            }
            resumed.check_results(args.results.is_some(), out, stdout.as_ref())?;
            let Resumed {
                state,
                inputs: before,
                ..
            } = resumed;
            let locked = lock.get().expect("it is set");
            let is_finished =
                state.queued() == 0 && state.seeds_taken().is_none() && given.has_no_seeds();
            let continued = match is_finished {
                true => None,
                false => {
                    let given = (given, seeds);
                    let mut continued = Continued::new(&state, before, given, &inputs, out)?;
                    let kept = directory::kept_inputs_of_resumed(locked, &continued.files);
                    kept_inputs = kept.map_err(refused)?;
                    continued.inputs.follow(&kept_inputs);
                    Some(continued)
                }
            };
            // What is cut off says what was requested: a run that is refused leaves it to the next.
            let cut = match args.salvage {
                true => directory::salvage(locked, state.commit()),
                false => directory::resume(locked, state.commit()),
            };
            cut.map_err(refused)?;
            if let Some(stdout) = &stdout {
                resume::end_cut_line(stdout);
            }
            let unindexed = cdxj::missing(&config, out);
            let Some(continued) = continued else {
                if !unindexed.is_empty() {
                    let count = unindexed.len();
                    log::info!(
                        "{count} WARC files have no index, which is made now; a signal leaves the rest to later"
                    );
                }
                // A stop signal ends the process meanwhile, as before.
                for warc in &unindexed {
                    let _ = cdxj::make(warc);
                }
                if to_stdout {
                    let lines = resume::committed_lines(state.commit(), out).unwrap_or(0);
                    let line = format!("{{\"resumed_after\": {lines}}}\n");
                    io::stdout().write_all(line.as_bytes())?;
                }
                state.end();
                if !args.quiet {
                    let out = out.display();
                    stderr::write_line(&format!(
                        "the crawl in {out} is finished: nothing is left to be fetched"
                    ));
                }
                return Ok(0);
            };
            if let Some(warc) = &mut options.warc {
                if !unindexed.is_empty() {
                    let count = unindexed.len();
                    log::info!(
                        "{count} WARC files have no index: they are made while the crawl runs, the last first"
                    );
                }
                warc.unindexed = unindexed;
            }
            let state = continued.state(state)?;
            seeds = continued.seeds;
            seeds.rejected().skip_known(out);
            Some(state)
        }
        (None, Some(out)) if has_state(&config) => {
            let secret = random_bits()?;
            Some(State::new(out, given.to_text(), secret).map_err(unusable)?)
        }
        _ => None,
    };
    options.commits = state.is_some();
    let has_state = state.is_some();
    let rejected = seeds.rejected();
    let beginning = state.as_ref().map(State::beginning);
    let mut crawler = set_up(config, |config| {
        let mut builder = Crawler::builder(config).sink(FileSink::new(options));
        if let Some(out) = &out {
            builder = builder
                .stats_path(out.join("stats.json"))
                .stats_while(held(&lock, out));
        }
        match state {
            Some(state) => builder.state(state),
            None => builder,
        }
    })?;
    crawler.reload_from(sources.answers());
    received.reload_on_hangup();
    if let Some(at) = args.admin {
        let token = args.admin_token_file.as_deref();
        admin::listen(at, token, |admin| crawler.serve(admin))?;
    }
    // Until a pipe has delivered the first seed, a stop signal ends the process.
    let waits_for_seeds = !inputs.iter().all(Metadata::is_file);
    if !waits_for_seeds {
        received.stop_on_signal(crawler.stopper())?;
    }
    let fed = feed::feed(
        seeds,
        crawler.handle(),
        crawler.config(),
        &received,
        FeedOf {
            is_resumed,
            is_resumable: has_state,
        },
    );
    let fed = match fed {
        Err(error) if !is_resumed => {
            keep_rejected(&rejected, out.as_deref(), in_use);
            return Err(error);
        }
        fed => fed?,
    };
    let Some(feeder) = fed else {
        log::info!("stopped before the crawl started");
        return Ok(3);
    };
    // All checks have passed; only now may an earlier crawl be deleted.
    let mut left = Leftovers {
        lock: Arc::clone(&lock),
        in_use,
        new: None,
        filtered,
    };
    if let Some(out) = &out {
        if received.stops() > 0 {
            log::info!("stopped before the crawl started");
            return Ok(3);
        }
        if !is_resumed {
            left.new = Some(NewFolders::before(out));
            let prepared = directory::prepare(out, args.overwrite, in_use).map_err(refused)?;
            lock.set(prepared).expect("it is set only once");
        }
        if let Some(filtered) = &mut left.filtered {
            filtered.make(out)?;
        }
        for input in &kept_inputs {
            let kept = match is_resumed {
                true => input.keep().is_ok(),
                false => input.is_kept(),
            };
            if !kept {
                return Err(Usage(format!(
                    "--seeds: {} cannot be kept as {}: copy it, and give the copy to --seeds",
                    input.path.display(),
                    input.kept.display()
                ))
                .into());
            }
        }
        if let Some(beginning) = beginning {
            let mut room = Room::new("the state", "end the crawl", received.clone());
            loop {
                match beginning.write() {
                    Err(StateError::Io { cause, .. }) if is_full(&cause) => {
                        if !room.wait(&cause) {
                            log::info!("stopped before the crawl started");
                            return Ok(3);
                        }
                    }
                    written => break written?,
                }
            }
            // It was left by the end of an earlier run, and this one may end without another.
            if is_resumed && let Err(error) = pending::remove(out) {
                log::warn!("{error:#}: some of its requests may have ended");
            }
        }
    }
    if let Some(lock) = lock.get() {
        admin::serve_in(&mut crawler, lock);
        match directory::prepare_run_log(lock) {
            Ok((path, length)) => crawler.log_runs(path, length),
            Err(error) => log::warn!("`argiope audit` cannot judge this run: {error}"),
        }
    }
    if waits_for_seeds {
        received.stop_on_signal(crawler.stopper())?;
    }
    if !crawler.config().frontier().robots_obey {
        let place = crawler.config().source("ROBOTSTXT_OBEY");
        log::warn!(
            "robots.txt is ignored ({place}): pages are fetched that sites ask crawlers to leave alone"
        );
    }
    if let Some(hint) = environment::unused(crawler.config(), |name| std::env::var(name).ok()) {
        log::warn!("{hint}");
    }
    let has_warc = out.is_some() && crawler.config().warc_size_max().is_some();
    for hint in hints::before(crawler.config(), &all_urls, has_lists, has_warc) {
        log::warn!("{hint}");
    }
    rejected.write_to(out.as_deref());
    let begun = left.new.take();
    let watched = watch(&mut crawler, args.quiet, &received);
    allocator::leave_to_exit();
    let failure = feeder.failure();
    // Written before anything is printed, so that a failure of stderr cannot prevent it.
    let is_reader_gone = to_stdout
        && crawler
            .write_error()
            .is_some_and(|error| error.cause.kind() == io::ErrorKind::BrokenPipe);
    let folder = lock.get().and_then(DirectoryLock::folder);
    let room_within = is_out_of_time(&crawler).then(|| crawler.config().stop_grace());
    let mut unkept = None;
    let kept = match (&out, &folder) {
        (Some(out), Some(folder)) if has_state => {
            left::export_pending(&mut crawler, feeder, folder, out, &received, room_within)
        }
        (Some(_), Some(folder)) => {
            left::keep_pending(&mut crawler, feeder, folder, &received, room_within)
        }
        (Some(out), None) => Err(anyhow::anyhow!(
            "{} was deleted or replaced during the crawl, and no more is written there: {}",
            out.display(),
            left::unsaved(&mut crawler, feeder, &received)
                .0
                .as_deref()
                .unwrap_or("nothing was queued")
        )),
        (None, _) if is_reader_gone => Ok((0, None)),
        (None, _) => {
            let unread;
            (unkept, unread) = left::unsaved(&mut crawler, feeder, &received);
            Ok((0, unread))
        }
    };
    stderr::write(&watched.summary);
    if let Some(unkept) = unkept {
        log::warn!(
            "{unkept}; with --out DIR they are saved in DIR/{}",
            pending::NAME
        );
    }
    let progress = crawler.progress();
    for hint in hints::of_results(crawler.stats(), crawler.config(), "--max-body") {
        log::warn!("{hint}");
    }
    let given = (crawler.config(), &all_urls[..]);
    if let Some(warning) =
        closing::warning_of_filters(crawler.stats(), &progress, given, out.is_some())
    {
        log::warn!("{warning}");
    }
    if let (Some(filtered), Some(out)) = (&left.filtered, &out) {
        filtered.warn_if_rotated(out);
    }
    // No request has ended, none is left, and no file says why: the next run finds the directory as this one did.
    let is_nothing = crawler.stats().attempts == 0
        && watched.reason == FinishReason::Finished
        && failure.is_none()
        && matches!(kept, Ok((0, None)))
        && !rejected.says_more_than_log()
        && !has_filtered(crawler.config(), &progress);
    if let (Ok((count, _)), Some(folder), false) = (&kept, &folder, args.quiet) {
        let closing = Closing {
            out: folder,
            to_stdout,
            has_state,
            left: *count,
            rejected: (rejected.count(), rejected.file().is_some()),
            reason: watched.reason,
            totals: progress.totals,
            has_sent: is_resumed || crawler.stats().lateness.count() > 0,
            config: crawler.config(),
        };
        match is_nothing && begun.is_some() {
            true => stderr::write_line(&format!(
                "  {:<15}nothing was fetched: nothing is left in {}",
                "output",
                folder.display()
            )),
            false => stderr::write(&closing.lines()),
        }
    }
    if let Some(error) = crawler.write_error() {
        if is_reader_gone {
            // The reader of stdout has closed the pipe, as `head` does, which is not a failure.
            return kept.map(|_| 0);
        }
        if let Err(lost) = kept {
            log::error!("{lost:#}");
        }
        anyhow::bail!("{error}; results written before are kept");
    }
    let (_, unread) = kept?;
    drop(crawler);
    // Dropped at the end, if at all.
    left.new = begun.filter(|_| is_nothing);
    drop(left);
    drop(lock);
    match failure.or(unread) {
        Some(failure) => Err(Usage(failure).into()),
        None if watched.reason == FinishReason::Shutdown => Ok(3),
        None => Ok(0),
    }
}

/// Refuses an output directory that is meant to be a file, and WARC files that have no directory.
fn check_outputs(args: &Crawl) -> Result<(), Usage> {
    let Some(out) = &args.out else {
        return match args.results.is_some() && args.warc && !args.resume {
            true => Err(Usage(
                "--warc: WARC files go to the output directory, and there is none: give --out"
                    .to_owned(),
            )),
            false => Ok(()),
        };
    };
    let shown = out.to_string_lossy();
    let is_new = || !out.is_dir();
    if shown == "-" {
        return Err(Usage(
            "--out -: it is a directory; for result lines on standard output write --results -"
                .to_owned(),
        ));
    }
    if shown.contains("://") {
        return Err(Usage(format!(
            "--out {shown}: it is a directory of this machine; write there, and copy the files"
        )));
    }
    const ENDINGS: [&str; 7] = [
        ".json", ".jsonl", ".csv", ".xml", ".warc", ".gz", ".parquet",
    ];
    if ENDINGS.iter().any(|ending| shown.ends_with(ending)) && is_new() {
        return Err(Usage(format!(
            "--out {shown}: it is a directory, and that is the name of a file; for result lines in a file write \
             --results - > {shown}, for a table argiope export DIR"
        )));
    }
    Ok(())
}

/// Refuses `-s WARC=true` without an output directory; warns of the same in a file, which may be for other crawls, too.
fn check_warc(config: &Config, args: &Crawl) -> Result<(), Usage> {
    let has_folder = args.out.is_some() || args.results.is_none() || args.resume;
    if has_folder || config.warc_size_max().is_none() {
        return Ok(());
    }
    let source = config.source("WARC");
    let why = "WARC files go to the output directory, and there is none: give --out";
    match source {
        SettingSource::Option => Err(Usage(format!("{source} WARC: {why}"))),
        SettingSource::File { .. } => {
            log::warn!("WARC ({source}): {why}");
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Whether the crawl has reached its limit of time.
fn is_out_of_time(crawler: &Crawler) -> bool {
    let limit = crawler.config().get("CLOSESPIDER_TIMEOUT").map(Value::from);
    let limit = limit
        .and_then(|limit| limit.as_f64())
        .filter(|limit| *limit > 0.0);
    limit.is_some_and(|limit| crawler.progress().totals.active.as_secs_f64() >= limit)
}

/// Whether `filtered.jsonl` has lines.
fn has_filtered(config: &Config, progress: &Progress) -> bool {
    let counts = progress.filtered.iter();
    let mut written = counts.filter(|(filter, _)| **filter != Filtered::Duplicate);
    config.filtered_file() && written.any(|(_, count)| *count > 0)
}

/// Writes `rejected.jsonl` of a crawl that does not begin, if more seeds were rejected than are logged. An earlier crawl
/// in the directory is left alone.
fn keep_rejected(rejected: &Rejected, out: Option<&Path>, in_use: InUse<'_>) {
    let Some(out) = out.filter(|_| rejected.says_more_than_log()) else {
        return;
    };
    let shown = out.display();
    match directory::prepare(out, false, in_use) {
        Ok(_lock) => {
            rejected.write_to(Some(out));
            let count = rejected.count();
            log::warn!("{count} invalid seeds are in {shown}/{REJECTED}");
        }
        Err(error) => log::warn!("{shown}/{REJECTED} is not written: {error}"),
    }
}

/// What a run has made in its output directory, until it has fetched something: it is removed when this is dropped.
struct Leftovers<'a> {
    /// The lock of the directory, once it is set.
    lock: Arc<OnceLock<DirectoryLock>>,
    in_use: InUse<'a>,
    /// The folders that it made; `None` if all is to be kept.
    new: Option<NewFolders>,
    /// The second name of a file.
    filtered: Option<FilteredLink>,
}

impl Drop for Leftovers<'_> {
    fn drop(&mut self) {
        let Some(new) = self.new.take() else {
            return;
        };
        if let Some(filtered) = &self.filtered {
            filtered.discard();
        }
        match self.lock.get() {
            Some(lock) => directory::discard(lock, self.in_use, &new),
            None => new.remove_empty(),
        }
    }
}

/// Whether the crawl has a state on disk.
fn has_state(config: &Config) -> bool {
    config.get("STATE") == Some(true.into())
}

/// What a run is given that continues a crawl: the seeds that the earlier runs had not taken, then its own.
struct Continued {
    inputs: RunInputs,
    seeds: Seeds,
    /// Number of seeds that were taken.
    taken: u64,
    /// The seeds files that it reads.
    files: Vec<Metadata>,
}

impl Continued {
    /// `before`: what the earlier runs were given; `given`: this run, with the metadata of its files.
    fn new(
        state: &State,
        before: RunInputs,
        given: (RunInputs, Seeds),
        files: &[Metadata],
        out: &Path,
    ) -> anyhow::Result<Self> {
        let (inputs, seeds) = given;
        let mut continued = Continued {
            inputs,
            seeds,
            taken: 0,
            files: files.to_owned(),
        };
        let Some(taken) = state.seeds_taken() else {
            return Ok(continued);
        };
        let mut left = before.reopen("--resume", out, taken)?;
        continued.taken = left.taken;
        let earlier = left.lists.iter().flat_map(|list| list.metadata(out));
        continued.files.extend(earlier);
        if !continued.inputs.has_no_seeds() {
            left.lists.append(&mut continued.inputs.lists);
        }
        continued.inputs.lists = left.lists;
        continued.seeds = left.seeds.then(continued.seeds);
        Ok(continued)
    }

    /// The state of this run.
    fn state(&self, mut state: State) -> anyhow::Result<State> {
        let inputs = self.inputs.to_text();
        state.set_inputs(inputs, self.taken).map_err(unusable)?;
        Ok(state)
    }
}

/// Metadata of the seeds files, which `--overwrite` must not delete.
fn inputs(seeds: &[PathBuf]) -> anyhow::Result<Vec<Metadata>> {
    let input = |path: &PathBuf| match path.as_os_str() == "-" {
        true => metadata_of(&io::stdin()),
        false => fs::metadata(path),
    };
    let inputs = seeds.iter().map(input).collect::<io::Result<_>>();
    inputs.context("cannot look at the files of --seeds")
}

fn metadata_of(open: &impl AsFd) -> io::Result<Metadata> {
    File::from(open.as_fd().try_clone_to_owned()?).metadata()
}

/// Checks that the output directory still exists at its path; logs once if it does not.
fn held(lock: &Arc<OnceLock<DirectoryLock>>, out: &Path) -> impl Fn() -> bool + Send + use<> {
    let (lock, out) = (Arc::clone(lock), out.to_owned());
    let is_reported = AtomicBool::new(false);
    move || {
        let is_held = lock.get().is_none_or(DirectoryLock::is_held);
        if !is_held && !is_reported.swap(true, Ordering::Relaxed) {
            log::error!(
                "{} was deleted, moved or replaced during the crawl: open files are still written, new ones are not",
                out.display()
            );
        }
        is_held
    }
}

/// End of a crawl.
pub struct Watched {
    /// The reason.
    pub reason: FinishReason,
    /// The summary as text; empty with `--quiet`.
    pub summary: String,
}

/// Runs a crawler to its end and shows its progress. The caller prints the summary.
pub fn watch(crawler: &mut Crawler, quiet: bool, received: &Received) -> Watched {
    let mut shown = Shown::new(quiet);
    let mut is_stopping = false;
    let reason = loop {
        allocator::give_back_soon();
        if received.stops() > 0 && !std::mem::replace(&mut is_stopping, true) {
            shown.note_stop(&crawler.progress(), crawler.config().stop_grace());
        }
        match crawler.turn(Some(shown.patience())) {
            Turn::GoesOn if received.take_report() => {
                shown.report(crawler.stats(), &crawler.progress());
            }
            Turn::GoesOn => shown.show(crawler.stats(), || crawler.progress()),
            Turn::Over(reason) => break reason,
        }
    };
    shown.end();
    let summary = match quiet {
        true => String::new(),
        false => {
            let verbose = log::log_enabled!(log::Level::Info);
            let (progress, pacing) = (crawler.progress(), crawler.pacing());
            summary(crawler.stats(), &progress, &pacing, verbose)
        }
    };
    Watched { reason, summary }
}

/// Builds the crawler of a configuration; an invalid one is a usage error, which names the flags that set its settings.
pub fn set_up(config: Config, builder: impl FnOnce(Config) -> Builder) -> anyhow::Result<Crawler> {
    let flags = FlagNames::of(&config);
    builder(config).build().map_err(|error| match error {
        // Its message already contains its cause.
        SetUpError::Io(_) => anyhow::Error::msg(error.to_string()),
        error => Usage(flags.put_into(&error.to_string())).into(),
    })
}

fn unusable(error: StateError) -> Usage {
    Usage(error.to_string())
}

fn refused(error: DirectoryError) -> anyhow::Error {
    Usage(error.to_string()).into()
}

/// The outputs and their paths.
pub fn sink_options(
    config: &Config,
    out: Option<&Path>,
    to_stdout: bool,
) -> anyhow::Result<FileSinkOptions> {
    let mut options = FileSinkOptions::new(out.unwrap_or(Path::new(".")));
    options.results = if to_stdout {
        Results::Stdout
    } else {
        Results::File
    };
    options.rotation = config.rotation();
    options.links = config.links_file();
    options.filtered = config.filtered_file();
    let beside = [
        (options.links, "LINKS_FILE: links go to links.jsonl"),
        (
            options.filtered,
            "FILTERED_FILE: links that filters leave out go to filtered.jsonl",
        ),
    ];
    let beside = beside.iter().find(|(is_written, _)| *is_written);
    if let (Some((_, what)), None) = (beside, out) {
        let what = format!("{what} in the output directory, and there is none: give --out");
        return Err(Usage(what).into());
    }
    if to_stdout && beside.is_none() && options.rotation != Rotation::default() {
        let of_files = [
            "RESULTS_SIZE_MAX",
            "RESULTS_TIME_MAX",
            "RESULTS_COMPRESSION",
        ];
        let is_set = |name: &&str| *config.source(name) != SettingSource::Default;
        let name = of_files.into_iter().find(is_set).unwrap_or(of_files[0]);
        return Err(Usage(format!(
            "--results -: {name} is for files, and the lines go to standard output: leave one of them out"
        ))
        .into());
    }
    options.robots = out.is_some() && config.frontier().robots_obey;
    options.decisions = out.is_some() && config.get("AUTOTHROTTLE_DEBUG") == Some(true.into());
    if let Some(size_max) = config.warc_size_max().filter(|_| out.is_some()) {
        let mut warc = WarcOptions::new(host_name(), random_bits()?);
        warc.size_max = size_max;
        warc.cdxj = config.warc_cdxj();
        warc.info = vec![
            (
                "http-header-user-agent".to_owned(),
                config.fetch().user_agent.clone(),
            ),
            (
                "robots".to_owned(),
                if config.frontier().robots_obey {
                    "obey"
                } else {
                    "ignore"
                }
                .to_owned(),
            ),
        ];
        options.warc = Some(warc);
    }
    Ok(options)
}

/// The host name, shortened to fit into a file name.
fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name
        .trim()
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '.' {
                c
            } else {
                '-'
            }
        })
        .collect();
    if name.is_empty() {
        "localhost".to_owned()
    } else {
        name
    }
}

fn random_bits() -> anyhow::Result<[u8; 16]> {
    use std::io::Read;
    let mut bits = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bits))
        .context("cannot read /dev/urandom for the ids of WARC records")?;
    Ok(bits)
}
