//! Crawls for tests, without delays and retries.

use std::sync::{Arc, Mutex};

use argiope::{Config, Crawler, FinishReason, Page, Request};

/// No delay, no robots.txt, no second tries; and these settings, the last of which holds.
pub fn config(settings: &[(&str, &str)]) -> Config {
    let usual = [
        ("DOWNLOAD_DELAY", "0"),
        ("RANDOMIZE_DOWNLOAD_DELAY", "false"),
        ("ROBOTSTXT_OBEY", "false"),
        ("RETRY_TIMES", "0"),
    ];
    let all = usual.iter().chain(settings);
    all.fold(Config::default(), |config, (name, value)| {
        config.with(name, *value).expect("a sound setting")
    })
}

/// Crawls these requests to the end.
pub fn crawl(config: Config, requests: Vec<Request>) -> Vec<Page> {
    let pages: Arc<Mutex<Vec<Page>>> = Arc::default();
    let sink_pages = Arc::clone(&pages);
    let mut crawler = Crawler::builder(config)
        .sink(move |page: Page| sink_pages.lock().expect("no test panics").push(page))
        .build()
        .expect("a crawler");
    for request in requests {
        crawler.submit(request).expect("a sound request");
    }
    assert_eq!(crawler.run(), FinishReason::Finished);
    std::mem::take(&mut pages.lock().expect("no test panics"))
}
