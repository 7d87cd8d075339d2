//! The links of a page as one line: `links.jsonl`.

use crate::sink::line::Line;
use crate::wire::html::Link;

/// The links that were found in a page, before filters.
#[derive(Clone, Debug, Default)]
pub struct FoundLinks {
    /// As they are written.
    text: Vec<u8>,
    /// Those beyond [`TEXT_MAX`].
    omitted: u64,
}

/// Links of a page are written up to so many bytes: the line is copied in one step.
const TEXT_MAX: usize = 4 << 20;

impl FoundLinks {
    /// Adds a link.
    pub fn add(&mut self, link: &Link) {
        if self.text.len() >= TEXT_MAX {
            self.omitted += 1;
            return;
        }
        if !self.text.is_empty() {
            self.text.extend_from_slice(b", ");
        }
        let mut line = Line {
            out: &mut self.text,
        };
        line.out.push(b'{');
        line.first("url").text(link.url.as_str());
        line.key("element").text(link.element);
        line.key("attribute").text(link.attribute);
        line.key("nofollow").boolean(link.nofollow);
        line.out.push(b'}');
    }

    /// Appends the line of the page with this number and URL, with its line end.
    pub fn write_line(&self, id: u64, url: &str, out: &mut Vec<u8>) {
        let mut line = Line { out };
        line.out.push(b'{');
        line.first("id").number(id);
        line.key("url").text(url);
        line.key("links");
        line.out.push(b'[');
        line.out.extend_from_slice(&self.text);
        line.out.push(b']');
        line.key("omitted").number(self.omitted);
        line.out.extend_from_slice(b"}\n");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::wire::html::{LinkOptions, links};
    use crate::wire::url::CrawlUrl;

    #[test]
    fn a_line_has_each_link_of_the_page_with_its_place() {
        let url = CrawlUrl::parse("http://a.test/7").expect("a URL");
        let html = "<a href='/x?\"'>x</a><a rel=nofollow href=/y>y</a>";
        let options = LinkOptions {
            nofollow: false,
            ..LinkOptions::default()
        };
        let mut found = FoundLinks::default();
        for link in links(html, &url, &options).links {
            found.add(&link);
        }
        let mut out = Vec::new();
        found.write_line(7, "http://a.test/7", &mut out);
        assert!(out.ends_with(b"\n"));
        let line: Value = serde_json::from_slice(&out).expect("JSON");
        let link = |url: &str, nofollow: bool| json!({"url": url, "element": "a", "attribute": "href", "nofollow": nofollow});
        let expected = [
            link("http://a.test/x?%22", false),
            link("http://a.test/y", true),
        ];
        assert_eq!(
            line,
            json!({"id": 7, "url": "http://a.test/7", "links": expected, "omitted": 0})
        );
    }

    #[test]
    fn links_beyond_the_limit_are_counted() {
        let long = format!("http://a.test/{}", "x".repeat(8000));
        let url = CrawlUrl::parse(&long).expect("a URL");
        let found = links("<a href='?1'>x</a>", &url, &LinkOptions::default()).links;
        let mut all = FoundLinks::default();
        for _ in 0..1000 {
            all.add(&found[0]);
        }
        let mut out = Vec::new();
        all.write_line(7, "http://a.test/7", &mut out);
        assert!(out.len() < TEXT_MAX + 10_000, "{}", out.len());
        let line: Value = serde_json::from_slice(&out).expect("JSON");
        let written = line["links"].as_array().expect("a list").len() as u64;
        let omitted = line["omitted"].as_u64().expect("a number");
        assert!(written > 400 && omitted > 400, "{written} {omitted}");
        assert_eq!(written + omitted, 1000);
    }
}
