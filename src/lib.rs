#![doc = include_str!("lib.md")]
#![deny(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("argiope runs on Linux only: it lives on epoll, timerfd and kernel receive stamps");

// The floors, from the ground up. The hidden ones are the house's own business: they are reachable
// for its tests, benches and binary, and change without notice.
#[doc(hidden)]
pub mod base;
#[doc(hidden)]
pub mod io;
pub mod wire;
#[doc(hidden)]
pub mod fetch;
#[doc(hidden)]
pub mod throttle;
#[doc(hidden)]
pub mod frontier;
pub mod sink;
#[doc(hidden)]
pub mod crawl;

pub mod parts;
pub mod settings;
pub mod sim;
#[doc(inline)]
pub use crawl::probe;

// What a crawl is told, is given and is steered by.
#[doc(inline)]
pub use crawl::config::{Config, ConfigError};
#[doc(inline)]
pub use crawl::{
    AdmitError, Builder, ControlError, CrawlOver, Crawler, End, Ended, Handle, Pending, SetUpError,
    Snapshot, Source, SourceError, SourcePoll, Stopper, SubmitError, Turn, Wake,
};
#[doc(inline)]
pub use frontier::filter::Filtered;
#[doc(inline)]
pub use frontier::request::{Request, ScopesError};
#[doc(inline)]
pub use frontier::seeds::SeedError;

// What comes back.
#[doc(inline)]
pub use base::disk::{DiskDone, DiskJob};
#[doc(inline)]
pub use base::time::{Instant, Wall};
#[doc(inline)]
pub use crawl::pacing::{Pacing, Remark, ScopePacing};
#[doc(inline)]
pub use crawl::stats::{Progress, Spread, Stats, Tally};
#[doc(inline)]
pub use fetch::failure::{Failure, FailureKind, Truncation};
#[doc(inline)]
pub use fetch::timings::{Label, Spans, Timings};
#[doc(inline)]
pub use sink::function::FunctionSink;
#[doc(inline)]
pub use sink::later::LinksLater;
#[doc(inline)]
pub use sink::page::{Certificates, Page, TlsInfo};
#[doc(inline)]
pub use sink::reply::{BodyMode, Flow, Reply, Resume};
#[doc(inline)]
pub use sink::{Sink, WriteError};
#[doc(inline)]
pub use throttle::decision::{Decision, Event, Source as DecisionSource};

// What an embedder may bring instead of what is built in.
#[doc(inline)]
pub use throttle::map::{
    ByAddress, ByDomain, ByEndpoint, ByHierarchy, ByHost, Combined, Entry, Later, ScopeMap,
    ScopeQuery, Scopes, UnknownMap, add_scope,
};
#[doc(inline)]
pub use throttle::settings::MapKind;
#[doc(inline)]
pub use throttle::signal::{Answer, Blame, ByStatus, Classify, Ending, Feedback, Signal};
#[doc(inline)]
pub use throttle::strategy::{Observation, Pace, Strategy, StrategyMaker};

#[doc(inline)]
pub use base::address::{Kind as AddressKind, is_global};
#[doc(inline)]
pub use io::raise_open_files;
#[doc(no_inline)]
pub use serde_json;
#[doc(inline)]
pub use wire::proxy::{Proxy, ProxyError, Route};
#[doc(inline)]
pub use wire::url::CrawlUrl;

/// The README's examples compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
