//! Flags of `argiope probe`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use argiope::probe::{Arrivals, Ceiling, Length, ProbeSettings};
use argiope::settings::span;
use clap::Args;

use super::sources::{Configured, Given, Sockets};
use super::values::{count, listening};

/// Arguments of `probe`.
#[derive(Debug, Args)]
pub struct Probe {
    /// URLs to request, in turn
    #[arg(value_name = "URL", required_unless_present = "targets")]
    pub urls: Vec<String>,
    /// Request the URLs in this file, one a line, each once in --every, until stopped or --duration is over;
    /// - is stdin; .gz and .zst are read
    #[arg(long, value_name = "FILE", requires = "every", help_heading = TARGETS)]
    pub targets: Option<PathBuf>,
    /// Request each target once in this time: each has its own phase, and they are spread evenly
    #[arg(long, value_name = "D", value_parser = duration, allow_negative_numbers = true, help_heading = TARGETS,
        conflicts_with_all = ["rate", "arrivals", "requests", "warmup", "stall"])]
    every: Option<Duration>,
    /// Keep connections open between the requests to a target, in place of a new one for each
    /// (KEEPALIVE_TIMEOUT is by default --every and DOWNLOAD_TIMEOUT together)
    #[arg(long, requires = "every", conflicts_with = "new_connections", help_heading = TARGETS)]
    keep_connections: bool,
    /// Serve /metrics, and /probe?target=URL with the last result of a target, at this address; other than
    /// loopback only with --admin-token-file
    #[arg(long, value_name = "ADDR:PORT", value_parser = listening, help_heading = TARGETS)]
    pub admin: Option<SocketAddr>,
    /// The token in this file allows everything by --admin; without it that is for reading only
    #[arg(long, value_name = "FILE", requires = "admin", help_heading = TARGETS)]
    pub admin_token_file: Option<PathBuf>,
    /// Requests per second, in total
    #[arg(long, value_name = "N", default_value = "10", value_parser = rate, allow_negative_numbers = true)]
    rate: f64,
    /// Measure the requests that are due within this time [default: 10s; with --every until a stop]
    #[arg(long, value_name = "D", value_parser = duration, allow_negative_numbers = true, conflicts_with = "requests")]
    duration: Option<Duration>,
    /// Measure N requests
    #[arg(long, value_name = "N", value_parser = count::<u64, 1>, allow_negative_numbers = true)]
    requests: Option<u64>,
    /// Before the measurement, send at the same rate for this time without counting
    #[arg(long, value_name = "D", default_value = "0s", value_parser = duration, allow_negative_numbers = true)]
    warmup: Duration,
    /// Gaps between requests: constant, or exponentially distributed as for independent users (RANDOM_SEED
    /// makes them repeatable)
    #[arg(long, value_name = "constant|poisson", default_value = "constant", value_parser = arrivals, hide_default_value = true)]
    arrivals: Arrivals,
    /// Maximum open connections; requests that are due while all are busy wait, and the latency includes that wait
    /// [default: 1000; with --every one for each target]
    #[arg(long, value_name = "N", value_parser = count::<usize, 1>, allow_negative_numbers = true)]
    connections: Option<usize>,
    /// Use a new connection for every request
    #[arg(long)]
    new_connections: bool,
    /// Block the probe's thread for this long after each turn in which a reply ended, to check that
    /// the measured latency of the server does not change
    #[arg(long, value_name = "D", default_value = "0s", value_parser = duration, allow_negative_numbers = true, hide_default_value = true)]
    pub stall: Duration,

    /// Write an HDR log: nanoseconds, one interval per second, latency from due without a tag, each
    /// other measure with its tag
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub hdr: Option<PathBuf>,
    /// Print the report as one JSON object
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
    /// Write a result line for each request, those of the warm-up included; - is stdout, and the report
    /// then goes to stderr
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub results: Option<PathBuf>,
    /// Exit 1 if a figure is above this bound: p50, p99.9, mean or max, of a measure if one is named
    /// (p99=5ms, connect.max=1s), or errors=0.1%. An unanswered request counts as above any bound
    #[arg(long, value_name = "FIGURE=BOUND", help_heading = OUTPUT)]
    pub fail_above: Vec<Ceiling>,

    #[command(flatten)]
    sockets: Sockets,
}

impl Probe {
    /// The sources of its settings besides flags.
    pub fn configured(&self) -> &Configured {
        &self.sockets.configured
    }

    /// The settings that its flags set.
    pub fn given(&self) -> Vec<Given> {
        self.sockets.given()
    }

    /// Whether its report or its result lines, on standard output, are what it is run for: nothing else has figures.
    pub fn prints_data(&self) -> bool {
        let has_others = self.hdr.is_some() || self.admin.is_some() || !self.fail_above.is_empty();
        match &self.results {
            _ if self.json => true,
            Some(results) => results.as_os_str() == "-",
            None => !has_others,
        }
    }

    /// Whether each target is requested over and over: how often.
    pub fn every(&self) -> Option<Duration> {
        self.every
    }

    /// The settings of the probe itself.
    pub fn settings(&self) -> ProbeSettings {
        let mut settings = ProbeSettings::default();
        settings.rate = self.rate;
        settings.every = self.every;
        let counted = self.requests.map(Length::Requests);
        settings.length = counted.or(self.duration.map(Length::Time));
        settings.warmup = self.warmup;
        settings.arrivals = self.arrivals;
        settings.connections_max = self.connections;
        settings.new_connections = match (self.new_connections, self.keep_connections) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        };
        settings
    }

    /// The option that sets this field of the settings.
    pub fn option_of(&self, field: &str) -> Option<&'static str> {
        Some(match field {
            "rate" => "--rate",
            "every" => "--every",
            "length" if self.requests.is_some() => "--requests",
            "length" => "--duration",
            "warmup" => "--warmup",
            "connections_max" => "--connections",
            _ => return None,
        })
    }
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    span(text).map_err(|problem| format!("{}; {}", problem.what, problem.mend))
}

fn rate(text: &str) -> Result<f64, String> {
    text.trim()
        .parse()
        .map_err(|_| "not a number; give requests per second, such as 500".to_owned())
}

fn arrivals(text: &str) -> Result<Arrivals, String> {
    [Arrivals::Constant, Arrivals::Poisson]
        .into_iter()
        .find(|arrivals| arrivals.as_str() == text)
        .ok_or_else(|| "give constant or poisson".to_owned())
}

const OUTPUT: &str = "Output";
const TARGETS: &str = "Many targets";
