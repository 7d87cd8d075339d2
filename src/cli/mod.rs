//! The command line: parses the command, runs it, and sets the exit code.

#[expect(unsafe_code, reason = "mimalloc is configured through its C interface")]
mod allocator;
mod args;
mod examples;
mod flag_values;
mod generate;
mod hints;
mod settings;

mod admin;
mod audit;
mod cdxj;
mod closing;
mod crawl;
mod demo;
mod environment;
mod export;
mod fetch;
mod foreign;
mod probe;
mod feed;
mod filtered;
mod seed_file;
mod seeds;
mod shell;
mod left;
mod pending;
mod unread;
mod rejected;
mod out_file;
mod room;
mod signals;
mod progress;
mod report;
mod reload;
mod resume;
mod ctl;
mod state;
mod summary;
mod links;
mod mistakes;
mod robots;
mod url;

mod json_lines;

mod logger;
mod stderr;
mod stdout;

use std::fmt;
use std::io;
use std::process::ExitCode;

use argiope::ConfigError;
use argiope::parts::LinkOptions;

use self::args::{Command, Parsed};
use self::signals::Received;

/// Runs the command line. The exit code is part of the contract:
/// 0 finished, 1 failed, 2 usage or configuration error, 3 stopped early.
pub fn main() -> ExitCode {
    allocator::prepare();
    let done = match args::parse(std::env::args_os()) {
        Ok(Parsed::Show(text)) => settings::print(&text).map(|()| 0).map_err(Into::into),
        Ok(Parsed::Run { command, verbose }) => {
            logger::start(verbose, command.is_quiet());
            run(command)
        }
        Err(usage) => Err(usage.into()),
    };
    match done {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(FAILED)),
        Err(error) if is_reader_gone(&error) => ExitCode::SUCCESS,
        Err(error) => {
            stderr::write_line(&format!("argiope: {}", one_line(&message(&error))));
            let misused = error.is::<Usage>() || error.is::<ConfigError>();
            ExitCode::from(if misused { MISUSED } else { FAILED })
        }
    }
}

fn run(command: Command) -> anyhow::Result<i32> {
    // Before settings are read, because `CONCURRENT_REQUESTS = 0` depends on the open-file limit.
    argiope::raise_open_files();
    if command.prints_data() {
        stdout::check()?;
    }
    match command {
        Command::Crawl(args) => {
            if args.resume {
                // Before a directory is looked at that may not be the one that was meant.
                mistakes::check_directories(&args.urls, args.out.is_some())?;
            }
            let received = Received::watch()?;
            let resumed = args.resumed(&received)?;
            let stored = resumed.as_ref().map(|resumed| &resumed.inputs.settings);
            let config = settings::load_resumed(stored, args.configured(), &args.given()?)?;
            let config = settings::with_workers(config)?;
            crawl::run(config, *args, resumed, received)
        }
        Command::Fetch(args) => {
            let config = settings::load_over(&fetch::VALUES, args.configured(), &args.given())?;
            fetch::run(config, args)
        }
        Command::Probe(args) => {
            let config = settings::load(args.configured(), &args.given())?;
            mistakes::check_urls(&args.urls, mistakes::Given::Probe)?;
            probe::run(config, &args)
        }
        Command::Robots(args) if args.is_fetched() => {
            let values = &self::robots::fetched::VALUES;
            let config = settings::load_over(values, args.configured(), &args.given())?;
            self::robots::fetched::run(config, &args.into_asked()?, std::io::stdout().lock())
        }
        Command::Robots(args) => {
            // They have no effect on a file, but are checked.
            settings::load(args.configured(), &args.given())?;
            self::robots::run(&args.into_asked()?)
        }
        Command::Url(args) => {
            let config = settings::load(&args.configured, &args.given()?)?;
            self::url::run(&args.into(), &config)
        }
        Command::Links(args) => {
            let config = settings::load(&args.configured, &[])?;
            let options = LinkOptions {
                resources: config.frontier().follow_resources,
                nofollow: config.frontier().nofollow,
                agent: &config.frontier().robots_agent,
                links_max: config.frontier().links_per_page_max,
            };
            self::links::run(&args.into(), &options)
        }
        Command::Settings(args) => settings::run(&args),
        Command::Demo(args) => {
            let config = settings::load_over(&demo::VALUES, &args.configured, &[])?;
            demo::run(config, args)
        }
        Command::Ctl(args) => self::ctl::run(args.into()),
        Command::State(args) => self::state::run(&args.into()),
        Command::Report(args) => self::report::run(&args.into()),
        Command::Export(args) => self::export::run(&args.into()),
        Command::Cdxj(args) => self::cdxj::run(&args.into()),
        Command::Audit(args) => self::audit::run(&args.into()),
        Command::Completions(args) => generate::completions(args.shell, self::args::command_line()),
        Command::Man(args) => generate::man_pages(&args.dir, self::args::command_line()),
    }
}

/// A usage error: one line that states what was wrong, where, and how to mend it.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Whether the reader of stdout has closed the pipe, as `head` does, which is not a failure.
fn is_reader_gone(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// What an error says; of an unknown setting of another program's also what does the same here.
fn message(error: &anyhow::Error) -> String {
    let full = full_message(error);
    let cure = error.downcast_ref::<ConfigError>().and_then(|error| {
        let unknown = (error.problem.what == UNKNOWN_SETTING).then_some(&error.name)?;
        foreign::cure_of_setting(unknown)
    });
    match (cure, full.split_once(UNKNOWN_SETTING)) {
        (Some(cure), Some((place, _))) => format!("{place}{UNKNOWN_SETTING}; {cure}"),
        _ => full,
    }
}

/// What the error about a name says that no setting has.
const UNKNOWN_SETTING: &str = "unknown setting";

/// An error and its causes, without causes that its message contains already.
fn full_message(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |mut message, cause| {
        let cause = cause.to_string();
        if !message.contains(&cause) {
            if !message.is_empty() {
                message.push_str(": ");
            }
            message.push_str(&cause);
        }
        message
    })
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

const FAILED: u8 = 1;
const MISUSED: u8 = 2;
