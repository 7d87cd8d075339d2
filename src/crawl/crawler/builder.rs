//! Builder of a crawler: its configuration, its sink, and the parts that an embedder replaces.

use std::fmt;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::base::keys::Keys;
use crate::crawl::config::Config;
use crate::crawl::control::feed::RequestSource;
use crate::crawl::crawler::Crawler;
use crate::crawl::journal::state::State;
use crate::crawl::set_up::{NamedManager, Parts, SetUpError};
use crate::fetch::resolver;
use crate::io::sim::web::Web;
use crate::io::sim::{Faults, Sim};
use crate::io::{Io, Kernel};
use crate::sink::pull::{PAGES_MAX, Results};
use crate::sink::{DiskSink, NullSink};
use crate::throttle::map::ScopeMap;
use crate::throttle::signal::{Classify, Feedback};
use crate::throttle::strategies::NamedMaker;
use crate::throttle::strategy::Strategy;

/// Builds a crawler from its parts; each has a built-in default.
///
/// ```
/// use argiope::{Config, Crawler, FinishReason, Page};
///
/// let config = Config::default().with("DOWNLOAD_DELAY", "250ms")?;
/// let mut crawler = Crawler::builder(config)
///     .sink(|page: Page| println!("{:?} {}", page.status, page.url))
///     .build()?;
/// assert_eq!(crawler.run(), FinishReason::Finished, "nothing was asked for");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder makes nothing until `build`"]
pub struct Builder {
    config: Config,
    parts: Parts,
    /// Every attempt is pulled, not only results.
    every_attempt: bool,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").finish_non_exhaustive()
    }
}

impl Builder {
    /// A crawler under this configuration whose results are pulled.
    pub(super) fn new(config: Config) -> Self {
        let builder = Builder {
            config,
            parts: Parts::new(NullSink),
            every_attempt: false,
        };
        builder.results_max(PAGES_MAX)
    }

    /// Sets the sink, or a function that takes each [`Page`](crate::Page): every attempt, of which
    /// [`Page::is_result`](crate::Page::is_result) tells the results. Without one,
    /// results wait to be pulled by [`Crawler::next_result`]; [`sink::NullSink`](crate::sink::NullSink)
    /// drops them.
    pub fn sink(mut self, sink: impl DiskSink + 'static) -> Self {
        self.parts.sink = Box::new(sink);
        self.parts.results = None;
        self
    }

    /// Maximum number of results that wait to be pulled, at least 1; 256 by default. Replaces the
    /// sink.
    pub fn results_max(mut self, pages: usize) -> Self {
        let results = Results::new(pages);
        if self.every_attempt {
            results.take_every_attempt();
        }
        self.parts.sink = Box::new(results.clone());
        self.parts.results = Some(results);
        self
    }

    /// Every attempt waits to be pulled: also each robots.txt, each sitemap that was not submitted, and attempts that
    /// are [not final](crate::Page::is_final), because a retry or a redirect follows. Without this, only
    /// [results](crate::Page::is_result) do. A sink gets every attempt in any case.
    pub fn every_attempt(mut self) -> Self {
        self.every_attempt = true;
        if let Some(results) = &self.parts.results {
            results.take_every_attempt();
        }
        self
    }

    /// Sets a source of requests, polled while the crawl has room. Requests may be submitted as well.
    pub fn source(mut self, source: impl RequestSource + 'static) -> Self {
        self.parts.source = Some(Box::new(source));
        self
    }

    /// Sets how many requests [`Handle::submit`](crate::Handle::submit) accepts beyond those that are being fetched: 10 000
    /// by default, 1 at least, without limit by `usize::MAX`. They are the requests of handles that wait for admission,
    /// for their scopes, for a retry, or for the sink; those of others (seeds, links, a source, the owner) do not count.
    /// While there are so many, `submit` waits, so that a producer of millions stays a little ahead of the crawl:
    /// see [Backpressure](crate::Handle#backpressure).
    ///
    /// They should cover far more hosts, or scopes, than are busy at once, since requests of one scope wait for
    /// each other: ten thousand requests to one slow host in a row keep those that follow waiting. With `FOLLOW` `host`
    /// or `domain`, links to a host are followed from when its first seed is submitted.
    pub fn ahead(mut self, requests: usize) -> Self {
        self.parts.ahead_max = requests;
        self
    }

    /// Maps a request that names no scopes to the scopes it is throttled under. Takes the place of
    /// `SCOPE_MAP`.
    pub fn scope_map(mut self, scope_map: impl ScopeMap + 'static) -> Self {
        self.parts.scope_map = Some(Box::new(scope_map));
        self
    }

    /// Sets how an answer is interpreted for the pace.
    pub fn classify(mut self, classify: impl Classify + 'static) -> Self {
        self.parts.classify = Some(Box::new(classify));
        self
    }

