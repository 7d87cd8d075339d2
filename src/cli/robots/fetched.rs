//! `argiope robots URL`: the robots.txt that a crawl would obey for a URL's origin.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use argiope::parts::{ROBOTS_LENGTH_MAX as LENGTH_MAX, Robots, Rules, request_target_of};
use argiope::{Config, CrawlUrl, Crawler, FinishReason, Page, PageKind, Request, RobotsMeaning};
use serde::Serialize;

use super::{Answered, RobotsArgs, delay};
use crate::cli::Usage;
use crate::cli::crawl::set_up;
use crate::cli::json_lines::put_line;
use crate::cli::settings::CommandValues;
use crate::cli::signals::Received;
use crate::cli::stderr;

/// Defaults of the command: the file is a page that is fetched as a crawl fetches it, and an unresponsive host is
/// reported at once.
pub const VALUES: CommandValues = CommandValues {
    command: "robots",
    values: &[
        ("ROBOTSTXT_OBEY", "false"),
        ("FOLLOW", "none"),
        ("OUTAGE_BREAKER", "false"),
        ("HOST_DOWN_AFTER", "0"),
        ("RETRY_TIMES", "0"),
        // RFC 9309, section 2.3.1.2.
        ("REDIRECT_MAX_TIMES", "5"),
    ],
};

/// What is known of a robots.txt, as an object with `--json` when no URL is asked about.
#[derive(Debug, Serialize)]
struct Fetched {
    origin: String,
    /// Where it was, after redirects.
    url: String,
    status: Option<u16>,
    meaning: &'static str,
    crawl_delay: Option<f64>,
    sitemaps: Vec<String>,
    body: Option<String>,
}

/// Runs the command; returns its exit code.
pub fn run(config: Config, args: &RobotsArgs, mut out: impl Write) -> Result<i32> {
    let named = args.file.to_string_lossy();
    let first = parsed(&named)?;
    let mut urls: Vec<&str> = args.urls.iter().map(String::as_str).collect();
    if !["/", "/robots.txt"].contains(&first.request_target()) {
        urls.insert(0, &named);
    }
    let mut asked = Vec::new();
    for url in urls {
        if !url.starts_with('/') && parsed(url)?.origin() != first.origin() {
            return Err(Usage(format!(
                "{url} has another origin than {named}, and another robots.txt: ask for each in a command of its own"
            ))
            .into());
        }
        let target = request_target_of(url).map_err(|error| {
            Usage(format!(
                "{url}: {error}; give a URL of {named} or a path such as /a"
            ))
        })?;
        asked.push((url, target));
    }
    let agent = match args.agent.as_str() {
        "" => config.frontier().robots_agent.clone(),
        agent => agent.to_owned(),
    };
    let Some(page) = fetch(config, &first)? else {
        stderr::write_line("argiope robots: stopped before the file was fetched");
        return Ok(3);
    };
    let meaning = RobotsMeaning::of_reply(page.status, page.failure.is_none());
    // Nothing is allowed by an unavailable file.
    let file = match meaning {
        RobotsMeaning::Rules => page.body.clone(),
        RobotsMeaning::Absent => Vec::new(),
        _ => b"User-agent: *\nDisallow: /\n".to_vec(),
    };
    let robots = Robots::parse(&file);
    let rules = robots.agent(&agent);
    report(&page, meaning);
    if asked.is_empty() {
        let origin = first.origin();
        show(
            &page,
            (origin, meaning),
            (&robots, &rules),
            args.json,
            &mut out,
        )?;
    }
    for (url, target) in &asked {
        let has_file = meaning == RobotsMeaning::Rules;
        let answer = Answered {
            url,
            target,
            has_file,
        };
        if !answer.put(&mut out, (&robots, &rules), args.json)? {
            break;
        }
    }
    Ok(i32::from(meaning == RobotsMeaning::Unreachable))
}

fn parsed(url: &str) -> Result<CrawlUrl, Usage> {
    CrawlUrl::parse(url)
        .map_err(|error| Usage(format!("{url}: {error}; write it as https://example.com/")))
}

/// Fetches the file of a URL's origin; `None` if a signal came before.
fn fetch(config: Config, url: &CrawlUrl) -> Result<Option<Page>> {
    let seen: Arc<Mutex<Option<Page>>> = Arc::default();
    let found = Arc::clone(&seen);
    let sink = move |page: Page| {
        if page.kind == PageKind::Page && page.is_final {
            *found.lock().unwrap_or_else(PoisonError::into_inner) = Some(page);
        }
    };
    let mut crawler = set_up(config, |config| Crawler::builder(config).sink(sink))?;
    let file = format!("{}/robots.txt", url.origin());
    // A crawl's filters and the limit of its pages do not concern the file.
    let request = Request::get(file.as_str())
        .dont_filter()
        .dont_follow()
        .ignore_robots()
        .body_max(LENGTH_MAX as u64);
    crawler
        .submit(request)
        .map_err(|refused| Usage(format!("{file}: {refused}")))?;
    Received::watch()?.stop_on_signal(crawler.stopper())?;
    let reason = crawler.run();
    let page = seen.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok(page.filter(|_| reason != FinishReason::Shutdown))
}

/// Writes to stderr where the file was, and what that means.
fn report(page: &Page, meaning: RobotsMeaning) {
    let status = match (page.status, &page.failure) {
        (Some(status), None) => status.to_string(),
        (Some(status), Some(failure)) => format!("{status}, {failure}"),
        (None, Some(failure)) => failure.to_string(),
        (None, None) => "no reply".to_owned(),
    };
    let means = match meaning {
        RobotsMeaning::Rules => "these rules are obeyed",
        RobotsMeaning::Absent => "there is none: everything is allowed",
        _ => "it is unavailable: nothing is allowed",
    };
    stderr::write_line(&format!("{}: {status}: {means}", page.url));
}

/// Writes the file, or with `json` what is known of it.
fn show(
    page: &Page,
    (origin, meaning): (&str, RobotsMeaning),
    (robots, rules): (&Robots, &Rules),
    json: bool,
    out: &mut impl Write,
) -> Result<()> {
    let has_file = meaning == RobotsMeaning::Rules;
    if !json {
        if has_file {
            out.write_all(&page.body)?;
            if !page.body.ends_with(b"\n") && !page.body.is_empty() {
                out.write_all(b"\n")?;
            }
        }
        return Ok(out.flush()?);
    }
    let body = has_file.then(|| String::from_utf8_lossy(&page.body).into_owned());
    let line = serde_json::to_string(&Fetched {
        origin: origin.to_owned(),
        url: page.url.to_string(),
        status: page.status,
        meaning: meaning.as_str(),
        crawl_delay: delay(rules),
        sitemaps: robots.sitemaps().to_vec(),
        body,
    })?;
    put_line(out, &line)?;
    Ok(())
}
