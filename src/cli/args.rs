//! Commands and flags. This file and those below it are the only ones that import clap.

mod ctl;
mod explain;
pub mod filters;
mod probe;
pub mod sources;
mod units;
mod values;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand};

use super::audit::AuditArgs;
use super::cdxj::CdxjArgs;
use super::export::{ExportArgs, Format};
use super::generate::Shell;
use super::links::LinksArgs;
use super::report::ReportArgs;
use super::resume::Resumed;
use super::robots::{self, RobotsArgs};
use super::signals::Received;
use super::state::{StateArgs, Subject};
use super::url::UrlArgs;
use super::{Usage, examples, settings};

pub use self::ctl::Ctl;
pub use self::probe::Probe;

pub use self::explain::flags_of_commands;

use self::explain::explain;
use self::filters::Filters;
use self::sources::{Configured, Given, Pace, Proxied, Settings, Sockets, Strength, many, one};
use self::values::{count, listening};

/// Reads the command line.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Parsed, Usage> {
    let args = filters::with_file_of_filtered(args.into_iter().collect());
    if let Some(apart) = units::apart(&args) {
        return Err(Usage(apart));
    }
    match Cli::try_parse_from(&args) {
        Ok(cli) => Ok(Parsed::Run {
            command: cli.command,
            verbose: cli.verbose,
        }),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp => {
                let text = error.render().to_string();
                Ok(Parsed::Show(with_whole_examples(text, &args)))
            }
            ErrorKind::DisplayVersion => Ok(Parsed::Show(error.render().to_string())),
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                Err(Usage("no command given; see `argiope --help`".to_owned()))
            }
            _ => Err(Usage(explain(&error, &args))),
        },
    }
}

/// The help with each example on one line, so that it can be copied: clap breaks lines between a flag and its value.
fn with_whole_examples(text: String, args: &[OsString]) -> String {
    let line = Cli::command();
    let mut words = args.iter().skip(1).filter_map(|arg| arg.to_str());
    let command = words.find_map(|word| line.find_subcommand(word));
    let examples = command.unwrap_or(&line).get_after_help();
    match (text.split_once("Examples:"), examples) {
        (Some((head, _)), Some(examples)) => format!("{head}{examples}\n"),
        _ => text,
    }
}

/// All commands and flags, for completions and man pages.
pub fn command_line() -> clap::Command {
    Cli::command()
}

/// A parsed command line.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one, made once")]
pub enum Parsed {
    /// A command to run.
    Run {
        /// The command.
        command: Command,
        /// How often `-v` was given.
        verbose: u8,
    },
    /// Help or version text, for stdout.
    Show(String),
}

/// Broad crawls from one thread, with a pace per site and exact latencies.
#[derive(Debug, Parser)]
#[command(name = "argiope", version, max_term_width = 100, after_help = examples::MAIN)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Log more on stderr; repeat for more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
}

/// The commands, in the order of the help.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Crawl from URLs and seed files, and follow links
    #[command(after_help = examples::CRAWL)]
    Crawl(Box<Crawl>),
    /// Fetch these URLs without robots.txt and links; prints a result line for each
    #[command(after_help = examples::FETCH)]
    Fetch(Fetch),
    /// Measure latency at a constant rate, in an open loop
    #[command(after_help = examples::PROBE)]
    Probe(Box<Probe>),
    /// Check URLs against a robots.txt file
    #[command(after_help = examples::ROBOTS)]
    Robots(Robots),
    /// Say whether a crawl would fetch URLs, and show how they are parsed
    #[command(after_help = examples::URL)]
    Url(Url),
    /// List the links of an HTML file that a crawl would follow
    #[command(after_help = examples::LINKS)]
    Links(Links),
    /// List every setting: default, current value, and the source of the value
    #[command(after_help = examples::SETTINGS)]
    Settings(Settings),
    /// Start a web of many domains on the loopback device, and crawl it as a test
    #[command(after_help = examples::DEMO)]
    Demo(Demo),
    /// Ask a running crawl, and give it orders
    #[command(after_help = examples::CTL)]
    Ctl(Ctl),
    /// Show what the state of a crawl holds, also of one that is running
    #[command(after_help = examples::STATE)]
    State(State),
    /// Make a page with plots from the files of a crawl, also of one that is running
    #[command(after_help = examples::REPORT)]
    Report(Report),
    /// Write fields of the result lines of a crawl as a table
    #[command(after_help = examples::EXPORT)]
    Export(Export),
    /// Make CDXJ indexes of WARC files, as pywb reads them
    #[command(after_help = examples::CDXJ)]
    Cdxj(Cdxj),
    /// Judge from the files of a crawl whether it was polite; exits with 1 if it was not
    #[command(after_help = examples::AUDIT)]
    Audit(Audit),
    /// Print the completions of a shell
    #[command(after_help = examples::COMPLETIONS)]
    Completions(Completions),
    /// Write man pages to a directory, one for each command
    #[command(after_help = examples::MAN)]
    Man(Man),
}

