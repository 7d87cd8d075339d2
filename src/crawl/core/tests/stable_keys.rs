//! Crawls whose stable keys are given, as those of shards are.

use crate::base::keys::{Keys, UrlKey};
use crate::crawl::core::tests::trial::config;
use crate::crawl::{Crawler, Parts};
use crate::fetch::resolver::ResolverSettings;
use crate::io::sim::{Origins, Sim};
use crate::sink::NullSink;
use crate::wire::url::CrawlUrl;

/// Keys of a URL and of a host in a crawl with a secret of its own.
fn keys_in_a_crawl(keys: Option<Keys>) -> (UrlKey, u64) {
    let parts = Parts {
        entropy: Some(1),
        keys,
        ..Parts::new(NullSink)
    };
    let io = Sim::new(1, Box::new(Origins::default()));
    let crawler = Crawler::on(io, config(1), ResolverSettings::default(), parts);
    let core = crawler.expect("a crawler").core;
    let url = CrawlUrl::parse("http://a.test/").expect("a URL");
    (
        core.frontier.url_key(&url),
        core.outage.network_of("a.test"),
    )
}

#[test]
fn crawls_with_equal_keys_name_urls_and_hosts_alike_and_others_do_not() {
    let given = Keys::from_bytes([7; 16]);
    let expected = (given.url("http://a.test/"), given.host("a.test").0);
    assert_eq!(keys_in_a_crawl(Some(given)), expected);
    assert_eq!(keys_in_a_crawl(Some(given)), expected);
    let (one, other) = (keys_in_a_crawl(None), keys_in_a_crawl(None));
    assert!(one != other && one != expected);
}
