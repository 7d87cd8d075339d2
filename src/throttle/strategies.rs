//! Strategies by name: built-in ones and those registered by an embedder.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value};

use super::settings::{Manager, ScopeSettings};
use super::strategy::{Pace, Strategy, StrategyMaker};
use crate::base::time::Instant;

/// Creates a strategy for the named scope from the arguments in the configuration; the error
/// describes what is wrong with them.
pub type NamedMaker =
    Box<dyn Fn(&str, &Map<String, Value>) -> Result<Box<dyn Strategy>, String> + Send>;

/// Creates the strategies of new scopes.
pub struct Strategies {
    named: BTreeMap<String, NamedMaker>,
    by_scope: Option<StrategyMaker>,
}

impl Default for Strategies {
    /// The built-in ones: `fixed` keeps the configured pace whatever the answers; `fixed_window`
    /// sends `requests` in each `window` (seconds), without a gap between them.
    fn default() -> Self {
        let mut strategies = Strategies {
            named: BTreeMap::new(),
            by_scope: None,
        };
        strategies.register("fixed", Box::new(|_, arguments| Fixed::of(arguments)));
        strategies.register(
            "fixed_window",
            Box::new(|_, arguments| FixedWindow::of(arguments)),
        );
        strategies
    }
}

impl Strategies {
    /// Registers a strategy under a name for use in the configuration.
    pub fn register(&mut self, name: &str, maker: NamedMaker) {
        self.named.insert(name.to_owned(), maker);
    }

    /// Sets a maker that is called for each scope before the configuration is used.
    pub fn choose(&mut self, maker: StrategyMaker) {
        self.by_scope = Some(maker);
    }

    /// Checks that the strategy named in the configuration can be created; the error contains the reason.
    pub fn check(&self, scope: &str, manager: &Manager) -> Result<(), String> {
        self.named_for(scope, manager).map(drop)
    }

    /// The strategy of a new scope; `None` for the built-in one.
    pub(super) fn of(&self, scope: &str, settings: &ScopeSettings) -> Option<Box<dyn Strategy>> {
        let chosen = self.by_scope.as_ref().and_then(|maker| maker(scope));
        chosen.or_else(|| {
            let named = self.named_for(scope, settings.manager.as_ref()?);
            // The configuration was checked before; a maker may still refuse a single scope.
            named
                .inspect_err(|error| log::warn!("{scope}: {error}; the built-in strategy paces it"))
                .ok()
        })
    }

    fn named_for(&self, scope: &str, manager: &Manager) -> Result<Box<dyn Strategy>, String> {
        let Some(maker) = self.named.get(&manager.name) else {
            let names: Vec<&str> = self.named.keys().map(String::as_str).collect();
            return Err(format!(
                "no strategy is registered as {:?}; known: {}",
                manager.name,
                names.join(", ")
            ));
        };
        maker(scope, &manager.arguments)
            .map_err(|error| format!("the strategy {:?}: {error}", manager.name))
    }
}

impl fmt::Debug for Strategies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.named.keys()).finish()
    }
}

/// Keeps the configured pace.
struct Fixed;

impl Fixed {
    fn of(arguments: &Map<String, Value>) -> Result<Box<dyn Strategy>, String> {
        only(arguments, &[])?;
        Ok(Box::new(Fixed))
    }
}

impl Strategy for Fixed {
    fn forgettable_at(&self) -> Option<Instant> {
        Some(Instant::START)
    }
}

/// A fixed number of requests in each window, which begins with its first request.
struct FixedWindow {
    requests: u64,
    window: Duration,
    window_start: Instant,
    sent: u64,
}

impl FixedWindow {
    fn of(arguments: &Map<String, Value>) -> Result<Box<dyn Strategy>, String> {
        only(arguments, &["requests", "window"])?;
        let requests = arguments.get("requests").and_then(Value::as_u64);
        let window = arguments.get("window").and_then(Value::as_f64);
        let window = window.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        match (requests, window) {
            (Some(requests @ 1..), Some(window)) => Ok(Box::new(FixedWindow {
                requests,
                window,
                window_start: Instant::START,
                sent: 0,
            })),
            _ => Err("requires `requests` (at least 1) and `window` (seconds)".to_owned()),
        }
    }
}

impl Strategy for FixedWindow {
    fn start(&mut self, settings: &ScopeSettings) -> Pace {
        Pace {
            delay: Duration::ZERO,
            concurrency: settings.concurrency,
        }
    }

    fn sent(&mut self, at: Instant) {
        if self.sent == 0 || at >= self.window_start + self.window {
            self.window_start = at;
            self.sent = 0;
        }
        self.sent += 1;
    }

    fn departs_at(&self) -> Instant {
        if self.sent < self.requests {
            Instant::START
        } else {
            self.window_start + self.window
        }
    }

    fn forgettable_at(&self) -> Option<Instant> {
        Some(self.window_start + self.window)
    }

    fn save(&self, _: Instant) -> Option<Vec<u8>> {
        (self.sent > 0).then(Vec::new)
    }

    /// How many requests the last window had is not known exactly: a window passes.
    fn restore(&mut self, _: &ScopeSettings, _: &[u8], _: Duration, now: Instant) -> Option<Pace> {
        (self.window_start, self.sent) = (now, self.requests);
        None
    }
}

fn only(arguments: &Map<String, Value>, known: &[&str]) -> Result<(), String> {
    match arguments.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) if known.is_empty() => Err(format!("takes no arguments (got {key:?})")),
        Some(key) => Err(format!("takes only {} (got {key:?})", known.join(", "))),
    }
}
