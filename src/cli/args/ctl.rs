//! Arguments of `argiope ctl`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};

use super::probe::duration;
use super::values::count;
use crate::cli::ctl::{CtlArgs, Job, Until};

/// Arguments of `ctl`.
#[derive(Debug, Args)]
pub struct Ctl {
    /// The output directory of the crawl
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    #[command(subcommand)]
    job: Option<CtlCommand>,
}

impl Ctl {
    /// Whether the crawl is asked something, whose answer is printed, and is given no order.
    pub fn is_question(&self) -> bool {
        match self.job.as_ref().unwrap_or(&CtlCommand::Status) {
            CtlCommand::Status
            | CtlCommand::Scopes { .. }
            | CtlCommand::Queues { .. }
            | CtlCommand::Scope { .. }
            | CtlCommand::Decisions { .. }
            | CtlCommand::Host { .. }
            | CtlCommand::Url { .. } => true,
            CtlCommand::Limits { limits } => limits.is_empty(),
            CtlCommand::Log { level } => level.is_none(),
            CtlCommand::Exclude { names } => names.is_empty(),
            CtlCommand::Set { .. }
            | CtlCommand::Hold { .. }
            | CtlCommand::Release { .. }
            | CtlCommand::Priority { .. }
            | CtlCommand::Forget { .. }
            | CtlCommand::Unset { .. }
            | CtlCommand::Reload
            | CtlCommand::Cancel { .. }
            | CtlCommand::Include { .. }
            | CtlCommand::Pause
            | CtlCommand::Resume
            | CtlCommand::Stop { .. }
            | CtlCommand::Rotate
            | CtlCommand::Seeds { .. } => false,
        }
    }
}

#[derive(Debug, Subcommand)]
enum CtlCommand {
    /// Totals, rates, and waits by cause: the keys of stats.json (default)
    Status,
    /// List scopes with their pacing
    Scopes {
        /// Greatest first: waited unless given
        #[arg(long, value_name = "waited|sent|refused|latency|delay|blocked")]
        sort: Option<String>,
        /// Search all scopes for those in a state
        #[arg(long, value_name = "held|full|any", conflicts_with = "sort")]
        state: Option<String>,
        /// Only names that fit a pattern, in which * stands for any text
        #[arg(long = "match", value_name = "PATTERN")]
        pattern: Option<String>,
        /// Most scopes that are listed
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = count::<usize, 1>, allow_negative_numbers = true)]
        limit: usize,
    },
    /// List origins with the longest queues
    Queues {
        /// Only hosts that fit a pattern, in which * stands for any text
        #[arg(long = "match", value_name = "PATTERN")]
        pattern: Option<String>,
        /// Most queues that are listed
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = count::<usize, 1>, allow_negative_numbers = true)]
        limit: usize,
    },
    /// Everything about one scope: its settings, its present state, and its pacing so far
    Scope {
        /// The scope
        #[arg(value_parser = not_empty())]
        name: String,
    },
    /// The last decisions about the pace of one scope, the newest first
    Decisions {
        /// The scope
        #[arg(value_parser = not_empty())]
        name: String,
        /// Most decisions that are listed
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = count::<usize, 1>, allow_negative_numbers = true)]
        limit: usize,
    },
    /// One host: its robots.txt, addresses, connections and health
    Host {
        /// The host, with its port unless that is the usual one
        #[arg(value_parser = not_empty())]
        name: String,
    },
    /// One URL: where it is, and why it has not been fetched yet
    Url {
        /// The URL
        #[arg(value_parser = not_empty())]
        url: String,
    },
    /// Replace the settings of a scope, of a pattern such as *.example.com, or of default; without any, the scope
    /// has none of its own
    Set {
        /// The scope
        #[arg(value_parser = not_empty())]
        name: String,
        /// Settings as in THROTTLING_SCOPES: delay=2, backoff.max_delay=600; or one JSON object
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Send nothing under a scope, a pattern or default until a time; its other settings stay
    Hold {
        /// The scope
        #[arg(value_parser = not_empty())]
        name: String,
        /// For how long: 90, 10m, 2h; or until when: 2030-01-31T18:00:00Z
        #[arg(value_name = "D|TIME", value_parser = until, allow_negative_numbers = true)]
        until: Until,
    },
    /// End a hold of `hold`; those that servers ask for stay
    Release {
        /// The scope
        #[arg(value_parser = not_empty())]
        name: String,
    },
    /// Fetch the pages of a host before those of others, or after them: this is added to the priorities of its
    /// requests; 0 ends that
    Priority {
        /// The host
        #[arg(value_parser = not_empty())]
        name: String,
        /// From -1000 to 1000
        #[arg(allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-1000..=1000))]
        priority: i32,
    },
    /// Forget what was learned of a scope, of a pattern or of all (default): limits shown by refusals, AutoThrottle's
    /// delays
    Forget {
        /// The scope
        #[arg(value_parser = not_empty())]
        name: String,
    },
    /// Withdraw the settings that `set` gave: the scope has those that are configured
    Unset {
        /// The scope
        #[arg(value_parser = not_empty())]
        name: String,
    },
    /// Change limits of the crawl; without any, list them
    Limits {
        /// Limits by the names of settings: concurrent_requests=100, closespider_pagecount=5000; NAME= withdraws one
        #[arg(value_name = "NAME=VALUE")]
        limits: Vec<String>,
    },
    /// Read the --config and --exclude files again, and apply what has changed; all or nothing
    Reload,
    /// Change the level of the log on stderr; without one, show it
    Log {
        /// How much is logged
        #[arg(value_name = "off|error|warn|info|debug|trace", value_parser = level)]
        level: Option<String>,
    },
    /// Cancel all requests of a scope; those of a domain or an address are ended by `exclude`
    Cancel {
        /// The scope
        #[arg(value_parser = not_empty())]
        name: String,
    },
    /// Exclude hosts, domains (*.example.com), networks (192.0.2.0/24) and patterns of URLs (re:/calendar/): what is
    /// queued of them ends unsent; without any, list them
    Exclude {
        /// Hosts, domains, networks and patterns
        #[arg(value_parser = not_empty())]
        names: Vec<String>,
    },
    /// Withdraw exclusions of `exclude`
    Include {
        /// Hosts, domains, networks and patterns
        #[arg(required = true, value_parser = not_empty())]
        names: Vec<String>,
    },
    /// Stop sending; requests in flight run to their end
    Pause,
    /// Send again
    Resume,
    /// End the crawl; requests in flight may finish
    Stop {
        /// Time for requests in flight, in place of STOP_GRACE
        #[arg(long, value_name = "D", value_parser = duration, conflicts_with = "now", allow_negative_numbers = true)]
        grace: Option<Duration>,
        /// Cancel requests in flight
        #[arg(long)]
        now: bool,
    },
    /// Close the output files, those with results, and begin others
    Rotate,
    /// Add seeds: lines as in --seeds
    Seeds {
        /// The file; - is stdin
        file: PathBuf,
    },
}

