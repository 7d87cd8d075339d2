//! `argiope state`: shows what the state of a crawl holds. It takes no lock and changes no file.

mod outcome;
mod overview;
mod subject;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use argiope::sink::directory::{self, Owner};
use argiope::{Config, StateContents, StateError, Wall};

use super::Usage;
use super::args::sources::Configured;
use super::feed::Unfed;
use super::json_lines::put_line;
use super::resume::RunInputs;
use super::settings;

use self::overview::Overview;
use self::subject::{Matched, Report};

/// Arguments of the command.
#[derive(Clone, Debug)]
pub struct StateArgs {
    /// The output directory of the crawl.
    pub folder: PathBuf,
    /// What is shown.
    pub subject: Subject,
    /// Print JSON.
    pub json: bool,
    /// Number of hosts, or of requests, that are listed.
    pub top: usize,
}

/// What is shown.
#[derive(Clone, Debug)]
pub enum Subject {
    /// The whole crawl.
    All,
    /// A host, with the port if that is not the usual one.
    Host(String),
    /// A scope.
    Scope(String),
    /// A URL.
    Url(String),
    /// All requests, as seeds lines.
    Export,
}

/// A crawl whose state was read.
struct Crawl {
    folder: PathBuf,
    contents: StateContents,
    /// What the command gave it; none if a program wrote the state.
    inputs: Option<RunInputs>,
    /// The process that runs it.
    owner: Option<Owner>,
    now: Wall,
}

/// Runs the command; returns its exit code.
pub fn run(args: &StateArgs) -> anyhow::Result<i32> {
    let crawl = Crawl::read(&args.folder)?;
    let (text, json) = match &args.subject {
        Subject::Export => return crawl.export(),
        Subject::All => {
            let overview = Overview::of(&crawl, args.top);
            (overview.to_text(), serde_json::to_string(&overview)?)
        }
        subject => {
            let matched = Matched::new(subject, &crawl.config()?)?;
            let mut report = Report::of(&crawl, &matched, args.top);
            if let Some(url) = report.ended_url(&matched) {
                report.outcome = outcome::of(&args.folder, url)?;
            }
            (report.to_text(), serde_json::to_string(&report)?)
        }
    };
    let text = if args.json { json } else { text };
    put_line(&mut io::stdout().lock(), &text)?;
    Ok(0)
}

impl Crawl {
    fn read(folder: &Path) -> anyhow::Result<Self> {
        let shown = folder.display();
        if !folder.is_dir() {
            return Err(Usage(format!(
                "{shown} is not a directory: name the output directory of a crawl"
            ))
            .into());
        }
        // Before the state: a crawl that ends in between has written all of it.
        let owner = directory::owner(folder)
            .with_context(|| format!("{shown}: the lock cannot be read"))?;
        let contents = StateContents::read(folder).map_err(|error| match error {
            StateError::None(_) => Usage(format!(
                "{shown} has no state of a crawl: name the output directory of a crawl with STATE=true that \
                 has begun"
            )),
            error => Usage(error.to_string()),
        })?;
        let inputs = serde_json::from_str(contents.state().settings()).ok();
        Ok(Crawl {
            folder: folder.to_owned(),
            contents,
            inputs,
            owner,
            now: Wall(
                std::time::UNIX_EPOCH
                    .elapsed()
                    .map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)),
            ),
        })
    }

    /// Its settings; the defaults if a program wrote the state.
    fn config(&self) -> anyhow::Result<Config> {
        let stored = self.inputs.as_ref().map(|inputs| &inputs.settings);
        settings::load_resumed(stored, &Configured::default(), &[])
    }

    /// Writes what is still to be fetched to stdout as seeds lines: requests, then seeds that were not taken.
    fn export(&self) -> anyhow::Result<i32> {
        for damage in self.contents.state().damages() {
            log::error!("{damage}; what was in the damaged part is not written");
        }
        let mut out = BufWriter::new(io::stdout().lock());
        for queued in self.contents.queued() {
            writeln!(out, "{}", queued.request().to_line())?;
        }
        let state = self.contents.state();
        let mut failure = None;
        if let (Some(taken), Some(inputs)) = (state.seeds_taken(), self.inputs.clone()) {
            let left = inputs.reopen("--export", &self.folder, taken)?;
            let mut unread = Unfed::all_of(left.seeds);
            for request in unread.by_ref() {
                writeln!(out, "{}", request.to_line())?;
            }
            failure = unread.failure();
        }
        out.flush()?;
        match failure {
            Some(failure) => Err(Usage(failure).into()),
            None => Ok(0),
        }
    }
}
