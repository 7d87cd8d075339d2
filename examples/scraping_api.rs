//! Fetching through a scraping API: each request waits for the API and for the site that it is
//! about, and whichever of the two refuses is the one that is asked more slowly.
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

/// The API's host. It takes the target as `?url=` and tells what the target answered in
/// `X-Upstream-Status-Code`.
pub const API: &str = "api.toscrape.com";

/// The site that a request to the API is about. `None` for other requests, and where the URL names
/// no site.
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

/// Tells refusals of the API from refusals of the target.
pub struct Upstream;

impl Classify for Upstream {
    fn classify(&self, answer: &Answer<'_>) -> Signal {
        let mut signal = Signal::of(answer);
        let Some(target) = CrawlUrl::parse(answer.url).ok().as_ref().and_then(target) else {
            return signal;
        };
        if answer.status != Some(200) {
            // The error is the API's own; the target gave no answer.
            return signal.blame_only(API);
        }
        let upstream = answer.headers.get("X-Upstream-Status-Code");
        let upstream = upstream.and_then(|value| str::from_utf8(value).ok()?.parse().ok());
        // What is no status says nothing.
        signal.status = upstream.or(signal.status);
        signal.blame_only(target)
    }
}

/// The API may be asked much faster than any of the sites behind it.
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
