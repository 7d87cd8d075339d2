//! What is excluded by order while a crawl runs: hosts, domains, networks, and patterns of URLs.

use regex::Regex;

use super::filter::{excluding, is_excluded};
use crate::base::address::Network;
use crate::wire::url::CrawlUrl;

/// Something that is excluded.
#[derive(Clone, Debug)]
pub enum Exclusion {
    /// A host (`example.com`), or a domain with all below (`*.example.com`).
    Name(String),
    /// A network: addresses in it are not connected to.
    Network(Network),
    /// A pattern of URLs, from `re:PATTERN`.
    Pattern(Regex),
}

/// Prefix of patterns in the text of an exclusion.
pub const PATTERN_PREFIX: &str = "re:";

impl Exclusion {
    /// The text by which it is ordered and withdrawn.
    pub fn text(&self) -> String {
        match self {
            Exclusion::Name(name) => name.clone(),
            Exclusion::Network(network) => network.to_string(),
            Exclusion::Pattern(pattern) => format!("{PATTERN_PREFIX}{pattern}"),
        }
    }

    /// The key of its text in a line of `orders.jsonl`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Exclusion::Name(_) => "host",
            Exclusion::Network(_) => "network",
            Exclusion::Pattern(_) => "pattern",
        }
    }
}

/// The exclusions by order.
#[derive(Debug, Default)]
pub struct Exclusions {
    /// All, in order.
    texts: Vec<String>,
    names: Vec<String>,
    patterns: Vec<Regex>,
}

/// Most exclusions by order, and most patterns among them: each URL is compared with them.
pub const EXCLUSIONS_MAX: usize = 1000;
pub const PATTERNS_MAX: usize = 50;

/// Octets of a URL that a pattern is compared with in a step.
const OCTETS_PER_STEP: usize = 32;

impl Exclusions {
    /// Adds one. Returns false if it is there, or if there are too many.
    pub fn add(&mut self, exclusion: &Exclusion) -> bool {
        let text = exclusion.text();
        if self.has(&text) || self.texts.len() >= EXCLUSIONS_MAX {
            return false;
        }
        match exclusion {
            Exclusion::Name(name) => self.names.push(name.clone()),
            Exclusion::Pattern(_) if self.patterns.len() >= PATTERNS_MAX => return false,
            Exclusion::Pattern(pattern) => self.patterns.push(pattern.clone()),
            // The network has its own list of these.
            Exclusion::Network(_) => {}
        }
        self.texts.push(text);
        true
    }

    /// Removes one; returns false if it is not there.
    pub fn remove(&mut self, exclusion: &Exclusion) -> bool {
        let text = exclusion.text();
        let Some(at) = self.texts.iter().position(|known| *known == text) else {
            return false;
        };
        self.texts.remove(at);
        match exclusion {
            Exclusion::Name(name) => self.names.retain(|known| known != name),
            Exclusion::Pattern(pattern) => {
                let is_other = |known: &Regex| known.as_str() != pattern.as_str();
                self.patterns.retain(is_other);
            }
            Exclusion::Network(_) => {}
        }
        true
    }

    /// Whether there is one of this text.
    pub fn has(&self, text: &str) -> bool {
        self.texts.iter().any(|known| known == text)
    }

    /// The texts of all.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Whether a host is excluded, itself or by its domain.
    pub fn exclude_host(&self, host: &str) -> bool {
        !self.names.is_empty() && is_excluded(&self.names, host)
    }

    /// Whether there are patterns.
    pub fn have_patterns(&self) -> bool {
        !self.patterns.is_empty()
    }

    /// Whether a URL is excluded by its host or by a pattern. Networks are not compared here.
    pub fn exclude(&self, url: &CrawlUrl) -> bool {
        self.exclude_host(url.host_str()) || self.match_pattern(url.as_str())
    }

    /// The text of the exclusion that [excludes](Exclusions::exclude) a URL.
    pub fn text_for(&self, url: &CrawlUrl) -> Option<String> {
        if let Some(at) = excluding(&self.names, url.host_str()) {
            return self.names.get(at).cloned();
        }
        let mut patterns = self.patterns.iter();
        let pattern = patterns.find(|pattern| pattern.is_match(url.as_str()))?;
        Some(Exclusion::Pattern(pattern.clone()).text())
    }

    /// Steps that the comparison of a URL with the patterns takes, about as long each as that of a path with a rule of
    /// robots.txt.
    pub fn pattern_steps(&self, url: &str) -> usize {
        self.patterns.len() * (1 + url.len() / OCTETS_PER_STEP)
    }

    /// Whether a pattern matches a URL.
    pub fn match_pattern(&self, url: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.is_match(url))
    }

    /// Units that the comparison with a URL takes: its octets for each pattern, and each name.
    pub fn units(&self, url: &CrawlUrl) -> usize {
        url.as_str().len() * self.patterns.len() + 4 * self.names.len()
    }
}