impl Command {
    /// Returns whether only errors are printed on stderr.
    pub fn is_quiet(&self) -> bool {
        matches!(self, Command::Crawl(crawl) if crawl.quiet)
    }

    /// Whether what it is run for goes to standard output. A crawl decides for itself: its state may say so.
    pub fn prints_data(&self) -> bool {
        let is_stdout = |out: &PathBuf| out.as_os_str() == "-";
        match self {
            Command::Fetch(_)
            | Command::Robots(_)
            | Command::Url(_)
            | Command::Links(_)
            | Command::Settings(_)
            | Command::State(_)
            | Command::Completions(_) => true,
            Command::Export(Export { out, .. }) | Command::Audit(Audit { out, .. }) => {
                out.as_ref().is_none_or(is_stdout)
            }
            Command::Report(Report { json, out, .. }) => {
                *json || out.as_ref().is_some_and(is_stdout)
            }
            Command::Cdxj(Cdxj { out, .. }) => out.as_ref().is_some_and(is_stdout),
            Command::Probe(probe) => probe.prints_data(),
            Command::Ctl(ctl) => ctl.is_question(),
            Command::Demo(demo) => demo.serve.is_none(),
            Command::Crawl(_) | Command::Man(_) => false,
        }
    }
}

/// Arguments of `crawl`.
#[derive(Debug, Args)]
pub struct Crawl {
    /// URLs to start from
    #[arg(value_name = "URL", required_unless_present_any = ["seeds", "resume"])]
    pub urls: Vec<String>,
    /// Start from the lines of a file: URLs, hosts, rank,host or JSON; - is stdin; .gz and .zst are read
    #[arg(long, value_name = "FILE")]
    pub seeds: Vec<PathBuf>,
    /// Output directory for results and WARC files [default: ./crawl]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Replace an earlier crawl in that directory; deletes only files of a crawl, and none of --seeds
    #[arg(long)]
    pub overwrite: bool,
    /// Continue the crawl in that directory, after any end; settings and seeds are its own, and more may be
    /// given
    #[arg(long, conflicts_with = "overwrite")]
    pub resume: bool,
    /// With --resume: continue without the damaged parts of the crawl's state; what may be missing is
    /// reported
    #[arg(long, requires = "resume")]
    pub salvage: bool,
    /// Write result lines to stdout; without --out nothing is written to disk
    #[arg(long, value_name = "-", value_parser = ["-"])]
    pub results: Option<String>,
    /// Print errors of the crawl itself only, not of single pages: no warnings, no progress, no summary
    #[arg(long)]
    pub quiet: bool,

