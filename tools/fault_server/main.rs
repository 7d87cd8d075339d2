//! Origins that misbehave in known ways, and measure their crawlers by their own clock.
//!
//!     cargo run --release --example fault_server -- --origin name=a,port=0,rate=5,latency=20ms
//!
//! Listens on loopback and prints its addresses as a line of JSON. After `--seconds`, or at SIGTERM or
//! SIGINT, it prints a report of each origin: requests, refusals and their rounds, gaps, requests in
//! flight, the share of the limit that was used, and since when. See `--help` for the grammar.

mod fields;
mod ledger;
mod limit;
mod origin;
mod server;
mod spec;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use serde_json::{Value, json};

use argiope::testkit::engine::Engine;
use ledger::Reading;
use origin::World;
use server::Origins;
use spec::Spec;

const USAGE: &str = "\
usage: fault_server [OPTION]... --origin SPEC [--origin SPEC]...

  --origin SPEC     an origin, in the grammar below
  --origins FILE    origins, one a line; empty lines and # lines are skipped
  --listen ADDR     the common address; the Host header selects the origin (default: 127.0.0.1:0)
  --seconds N       run time (default: until SIGTERM or SIGINT)
  --window S        refusals are reported per window of this length (default: 60)
  --round-trip S    a request that arrives later than this after a refusal was sent after the client
                    had read it (default: 5ms)
  --out FILE        where the report is written (default: stdout)
  --arrivals FILE   writes each request as a JSON line

";

struct Plan {
    specs: Vec<Spec>,
    listen: SocketAddr,
    seconds: Option<Duration>,
    window: Duration,
    round_trip: Duration,
    out: Option<PathBuf>,
    arrivals: Option<PathBuf>,
}

fn main() {
    let plan = Plan::read().unwrap_or_else(|wrong| {
        eprintln!("fault_server: {wrong}; see --help");
        process::exit(2);
    });
    if let Err(error) = serve(plan) {
        eprintln!("fault_server: {error}");
        process::exit(1);
    }
}

impl Plan {
    fn read() -> Result<Self, String> {
        let mut plan = Plan {
            specs: Vec::new(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            seconds: None,
            window: Duration::from_secs(60),
            round_trip: Duration::from_millis(5),
            out: None,
            arrivals: None,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            if name == "--help" {
                print!("{USAGE}{}", spec::GRAMMAR);
                process::exit(0);
            }
            let value = arguments.next().ok_or(format!("{name} needs a value"))?;
            let span = || {
                let span = spec::span(&value).filter(|span| !span.is_zero());
                span.ok_or(format!("invalid {name}: `{value}`"))
            };
            match name.as_str() {
                "--origin" => plan.specs.push(Spec::parse(&value)?),
                "--origins" => plan.specs.extend(read_specs(Path::new(&value))?),
                "--listen" => {
                    let address = value.parse();
                    plan.listen = address
                        .map_err(|_| format!("invalid --listen: `{value}` is not an address"))?;
                }
                "--seconds" => plan.seconds = Some(span()?),
                "--window" => plan.window = span()?,
                "--round-trip" => plan.round_trip = span()?,
                "--out" => plan.out = Some(value.into()),
                "--arrivals" => plan.arrivals = Some(value.into()),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        if plan.specs.is_empty() {
            return Err("--origin is missing".to_owned());
        }
        if !plan.listen.ip().is_loopback() {
            return Err("--listen is not on loopback".to_owned());
        }
        for (index, spec) in plan.specs.iter().enumerate() {
            let mut before = plan.specs[..index].iter();
            if before.any(|other| other.name == spec.name) {
                return Err(format!("two origins are named {}", spec.name));
            }
        }
        Ok(plan)
    }
}

fn read_specs(file: &Path) -> Result<Vec<Spec>, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(Spec::parse)
        .collect()
}

fn serve(plan: Plan) -> io::Result<()> {
    let (stop, stopped) = UnixStream::pair()?;
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::low_level::pipe::register(signal, stopped.try_clone()?)?;
    }
    let mut engine = server::engine(World::new(plan.specs), plan.listen, stop)?;
    println!("{}", json!({"listening": listening(&engine)?}));
    let started = engine.service().started();
    engine.run(plan.seconds.map(|span| started + span))?;
    let reading = Reading {
        window: plan.window,
        round_trip: plan.round_trip,
        end: engine.service().now(),
    };
    let report = report(&engine, reading);
    match plan.out {
        Some(file) => fs::write(file, format!("{report:#}\n"))?,
        None => println!("{report}"),
    }
    if let Some(file) = plan.arrivals {
        let mut out = BufWriter::new(File::create(file)?);
        for origin in engine.service().world().origins() {
            origin.ledger.write_arrivals(&origin.spec.name, &mut out)?;
        }
        out.flush()?;
    }
    Ok(())
}

/// The common address as `*`, and the addresses of the origins with a port of their own.
fn listening(engine: &Engine<Origins>) -> io::Result<Value> {
    let origins = engine.service();
    let listeners = engine.listeners().iter().zip(origins.owners());
    let addresses = listeners.map(|(listener, owner)| {
        let name = match owner {
            Some(index) => origins.world().origins()[*index].spec.name.clone(),
            None => "*".to_owned(),
        };
        Ok((name, json!(listener.local_addr()?.to_string())))
    });
    Ok(Value::Object(addresses.collect::<io::Result<_>>()?))
}

fn report(engine: &Engine<Origins>, reading: Reading) -> Value {
    let origins = engine.service().world().origins().iter().map(|origin| {
        let report = origin.ledger.report(origin.spec.limit.as_ref(), reading);
        (origin.spec.name.clone(), report)
    });
    let lag = engine.lag();
    json!({
        "seconds": reading.end.as_secs_f64(),
        "window": reading.window.as_secs_f64(),
        "round_trip": reading.round_trip.as_secs_f64(),
        "late": {
            "steps": lag.steps,
            "mean": lag.sum.as_secs_f64() / lag.steps.max(1) as f64,
            "max": lag.max.as_secs_f64(),
            "over_1ms": lag.over,
        },
        "origins": Value::Object(origins.collect()),
    })
}
