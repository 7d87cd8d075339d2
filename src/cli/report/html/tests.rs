//! The page of a report whose every text is chosen by a hostile server.

use std::fs;

use super::*;

/// What would end an element, an attribute, a section or a line, if it were not escaped.
const HOSTILE: &str = "\"><script>alert(1)</script><img src=x onerror='a()'>]]>--><!--</style></title></svg>`\u{1b}[2J\0\u{202e}&amp;";

/// A crawl's report in which servers, and damaged files, have this text wherever a text may be.
fn report_of(text: &str) -> Report {
    let folder = tempfile::tempdir().expect("a folder");
    let json = |text: &str| serde_json::to_string(text).expect("JSON");
    let quoted = json(text);
    let url = json(&format!(
        "http://{}/{text}",
        text.replace(['/', '@', '?', '#'], "")
    ));
    let line = |second: u32, digest: &str| {
        format!(
            "{{\"url\": {url}, \"kind\": \"page\", \"final\": true, \"depth\": 1, \"attempt\": 1, \"scopes\": \
             [{quoted}], \"status\": 200, \"error\": {{\"kind\": {quoted}, \"code\": {quoted}, \"detail\": {quoted}}}, \
             \"truncated\": {quoted}, \"redirect\": {quoted}, \"content_type\": {quoted}, \"reused\": false, \"tls\": \
             {{\"version\": {quoted}, \"cipher\": {quoted}, \"resumed\": false, \"verified\": false}}, \"bytes_wire\": 9, \
             \"bytes_body\": 9, \"digest\": {digest}, \"sent\": \"2026-11-21T00:00:{second:02}.000000000Z\", \"request\": \
             0.1, \"headers\": 0.2, \"server_latency\": 0.1, \"delay\": 2}}\n"
        )
    };
    let lines: String = (0..40).map(|second| line(second, &quoted)).collect();
    // Reasons for damage quote the line.
    let damaged = line(0, "null").replace("\"2026-11-21T00:00:00.000000000Z\"", &quoted);
    fs::write(folder.path().join("results.jsonl"), lines + &damaged).expect("a file");
    let stats = format!(
        "{{\"finish_reason\": {quoted}, \"attempts\": 1, \"phases\": {{{quoted}: {{\"count\": 1, \"mean\": 1, \"min\": \
         1, \"p50\": 1, \"p90\": 1, \"p95\": 1, \"p99\": 1, \"p999\": 1, \"max\": 1}}}}, \"waited\": {{{quoted}: 5}}, \
         \"decisions\": {{{quoted}: 5}}, \"pacing\": [{{\"scope\": {quoted}, \"at_longest_delay\": 0.9, \"remarks\": \
         [{{\"about\": {quoted}, \"words\": {quoted}}}]}}]}}"
    );
    fs::write(folder.path().join("stats.json"), stats).expect("a file");
    let mut report = Report::read(folder.path(), "now".to_owned()).expect("it is read");
    report.directory = text.to_owned();
    report
}

/// The page without what is constant: its style.
fn page_of(text: &str) -> String {
    let page = page(&report_of(text));
    let (before, rest) = page.split_once("<style>").expect("a style");
    let (_, after) = rest.split_once("</style>").expect("its end");
    format!("{before}{after}")
}

/// The elements of a page, by tag with attributes, without texts.
fn tags(page: &str) -> Vec<&str> {
    let tags = page.split('<').skip(1);
    tags.map(|tag| tag.split_once('>').expect("a tag has its end").0)
        .collect()
}

#[test]
fn no_text_of_a_server_leaves_its_element() {
    let page = page_of(HOSTILE);
    for forbidden in [
        "<script", "<img", "]]>", "<!--", "-->", "\u{1b}", "\0", "\u{202e}", "`",
    ] {
        assert!(!page.contains(forbidden), "{forbidden:?} in {page}");
    }
    // A page of harmless names has the same elements in the same order, but for lengths of bars and texts.
    let shape = |page: &str| -> Vec<String> {
        let names = tags(page).into_iter();
        names
            .map(|tag| tag.split(' ').next().unwrap_or_default().to_owned())
            .collect()
    };
    assert_eq!(shape(&page), shape(&page_of("a.test")));
    for tag in tags(&page)
        .into_iter()
        .filter(|tag| !tag.starts_with("meta "))
    {
        let quotes = tag.matches('"').count();
        assert!(quotes.is_multiple_of(2) && !tag.contains('\''), "{tag}");
        assert!(!tag.contains(" on"), "{tag}");
    }
}

#[test]
fn every_text_of_a_server_is_shown_in_its_section() {
    let page = page_of("zzname");
    let count = |section: &str| {
        let (_, rest) = page.split_once(section).expect("the section");
        let rest = rest.split("<h2>").next().unwrap_or_default();
        rest.matches("zzname").count()
    };
    // As a label of a plot and in the table, where there is a plot.
    for (section, expected) in [
        ("<h2>Recommendations</h2>", 5),
        ("<h2>Status and errors</h2>", 7),
        ("<h2>Latency</h2>", 1),
        ("<h2>Hosts</h2>", 4),
        ("<h2>Gaps against what was promised</h2>", 10),
        ("<h2>Waits by cause</h2>", 4),
        ("<h2>Connections and TLS</h2>", 4),
        ("<h2>Sizes and types</h2>", 2),
    ] {
        assert_eq!(count(section), expected, "{section}");
    }
    assert!(
        page.split("<h2>")
            .next()
            .is_some_and(|top| top.matches("zzname").count() >= 3)
    );
}

#[test]
fn the_page_needs_no_script_and_no_other_file() {
    let page = page(&report_of("a.test"));
    for forbidden in [
        "<script", "<link", "<img", "src=", "href=", "url(", "@import", "xlink",
    ] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    assert!(page.contains("prefers-color-scheme: dark"));
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn tables_and_plots_are_named_for_screen_readers() {
    let page = page(&report_of("a.test"));
    let tables = page.matches("<table>").count();
    assert!(tables > 15, "{tables}");
    assert_eq!(page.matches("<table><caption>").count(), tables);
    assert_eq!(
        page.matches("<th").count(),
        page.matches("<th scope=").count() + page.matches("<thead").count()
    );
    let plots = page.matches("<svg").count();
    assert!(plots > 10, "{plots}");
    assert_eq!(page.matches("<svg role=\"img\" viewBox=").count(), plots);
    assert_eq!(page.matches("\"><title>").count(), plots);
    for end in ["table", "svg", "tr", "td", "text", "details"] {
        let opened =
            page.matches(&format!("<{end}>")).count() + page.matches(&format!("<{end} ")).count();
        assert_eq!(opened, page.matches(&format!("</{end}>")).count(), "{end}");
    }
}
