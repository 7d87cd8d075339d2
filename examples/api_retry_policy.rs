//! The retry policy of an API: a 429 or a 503 says "later", and the request is made again for as
//! long as it takes; a 520 says that this page failed, and after four times it is given up.
//!
//! When a request is made again is one question, and how fast the API is asked is another: the first
//! is answered by a [`Classify`], the second by a [`Strategy`] that the configuration names.
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

/// A page that failed is asked for so often in all.
pub const TRIES: u32 = 4;

/// Says which requests are made again.
#[derive(Default)]
pub struct ApiRetries {
    /// How often a page failed, by URL. The number of attempts would not do: it counts refusals, too.
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
                // `RETRY_TIMES` and its like decide.
                None
            }
        }
    }
}

/// After a refusal the API is asked once per `first`, after the next one half as often, down to once
/// per `most`; after anything else as before the refusals.
pub struct Patient {
    first: Duration,
    most: Duration,
    /// When the pace was changed last. What was sent before that says nothing of the present pace:
    /// eight refusals at once are one step, not eight.
    changed: Instant,
}

/// What the configuration says to it, in seconds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    first: f64,
    most: f64,
}

impl Patient {
    /// For the scope that the configuration names it for, with what it says there.
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

/// Which strategy paces the API, and what it takes for a refusal.
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
