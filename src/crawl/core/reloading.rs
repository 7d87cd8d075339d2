//! A new configuration while the crawl runs.

use std::fmt;

use serde_json::{Value, json};

use crate::admin::response::Response;
use crate::crawl::config::{Change, Config, ConfigError, ScopeOrder};
use crate::crawl::core::Core;
use crate::crawl::core::orders::Reloading;
use crate::crawl::overrides::{FixedChange, MEND};
use crate::crawl::steering::Asked;
use crate::io::Io;
use crate::state::record::About;

/// What a new configuration has changed.
#[derive(Debug)]
pub struct Reloaded {
    /// The settings that it changed.
    pub applied: Vec<Change>,
    /// Limits and scopes among them for which an order holds instead.
    pub held: Vec<String>,
}

/// Why a configuration is not reloaded. Nothing of it is applied.
#[derive(Debug)]
pub enum NotReloaded {
    /// Settings have changed that need another run.
    NeedsRun(Vec<FixedChange>),
    /// A scope has settings by order that are not possible with it.
    Scope(ConfigError),
}

impl<I: Io> Core<I> {
    /// Takes an order to read the configuration anew.
    pub fn order_reload(&mut self, asked: Asked) {
        if !asked.body.trim_ascii().is_empty() {
            let response =
                Response::error(400, "the order has no body: the crawl's own files are read");
            return self.refuse(&asked, &response);
        }
        if self.is_reloading() {
            let response = Response::error(409, "the configuration is being read already");
            return self.refuse(&asked, &response);
        }
        let key = asked.key;
        self.steering.respond_later(key, Response::error(503, LATE));
        if let Some(asked) = self.begin_reload(Some(asked)) {
            self.refuse(&asked, &Response::error(409, NO_SOURCE));
        }
    }

    /// Whether a reload waits for its configuration. One is given up if who asked for it does not wait any more.
    fn is_reloading(&self) -> bool {
        let reloading = self.orders.reloading.as_ref();
        reloading.is_some_and(|reloading| self.is_awaited(reloading))
    }

    fn is_awaited(&self, reloading: &Reloading) -> bool {
        let asked = reloading.asked.as_ref();
        asked.is_none_or(|asked| self.steering.waits_for_answer(asked.key))
    }

    /// Asks the source for the configuration; returns who asked if there is no source.
    fn begin_reload(&mut self, asked: Option<Asked>) -> Option<Asked> {
        match self.control.ask_for_reload() {
            Some(number) => {
                self.orders.reloading = Some(Reloading { number, asked });
                None
            }
            None => asked,
        }
    }

    /// Begins the reload that a signal asks for, and ends one whose configuration was read.
    pub fn advance_reload(&mut self) {
        if self.control.take_reload_signal() && self.control.phase().is_fetching() {
            if self.is_reloading() {
                log::warn!("the configuration is being read already");
            } else {
                self.begin_reload(None);
            }
        }
        while let Some((number, read)) = self.control.poll_reload() {
            let is_it = |reloading: &mut Reloading| reloading.number == number;
            let Some(reloading) = self.orders.reloading.take_if(is_it) else {
                continue;
            };
            if !self.is_awaited(&reloading) {
                log::warn!("the configuration was read too late, and is not applied");
                continue;
            }
            self.end_reload(reloading.asked.as_ref(), read);
        }
    }

    /// Applies a configuration that was read.
    fn end_reload(&mut self, asked: Option<&Asked>, read: Result<Box<Config>, String>) {
        let settings = crate::settings::all().len();
        let finished = read.and_then(|read| read.finish().map_err(|error| error.to_string()));
        let (message, refused) = match finished {
            _ if !self.control.phase().is_fetching() => (OVER.to_owned(), Vec::new()),
            Err(message) => (message, Vec::new()),
            Ok(config) => match self.reload(config) {
                Ok(reloaded) => return self.report_reload(asked, &reloaded),
                Err(error) => (error.to_string(), error.into_refused()),
            },
        };
        let message = format!("nothing was applied: {message}");
        let Some(asked) = asked else {
            return log::warn!("the configuration is not reloaded: {message}");
        };
        let refused: Vec<Value> = refused.iter().map(refused_json).collect();
        let reply = json!({
            "error": message,
            "applied": [],
            "refused": refused,
            "held": [],
            "unchanged": settings - refused.len(),
        });
        self.refuse(asked, &Response::json(409, &reply));
    }

