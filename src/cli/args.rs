//! What the command line can say. This file and those below it are the only ones that import clap.

mod probe;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, Args, Parser, Subcommand};
use serde_json::Value;

use super::links::LinksArgs;
use super::robots::RobotsArgs;
use super::url::UrlArgs;
use super::{Usage, examples, settings};

pub use self::probe::Probe;

/// Reads the command line.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Parsed, Usage> {
    let args: Vec<OsString> = args.into_iter().collect();
    match Cli::try_parse_from(&args) {
        Ok(cli) => Ok(Parsed::Run {
            command: cli.command,
            verbose: cli.verbose,
        }),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                Ok(Parsed::Show(error.render().to_string()))
            }
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Err(Usage(
                "no command is given; see `argiope --help`".to_owned(),
            )),
            _ => Err(Usage(explain(&error, &args))),
        },
    }
}

/// What a command line amounts to.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one, made once")]
pub enum Parsed {
    /// Something to do.
    Run {
        /// What.
        command: Command,
        /// How often `-v` was given.
        verbose: u8,
    },
    /// Help or version, for stdout.
    Show(String),
}

/// A broad crawl on one thread: polite to each origin, exact about time.
#[derive(Debug, Parser)]
#[command(name = "argiope", version, max_term_width = 100, after_help = examples::MAIN)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Say more on stderr; twice or thrice: more still
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
}

/// The commands, as the user sees them.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Crawl from URLs and seed files, and follow links
    #[command(after_help = examples::CRAWL)]
    Crawl(Crawl),
    /// Fetch just these URLs: no robots.txt, no following; a result line each
    #[command(after_help = examples::FETCH)]
    Fetch(Fetch),
    /// Measure latency at a constant rate, in an open loop
    #[command(after_help = examples::PROBE)]
    Probe(Probe),
    /// Ask a robots.txt file whether an agent may fetch URLs
    #[command(after_help = examples::ROBOTS)]
    Robots(Robots),
    /// Show how we read URLs: canonical form, scopes, kind of address
    #[command(after_help = examples::URL)]
    Url(Url),
    /// List the links of an HTML file that a crawl would follow
    #[command(after_help = examples::LINKS)]
    Links(Links),
    /// List every setting: default, present value and where it came from
    #[command(after_help = examples::SETTINGS)]
    Settings(Settings),
    /// Crawl a web of many domains that lives on this machine's loopback
    #[command(after_help = examples::DEMO)]
    Demo(Demo),
}

impl Command {
    /// Whether only errors are wanted on stderr.
    pub fn is_quiet(&self) -> bool {
        matches!(self, Command::Crawl(crawl) if crawl.quiet)
    }
}

/// What `crawl` is asked.
#[derive(Debug, Args)]
pub struct Crawl {
    /// Where to begin
    #[arg(value_name = "URL", required_unless_present = "seeds")]
    pub urls: Vec<String>,
    /// Begin with the lines of a file too: URLs, hosts, rank,host or JSON; - is stdin; .gz and .zst are read
    #[arg(long, value_name = "FILE")]
    pub seeds: Vec<PathBuf>,
    /// Where results and WARC files go [default: ./crawl]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Replace an earlier crawl in that directory; only our own files are deleted, and no file of --seeds
    #[arg(long)]
    pub overwrite: bool,
    /// Result lines to stdout; without --out nothing is written to disk
    #[arg(long, value_name = "-", value_parser = ["-"])]
    pub results: Option<String>,
    /// No progress, no summary: errors only
    #[arg(long)]
    pub quiet: bool,

