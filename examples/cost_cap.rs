//! A cap on the cost at an API whose requests differ in cost: 100 credits in 60 seconds.
//!
//! Each request is charged an estimate when it departs, which is replaced by the cost in the reply.
//!
//! ```sh
//! cargo run --example cost_cap -- 'https://api.toscrape.com/?url=a' \
//!     'https://api.toscrape.com/?url=b&browser=1'
//! ```

use std::env;
use std::error::Error;

use argiope::serde_json::json;
use argiope::{
    Answer, ByHost, Classify, Config, ConfigError, CrawlUrl, Crawler, Feedback, Page, Request,
    ScopeMap, ScopeQuery, Signal,
};

/// The API's host.
pub const API: &str = "api.toscrape.com";
/// The scope of the cost.
pub const COST: &str = "cost";

/// Adds the expected cost of requests to the API.
pub struct Priced;

impl Priced {
    /// The expected cost of a request: higher with a browser.
    pub fn estimate(url: &CrawlUrl) -> f64 {
        match url.query_value("browser") {
            Some(_) => 10.0,
            None => 2.0,
        }
    }
}

impl ScopeMap for Priced {
    fn scopes(&self, query: &mut ScopeQuery<'_>) {
        ByHost.scopes(query);
        if query.url().host_str() == API {
            query.add_cost(COST, Priced::estimate(query.url()));
        }
    }
}

/// Reads the actual cost of a request.
pub struct ActualCost;

impl Classify for ActualCost {
    fn classify(&self, answer: &Answer<'_>) -> Signal {
        let signal = Signal::from_answer(answer);
        let cost = answer.headers.get("X-Actual-Cost");
        match cost.and_then(|value| str::from_utf8(value).ok()?.trim().parse().ok()) {
            Some(units) => signal.feedback(Feedback::new(COST).actual(units)),
            // Without a cost in the reply the estimate remains.
            None => signal,
        }
    }
}

/// The cap: a scope with only a quota delays nothing until the quota is spent.
pub fn cap(config: Config) -> Result<Config, ConfigError> {
    config.with(
        "THROTTLING_SCOPES",
        json!({
            "api.toscrape.com": {"concurrency": 16, "delay": 0.0},
            "cost": {"quota": 100.0, "window": 60.0},
        }),
    )
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut crawler = Crawler::builder(cap(Config::default())?)
        .sink(|page: Page| println!("{:?} {} under {:?}", page.status, page.url, page.scopes))
        .scope_map(Priced)
        .classify(ActualCost)
        .build()?;
    for url in env::args().skip(1) {
        crawler.submit(Request::get(url))?;
    }
    crawler.run();
    Ok(())
}