    /// Stop after N pages of all runs of a crawl; --resume with a larger N continues; 0: no limit
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = LIMITS)]
    max_pages: Option<String>,
    /// Fetch at most N pages of a host; 0: no limit
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = LIMITS)]
    max_pages_per_host: Option<String>,
    /// Stop after this time (30s, 10m, 2h) of all runs; --resume with a longer one continues; 0: no limit
    #[arg(long, value_name = "D", allow_negative_numbers = true, help_heading = LIMITS)]
    max_time: Option<String>,
    /// Stop after so many bytes (100MB) over the wire, of all runs; what arrives at that moment from the
    /// requests in flight comes on top. Their replies are cut, and --resume with more fetches them again; 0: no limit
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, help_heading = LIMITS)]
    max_bytes: Option<String>,
    /// Cut bodies after this size [default: 10MiB]
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, help_heading = LIMITS)]
    max_body: Option<String>,
    /// Fetch what robots.txt disallows, too: for sites whose operators agree; at most 10 public hosts
    #[arg(long, help_heading = LIMITS)]
    ignore_robots: bool,
    /// With --ignore-robots: of any number of public hosts
    #[arg(long, requires = "ignore_robots", help_heading = LIMITS)]
    ignore_robots_everywhere: bool,
    /// Write WARC files (default); zcat, warcio and pywb read them
    #[arg(long, overrides_with = "no_warc")]
    pub warc: bool,
    /// Write no WARC files
    #[arg(long, overrides_with = "warc")]
    no_warc: bool,
    /// Write the links of each page to links.jsonl
    #[arg(long)]
    links: bool,
    /// Add a field of HTML pages to result lines: title, lang, description, canonical, h1, or
    /// NAME=SELECTOR (price=.price, img=img.hero::attr(src))
    #[arg(long, value_name = "FIELD")]
    extract: Vec<String>,
    /// Write each link that a filter leaves out, with the filter and its rule, to filtered.jsonl in the output
    /// directory; FILE, which must not exist, becomes a link to it
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    filtered: Option<Option<PathBuf>>,
    /// Serve the control interface at this address, too; other than loopback only with --admin-token-file
    #[arg(long, value_name = "ADDR:PORT", value_parser = listening, help_heading = CONTROL)]
    pub admin: Option<SocketAddr>,
    /// The token in this file allows everything by --admin; without it that is for reading only
    #[arg(long, value_name = "FILE", requires = "admin", help_heading = CONTROL)]
    pub admin_token_file: Option<PathBuf>,
    /// Maximum time that a stopping crawl waits for requests in flight [default: 25s]
    #[arg(long, value_name = "D", allow_negative_numbers = true)]
    stop_grace: Option<String>,

    #[command(flatten)]
    pace: Pace,
    #[command(flatten)]
    proxied: Proxied,
    #[command(flatten)]
    pub filters: Filters,
    #[command(flatten)]
    sockets: Sockets,
}

impl Crawl {
    /// The file of `--filtered`, if one was given.
    pub fn filtered_file(&self) -> Option<&Path> {
        self.filtered.as_ref()?.as_deref()
    }

    /// The sources of its settings besides flags.
    pub fn configured(&self) -> &Configured {
        &self.sockets.configured
    }

    /// The crawl that it continues, if it does. A stop signal ends the process meanwhile.
    pub fn resumed(&self, received: &Received) -> anyhow::Result<Option<Resumed>> {
        let out = self.out.as_deref().unwrap_or(Path::new("crawl"));
        self.resume
            .then(|| Resumed::load(out, self.salvage, self.quiet, received))
            .transpose()
    }

    /// The settings that its flags set.
    pub fn given(&self) -> anyhow::Result<Vec<Given>> {
        let mut given = self.sockets.given();
        given.extend(self.pace.given());
        given.extend(self.proxied.given());
        given.extend(self.filters.given()?);
        given.extend(one("--max-pages", "CLOSESPIDER_PAGECOUNT", &self.max_pages));
        given.extend(one(
            "--max-pages-per-host",
            "PAGES_PER_HOST_MAX",
            &self.max_pages_per_host,
        ));
        given.extend(one("--max-time", "CLOSESPIDER_TIMEOUT", &self.max_time));
        given.extend(one("--max-bytes", "CLOSESPIDER_BYTECOUNT", &self.max_bytes));
        given.extend(one("--max-body", "DOWNLOAD_MAXSIZE", &self.max_body));
        if self.ignore_robots {
            let most = match self.ignore_robots_everywhere {
                true => 0,
                false => UNCONFIRMED_HOSTS_MAX,
            };
            let flag = "--ignore-robots";
            given.push(Given::new(flag, "ROBOTSTXT_OBEY", false.into()));
            given.push(Given {
                // A bound that the user set holds, stricter or not.
                strength: match self.ignore_robots_everywhere {
                    true => Strength::All,
                    false => Strength::Defaults,
                },
                ..Given::new(flag, "ROBOTSTXT_IGNORED_HOSTS_MAX", most.into())
            });
        }
        if self.warc {
            given.push(Given::new("--warc", "WARC", true.into()));
        }
        if self.no_warc {
            given.push(Given::new("--no-warc", "WARC", false.into()));
        }
        if self.links {
            given.push(Given::new("--links", "LINKS_FILE", true.into()));
        }
        given.extend(many("--extract", "EXTRACT", &self.extract));
        if self.filtered.is_some() {
            given.push(Given::new("--filtered", "FILTERED_FILE", true.into()));
        }
        given.extend(one("--stop-grace", "STOP_GRACE", &self.stop_grace));
        Ok(given)
    }
}