    fn report_reload(&mut self, asked: Option<&Asked>, reloaded: &Reloaded) {
        let count = reloaded.applied.len();
        let facts = reloaded.to_facts();
        let Some(asked) = asked else {
            let settings = match count {
                1 => "1 setting has changed".to_owned(),
                count => format!("{count} settings have changed"),
            };
            log::warn!("the configuration is reloaded: {settings}");
            return self.record_order_of(None, "reload", facts);
        };
        let reply = json!({
            "applied": facts["applied"],
            "refused": [],
            "held": reloaded.held,
            "unchanged": crate::settings::all().len() - count,
        });
        self.acknowledge_order(asked, "reload", facts, reply);
    }

    /// Runs under a finished configuration from now on; what was ordered holds over it.
    ///
    /// # Errors
    /// Nothing is changed.
    pub fn reload(&mut self, new: Config) -> Result<Reloaded, NotReloaded> {
        for (name, patch) in &self.orders.scopes {
            let checked = new.check_scope(name, patch);
            checked.map_err(NotReloaded::Scope)?;
        }
        let before = self.overrides.base().clone();
        let config = self.overrides.reload(new).map_err(NotReloaded::NeedsRun)?;
        let mut applied = before.changes_to(self.overrides.base());
        // The others follow from the machine.
        applied.retain(|change| change.setting.is_live);
        let is_changed = |name: &&str| applied.iter().any(|change| change.setting.name == *name);
        let limits = self.overrides.ordered().filter(is_changed);
        let mut held: Vec<String> = limits.map(str::to_owned).collect();
        if !applied.is_empty() {
            self.record_settings();
            held.extend(self.keep_scope_orders(&before));
            self.adopt(config);
        }
        Ok(Reloaded { applied, held })
    }

    /// Records the orders on scopes anew whose configured settings have changed: a later run with this configuration is
    /// to follow them. Returns their scopes.
    fn keep_scope_orders(&mut self, before: &Config) -> Vec<String> {
        let after = self.overrides.base().clone();
        let order_on = |name: &str, patch, config| ScopeOrder::new(name, patch, config).to_text();
        let mut held = Vec::new();
        let mut texts = Vec::new();
        for (name, patch) in &self.orders.scopes {
            let text = order_on(name, patch.clone(), &after);
            if text != order_on(name, patch.clone(), before) {
                texts.push((name.clone(), text));
                held.push(name.clone());
            }
        }
        if self.journal.is_on() {
            for (name, text) in texts {
                self.record_order(About::ScopeSettings, &name, text.as_bytes());
            }
        }
        held
    }
}

impl Reloaded {
    /// The facts of the order.
    pub fn to_facts(&self) -> Value {
        let applied: Vec<Value> = self.applied.iter().map(Change::to_json).collect();
        json!({"applied": applied, "held": self.held})
    }
}

impl NotReloaded {
    /// The settings that need another run.
    fn into_refused(self) -> Vec<FixedChange> {
        match self {
            NotReloaded::NeedsRun(refused) => refused,
            NotReloaded::Scope(_) => Vec::new(),
        }
    }
}

impl fmt::Display for NotReloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotReloaded::NeedsRun(refused) => {
                let names = refused.iter().map(|refused| refused.change.setting.name);
                let names: Vec<&str> = names.collect();
                write!(f, "another run is needed for {}: {MEND}", names.join(", "))
            }
            NotReloaded::Scope(error) => {
                write!(
                    f,
                    "a scope has settings by order that it does not allow: {error}"
                )
            }
        }
    }
}

/// A setting that needs another run, for an operator.
fn refused_json(refused: &FixedChange) -> Value {
    let mut json = refused.change.to_json();
    json["why"] = refused.why.into();
    json
}

const NO_SOURCE: &str = "the program that runs this crawl has no configuration to be read anew";
const OVER: &str = "the crawl is over, but for its last writes";
const LATE: &str = "nothing was applied: the configuration could not be read in 10 s";
