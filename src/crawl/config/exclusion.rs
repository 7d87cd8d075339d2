//! What may be excluded while a crawl runs.

use std::net::IpAddr;

use regex::{Regex, RegexBuilder};
use serde_json::Value;

use super::Config;
use super::form::Form;
use super::net::Exclusions;
use crate::frontier::exclusion::{Exclusion, PATTERN_PREFIX};
use crate::wire::url::CrawlUrl;

/// Bytes of a pattern that is excluded by order, and of its compiled form.
const PATTERN_BYTES_MAX: usize = 256;
const PATTERN_MEMORY_MAX: usize = 128 << 10;

impl Config {
    /// Validates what is to be excluded during a crawl: a host, `*.domain`, a network in CIDR notation, or
    /// `re:PATTERN`. Returns its normalised form, or what is wrong.
    pub(crate) fn check_exclusion(entry: &str) -> Result<Exclusion, String> {
        if let Some(pattern) = entry.strip_prefix(PATTERN_PREFIX) {
            return check_pattern(pattern).map(Exclusion::Pattern);
        }
        let checked = Exclusions::read(&Value::from([entry].as_slice()));
        let entry = checked.map_err(|problem| problem.to_string())?.remove(0);
        match entry.parse() {
            Ok(IpAddr::V4(_)) => return Ok(Exclusion::Name(entry)),
            // As the host of a URL.
            Ok(IpAddr::V6(address)) => return Ok(Exclusion::Name(format!("[{address}]"))),
            Err(_) => {}
        }
        Ok(match entry.parse() {
            Ok(network) => Exclusion::Network(network),
            Err(_) => Exclusion::Name(check_name(entry)?),
        })
    }
}

impl Config {
    /// Validates the name of a host, without a port. Returns its normalised form, or what is wrong.
    pub(crate) fn check_host(name: &str) -> Result<String, String> {
        let is_host = !name.contains(['/', '?', '#', '@']);
        match CrawlUrl::parse(&format!("http://{name}/")) {
            Ok(url) if is_host && url.host_str() == url.scope_key() => {
                Ok(url.host_str().to_owned())
            }
            _ => Err(format!(
                "{name:?} is no host: give its name without a port, such as example.com"
            )),
        }
    }
}

/// The name of a host that URLs may have.
fn check_name(entry: String) -> Result<String, String> {
    let host = entry.strip_prefix("*.").unwrap_or(&entry);
    match CrawlUrl::parse(&format!("http://{host}/")) {
        Ok(url) if url.host_str() == host => Ok(entry),
        _ => Err(format!(
            "{entry} is no host, no *.domain and no network; a pattern of URLs is written {PATTERN_PREFIX}PATTERN"
        )),
    }
}

/// A pattern of URLs that is excluded by order. Its compiled form is bounded: it is made while the crawl runs.
fn check_pattern(pattern: &str) -> Result<Regex, String> {
    if pattern.is_empty() || pattern.len() > PATTERN_BYTES_MAX {
        return Err(format!(
            "a pattern has 1 to {PATTERN_BYTES_MAX} bytes after {PATTERN_PREFIX}, not {}",
            pattern.len()
        ));
    }
    let mut builder = RegexBuilder::new(pattern);
    let built = builder.size_limit(PATTERN_MEMORY_MAX).build();
    built.map_err(|error| format!("{pattern} is no pattern that can be used: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<(&str, &str), &str>) {
        let found = Config::check_exclusion(text);
        match (&found, expected) {
            (Ok(exclusion), Ok(expected)) => {
                assert_eq!((exclusion.kind(), exclusion.text().as_str()), expected);
            }
            (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
            _ => panic!("{text}: {found:?}"),
        }
    }

    #[test]
    fn a_host_a_domain_a_network_and_a_pattern_are_told_apart() {
        check("Example.COM", Ok(("host", "example.com")));
        check("*.example.com", Ok(("host", "*.example.com")));
        check("192.0.2.1", Ok(("host", "192.0.2.1")));
        check("2001:db8::1", Ok(("host", "[2001:db8::1]")));
        check("192.0.2.0/24", Ok(("network", "192.0.2.0/24")));
        check("2001:db8::/32", Ok(("network", "2001:db8::/32")));
        check("re:/calendar/", Ok(("pattern", "re:/calendar/")));
    }

    #[test]
    fn what_is_none_of_these_is_refused_with_the_reason() {
        check("re:", Err("1 to 256 bytes"));
        check("re:(", Err("no pattern that can be used"));
        check(&format!("re:{}", "x".repeat(257)), Err("not 257"));
        check("re:\\w{250}", Err("no pattern that can be used"));
        check("a/b", Err("a/b"));
        check("\\d+", Err("re:PATTERN"));
        check("*.a*.test", Err("neither a host nor a network"));
        check("192.0.2.0/33", Err("192.0.2.0/33"));
    }
}
