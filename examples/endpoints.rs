//! A pace for each endpoint of one host, and none for the host. The query is not part of an endpoint.
//!
//! The setting `SCOPE_MAP=endpoint` does this for every host; this program for one host only.
//!
//! ```sh
//! cargo run --example endpoints -- https://api.toscrape.com/fast-endpoint?page=1 \
//!     https://api.toscrape.com/slow-endpoint?page=1
//! ```

use std::env;
use std::error::Error;

use argiope::serde_json::json;
use argiope::{
    ByEndpoint, ByHost, Config, ConfigError, Crawler, Page, Request, ScopeMap, ScopeQuery,
};

/// The host whose endpoints are scopes.
pub const API: &str = "api.toscrape.com";

/// Requests to the API by endpoint, all others by host.
pub struct ApiByEndpoint;

impl ScopeMap for ApiByEndpoint {
    fn scopes(&self, query: &mut ScopeQuery<'_>) {
        match query.url().host_str() {
            API => ByEndpoint.scopes(query),
            _ => ByHost.scopes(query),
        }
    }
}

/// 12.5 requests per second to one endpoint, without a limit in flight; one per 5 seconds to the other.
pub fn paces(config: Config) -> Result<Config, ConfigError> {
    config.with(
        "THROTTLING_SCOPES",
        json!({
            "api.toscrape.com/fast-endpoint": {"concurrency": 1000, "delay": 0.08},
            "api.toscrape.com/slow-endpoint": {"delay": 5.0},
        }),
    )
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut crawler = Crawler::builder(paces(Config::default())?)
        .sink(|page: Page| println!("{:?} {} under {:?}", page.status, page.url, page.scopes))
        .scope_map(ApiByEndpoint)
        .build()?;
    for url in env::args().skip(1) {
        crawler.submit(Request::get(url))?;
    }
    crawler.run();
    Ok(())
}
