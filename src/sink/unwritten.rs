//! Converts result lines that could not be written back to requests.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::fetch::failure::FailureKind;
use crate::frontier::request::{PageKind, Request};

/// The fields of a result line from which its request is made.
#[derive(Deserialize)]
struct Line {
    id: u64,
    kind: String,
    #[serde(rename = "final")]
    is_final: bool,
    url: String,
    method: String,
    depth: u32,
    error: Option<LineError>,
    meta: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct LineError {
    kind: String,
}

/// The requests of the final lines of pages and sitemaps: from `known`, by attempt number, or else
/// from the line itself. Cancelled requests are pending already. A request with a body cannot be
/// rebuilt from its line; such losses are logged.
pub fn requests(lines: &[u8], mut known: BTreeMap<u64, Box<Request>>) -> Vec<Request> {
    let mut bodies = 0;
    let lines = lines.split(|byte| *byte == b'\n');
    let requests = lines.filter_map(|line| {
        let line: Line = serde_json::from_slice(line).ok()?;
        let cancelled = FailureKind::Cancelled.as_str();
        let is_cancelled = line.error.is_some_and(|error| error.kind == cancelled);
        if !line.is_final || is_cancelled {
            return None;
        }
        if let Some(request) = known.remove(&line.id) {
            return Some(*request);
        }
        // A robots.txt is requested again by the pages that wait for it.
        if line.kind != PageKind::Page.as_str() {
            return None;
        }
        if !matches!(line.method.as_str(), "GET" | "HEAD") {
            bodies += 1;
            return None;
        }
        let mut request = Request::get(line.url);
        if line.method != "GET" {
            request.method = line.method;
        }
        request.depth = line.depth;
        request.meta = line.meta;
        Some(request)
    });
    let requests = requests.collect();
    if bodies > 0 {
        log::warn!(
            "{bodies} results that could not be written belong to requests with a body and are lost"
        );
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::page::samples;
    use crate::sink::results::{write_from_place, write_place, write_until_place};

    #[test]
    fn an_unwritten_sitemap_is_requested_again_and_a_robots_txt_is_not() {
        let mut lines = Vec::new();
        for (id, kind) in [
            (1, PageKind::Sitemap),
            (2, PageKind::Robots),
            (3, PageKind::Sitemap),
        ] {
            let mut page = samples::page(id);
            (page.kind, page.is_final) = (kind, id != 3);
            write_until_place(&page, None, &mut lines);
            write_place(None, &mut lines);
            write_from_place(&page, None, &mut lines);
        }
        let mut sitemap = Request::get("http://a.test/sitemap.xml");
        sitemap.sitemap = 1;
        let known = BTreeMap::from([(1, Box::new(sitemap.clone()))]);
        let again = requests(&lines, known);
        let again: Vec<_> = again.iter().map(Request::to_line).collect();
        assert_eq!(again, [sitemap.to_line()]);
    }

    #[test]
    fn unwritten_final_pages_are_requested_again() {
        let mut lines = Vec::new();
        for id in 1..=4 {
            let mut page = samples::page(id);
            page.url = format!("http://a.test/{id}");
            page.is_final = id != 2;
            page.depth = id as u32;
            page.method = match id {
                3 => "POST".into(),
                4 => "HEAD".into(),
                _ => "GET".into(),
            };
            write_until_place(&page, None, &mut lines);
            write_place(None, &mut lines);
            write_from_place(&page, None, &mut lines);
        }
        let requests = requests(&lines, BTreeMap::new());
        let lines = requests.iter().map(Request::to_line);
        assert_eq!(
            lines.collect::<Vec<_>>(),
            [
                r#"{"url":"http://a.test/1","depth":1}"#,
                r#"{"url":"http://a.test/4","depth":4,"method":"HEAD"}"#
            ]
        );
    }
}
