//! Fetching through a scraping API: each request has the API and its target site as scopes, and only the
//! scope that refused is slowed down.
//!
//! ```sh
//! cargo run --example scraping_api -- https://example.com/ https://example.org/
//! ```

use std::env;
use std::error::Error;

use argiope::serde_json::json;
use argiope::{
    Answer, ByHost, Classify, Config, ConfigError, CrawlUrl, Crawler, Page, Request, ScopeMap,
    ScopeQuery, Signal,
};

/// The API's host. The target is its parameter `url`; the target's status is in
/// `X-Upstream-Status-Code`.
pub const API: &str = "api.toscrape.com";

/// The target site of a request to the API. `None` for other requests, and without a valid target.
fn target(url: &CrawlUrl) -> Option<String> {
    if url.host_str() != API {
        return None;
    }
    let target = CrawlUrl::parse(&url.query_value("url")?).ok()?;
    Some(target.scope_key().to_owned())
}

/// Requests through the API have its scope and that of their target.
pub struct WithTarget;

impl ScopeMap for WithTarget {
    fn scopes(&self, query: &mut ScopeQuery<'_>) {
        ByHost.scopes(query);
        if let Some(target) = target(query.url()) {
            query.add(target);
        }
    }
}

/// Distinguishes refusals by the API from refusals by the target.
pub struct Upstream;

impl Classify for Upstream {
    fn classify(&self, answer: &Answer<'_>) -> Signal {
        let mut signal = Signal::from_answer(answer);
        let Some(target) = CrawlUrl::parse(answer.url).ok().as_ref().and_then(target) else {
            return signal;
        };
        if answer.status != Some(200) {
            // An error of the API itself.
            return signal.blame_only(API);
        }
        let upstream = answer.headers.get("X-Upstream-Status-Code");
        let upstream = upstream.and_then(|value| str::from_utf8(value).ok()?.parse().ok());
        // An invalid value is ignored.
        signal.status = upstream.or(signal.status);
        signal.blame_only(target)
    }
}

/// The API allows a faster pace than the sites behind it.
pub fn paces(config: Config) -> Result<Config, ConfigError> {
    config.with(
        "THROTTLING_SCOPES",
        json!({"api.toscrape.com": {"concurrency": 1000, "delay": 0.08}}),
    )
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut crawler = Crawler::builder(paces(Config::default())?)
        .sink(|page: Page| println!("{:?} {} under {:?}", page.status, page.url, page.scopes))
        .scope_map(WithTarget)
        .classify(Upstream)
        .build()?;
    for target in env::args().skip(1) {
        let url = url::Url::parse_with_params(&format!("https://{API}/"), [("url", target)])?;
        crawler.submit(Request::get(url))?;
    }
    crawler.run();
    Ok(())
}
