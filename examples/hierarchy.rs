//! A cap for a domain and lower ones for its hosts: at most 24 requests in flight for
//! `books.toscrape.com`, 16 for `quotes.toscrape.com`, and 32 for `toscrape.com` with all its hosts.
//!
//! ```sh
//! cargo run --example hierarchy -- https://books.toscrape.com/ https://quotes.toscrape.com/
//! ```

use std::env;
use std::error::Error;

use argiope::serde_json::json;
use argiope::{Config, ConfigError, Crawler, Page, Request};

/// Each request has its registrable domain and every level below it as scopes, and departs when all of
/// them allow.
pub fn by_level(config: Config) -> Result<Config, ConfigError> {
    // With the default delay of a second there would rarely be more than one in flight.
    config.with("SCOPE_MAP", "hierarchy")?.with(
        "THROTTLING_SCOPES",
        json!({
            "toscrape.com": {"concurrency": 32, "delay": 0.0},
            "books.toscrape.com": {"concurrency": 24, "delay": 0.0},
            "quotes.toscrape.com": {"concurrency": 16, "delay": 0.0},
        }),
    )
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut crawler = Crawler::builder(by_level(Config::default())?)
        .sink(|page: Page| println!("{:?} {} under {:?}", page.status, page.url, page.scopes))
        .build()?;
    for url in env::args().skip(1) {
        crawler.submit(Request::get(url))?;
    }
    crawler.run();
    Ok(())
}
