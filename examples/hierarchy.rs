//! A cap for a domain and lower ones for its hosts: `books.toscrape.com` may have 24 requests in
//! flight and `quotes.toscrape.com` 16, but both together never more than the 32 of
//! `toscrape.com`.
//!
//! ```sh
//! cargo run --example hierarchy -- https://books.toscrape.com/ https://quotes.toscrape.com/
//! ```

use std::env;
use std::error::Error;

use argiope::serde_json::json;
use argiope::{Config, ConfigError, Crawler, Page, Request};

/// Each request is sent under its registrable domain and every level below it, and leaves when all
/// of them allow.
pub fn by_level(config: Config) -> Result<Config, ConfigError> {
    // With the usual second between two requests there would never be more than one in flight.
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
