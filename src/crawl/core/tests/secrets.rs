//! What the tables of a crawl hash under.

use crate::crawl::config::Config;
use crate::crawl::{Crawler, Parts};
use crate::sink::function::FunctionSink;

/// Hashes of a text in a new crawl on the kernel: by its table of scopes, and by its table of URLs.
fn hashes(seed: Option<u64>) -> (u64, u64) {
    let mut config = Config::default();
    config.random_seed = seed;
    let parts = Parts::new(FunctionSink::new(|_| ()));
    let crawler = Crawler::new(config, parts).expect("a crawler");
    let text = "http://a.test/";
    let core = &crawler.core;
    let secrets = [core.throttle.secret(), core.frontier.secret()];
    let [scopes, urls] = secrets.map(|secret| secret.keys().url(text).0);
    (scopes, urls)
}

#[test]
fn each_kernel_crawl_hashes_all_its_tables_under_its_own_secret() {
    // The seed may be published, so the secret must not depend on it.
    for seed in [None, Some(1)] {
        let (one, other) = (hashes(seed), hashes(seed));
        assert_eq!(one.0, one.1, "one secret for all tables");
        assert_ne!(one.0, other.0, "another crawl has another");
    }
}
