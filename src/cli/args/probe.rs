//! What `argiope probe` can be told.

use std::path::PathBuf;
use std::time::Duration;

use argiope::probe::{Arrivals, Ceiling, Length, ProbeSettings};
use argiope::settings::span;
use clap::Args;

use super::{Configured, Said, Sockets};

/// What `probe` is asked.
#[derive(Debug, Args)]
pub struct Probe {
    /// What to ask for, in turn
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// Requests a second, in all
    #[arg(long, value_name = "N", default_value = "10", value_parser = rate, allow_negative_numbers = true)]
    rate: f64,
    /// Measure what is due within this time [default: 10s]
    #[arg(long, value_name = "D", value_parser = duration, allow_negative_numbers = true, conflicts_with = "requests")]
    duration: Option<Duration>,
    /// Measure so many requests
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
    /// Before that, ask at the same rate for this time, and count nothing of it
    #[arg(long, value_name = "D", default_value = "0s", value_parser = duration, allow_negative_numbers = true)]
    warmup: Duration,
    /// Gaps all alike, or by chance as independent users leave them (RANDOM_SEED repeats it)
    #[arg(long, value_name = "constant|poisson", default_value = "constant", value_parser = arrivals, hide_default_value = true)]
    arrivals: Arrivals,
    /// Connections at once; requests that are due while all are busy wait, and that counts
    #[arg(long, value_name = "N", default_value_t = 1000)]
    connections: usize,
    /// A new connection for every request
    #[arg(long)]
    new_connections: bool,
    /// Keep our own thread busy for this long after each turn in which a reply ended, to see that
    /// the server's latency does not change by it
    #[arg(long, value_name = "D", default_value = "0s", value_parser = duration, allow_negative_numbers = true, hide_default_value = true)]
    pub stall: Duration,

    /// Write an HDR log: nanoseconds, an interval a second, latency from due and a tag for each
    /// other measure
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub hdr: Option<PathBuf>,
    /// The report as one JSON object
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
    /// Write a result line for each request, the warm-up's too; - is stdout, and the report then
    /// goes to stderr
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub results: Option<PathBuf>,
    /// Exit 1 where a figure is above this: p50, p99.9, mean or max, of a measure if one is named
    /// (p99=5ms, connect.max=1s), or errors=0.1%. What was not answered is above any bound
    #[arg(long, value_name = "FIGURE=BOUND", help_heading = OUTPUT)]
    pub fail_above: Vec<Ceiling>,

    #[command(flatten)]
    sockets: Sockets,
}

impl Probe {
    /// Where settings come from besides flags.
    pub fn configured(&self) -> &Configured {
        &self.sockets.configured
    }

    /// The settings that its flags say.
    pub fn said(&self) -> Vec<Said> {
        self.sockets.said()
    }

    /// What the probe is told.
    pub fn settings(&self) -> ProbeSettings {
        let usual = ProbeSettings::default();
        ProbeSettings {
            rate: self.rate,
            length: match (self.requests, self.duration) {
                (Some(count), _) => Length::Requests(count),
                (None, Some(span)) => Length::Time(span),
                (None, None) => usual.length,
            },
            warmup: self.warmup,
            arrivals: self.arrivals,
            connections_max: self.connections,
            new_connections: self.new_connections,
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    span(text).map_err(|problem| format!("{}; {}", problem.what, problem.mend))
}

fn rate(text: &str) -> Result<f64, String> {
    text.trim()
        .parse()
        .map_err(|_| "no number; give requests a second, such as 500".to_owned())
}

fn arrivals(text: &str) -> Result<Arrivals, String> {
    [Arrivals::Constant, Arrivals::Poisson]
        .into_iter()
        .find(|arrivals| arrivals.name() == text)
        .ok_or_else(|| "give constant or poisson".to_owned())
}

const OUTPUT: &str = "Output";