/// Arguments of `fetch`.
#[derive(Debug, Args)]
pub struct Fetch {
    /// URLs to fetch
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// Send this method in place of GET, or of POST with -d
    #[arg(short = 'X', long = "request", value_name = "METHOD")]
    pub method: Option<String>,
    /// Send this body, as a form unless -H gives another Content-Type; @FILE reads it from a file, @- from stdin,
    /// without line ends. Several are joined by &
    #[arg(short = 'd', long, value_name = "DATA", allow_hyphen_values = true)]
    pub data: Vec<String>,
    /// The same, but the bytes of @FILE are sent as they are
    #[arg(
        long,
        value_name = "DATA",
        conflicts_with = "data",
        allow_hyphen_values = true
    )]
    pub data_binary: Vec<String>,
    /// Save the decoded body of a single URL; - is stdout, and the result line then goes to stderr
    #[arg(short = 'o', long, value_name = "FILE")]
    pub body_out: Option<PathBuf>,
    /// Exit 1 if any reply has status 400 or above
    #[arg(long)]
    pub fail: bool,

    #[command(flatten)]
    pace: Pace,
    #[command(flatten)]
    proxied: Proxied,
    #[command(flatten)]
    sockets: Sockets,
}

impl Fetch {
    /// The sources of its settings besides flags.
    pub fn configured(&self) -> &Configured {
        &self.sockets.configured
    }

    /// The settings that its flags set.
    pub fn given(&self) -> Vec<Given> {
        let mut given = self.sockets.given();
        given.extend(self.pace.given());
        given.extend(self.proxied.given());
        given
    }
}

/// Arguments of `robots`.
#[derive(Debug, Args)]
pub struct Robots {
    /// A robots.txt file, or a URL: that of its origin is fetched, and shown unless URLs are to be checked; - reads
    /// JSON lines {"robots", "agent", "url"} from stdin and answers each
    #[arg(value_name = "FILE|URL")]
    pub file: PathBuf,
    /// The crawler's product token (required for a FILE; of a URL by default that of the user agent)
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// URLs or paths to check
    #[arg(value_name = "URL")]
    pub urls: Vec<String>,
    /// JSON: crawl_delay, the deciding rule and its line, sitemaps; of a URL alone also status, meaning, body
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    proxied: Proxied,
    #[command(flatten)]
    sockets: Sockets,
}

impl Robots {
    /// The sources of its settings besides flags.
    pub fn configured(&self) -> &Configured {
        &self.sockets.configured
    }

    /// The settings that its flags set.
    pub fn given(&self) -> Vec<Given> {
        let mut given = self.sockets.given();
        given.extend(self.proxied.given());
        given
    }

    /// Whether the file is to be fetched.
    pub fn is_fetched(&self) -> bool {
        robots::is_url(&self.file)
    }

    /// Checks that an agent is given, unless each line on stdin has its own, or the settings have one.
    pub fn into_asked(self) -> Result<RobotsArgs, Usage> {
        if let Some(url) = robots::url_of_host(&self.file) {
            return Err(Usage(format!(
                "{}: no such file; to fetch the robots.txt of that host write {url}",
                self.file.display()
            )));
        }
        let has_another = self.file.as_os_str() == "-" || self.is_fetched();
        let Some(agent) = self.agent.or(has_another.then(String::new)) else {
            return Err(Usage(
                "--agent: missing; give --agent NAME, the crawler's product token".to_owned(),
            ));
        };
        Ok(RobotsArgs {
            file: self.file,
            agent,
            urls: self.urls,
            json: self.json,
        })
    }
}

