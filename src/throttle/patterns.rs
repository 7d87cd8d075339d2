//! What is said of many scopes at once: by a pattern of their names, or of all of them.

use std::collections::BTreeMap;

/// Values by the name of a scope, by patterns of names, and one for all others.
///
/// A pattern has one `*`, in front or at the end, which stands for one character at least:
/// `*.example.com` is every host below `example.com` and not itself, `ip/127.*` every address that
/// begins so. Asked for a name, its own value comes first, then that of the longest pattern, then
/// the one of [`DEFAULT`].
#[derive(Clone, Debug)]
pub struct ScopePatterns<T> {
    exact: BTreeMap<String, T>,
    /// Longest first.
    patterns: Vec<(Pattern, T)>,
    default: Option<T>,
}

/// The key that means every scope of which nothing else is said.
pub const DEFAULT: &str = "default";

/// A key that is no pattern, and was meant as one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{key:?} is no pattern of scopes: {what} (write one like \"*.example.com\" or \"ip/127.*\")"
)]
pub struct PatternError {
    /// The key.
    pub key: String,
    /// What is wrong with it.
    pub what: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    EndsWith(String),
    BeginsWith(String),
}

impl<T> ScopePatterns<T> {
    /// Reads the keys.
    ///
    /// # Errors
    /// One of them has a `*` that no pattern has.
    pub fn new(
        entries: impl IntoIterator<Item = (impl Into<String>, T)>,
    ) -> Result<Self, PatternError> {
        let mut all = ScopePatterns {
            exact: BTreeMap::new(),
            patterns: Vec::new(),
            default: None,
        };
        for (key, value) in entries {
            let key = key.into();
            if key == DEFAULT {
                all.default = Some(value);
            } else if let Some(pattern) = Pattern::read(&key)? {
                all.patterns.push((pattern, value));
            } else {
                all.exact.insert(key, value);
            }
        }
        // Stable: of two that are as long, the first given is looked at first.
        all.patterns
            .sort_by_key(|(pattern, _)| std::cmp::Reverse(pattern.fixed().len()));
        Ok(all)
    }

    /// What is said of the scope of this name.
    pub fn find(&self, name: &str) -> Option<&T> {
        self.exact
            .get(name)
            .or_else(|| {
                let fits = |(pattern, _): &&(Pattern, T)| pattern.fits(name);
                self.patterns.iter().find(fits).map(|(_, value)| value)
            })
            .or(self.default.as_ref())
    }
}

impl Pattern {
    /// The pattern that a key is; `None` for one that is a name.
    fn read(key: &str) -> Result<Option<Pattern>, PatternError> {
        let wrong = |what| {
            Err(PatternError {
                key: key.to_owned(),
                what,
            })
        };
        let stars = key.matches('*').count();
        match (key.strip_prefix('*'), key.strip_suffix('*')) {
            _ if stars == 0 => Ok(None),
            _ if stars > 1 => wrong("it has more than one `*`"),
            (Some(""), _) => wrong("a `*` alone is every scope, which is called \"default\""),
            (Some(end), _) => Ok(Some(Pattern::EndsWith(end.to_owned()))),
            (_, Some(beginning)) => Ok(Some(Pattern::BeginsWith(beginning.to_owned()))),
            (None, None) => wrong("its `*` is neither in front nor at the end"),
        }
    }

    fn fixed(&self) -> &str {
        match self {
            Pattern::EndsWith(fixed) | Pattern::BeginsWith(fixed) => fixed,
        }
    }

    fn fits(&self, name: &str) -> bool {
        name.len() > self.fixed().len()
            && match self {
                Pattern::EndsWith(end) => name.ends_with(end.as_str()),
                Pattern::BeginsWith(beginning) => name.starts_with(beginning.as_str()),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(keys: &[&'static str]) -> ScopePatterns<&'static str> {
        ScopePatterns::new(keys.iter().map(|key| (*key, *key))).expect("they are sound")
    }

    #[test]
    fn f12_a_name_goes_before_a_pattern_and_the_longest_pattern_before_the_others() {
        let all = patterns(&[
            "default",
            "*.com",
            "*.example.com",
            "a.example.com",
            "ip/127.*",
            "ip/*",
        ]);
        let check = |name, expected| assert_eq!(all.find(name), Some(&expected), "{name}");
        check("a.example.com", "a.example.com");
        check("b.example.com", "*.example.com");
        check("x.a.example.com", "*.example.com");
        check("example.com", "*.com");
        check("badexample.com", "*.com");
        check("ip/127.0.0.1", "ip/127.*");
        check("ip/10.0.0.1", "ip/*");
        check("ip/", "default");
        check("com", "default");
        check("", "default");
        // A key is no name of a scope.
        check("*.example.com", "*.example.com");
    }

    #[test]
    fn f12_an_apex_is_not_below_itself() {
        assert_eq!(patterns(&["*.example.com"]).find("example.com"), None);
        assert_eq!(patterns(&["*.example.com"]).find(".example.com"), None);
        assert_eq!(patterns(&[]).find("example.com"), None);
    }

    #[test]
    fn f14_a_key_that_is_no_pattern_is_named_with_its_fault() {
        let check = |key: &str, expected: &str| {
            let error = ScopePatterns::new([(key, ())]).expect_err("it is none");
            assert_eq!(error.key, key);
            let told = error.to_string();
            assert!(told.contains(key) && told.contains(expected), "{told}");
        };
        check("*", "\"default\"");
        check("*.example.*", "more than one");
        check("**.example.com", "more than one");
        check("a.*.com", "neither in front nor at the end");
    }
}