    /// Links followed: none, on the hosts of the seeds, on their domains, or all [default: host]
    #[arg(long, value_name = "none|host|domain|all", help_heading = LIMITS)]
    follow: Option<String>,
    /// End after so many pages; 0 is no limit
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = LIMITS)]
    max_pages: Option<String>,
    /// No more pages than this of one host; 0 is no limit
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = LIMITS)]
    max_pages_per_host: Option<String>,
    /// Follow so many links from a seed; 0 is no limit: --follow none follows none
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = LIMITS)]
    max_depth: Option<String>,
    /// End after this time (30s, 10m, 2h); 0 is no limit
    #[arg(long, value_name = "D", allow_negative_numbers = true, help_heading = LIMITS)]
    max_time: Option<String>,
    /// Cut bodies that are longer (10MiB)
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, help_heading = LIMITS)]
    max_body: Option<String>,
    /// Fetch only URLs that match one of these
    #[arg(long, value_name = "REGEX", help_heading = LIMITS)]
    allow: Vec<String>,
    /// Fetch no URL that matches
    #[arg(long, value_name = "REGEX", help_heading = LIMITS)]
    deny: Vec<String>,
    /// Never ask the hosts, *.domains and CIDRs in this file
    #[arg(long, value_name = "FILE", help_heading = LIMITS)]
    exclude: Vec<PathBuf>,
    /// Keep exchanges as WARC files (default)
    #[arg(long, overrides_with = "no_warc")]
    warc: bool,
    /// Keep no WARC files
    #[arg(long, overrides_with = "warc")]
    no_warc: bool,
    /// How long a stopping crawl waits for what is in flight [default: 25s]
    #[arg(long, value_name = "D", allow_negative_numbers = true)]
    stop_grace: Option<String>,

    #[command(flatten)]
    sockets: Sockets,
}

impl Crawl {
    /// Where settings come from besides flags.
    pub fn configured(&self) -> &Configured {
        &self.sockets.configured
    }

    /// The settings that its flags say.
    pub fn said(&self) -> anyhow::Result<Vec<Said>> {
        let mut said = self.sockets.said();
        said.extend(one("--follow", "FOLLOW", &self.follow));
        said.extend(one("--max-pages", "CLOSESPIDER_PAGECOUNT", &self.max_pages));
        said.extend(one(
            "--max-pages-per-host",
            "PAGES_PER_HOST_MAX",
            &self.max_pages_per_host,
        ));
        said.extend(one("--max-depth", "DEPTH_LIMIT", &self.max_depth));
        said.extend(one("--max-time", "CLOSESPIDER_TIMEOUT", &self.max_time));
        said.extend(one("--max-body", "DOWNLOAD_MAXSIZE", &self.max_body));
        said.extend(many("--allow", "ALLOW", &self.allow));
        said.extend(many("--deny", "DENY", &self.deny));
        if !self.exclude.is_empty() {
            let excluded = settings::read_exclusions(&self.exclude)?;
            said.push(Said::new("--exclude", "EXCLUDE", excluded.into()));
        }
        if self.warc {
            said.push(Said::new("--warc", "WARC", true.into()));
        }
        if self.no_warc {
            said.push(Said::new("--no-warc", "WARC", false.into()));
        }
        said.extend(one("--stop-grace", "STOP_GRACE", &self.stop_grace));
        Ok(said)
    }
}

/// What `fetch` is asked.
#[derive(Debug, Args)]
pub struct Fetch {
    /// What to fetch
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// Save the decoded body of the one URL
    #[arg(short = 'o', long, value_name = "FILE")]
    pub body_out: Option<PathBuf>,
    /// Exit 1 if any reply has status 400 or above
    #[arg(long)]
    pub fail: bool,

    #[command(flatten)]
    sockets: Sockets,
}

impl Fetch {
    /// Where settings come from besides flags.
    pub fn configured(&self) -> &Configured {
        &self.sockets.configured
    }

    /// The settings that its flags say.
    pub fn said(&self) -> Vec<Said> {
        self.sockets.said()
    }
}

/// What `robots` is asked.
#[derive(Debug, Args)]
pub struct Robots {
    /// A robots.txt file; - reads JSON lines {"robots", "agent", "url"} and answers each
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The product token that asks (needed unless FILE is -)
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// URLs or paths to ask about
    #[arg(value_name = "URL")]
    pub urls: Vec<String>,
    /// JSON: crawl_delay, the deciding rule and its line, sitemaps
    #[arg(long)]
    pub json: bool,
}

