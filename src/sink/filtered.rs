//! Links that filters and robots.txt leave out, a line for each: `filtered.jsonl`.

use std::collections::BTreeMap;

use crate::sink::line::Line;

/// The links of a page that filters left out. Duplicates are not among them: what they lead to is fetched.
#[derive(Clone, Debug, Default)]
pub struct FilteredLinks {
    /// Their lines.
    text: Vec<u8>,
    /// Those beyond [`TEXT_MAX`], by filter.
    omitted: BTreeMap<&'static str, u64>,
}

/// One link, or several of which only the number is known.
#[derive(Clone, Copy, Debug)]
pub struct FilteredLink<'a> {
    /// Its URL; `None` if it was not kept.
    pub url: Option<&'a str>,
    /// The page that has it; `None` for a seed or a request from outside.
    pub from: Option<&'a str>,
    /// The name of the filter, or [`DISALLOWED`].
    pub filter: &'static str,
    /// The rule, as a setting is written, or as it stands in robots.txt.
    pub rule: Option<&'a str>,
    /// How many links there are.
    pub count: u64,
}

/// In place of a filter: robots.txt disallows it.
pub const DISALLOWED: &str = "disallowed";

/// Links of a page are written up to so many bytes: the lines are copied in one step.
const TEXT_MAX: usize = 4 << 20;

impl FilteredLink<'_> {
    /// Appends the line, with its line end.
    pub fn write_line(&self, out: &mut Vec<u8>) {
        let mut line = Line { out };
        line.out.push(b'{');
        line.first("url").or_null(self.url, Line::text);
        line.key("from").or_null(self.from, Line::text);
        line.key("filter").text(self.filter);
        line.key("rule").or_null(self.rule, Line::text);
        line.key("count").number(self.count);
        line.out.extend_from_slice(b"}\n");
    }
}

impl FilteredLinks {
    /// Adds a link. Returns the bytes of its line.
    pub fn add(&mut self, link: &FilteredLink<'_>) -> usize {
        if self.text.len() >= TEXT_MAX {
            *self.omitted.entry(link.filter).or_default() += link.count;
            return 0;
        }
        let before = self.text.len();
        link.write_line(&mut self.text);
        self.text.len() - before
    }

    /// Appends all lines of the page with this URL: behind the links, one for each filter that left out more.
    pub fn write_lines(&self, from: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.text);
        for (filter, count) in &self.omitted {
            let rest = FilteredLink {
                url: None,
                from: Some(from),
                filter,
                rule: None,
                count: *count,
            };
            rest.write_line(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::frontier::filter::Filtered;

    fn lines(links: &FilteredLinks) -> Vec<Value> {
        let mut out = Vec::new();
        links.write_lines("http://a.test/", &mut out);
        let lines = out.split_inclusive(|byte| *byte == b'\n');
        lines
            .map(|line| serde_json::from_slice(line).expect("JSON"))
            .collect()
    }

    #[test]
    fn a_line_names_the_link_the_page_the_filter_and_the_rule() {
        let mut links = FilteredLinks::default();
        links.add(&FilteredLink {
            url: Some("http://a.test/x.pdf"),
            from: Some("http://a.test/"),
            filter: Filtered::Denied.as_str(),
            rule: Some(r"DENY=\.pdf$"),
            count: 1,
        });
        let expected = json!({
            "url": "http://a.test/x.pdf",
            "from": "http://a.test/",
            "filter": "denied",
            "rule": r"DENY=\.pdf$",
            "count": 1,
        });
        assert_eq!(lines(&links), [expected]);
    }

    #[test]
    fn links_beyond_the_limit_are_counted_by_filter() {
        let long = format!("http://a.test/{}", "x".repeat(8000));
        let mut links = FilteredLinks::default();
        for number in 0..1000 {
            let filter = match number % 2 {
                0 => Filtered::Offsite.as_str(),
                _ => Filtered::Depth.as_str(),
            };
            links.add(&FilteredLink {
                url: Some(&long),
                from: Some("http://a.test/"),
                filter,
                rule: None,
                count: 1,
            });
        }
        let lines = lines(&links);
        let rest = lines.iter().filter(|line| line["url"].is_null()).count();
        assert_eq!(rest, 2);
        assert!(lines.len() > 400 && lines.len() < 600, "{}", lines.len());
        for filter in ["offsite", "depth"] {
            let counts = lines.iter().filter(|line| line["filter"] == filter);
            let counts = counts.map(|line| line["count"].as_u64().expect("a number"));
            assert_eq!(counts.sum::<u64>(), 500, "{filter}");
        }
    }
}
