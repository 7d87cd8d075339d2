//! The retry policy of an API: after a 429 or a 503 the request is retried without limit; after a 520 the
//! page is tried at most four times.
//!
//! A [`Classify`] decides which requests are retried; a [`Strategy`], named in the configuration, decides
//! the pace of the API.
//!
//! ```sh
//! cargo run --example api_retry_policy -- https://api.toscrape.com/?page=1
//! ```

use std::cell::RefCell;
use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::time::Duration;

use argiope::serde_json::json;
use argiope::settings::ScopeSettings;
use argiope::{
    Answer, Builder, Classify, Config, ConfigError, Crawler, Instant, Observation, Pace, Page,
    Request, Strategy,
};
use serde::Deserialize;

/// Maximum number of attempts at a page that fails.
pub const TRIES: u32 = 4;

/// Decides which requests are retried.
#[derive(Default)]
pub struct ApiRetries {
    /// Number of failures of a page, by URL. The number of attempts also counts refusals.
    failed: RefCell<HashMap<String, u32>>,
}

impl Classify for ApiRetries {
    fn retries(&self, answer: &Answer<'_>, _attempts: u32) -> Option<bool> {
        let mut failed = self.failed.borrow_mut();
        match answer.status {
            Some(429 | 503) => Some(true),
            Some(520) => {
                let times = failed.entry(answer.url.to_owned()).or_default();
                *times += 1;
                let again = *times < TRIES;
                if !again {
                    failed.remove(answer.url);
                }
                Some(again)
            }
            _ => {
                failed.remove(answer.url);
                // The retry settings decide.
                None
            }
        }
    }
}

/// Sets the delay to `first` after a refusal, doubles it after each further one up to `most`, and returns
/// to the configured pace after any other answer.
pub struct Patient {
    first: Duration,
    most: Duration,
    /// Time of the last change. Answers to earlier requests do not concern the current pace: eight
    /// refusals at once are one step, not eight.
    changed: Instant,
}

/// Its arguments in the configuration, in seconds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    first: f64,
    most: f64,
}

impl Patient {
    /// Creates the strategy for a scope, with its arguments.
    pub fn make(_scope: &str, arguments: Arguments) -> Result<Box<dyn Strategy>, String> {
        let seconds = |name, seconds| {
            Duration::try_from_secs_f64(seconds).map_err(|error| format!("{name}: {error}"))
        };
        let first = seconds("first", arguments.first)?;
        let most = seconds("most", arguments.most)?;
        if first > most {
            return Err("first is longer than most".to_owned());
        }
        Ok(Box::new(Patient {
            first,
            most,
            changed: Instant::START,
        }))
    }
}

impl Strategy for Patient {
    fn start(&mut self, settings: &ScopeSettings) -> Pace {
        Pace {
            delay: settings.delay,
            concurrency: settings.concurrency,
        }
    }

    fn answer(
        &mut self,
        settings: &ScopeSettings,
        pace: Pace,
        observation: &Observation<'_>,
        now: Instant,
    ) -> Pace {
        if observation.sent < self.changed {
            return pace;
        }
        let next = match observation.refused {
            true => Pace {
                delay: (pace.delay * 2).clamp(self.first, self.most),
                concurrency: 1,
            },
            false => self.start(settings),
        };
        if next != pace {
            self.changed = now;
        }
        next
    }
}

/// The strategy of the API, and the statuses that are refusals.
pub fn policy(config: Config) -> Result<Config, ConfigError> {
    config.with(
        "THROTTLING_SCOPES",
        json!({
            "api.toscrape.com": {
                "concurrency": 8,
                "delay": 0.0,
                "backoff": {"http_codes": [429, 503]},
                "manager": {"name": "patient", "first": 1.0, "most": 60.0},
            },
        }),
    )
}

/// Registers both.
pub fn with_policy(builder: Builder) -> Builder {
    builder
        .classify(ApiRetries::default())
        .named_strategy("patient", Patient::make)
}

fn main() -> Result<(), Box<dyn Error>> {
    let builder = Crawler::builder(policy(Config::default())?)
        .sink(|page: Page| println!("{:?} {} try {}", page.status, page.url, page.attempt));
    let mut crawler = with_policy(builder).build()?;
    for url in env::args().skip(1) {
        crawler.submit(Request::get(url))?;
    }
    crawler.run();
    Ok(())
}
