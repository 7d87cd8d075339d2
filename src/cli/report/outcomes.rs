//! Status and errors of attempts.

use std::collections::BTreeMap;

use serde::Serialize;

use super::counts::beginning;
use super::line::Line;

/// How attempts ended.
#[derive(Default, Serialize)]
pub struct Outcomes {
    /// Attempts by the status of their final head.
    pub status: BTreeMap<u16, u64>,
    /// Attempts without a status that were sent.
    pub without_status: u64,
    /// Attempts by error, the most frequent first.
    pub errors: Vec<ErrorCount>,
    /// Errors of codes that are not listed.
    pub errors_omitted: u64,
    /// Bodies that are incomplete, by reason.
    pub truncated: BTreeMap<String, u64>,
    #[serde(skip)]
    by_code: BTreeMap<String, ErrorCount>,
}

/// Attempts with an error of one code, and the first example.
#[derive(Clone, Serialize)]
pub struct ErrorCount {
    pub code: String,
    pub count: u64,
    pub url: String,
    pub detail: String,
}

/// Most codes, and reasons of truncation, that are counted one by one; a crawl has fewer.
const CODES_MAX: usize = 200;
/// Most bytes of an example that are kept.
const EXAMPLE_MAX: usize = 300;

impl Outcomes {
    pub fn add(&mut self, line: &Line<'_>) {
        match line.status {
            Some(status) => *self.status.entry(status).or_default() += 1,
            None => self.without_status += u64::from(line.sent.is_some()),
        }
        if let Some(truncated) = &line.truncated {
            let reason = beginning(&truncated.0, EXAMPLE_MAX);
            if self.truncated.len() < CODES_MAX || self.truncated.contains_key(reason) {
                *self.truncated.entry(reason.to_owned()).or_default() += 1;
            }
        }
        let Some(error) = &line.error else {
            return;
        };
        let code = beginning(&error.code.0, EXAMPLE_MAX);
        if let Some(known) = self.by_code.get_mut(code) {
            known.count += 1;
        } else if self.by_code.len() < CODES_MAX {
            let first = ErrorCount {
                code: code.to_owned(),
                count: 1,
                url: beginning(&line.url.0, EXAMPLE_MAX).to_owned(),
                detail: beginning(&error.detail.0, EXAMPLE_MAX).to_owned(),
            };
            self.by_code.insert(code.to_owned(), first);
        } else {
            self.errors_omitted += 1;
        }
    }

    /// With the errors in their order.
    pub fn finished(mut self) -> Self {
        self.errors = std::mem::take(&mut self.by_code).into_values().collect();
        self.errors
            .sort_by_key(|error| std::cmp::Reverse(error.count));
        self
    }

    /// Attempts with a status from 400 on.
    pub fn refused(&self) -> u64 {
        self.status.range(400..).map(|(_, count)| count).sum()
    }

    /// Attempts with an error whose code begins with this.
    pub fn errors_of(&self, family: &str) -> u64 {
        let errors = self.errors.iter();
        let of_family = errors.filter(|error| error.code.starts_with(family));
        of_family.map(|error| error.count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_beyond_the_bound_are_counted_together_and_the_most_frequent_come_first() {
        let mut outcomes = Outcomes::default();
        let codes = (0..CODES_MAX + 5).chain([7]);
        for code in codes {
            let line = format!(
                "{{\"url\": \"http://{code}.test/\", \"kind\": \"page\", \"final\": true, \"error\": {{\"code\": \
                 \"dns.{code}\", \"detail\": \"d{code}\"}}}}"
            );
            outcomes.add(&serde_json::from_str(&line).expect("a line"));
        }
        let outcomes = outcomes.finished();
        assert_eq!(
            (outcomes.errors.len(), outcomes.errors_omitted),
            (CODES_MAX, 5)
        );
        let first = &outcomes.errors[0];
        let shown = (first.code.as_str(), first.count, first.detail.as_str());
        assert_eq!(shown, ("dns.7", 2, "d7"));
        assert_eq!(first.url, "http://7.test/");
        assert_eq!(outcomes.errors_of("dns."), CODES_MAX as u64 + 1);
        assert_eq!((outcomes.refused(), outcomes.without_status), (0, 0));
    }
}
