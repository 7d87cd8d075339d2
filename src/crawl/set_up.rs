//! Parts of a crawl, and errors of its set-up.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::admin::access::Access;
use crate::base::keys::Keys;
use crate::base::machine;
use crate::base::sentence::debug_as_sentence;
use crate::crawl::config::ConfigError;
use crate::crawl::control::feed::RequestSource;
use crate::crawl::control::submissions::AHEAD;
use crate::crawl::journal::state::State;
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
    /// The receiving end of the sink, if results are pulled.
    pub(in crate::crawl) results: Option<Results>,
    /// Source of requests.
    pub source: Option<Box<dyn RequestSource>>,
    /// Most requests that handles may submit beyond what is being fetched.
    pub ahead_max: usize,
    /// Maps requests to scopes; `None`: by the configuration.
    pub scope_map: Option<Box<dyn ScopeMap>>,
    /// Classifier of replies.
    pub classify: Option<Box<dyn Classify>>,
    /// Pacing strategies.
    pub strategies: Strategies,
    /// Scope maps and classifiers that the configuration may name (`THROTTLING_MANAGER`).
    pub managers: BTreeMap<String, NamedManager>,
    /// Initial state of a scope, before its first request.
    pub initial: Option<InitialFeedback>,
    /// Path of `stats.json`; `None`: not written.
    pub stats_path: Option<PathBuf>,
    /// Checks whether it may still be written; `None`: always.
    pub stats_while: Option<Box<dyn Fn() -> bool + Send>>,
    /// Random bits from the kernel: the seed if `RANDOM_SEED` is unset, and the secret of hashes, which
    /// servers must not be able to predict. `None` in a reproducible simulation.
    pub entropy: Option<u64>,
    /// Stable keys, as other shards of the crawl or an earlier run of it have them; `None`: new ones.
    pub keys: Option<Keys>,
    /// The state on disk, if the crawl has one.
    pub state: Option<State>,
    /// Name of the setting that bounds the requests in flight.
    pub in_flight_named: &'static str,
    /// Time between two requests to the same target, of a probe that watches its targets: what is known of names and
    /// certificates is to be about as new.
    pub watched_every: Option<Duration>,
}

/// The control interface of a crawl: where it listens, who may use it, and where orders are recorded. See
/// [`Crawler::serve`](crate::Crawler::serve).
#[derive(Debug, Default)]
pub struct Admin {
    pub(in crate::crawl) socket: Option<PathBuf>,
    pub(in crate::crawl) listen: Option<SocketAddr>,
    pub(in crate::crawl) access: Option<Access>,
    /// With its length.
    pub(in crate::crawl) orders: Option<(PathBuf, u64)>,
    pub(in crate::crawl) sets_log_level: bool,
}

impl Admin {
    /// Listens nowhere.
    pub fn new() -> Self {
        Admin::default()
    }

    /// Listens on a Unix socket, whose file must not exist: its permissions (0600) admit the user of the process
    /// alone, to everything.
    #[must_use]
    pub fn socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.socket = Some(path.into());
        self
    }

    /// Listens on a TCP address. By loopback addresses anybody on this machine may read; everything else needs the
    /// [token](Admin::token).
    #[must_use]
    pub fn listen(mut self, at: SocketAddr) -> Self {
        self.listen = Some(at);
        self
    }

    /// Sets the token that allows everything by TCP: `Authorization: Bearer TOKEN`. Without one nothing can be
    /// changed by TCP.
    #[must_use]
    pub fn token(mut self, token: impl Into<Vec<u8>>) -> Self {
        self.access = Some(Access::new(Some(token.into())));
        self
    }

    /// Operators may change the level of the log of the whole process ([`log::set_max_level`]). Without this they get the
    /// reason why not.
    #[must_use]
    pub fn set_log_level(mut self) -> Self {
        self.sets_log_level = true;
        self
    }

    /// Records orders in this file, which has `length` bytes and is made if that is 0: a line of JSON for each order,
    /// durable before the order is acknowledged.
    #[must_use]
    pub fn orders(mut self, path: impl Into<PathBuf>, length: u64) -> Self {
        self.orders = Some((path.into(), length));
        self
    }
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
            ahead_max: AHEAD,
            scope_map: None,
            classify: None,
            strategies: Strategies::default(),
            managers: BTreeMap::new(),
            initial: None,
            stats_path: None,
            stats_while: None,
            entropy: None,
            keys: None,
            state: None,
            in_flight_named: "CONCURRENT_REQUESTS",
            watched_every: None,
        }
    }

    /// The built-in parts; at most so many attempts wait to be pulled.
    pub fn pulled(pages_max: usize) -> Self {
        let results = Results::new(pages_max);
        results.take_every_attempt();
        Parts {
            results: Some(results.clone()),
            ..Parts::new(results)
        }
    }
}

/// Why a crawl cannot be set up.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum SetUpError {
    /// A setting is invalid, or two contradict each other.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A system call that sets up the back end failed.
    #[error("cannot set up the event loop: {0}")]
    Io(#[from] io::Error),
    /// The certificates are invalid.
    #[error(transparent)]
    Tls(#[from] TlsConfigError),
    /// A file named by a setting cannot be read.
    #[error("cannot read {} ({setting}): {cause}", path.display())]
    Unreadable {
        /// The setting.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// A setting that can be checked at set-up only.
    #[error("{setting}: {reason}")]
    Setting {
        /// Its name.
        setting: &'static str,
        /// What was wrong, and how to mend it.
        reason: String,
    },
    /// A target of a probe is invalid.
    #[error("URL: {reason}")]
    Target {
        /// Its number, from 0.
        number: usize,
        /// The number of an earlier target with the same URL.
        earlier: Option<usize>,
        /// Its URL, what was wrong, and how to mend it.
        reason: String,
    },
}

debug_as_sentence!(SetUpError);

impl SetUpError {
    /// The stable code, after its family: `config`, `setting`, `ca_file.empty`, or for system errors
    /// `io.open_files` or `file.not_found`.
    pub fn code(&self) -> Cow<'static, str> {
        match self {
            SetUpError::Config(error) => error.code().into(),
            SetUpError::Io(error) => format!("io.{}", machine::code(error)).into(),
            SetUpError::Tls(error) => error.code().into(),
            SetUpError::Unreadable { cause, .. } => format!("file.{}", machine::code(cause)).into(),
            SetUpError::Setting { .. } | SetUpError::Target { .. } => "setting".into(),
        }
    }

    /// Whether a retry could succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            SetUpError::Io(error) => machine::is_temporary(error),
            SetUpError::Unreadable { cause, .. } => machine::is_temporary(cause),
            SetUpError::Config(_)
            | SetUpError::Tls(_)
            | SetUpError::Setting { .. }
            | SetUpError::Target { .. } => false,
        }
    }
}
