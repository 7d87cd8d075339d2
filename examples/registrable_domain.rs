//! One pace for all hosts of a registrable domain: `books.toscrape.com` and `toscrape.com` share
//! the scope `toscrape.com`.
//!
//! By a setting, or with `--own` by a map in code, a starting point for other rules.
//!
//! ```sh
//! cargo run --example registrable_domain -- https://books.toscrape.com/ https://toscrape.com/
//! cargo run --example registrable_domain -- --own https://books.toscrape.com/
//! ```

use std::env;
use std::error::Error;

use argiope::{Config, ConfigError, Crawler, Page, Request, ScopeMap, ScopeQuery};

/// By a setting: `-s SCOPE_MAP=domain` on the command line.
pub fn by_setting(config: Config) -> Result<Config, ConfigError> {
    config.with("SCOPE_MAP", "domain")
}

/// By code: all hosts of a registrable domain have one owner.
pub struct ByOwner;

impl ScopeMap for ByOwner {
    fn scopes(&self, query: &mut ScopeQuery<'_>) {
        let url = query.url();
        // An address, `localhost` or a public suffix has no registrable domain: it is its own scope.
        query.add(url.domain().unwrap_or(url.scope_key()));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (options, urls): (Vec<_>, Vec<_>) =
        env::args().skip(1).partition(|word| word.starts_with("--"));
    let print = |page: Page| println!("{:?} {} under {:?}", page.status, page.url, page.scopes);
    let mut crawler = if options.iter().any(|option| option == "--own") {
        Crawler::builder(Config::default())
            .sink(print)
            .scope_map(ByOwner)
            .build()?
    } else {
        Crawler::builder(by_setting(Config::default())?)
            .sink(print)
            .build()?
    };
    for url in urls {
        crawler.submit(Request::get(url))?;
    }
    crawler.run();
    Ok(())
}
