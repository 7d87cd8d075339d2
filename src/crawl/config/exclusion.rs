//! What may be excluded while a crawl runs.

use std::net::{IpAddr, Ipv6Addr};

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
        // As the host of a URL is written.
        let bare = entry.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        let bare = bare.filter(|address| address.parse::<Ipv6Addr>().is_ok());
        let checked = Exclusions::read(&Value::from([bare.unwrap_or(entry)].as_slice()));
        let entry = checked.map_err(|_| none_of_these(entry))?.remove(0);
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
        let is_host = !name.contains(['/', '?', '#', '@', '*']);
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

/// What is wrong with text that is nothing to exclude.
fn none_of_these(entry: &str) -> String {
    let address = entry.strip_prefix("ip/").map(str::parse);
    match address {
        Some(Ok(IpAddr::V4(address))) => {
            format!("{entry:?} is a scope; give {address}/32 to send nothing to this address")
        }
        Some(Ok(IpAddr::V6(address))) => {
            format!("{entry:?} is a scope; give {address}/128 to send nothing to this address")
        }
        _ => format!(
            "{entry:?} is neither a host nor a network; give a host without scheme and port (example.com), \
             *.example.com, 192.0.2.0/24, or a pattern of URLs as {PATTERN_PREFIX}PATTERN"
        ),
    }
}

/// The name of a host that URLs may have.
fn check_name(entry: String) -> Result<String, String> {
    let host = entry.strip_prefix("*.").unwrap_or(&entry);
    match CrawlUrl::parse(&format!("http://{host}/")) {
        Ok(url) if url.host_str() == host => Ok(entry),
        _ => Err(none_of_these(&entry)),
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
        check("[2001:DB8::1]", Ok(("host", "[2001:db8::1]")));
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
        check("[a]", Err("neither a host nor a network"));
        check("a.test:8080", Err("without scheme and port"));
        check("http://a.test/", Err("re:PATTERN"));
        check("ip/192.0.2.1", Err("give 192.0.2.1/32"));
        check("ip/2001:db8::1", Err("give 2001:db8::1/128"));
        check("ip/a", Err("neither a host nor a network"));
    }

    #[test]
    fn a_host_has_no_port_no_path_and_no_star() {
        assert_eq!(Config::check_host("A.test"), Ok("a.test".to_owned()));
        for wrong in [
            "a.test:8080",
            "a.test/x",
            "u@a.test",
            "*.a.test",
            "ip/192.0.2.1",
            "",
        ] {
            let error = Config::check_host(wrong).expect_err(wrong);
            assert!(error.contains("is no host"), "{error}");
        }
    }
}
