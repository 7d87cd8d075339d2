//! `argiope fetch`: fetches URLs without robots.txt and links; prints a result line for each.

use std::fs;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use argiope::FinishReason;
use argiope::PageKind;
use argiope::settings::Follow;
use argiope::sink::files::write_line;
use argiope::{Config, Crawler, Page, Request};

use super::Usage;
use super::args::Fetch;
use super::crawl::set_up;
use super::settings::CommandValues;
use super::signals::Received;

/// Results of the URLs.
#[derive(Default)]
struct Seen {
    heads: usize,
    duplicates: usize,
    bad: bool,
    body: Option<Vec<u8>>,
    broken_pipe: bool,
}

/// Runs the command; returns its exit code.
pub fn run(mut config: Config, args: Fetch) -> anyhow::Result<i32> {
    if args.body_out.is_some() && args.urls.len() > 1 {
        return Err(
            Usage("-o/--body-out saves the body of one URL; give only one URL".to_owned()).into(),
        );
    }
    if config.frontier().follow != Follow::None {
        let source = config.source("FOLLOW");
        log::warn!(
            "FOLLOW ({source}) has no effect: fetch does not follow links; use argiope crawl"
        );
        config = config.with("FOLLOW", "none")?;
    }
    let seen = Arc::new(Mutex::new(Seen::default()));
    let results = Arc::clone(&seen);
    let keep_body = args.body_out.is_some();
    let sink = move |page: Page| {
        let mut seen = results.lock().unwrap_or_else(PoisonError::into_inner);
        take(&mut seen, page, keep_body);
    };
    let mut crawler = set_up(Crawler::builder(config).sink(sink))?;
    let mut wanted = 0;
    for url in &args.urls {
        let request = Request::from_line(url)
            .map_err(|error| Usage(error.to_string()))?
            .ok_or_else(|| {
                Usage(format!(
                    "{url:?} is not a valid URL; write one like https://example.com/"
                ))
            })?;
        crawler
            .submit(request)
            .map_err(|refused| Usage(format!("{url}: {refused}")))?;
        wanted += 1;
    }
    Received::watch()?.stop_on_signal(crawler.stopper())?;
    let reason = crawler.run();
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    if let (Some(path), Some(body)) = (&args.body_out, &seen.body) {
        fs::write(path, body).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(match reason {
        FinishReason::Shutdown => 3,
        _ if seen.heads + seen.duplicates < wanted || args.fail && seen.bad => 1,
        _ => 0,
    })
}

/// Defaults of `fetch`: no robots.txt and no links, and an unresponsive host is reported at once.
pub const VALUES: CommandValues = CommandValues {
    command: "fetch",
    values: &[
        ("ROBOTSTXT_OBEY", "false"),
        ("FOLLOW", "none"),
        ("OUTAGE_BREAKER", "false"),
        ("HOST_DOWN_AFTER", "0"),
    ],
};

/// Handles a finished attempt: only the last one at each URL is reported.
fn take(seen: &mut Seen, page: Page, keep_body: bool) {
    if !page.is_final || page.kind != PageKind::Page {
        return;
    }
    if page.failure.as_ref().is_some_and(|f| f.name == "duplicate") {
        log::warn!("{} is given twice and fetched once", page.url);
        seen.duplicates += 1;
        return;
    }
    seen.heads += usize::from(page.status.is_some());
    seen.bad |= page.status.is_some_and(|status| status >= 400);
    if !seen.broken_pipe {
        let mut line = Vec::new();
        write_line(&page, None, &mut line);
        let mut out = std::io::stdout().lock();
        seen.broken_pipe = out.write_all(&line).and_then(|()| out.flush()).is_err();
    }
    if keep_body {
        seen.body = Some(page.body);
    }
}