impl From<Ctl> for CtlArgs {
    fn from(args: Ctl) -> CtlArgs {
        let job = match args.job.unwrap_or(CtlCommand::Status) {
            CtlCommand::Status => Job::Status,
            CtlCommand::Scopes {
                sort,
                state,
                pattern,
                limit,
            } => Job::Scopes {
                sort,
                state,
                pattern,
                limit,
            },
            CtlCommand::Queues { pattern, limit } => Job::Queues { pattern, limit },
            CtlCommand::Scope { name } => Job::Scope(name),
            CtlCommand::Decisions { name, limit } => Job::Decisions { name, limit },
            CtlCommand::Host { name } => Job::Host(name),
            CtlCommand::Url { url } => Job::Url(url),
            CtlCommand::Set { name, settings } => Job::Set { name, settings },
            CtlCommand::Hold { name, until } => Job::Hold { name, until },
            CtlCommand::Release { name } => Job::Release(name),
            CtlCommand::Priority { name, priority } => Job::Priority { name, priority },
            CtlCommand::Forget { name } => Job::Forget(name),
            CtlCommand::Cancel { name } => Job::Cancel(name),
            CtlCommand::Pause => Job::Pause,
            CtlCommand::Resume => Job::Resume,
            CtlCommand::Stop { grace, now } => Job::Stop(match now {
                true => Some(Duration::ZERO),
                false => grace,
            }),
            CtlCommand::Rotate => Job::Rotate,
            CtlCommand::Seeds { file } => Job::Seeds(file),
            CtlCommand::Exclude { names } => Job::Exclude(names),
            CtlCommand::Include { names } => Job::Include(names),
            CtlCommand::Unset { name } => Job::Unset(name),
            CtlCommand::Limits { limits } => Job::Limits(limits),
            CtlCommand::Reload => Job::Reload,
            CtlCommand::Log { level } => Job::Log(level),
        };
        CtlArgs {
            folder: args.dir,
            job,
        }
    }
}

/// A level of the log, by the words of other programs, too.
fn level(text: &str) -> Result<String, String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let text = text.to_ascii_lowercase();
    let level = match text.as_str() {
        "warning" => "warn",
        level => level,
    };
    match LEVELS.contains(&level) {
        true => Ok(level.to_owned()),
        false => Err(format!(
            "not a level of the log; give {}",
            LEVELS.join(", ")
        )),
    }
}

/// A name: an empty one would ask for another resource.
fn not_empty() -> NonEmptyStringValueParser {
    NonEmptyStringValueParser::new()
}

/// A span, or a moment: the crawl checks that.
fn until(text: &str) -> Result<Until, String> {
    match text.contains('T') {
        true => Ok(Until::At(text.to_owned())),
        false => duration(text)
            .map(Until::After)
            .map_err(|error| format!("{error}; or give a time, such as 2030-01-31T18:00:00Z")),
    }
}
