//! How the fetch of a URL ended: its last result line.

use std::borrow::Cow;
use std::path::Path;

use anyhow::Context;
use argiope::sink::directory::LineReader;
use serde::Deserialize;

/// The keys of a result line that are shown.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    url: Cow<'a, str>,
    status: Option<u16>,
    #[serde(borrow)]
    content_type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    error: Option<Error<'a>>,
}

#[derive(Deserialize)]
struct Error<'a> {
    #[serde(borrow)]
    code: Cow<'a, str>,
    #[serde(borrow)]
    detail: Option<Cow<'a, str>>,
}

/// Longer lines are cut, and so are no JSON and left out: a line has no body, and this much only by its `meta`.
const LINE_MAX: u64 = 16 << 20;

/// The end of the last attempt at `url`, in words; `None` if no line has it. Reads all result lines.
pub fn of(folder: &Path, url: &str) -> anyhow::Result<Option<String>> {
    const WHAT: &str = "cannot read result lines";
    let mut reader = LineReader::results(folder, LINE_MAX).context(WHAT)?;
    let mut last = None;
    while let Some(line) = reader.next().context(WHAT)? {
        if let Ok(line) = serde_json::from_slice::<Line<'_>>(line.text)
            && line.url == url
        {
            last = Some(words(&line));
        }
    }
    Ok(last)
}

fn words(line: &Line<'_>) -> String {
    let mut words = match line.status {
        Some(status) => format!("fetched, status {status}"),
        None => "not fetched".to_owned(),
    };
    if let Some(kind) = &line.content_type {
        words.push_str(", ");
        words.push_str(kind);
    }
    if let Some(Error { code, detail }) = &line.error {
        words.push_str(&format!(": {code}"));
        if let Some(detail) = detail {
            words.push_str(&format!(" ({detail})"));
        }
    }
    words
}