    /// Sets the strategy of each new scope, by its name: how its pace reacts to answers.
    /// `None` leaves the choice to the configuration.
    pub fn strategy(
        mut self,
        maker: impl Fn(&str) -> Option<Box<dyn Strategy>> + Send + 'static,
    ) -> Self {
        self.parts.strategies.choose(Box::new(maker));
        self
    }

    /// Registers a strategy under a name, for `manager` in a scope and `THROTTLING_SCOPE_MANAGER`.
    /// It is created with the scope's name and its arguments: the other keys of the table that names it in
    /// the configuration, as a type of the program. If they do not fit that type, or the maker
    /// returns an error, [`Builder::build`] fails.
    pub fn named_strategy<A: DeserializeOwned>(
        mut self,
        name: &str,
        maker: impl Fn(&str, A) -> Result<Box<dyn Strategy>, String> + Send + 'static,
    ) -> Self {
        let maker: NamedMaker = Box::new(move |scope, arguments| {
            let arguments = serde_json::from_value(Value::Object(arguments.clone()));
            maker(scope, arguments.map_err(|error| error.to_string())?)
        });
        self.parts.strategies.register(name, maker);
        self
    }

    /// Registers a scope map and a classifier under a name, for `THROTTLING_MANAGER`.
    pub fn named_manager(
        mut self,
        name: &str,
        scope_map: impl ScopeMap + 'static,
        classify: impl Classify + 'static,
    ) -> Self {
        let manager: NamedManager = (Box::new(scope_map), Box::new(classify));
        self.parts.managers.insert(name.to_owned(), manager);
        self
    }

    /// Sets the secret under which hosts, origins and URLs have their stable keys: 16 unpredictable bytes,
    /// equal in all shards of a crawl and kept from run to run. New ones if not called.
    #[doc(hidden)]
    pub fn keys(mut self, secret: [u8; 16]) -> Self {
        self.parts.keys = Some(Keys::from_bytes(secret));
        self
    }

    /// Keeps the crawl's state on disk, in the output directory of this [`State`], or continues the crawl
    /// whose state was read. Its [beginning](State::beginning) must be written first: a crawl that continues one
    /// fails otherwise. The sink must take part in commits: see [Commits](crate::Sink#commits). Results that are
    /// pulled must be [acknowledged](Crawler::acknowledge).
    pub fn state(mut self, state: State) -> Self {
        self.parts.state = Some(state);
        self
    }

    /// Sets the initial state of each new scope, by its name, before its first request.
    pub fn initial_feedback(
        mut self,
        known: impl Fn(&str) -> Option<Feedback> + Send + 'static,
    ) -> Self {
        self.parts.initial = Some(Box::new(known));
        self
    }

    /// Keeps statistics in this file (`stats.json`), replaced every few seconds and at the end.
    pub fn stats_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.parts.stats_path = Some(path.into());
        self
    }

    /// Writes statistics only while this returns true. It is called before each write, in the crawl's loop:
    /// for a directory that may be deleted while the crawl runs
    /// ([`DirectoryLock::is_held`](crate::sink::directory::DirectoryLock::is_held)).
    pub fn stats_while(mut self, may: impl Fn() -> bool + Send + 'static) -> Self {
        self.parts.stats_while = Some(Box::new(may));
        self
    }

    /// Builds the crawler on the kernel interface that `IO` names. The configuration is checked once more.
    ///
    /// # Errors
    /// [`SetUpError`]: the configuration is not sound, names a file that cannot be read or a strategy that
    /// was not registered, or the kernel refuses what the event loop needs.
    pub fn build(self) -> Result<Crawler, SetUpError> {
        Crawler::new(self.config, self.parts)
    }

    /// Builds the crawler in a simulated web and in virtual time: see [`sim`](crate::sim). `seed` drives
    /// all randomness, also that of the crawl unless `RANDOM_SEED` is set. `IO` and the name servers of
    /// the configuration have no effect.
    ///
    /// # Errors
    /// As [`Builder::build`], except those of the kernel.
    pub fn build_in(self, web: &Web, seed: u64) -> Result<Crawler<Sim>, SetUpError> {
        let mut config = self.config.finish()?;
        config.random_seed.get_or_insert(seed);
        let sim = Sim::with(seed, config.io.clone(), Faults::default(), web.world());
        let resolver = resolver::ResolverSettings {
            servers: vec![Web::name_server()],
            ..resolver::ResolverSettings::default()
        };
        Crawler::on(sim, config, resolver, self.parts)
    }

    /// Builds the crawler on a back end and resolver settings of the caller.
    #[doc(hidden)]
    pub fn build_on<I: Io>(
        self,
        io: I,
        resolver: resolver::ResolverSettings,
    ) -> Result<Crawler<I>, SetUpError> {
        Crawler::on(io, self.config, resolver, self.parts)
    }
}

impl Crawler<Kernel> {
    /// Returns a builder of a crawler with this configuration.
    pub fn builder(config: Config) -> Builder {
        Builder::new(config)
    }
}