impl Robots {
    /// The question; the agent is part of it, unless each line on stdin names its own.
    pub fn into_asked(self) -> Result<RobotsArgs, Usage> {
        let lines = self.file.as_os_str() == "-";
        let Some(agent) = self.agent.or(lines.then(String::new)) else {
            return Err(Usage(
                "--agent: nobody is named who asks; give --agent NAME".to_owned(),
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

/// What `url` is asked.
#[derive(Debug, Args)]
pub struct Url {
    /// URLs; - reads JSON lines {"input", "base"} and answers each
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// Resolve them against this URL
    #[arg(long, value_name = "URL")]
    pub base: Option<String>,
    /// JSON: input, href, canonical, scopes, address
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub configured: Configured,
}

impl From<Url> for UrlArgs {
    fn from(args: Url) -> UrlArgs {
        UrlArgs {
            urls: args.urls,
            base: args.base,
            json: args.json,
        }
    }
}

/// What `links` is asked.
#[derive(Debug, Args)]
pub struct Links {
    /// An HTML file; - reads JSON lines {"html_b64", "base", "content_type"} and answers each
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Where the page was found (needed unless FILE is -)
    #[arg(long, value_name = "URL")]
    pub base: Option<String>,
    /// What its Content-Type said
    #[arg(long, value_name = "T")]
    pub content_type: Option<String>,
    /// JSON: where each link was found
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

/// What `settings` is asked.
#[derive(Debug, Args)]
pub struct Settings {
    /// JSON: an array with an object for each setting
    #[arg(long, conflicts_with = "toml")]
    pub json: bool,
    /// A commented file that --config reads
    #[arg(long)]
    pub toml: bool,

    #[command(flatten)]
    sockets: Sockets,
}

impl Settings {
    /// Where settings come from besides flags.
    pub fn configured(&self) -> &Configured {
        &self.sockets.configured
    }

    /// The settings that its flags say.
    pub fn said(&self) -> Vec<Said> {
        self.sockets.said()
    }
}

/// What `demo` is asked.
#[derive(Debug, Args)]
pub struct Demo {
    /// Domains in the loopback web
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub domains: u32,
    /// Pages of each domain, about
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub pages: u32,
    /// The same seed gives the same web
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    #[command(flatten)]
    pub configured: Configured,
}

/// Where settings come from besides flags.
#[derive(Debug, Args)]
#[command(next_help_heading = "Settings")]
pub struct Configured {
    /// Take settings from a TOML file (`argiope settings --toml` prints one)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Take what a preset says, below file and -s: polite for one site, cooperative for a server
    /// whose owner knows of you, many-domains for many sites at their own pace, broad for a little
    /// from each of very many
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    /// Give a setting a value, as -s DOWNLOAD_DELAY=0.5 (`argiope settings` lists them)
    #[arg(short = 's', long = "set", value_name = "NAME=VALUE")]
    pub set: Vec<String>,
}

/// Options of every command that opens a socket.
#[derive(Debug, Args)]
#[command(next_help_heading = "Network")]
struct Sockets {
    /// Who we say we are
    #[arg(short = 'A', long, value_name = "AGENT")]
    user_agent: Option<String>,
    /// Where you can be reached; put into the user agent, needed above 10 public hosts
    #[arg(long, value_name = "URL|MAIL")]
    contact: Option<String>,
    /// Send this header with every request; Authorization, Cookie and Host go to the seeds' origins alone
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// For a whole fetch [default: 2m]
    #[arg(long, value_name = "D", allow_negative_numbers = true)]
    timeout: Option<String>,
    /// Ask addresses that are not globally routable, too: these
    #[arg(long, value_name = "CIDR|loopback|private")]
    allow_net: Vec<String>,
    /// Take this address for a host and port; * is every host
    #[arg(long, value_name = "HOST:PORT:ADDR")]
    resolve: Vec<String>,
    /// Ask this name server instead of the system's
    #[arg(long, value_name = "ADDR[:PORT]")]
    dns: Vec<String>,
    /// Trust these certificates beside the usual ones
    #[arg(long, value_name = "PEM")]
    ca_file: Option<String>,
    /// Do not verify certificates
    #[arg(short = 'k', long)]
    insecure: bool,
    /// The kernel interface
    #[arg(long, value_name = "auto|epoll|uring")]
    io: Option<String>,
    /// Stay awake before each deadline, to be late by less; takes a core (SPIN says how long)
    #[arg(long)]
    spin: bool,

    #[command(flatten)]
    configured: Configured,
}

impl Sockets {
    fn said(&self) -> Vec<Said> {
        let mut said = Vec::new();
        said.extend(one("--user-agent", "USER_AGENT", &self.user_agent));
        said.extend(one("--contact", "CONTACT", &self.contact));
        said.extend(many("--header", "DEFAULT_REQUEST_HEADERS", &self.header));
        said.extend(one("--timeout", "DOWNLOAD_TIMEOUT", &self.timeout));
        said.extend(many("--allow-net", "ALLOW_NET", &self.allow_net));
        said.extend(many("--resolve", "RESOLVE", &self.resolve));
        said.extend(many("--dns", "DNS_SERVERS", &self.dns));
        said.extend(one("--ca-file", "CA_FILE", &self.ca_file));
        if self.insecure {
            said.push(Said::new("--insecure", "INSECURE", true.into()));
        }
        said.extend(one("--io", "IO", &self.io));
        if self.spin {
            said.push(Said::new("--spin", "SPIN", SPIN.into()));
        }
        said
    }
}

/// A setting that a flag says. Flags are only another spelling: the table of settings judges them.
#[derive(Debug)]
pub struct Said {
    /// The flag, as the user writes it.
    pub flag: &'static str,
    /// The setting's name.
    pub name: &'static str,
    /// Its value.
    pub value: Value,
}

impl Said {
    fn new(flag: &'static str, name: &'static str, value: Value) -> Self {
        Said { flag, name, value }
    }
}

fn one(flag: &'static str, name: &'static str, value: &Option<String>) -> Option<Said> {
    let value = value.as_ref()?;
    Some(Said::new(flag, name, value.as_str().into()))
}

fn many(flag: &'static str, name: &'static str, values: &[String]) -> Option<Said> {
    (!values.is_empty()).then(|| Said::new(flag, name, values.into()))
}

/// Clap's several lines as one: what, where, and how to mend it.
fn explain(error: &clap::Error, args: &[OsString]) -> String {
    let text = error.render().to_string();
    let what: Vec<&str> = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.is_empty())
        .collect();
    let what = what.join(" ");
    let what = what.trim_start_matches("error: ");
    let suggested = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand]
        .iter()
        .find_map(|kind| match error.get(*kind)? {
            ContextValue::String(name) => Some(name.clone()),
            // The best guess comes last.
            ContextValue::Strings(names) => names.last().cloned(),
            _ => None,
        });
    let mend = match (suggested, command_of(args)) {
        (Some(name), _) => format!("did you mean {name}?"),
        (None, Some(command)) => format!("see `argiope {command} --help`"),
        (None, None) => "see `argiope --help`".to_owned(),
    };
    format!("{what}; {mend}")
}

/// The command among the words, if one of them is any.
fn command_of(args: &[OsString]) -> Option<&str> {
    let words = args.iter().skip(1).filter_map(|arg| arg.to_str());
    words.into_iter().find(|word| Command::has_subcommand(word))
}

const LIMITS: &str = "Limits and filters";

/// What `--spin` means: longer than a sleep is late by, but for one in some hundred.
const SPIN: &str = "200us";
