//! The loop, where the floors meet: a crawler, and how to run, embed, feed and stop it.

mod core;
mod timer;
mod classifier;
mod breaker;
mod control;
mod flights;
mod journal;
mod line_file;
mod network;
mod outage;
mod overrides;
mod output;
mod pages;
mod requests;
mod work;
mod workload;
mod crawler;
mod finish;
mod indexing;
mod set_up;
mod spill;
mod steering;
#[doc(hidden)]
pub mod fingerprints;
pub mod metrics;
pub mod pace_report;
pub mod stats;
pub mod config;
pub mod probe;

pub use control::channel::ChannelSource;
pub use control::error::{ControlError, RefusedSetting, ReloadError, SubmitError};
pub use control::feed::{EndedRequest, RequestEnd, RequestSource, SourceError, SourcePoll, Wake};
pub use control::handle::{Handle, Stopper};
pub use control::reload::ReloadAnswer;
pub use crawler::builder::Builder;
#[cfg(feature = "futures")]
pub use crawler::threaded::streams::RequestSink;
pub use crawler::threaded::{AsyncCrawl, AsyncHandle};
pub use crawler::url_check::{LeftOut, UrlCheck};
pub use crawler::{Crawler, Turn};
pub use finish::{FinishReason, Pending};
pub use indexing::index_warc;
pub use journal::contents::{HostFacts, OrderedSettings, QueuedRequest, ScopeFacts, StateContents};
pub use journal::damage::Damage;
pub use journal::progress::{LoadPhase, LoadProgress};
pub use journal::state::{State, StateBeginning, StateError};
pub use set_up::{Admin, Parts, SetUpError};
pub use stats::Snapshot;
pub use work::admission::AdmitError;