/// Arguments of `url`.
#[derive(Debug, Args)]
pub struct Url {
    /// URLs; - reads JSON lines {"input", "base"} from stdin and answers each
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// Resolve them against this URL
    #[arg(long, value_name = "URL")]
    pub base: Option<String>,
    /// Judge them as links found from this seed, and not as seeds themselves
    #[arg(long, value_name = "SEED")]
    pub from: Vec<String>,
    /// Links followed from the seed to get there, 1 or more [default: 1]
    #[arg(long, value_name = "N", requires = "from", value_parser = count::<u32, 1>, allow_negative_numbers = true)]
    pub depth: Option<u32>,
    /// Judge them by this robots.txt of their origin, too
    #[arg(long, value_name = "FILE")]
    pub robots: Option<PathBuf>,
    /// Exit 1 if one of them would not be fetched
    #[arg(long)]
    pub fail: bool,
    /// JSON: input, href, canonical, scopes, address, fetched, filter, rule, why
    #[arg(long)]
    pub json: bool,
    /// Also allow connections to these addresses that are not globally routable
    #[arg(long, value_name = "CIDR|loopback|private", help_heading = LIMITS)]
    allow_net: Vec<String>,

    #[command(flatten)]
    filters: Filters,
    #[command(flatten)]
    pub configured: Configured,
}

impl Url {
    /// The settings that its flags set.
    pub fn given(&self) -> anyhow::Result<Vec<Given>> {
        let mut given = self.filters.given()?;
        given.extend(many("--allow-net", "ALLOW_NET", &self.allow_net));
        Ok(given)
    }
}

impl From<Url> for UrlArgs {
    fn from(args: Url) -> UrlArgs {
        UrlArgs {
            urls: args.urls,
            base: args.base,
            from: args.from,
            depth: args.depth,
            robots: args.robots,
            fail: args.fail,
            json: args.json,
        }
    }
}

/// Arguments of `links`.
#[derive(Debug, Args)]
pub struct Links {
    /// An HTML file; - reads JSON lines {"html_b64", "base", "content_type"} from stdin and answers each
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// URL of the page (required unless FILE is -)
    #[arg(long, value_name = "URL")]
    pub base: Option<String>,
    /// Its Content-Type
    #[arg(long, value_name = "T")]
    pub content_type: Option<String>,
    /// JSON: also where each link was found
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub configured: Configured,
}

impl From<Links> for LinksArgs {
    fn from(args: Links) -> LinksArgs {
        LinksArgs {
            file: args.file,
            base: args.base,
            content_type: args.content_type,
            json: args.json,
        }
    }
}

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// Number of domains in the loopback web
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = count::<u32, 1>, allow_negative_numbers = true)]
    pub domains: u32,
    /// Approximate number of pages of each domain
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = count::<u32, 1>, allow_negative_numbers = true)]
    pub pages: u32,
    /// Random seed: the same seed gives the same web
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count::<u64, 0>, allow_negative_numbers = true)]
    pub seed: u64,
    /// Serve the web for a crawl of your own until a signal, with its seeds, its settings and the servers' log in DIR
    #[arg(long, value_name = "DIR")]
    pub serve: Option<PathBuf>,

    #[command(flatten)]
    pub configured: Configured,
}

/// Arguments of `state`.
#[derive(Debug, Args)]
pub struct State {
    /// The output directory of the crawl
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// JSON
    #[arg(long, conflicts_with = "export")]
    pub json: bool,
    /// Everything about one host, with the port if that is not the usual one
    #[arg(long, value_name = "NAME", group = "subject")]
    pub host: Option<String>,
    /// Everything about one throttling scope
    #[arg(long, value_name = "NAME", group = "subject")]
    pub scope: Option<String>,
    /// Everything about one URL, and why it has not been sent
    #[arg(long, value_name = "URL", group = "subject")]
    pub url: Option<String>,
    /// Write all that is still to be fetched as seeds lines, with the seeds that were not read yet
    #[arg(long, group = "subject")]
    pub export: bool,
    /// Number of hosts, or of requests, that are listed
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = count::<usize, 0>, allow_negative_numbers = true)]
    pub top: usize,
}

