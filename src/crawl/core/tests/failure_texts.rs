//! Texts of failures name what has caused them.

use serde_json::json;

use crate::crawl::core::tests::trial::{crawl_named_web, finish};
use crate::frontier::request::Request;
use crate::io::sim::web::{Reply, Web};

/// The texts of the failures of a crawl of these URLs under these settings.
fn failures(settings: &[(&str, &str)], urls: &[&str]) -> Vec<String> {
    let web = Web::new(|_| Reply::page("a page"));
    let (mut crawler, record) = crawl_named_web(&web, |config, _| {
        for (name, value) in settings {
            *config = config.clone().with(name, *value).expect("a setting");
        }
    });
    for url in urls {
        crawler.submit(Request::get(*url)).expect("a URL");
    }
    finish(&mut crawler);
    let pages = record.pages.borrow();
    let failures = pages.iter().filter_map(|page| page.failure.as_ref());
    failures.map(ToString::to_string).collect()
}

#[test]
fn a_blocked_address_is_not_said_to_be_the_fault_of_the_proxy() {
    let failures = failures(
        &[("PROXY", "http://10.0.0.9:3128")],
        &["http://192.168.0.1/"],
    );
    let [failure] = &failures[..] else {
        panic!("{failures:?}");
    };
    assert!(failure.contains("192.168.0.1 is not"), "{failure}");
    assert!(!failure.contains("proxy"), "{failure}");
}

#[test]
fn a_limit_of_pages_is_named_as_it_was_set() {
    let urls = ["http://a.test/1", "http://a.test/2"];
    let hosts = json!({"a.test": {"pages_max": 1}}).to_string();
    for (setting, value, named) in [
        ("HOSTS", &hosts[..], "HOSTS.\"a.test\".pages_max=1"),
        ("PAGES_PER_HOST_MAX", "1", "PAGES_PER_HOST_MAX"),
    ] {
        let failures = failures(&[(setting, value)], &urls);
        let [failure] = &failures[..] else {
            panic!("{failures:?}");
        };
        assert!(failure.contains(named), "{failure}");
    }
}
