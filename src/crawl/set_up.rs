//! Parts of a crawl, and errors of its set-up.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use crate::base::machine;
use crate::crawl::config::ConfigError;
use crate::crawl::control::feed::RequestSource;
use crate::fetch::tls::TlsConfigError;
use crate::sink::DiskSink;
use crate::sink::pull::Results;
use crate::throttle::engine::InitialFeedback;
use crate::throttle::map::ScopeMap;
use crate::throttle::signal::Classify;
use crate::throttle::strategies::Strategies;

/// Parts that an embedder may supply in place of the built-in ones.
pub struct Parts {
    /// Sink of the results.
    pub sink: Box<dyn DiskSink>,
    /// The other end of that sink, where results are pulled.
    pub(in crate::crawl) results: Option<Results>,
    /// Source of requests.
    pub source: Option<Box<dyn RequestSource>>,
    /// Which scopes a request is throttled under; `None` where the configuration decides.
    pub scope_map: Option<Box<dyn ScopeMap>>,
    /// Classifier of answers.
    pub classify: Option<Box<dyn Classify>>,
    /// Pacing strategies.
    pub strategies: Strategies,
    /// Maps and readings of answers that the configuration may name (`THROTTLING_MANAGER`).
    pub managers: BTreeMap<String, NamedManager>,
    /// Initial state of a scope, before its first request.
    pub initial: Option<InitialFeedback>,
    /// Where `stats.json` is kept up to date; `None` for nowhere.
    pub stats_path: Option<PathBuf>,
    /// Whether it may be written still; `None` where it always may.
    pub stats_while: Option<Box<dyn Fn() -> bool + Send>>,
    /// Bits of the kernel's: chance comes from them where no seed is named, and strangers cannot foresee
    /// how the crawl hashes what they choose. `None` in a world that is to be the same again.
    pub entropy: Option<u64>,
    /// Name of the setting that bounds the requests in flight.
    pub in_flight_named: &'static str,
}

/// The scope map and the classifier.
pub type NamedManager = (Box<dyn ScopeMap>, Box<dyn Classify>);

impl Parts {
    /// The built-in parts, with this sink.
    pub fn new(sink: impl DiskSink + 'static) -> Self {
        Parts {
            sink: Box::new(sink),
            results: None,
            source: None,
            scope_map: None,
            classify: None,
            strategies: Strategies::default(),
            managers: BTreeMap::new(),
            initial: None,
            stats_path: None,
            stats_while: None,
            entropy: None,
            in_flight_named: "CONCURRENT_REQUESTS",
        }
    }
}

/// Why a crawl cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetUpError {
    /// A setting, or two together, cannot be taken.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The kernel refused what the back end needs.
    #[error("the kernel refused what the event loop needs: {0}")]
    Io(#[from] io::Error),
    /// The certificates are not to be used.
    #[error(transparent)]
    Tls(#[from] TlsConfigError),
    /// A file named by a setting cannot be read.
    #[error("cannot read {path} ({setting}): {cause}")]
    Unreadable {
        /// The setting.
        setting: &'static str,
        /// The file.
        path: String,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// A setting that only shows its fault here.
    #[error("{setting}: {reason}")]
    Setting {
        /// Its name.
        setting: &'static str,
        /// The fault.
        reason: String,
    },
}

impl SetUpError {
    /// The stable name, after its family: `config`, `setting`, `ca_file.empty`, or, of what the machine
    /// refused, `io.open_files` or `file.not_found`.
    pub fn code(&self) -> Cow<'static, str> {
        match self {
            SetUpError::Config(error) => error.code().into(),
            SetUpError::Io(error) => format!("io.{}", machine::code(error)).into(),
            SetUpError::Tls(error) => error.code().into(),
            SetUpError::Unreadable { cause, .. } => format!("file.{}", machine::code(cause)).into(),
            SetUpError::Setting { .. } => "setting".into(),
        }
    }

    /// Whether the same crawl may begin later, with nothing mended.
    pub fn is_retryable(&self) -> bool {
        match self {
            SetUpError::Io(error) => machine::is_temporary(error),
            SetUpError::Unreadable { cause, .. } => machine::is_temporary(cause),
            SetUpError::Config(_) | SetUpError::Tls(_) | SetUpError::Setting { .. } => false,
        }
    }
}
