#![doc = include_str!("lib.md")]
#![deny(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("argiope runs on Linux only: it needs epoll, timerfd and kernel receive stamps");

// The floors, from the ground up. The hidden ones are internal; public for tests and benches only, no
// semver guarantee.
#[doc(hidden)]
pub mod base;
#[doc(hidden)]
pub mod io;
#[doc(hidden)]
pub mod wire;
#[doc(hidden)]
pub mod fetch;
#[doc(hidden)]
pub mod throttle;
#[doc(hidden)]
pub mod frontier;
mod admin;
pub mod audit;
mod state;
pub mod sink;
#[doc(hidden)]
pub mod crawl;

pub mod parts;
pub mod settings;
pub mod sim;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod testkit;
#[doc(inline)]
pub use crawl::probe;

// Configuring, feeding and steering a crawl.
#[cfg(feature = "futures")]
#[doc(inline)]
pub use crawl::RequestSink;
#[doc(inline)]
pub use crawl::config::{Config, ConfigError};
#[doc(inline)]
pub use crawl::{
    Admin, AdmitError, AsyncCrawl, AsyncHandle, Builder, ChannelSource, ControlError, Crawler,
    Damage, EndedRequest, FinishReason, Handle, HostFacts, LoadPhase, LoadProgress,
    OrderedSettings, Pending, QueuedRequest, RefusedSetting, ReloadAnswer, ReloadError, RequestEnd,
    RequestSource, ScopeFacts, SetUpError, Snapshot, SourceError, SourcePoll, State,
    StateBeginning, StateContents, StateError, Stopper, SubmitError, Turn, Wake, index_warc,
};
#[doc(inline)]
pub use frontier::filter::Filtered;
#[doc(inline)]
pub use frontier::request::seeds::SeedError;
#[doc(inline)]
pub use frontier::request::{PageKind, Request, ScopesError};

// Results and statistics of a crawl.
#[doc(inline)]
pub use admin::format::MetricsFormat;
#[doc(inline)]
pub use base::derive::{Derive, DeriveFiles};
#[doc(inline)]
pub use base::disk::{DiskDone, DiskJob, FileId, Written};
#[doc(inline)]
pub use base::gzip::Gzip;
#[doc(inline)]
pub use base::line_sorter::Scratch;
#[doc(inline)]
pub use base::stamp::{Clock, Stamp};
#[doc(inline)]
pub use base::time::{Instant, Wall};
#[doc(inline)]
pub use crawl::pace_report::{PaceReport, Remark, RemarkKind, ScopePacing};
#[doc(inline)]
pub use crawl::stats::{Progress, Spread, Stats, Tally, Totals};
#[doc(inline)]
pub use fetch::failure::{Failure, FailureKind, Truncation};
#[doc(inline)]
pub use fetch::timings::{Accuracy, Phase, Spans, Timings};
#[doc(inline)]
pub use fetch::tls::TlsConfigError;
#[doc(inline)]
pub use sink::commit::{Commit, Epoch, FileLength};
#[doc(inline)]
pub use sink::function::FunctionSink;
#[doc(inline)]
pub use sink::later::LinksLater;
#[doc(inline)]
pub use sink::page::{
    AskedHold, Certificates, Page, RobotsInForce, RobotsMeaning, TlsInfo, TlsVersion,
};
#[doc(inline)]
pub use sink::reply::{BodyMode, Flow, Reply, Resume};
#[doc(inline)]
pub use sink::traits::{DiskSink, Preparation, Sink, WriteError};
#[doc(inline)]
pub use throttle::cause::WaitCause;
#[doc(inline)]
pub use throttle::decision::{Decision, DecisionEvent, DecisionSource};

// Parts that an embedder may replace.
#[doc(inline)]
pub use base::scopes::{ScopeEntry, Scopes, add_scope};
#[doc(inline)]
pub use throttle::map::{
    ByAddress, ByDomain, ByEndpoint, ByHierarchy, ByHost, Combined, DeferredScopes, ScopeMap,
    ScopeQuery,
};
#[doc(inline)]
pub use throttle::signal::{
    Answer, Blame, BodyPart, BodySignal, ByStatus, Classify, ExchangeEnd, Feedback, Signal,
};
#[doc(inline)]
pub use throttle::strategy::{Observation, Pace, Strategy, StrategyMaker};

#[doc(hidden)]
pub use base::address::{AddressKind, is_global};
#[doc(inline)]
pub use io::{IoKind, Platform, raise_open_files};
#[doc(inline)]
pub use wire::http::{Headers, HttpVersion};
#[doc(inline)]
pub use wire::proxy::{Proxy, ProxyError, Route};
#[doc(inline)]
pub use wire::url::{CrawlUrl, Host, Scheme, UrlError};
#[doc(inline)]
pub use wire::warc::Digest;
#[doc(no_inline)]
pub use {log, serde, serde_json};

/// The examples of the README and of the book compile and run. `tests/docs.rs` checks that each page
/// stands here.
#[cfg(doctest)]
mod pages {
    macro_rules! pages {
        ($($name:ident = $file:literal;)*) => {
            $(#[doc = include_str!($file)] struct $name;)*
        };
    }

    pages! {
        Readme = "../README.md";
        Contributing = "../CONTRIBUTING.md";
        Changelog = "../CHANGELOG.md";
        Security = "../SECURITY.md";
        Book = "../docs/README.md";
        GuideFirstCrawl = "../docs/guide/first-crawl.md";
        GuideBroadCrawl = "../docs/guide/broad-crawl.md";
        GuideThrottling = "../docs/guide/throttling.md";
        GuideOperating = "../docs/guide/operating.md";
        GuideProxies = "../docs/guide/proxies.md";
        GuideEmbedding = "../docs/guide/embedding.md";
        GuidePython = "../docs/guide/python.md";
        GuideC = "../docs/guide/c.md";
        GuideLatency = "../docs/guide/latency.md";
        GuideMachine = "../docs/guide/machine.md";
        ReferenceCommands = "../docs/reference/commands.md";
        ReferenceSettings = "../docs/reference/settings.md";
        ReferenceScopes = "../docs/reference/scopes.md";
        ReferenceSeeds = "../docs/reference/seeds.md";
        ReferenceOutput = "../docs/reference/output.md";
        ReferenceResults = "../docs/reference/results.md";
        ReferenceStats = "../docs/reference/stats.md";
        ReferenceMetrics = "../docs/reference/metrics.md";
        ReferenceThrottle = "../docs/reference/throttle.md";
        ReferenceProbe = "../docs/reference/probe.md";
        ReferenceControl = "../docs/reference/control.md";
        ReferenceReport = "../docs/reference/report.md";
        ReferenceAudit = "../docs/reference/audit.md";
        ReferenceErrors = "../docs/reference/errors.md";
        BenchmarksMethod = "../docs/benchmarks/method.md";
        BenchmarksSpeed = "../docs/benchmarks/speed.md";
        BenchmarksLatency = "../docs/benchmarks/latency.md";
        BenchmarksHiddenLimits = "../docs/benchmarks/hidden-limits.md";
        BenchmarksBackground = "../docs/benchmarks/background.md";
        DesignOverview = "../docs/design/overview.md";
        DesignUrl = "../docs/design/url.md";
        DesignIo = "../docs/design/io.md";
        DesignThrottling = "../docs/design/throttling.md";
        DesignDecisions = "../docs/design/decisions.md";
        DesignTesting = "../docs/design/testing.md";
        DesignGlossary = "../docs/design/glossary.md";
        Limits = "../docs/limits.md";
        Stability = "../docs/stability.md";
    }
}