impl From<State> for StateArgs {
    fn from(args: State) -> StateArgs {
        let subject = match (args.host, args.scope, args.url) {
            (Some(host), ..) => Subject::Host(host),
            (_, Some(scope), _) => Subject::Scope(scope),
            (.., Some(url)) => Subject::Url(url),
            (None, None, None) if args.export => Subject::Export,
            (None, None, None) => Subject::All,
        };
        StateArgs {
            folder: args.dir,
            subject,
            json: args.json,
            top: args.top,
        }
    }
}

/// Arguments of `report`.
#[derive(Debug, Args)]
pub struct Report {
    /// The output directory of the crawl
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// The page; by default report.html in DIR, and none with --json; - is standard output
    #[arg(short = 'o', long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Print the figures as one JSON object
    #[arg(long)]
    pub json: bool,
}

impl From<Report> for ReportArgs {
    fn from(args: Report) -> ReportArgs {
        ReportArgs {
            folder: args.dir,
            out: args.out,
            json: args.json,
        }
    }
}

/// Arguments of `export`.
#[derive(Debug, Args)]
pub struct Export {
    /// The output directory of the crawl
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Write CSV with these fields of result lines: url, status, error.kind, …, and those that --extract
    /// added: title. A row for each page, its last result, also where robots.txt disallows it or the request failed:
    /// --replied leaves these out
    #[arg(long, value_name = "FIELD", num_args = 1.., value_delimiter = ',', required_unless_present = "parquet")]
    pub csv: Vec<String>,
    /// Write Parquet with these fields, each with its type; not in builds without the feature parquet
    #[arg(long, value_name = "FIELD", num_args = 1.., value_delimiter = ',', conflicts_with = "csv")]
    pub parquet: Vec<String>,
    /// A row for every result line: also those of robots.txt and sitemaps, of redirects, and of attempts that were
    /// repeated
    #[arg(long)]
    pub all: bool,
    /// No row for what has no status: pages that robots.txt disallows, and requests that failed
    #[arg(long)]
    pub replied: bool,
    /// The file, which must not exist; by default, and for -, standard output
    #[arg(short = 'o', long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

impl From<Export> for ExportArgs {
    fn from(args: Export) -> ExportArgs {
        let (format, fields) = match args.parquet.is_empty() {
            true => (Format::Csv, args.csv),
            false => (Format::Parquet, args.parquet),
        };
        ExportArgs {
            folder: args.dir,
            format,
            // As in a list that has spaces behind its commas.
            fields: fields.iter().map(|name| name.trim().to_owned()).collect(),
            all: args.all,
            replied: args.replied,
            out: args.out,
        }
    }
}

/// Arguments of `cdxj`.
#[derive(Debug, Args)]
pub struct Cdxj {
    /// WARC files, and directories with WARC files or with a crawl
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
    /// Write one sorted index of all to this file, which must not exist; - is standard output. By default each WARC
    /// file without an index gets one beside it
    #[arg(short = 'o', long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

impl From<Cdxj> for CdxjArgs {
    fn from(args: Cdxj) -> CdxjArgs {
        CdxjArgs {
            paths: args.paths,
            out: args.out,
        }
    }
}

/// Arguments of `audit`.
#[derive(Debug, Args)]
pub struct Audit {
    /// The output directory of the crawl
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Write a receipt for the owner of this host: each request to it, the rules in force, the verdict
    #[arg(long, value_name = "HOST")]
    pub site: Option<String>,
    /// Print all verdicts as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Write the JSON, or the receipt of --site, to a file; - is standard output
    #[arg(short = 'o', long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

impl From<Audit> for AuditArgs {
    fn from(args: Audit) -> AuditArgs {
        AuditArgs {
            folder: args.dir,
            site: args.site,
            json: args.json,
            out: args.out,
        }
    }
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
pub struct Man {
    /// The directory; created if missing; existing man pages of argiope in it are replaced
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// Public hosts whose robots.txt may be ignored without a confirmation.
const UNCONFIRMED_HOSTS_MAX: u64 = 10;

const LIMITS: &str = "Limits and filters";

const CONTROL: &str = "Control interface";
