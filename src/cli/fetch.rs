//! `argiope fetch`: fetches URLs without robots.txt and links; prints a result line for each.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use argiope::FinishReason;
use argiope::PageKind;
use argiope::settings::Follow;
use argiope::sink::files::write_line;
use argiope::{Config, CrawlUrl, Crawler, Page, Request, Truncation};

use super::Usage;
use super::args::Fetch;
use super::crawl::set_up;
use super::environment;
use super::hints;
use super::mistakes;
use super::out_file;
use super::settings::CommandValues;
use super::signals::Received;
use super::stderr;

/// Results of the URLs.
#[derive(Default)]
struct Seen {
    heads: usize,
    duplicates: usize,
    bad: bool,
    body: Option<Vec<u8>>,
    /// Why that is only a part, if it is.
    cut: Option<String>,
    /// Why a line could not be written.
    unwritten: Option<io::Error>,
}

/// Refuses a file for the body that cannot be written, before anything is sent.
fn check_body_out(args: &Fetch) -> Result<(), Usage> {
    let is_file = |path: &&Path| *path != Path::new(STDOUT);
    let file = args.body_out.as_deref().filter(is_file);
    file.map_or(Ok(()), |path| out_file::check("-o", path))
}

/// Runs the command; returns its exit code.
pub fn run(mut config: Config, args: Fetch) -> anyhow::Result<i32> {
    if args.body_out.is_some() && args.urls.len() > 1 {
        return Err(
            Usage("-o/--body-out saves the body of one URL; give only one URL".to_owned()).into(),
        );
    }
    mistakes::check_urls(&args.urls, mistakes::Given::Fetch)?;
    check_body_out(&args)?;
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
    let is_body_to_stdout = args.body_out.as_deref() == Some(STDOUT.as_ref());
    let sink = move |page: Page| {
        let mut seen = results.lock().unwrap_or_else(PoisonError::into_inner);
        take(&mut seen, page, keep_body, is_body_to_stdout);
    };
    let payload = Payload::read(&args, &config)?;
    let mut crawler = set_up(config, |config| Crawler::builder(config).sink(sink))?;
    let mut wanted = 0;
    for url in &args.urls {
        let request = Request::from_line(url)
            .map_err(|error| Usage(error.to_string()))?
            .ok_or_else(|| {
                Usage(format!(
                    "{url:?} is not a valid URL; write one like https://example.com/"
                ))
            })?;
        let request = payload.put_into(request, crawler.config());
        crawler
            .submit(request)
            .map_err(|refused| Usage(format!("{url}: {refused}")))?;
        wanted += 1;
    }
    let unused = environment::unused(crawler.config(), |name| std::env::var(name).ok());
    let others = hints::before(crawler.config(), &args.urls, false, false);
    for hint in unused.into_iter().chain(others) {
        log::warn!("{hint}");
    }
    Received::watch()?.stop_on_signal(crawler.stopper())?;
    let reason = crawler.run();
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    // A reader that has closed the pipe, as `head` does, is no failure.
    let unwritten = seen.unwritten.take();
    if let Some(error) = unwritten.filter(|error| error.kind() != io::ErrorKind::BrokenPipe) {
        return Err(anyhow::Error::new(error).context("cannot write to standard output"));
    }
    match (&args.body_out, &seen.body) {
        (Some(_), Some(body)) if is_body_to_stdout => {
            let mut out = io::stdout().lock();
            out.write_all(body).and_then(|()| out.flush())?;
        }
        (Some(path), Some(body)) => {
            fs::write(path, body).with_context(|| format!("cannot write {}", path.display()))?;
        }
        _ => {}
    }
    if let (Some(path), Some(body), Some(why)) = (&args.body_out, &seen.body, &seen.cut) {
        let (path, length) = (path.display(), body.len());
        log::warn!("-o {path}: the body is not whole, these are {length} bytes of it: {why}");
    }
    for hint in hints::of_results(
        crawler.stats(),
        crawler.config(),
        "-s DOWNLOAD_MAXSIZE=BYTES",
    ) {
        log::warn!("{hint}");
    }
    Ok(match reason {
        FinishReason::Shutdown => 3,
        _ if seen.heads + seen.duplicates < wanted || args.fail && seen.bad => 1,
        _ => 0,
    })
}

/// Method and body of the requests, as curl understands these flags.
struct Payload {
    method: Option<String>,
    body: Option<Vec<u8>>,
    /// Whether the body is a form, for want of another type.
    is_form: bool,
}

impl Payload {
    fn read(args: &Fetch, config: &Config) -> Result<Self, Usage> {
        let (flag, data) = match args.data_binary.is_empty() {
            true => ("-d", &args.data),
            false => ("--data-binary", &args.data_binary),
        };
        let mut body = Vec::new();
        for (index, data) in data.iter().enumerate() {
            if index > 0 {
                body.push(b'&');
            }
            read_data(flag, data, &mut body)?;
        }
        let headers = config.fetch().headers.iter();
        let has_type = |(name, _): &(String, String)| name.eq_ignore_ascii_case(CONTENT_TYPE);
        let method = match &args.method {
            Some(method) => {
                check_method(method, !data.is_empty())?;
                Some(method.clone())
            }
            None => (!data.is_empty()).then(|| "POST".to_owned()),
        };
        Ok(Payload {
            method,
            is_form: !headers.into_iter().any(has_type),
            body: (!data.is_empty()).then_some(body),
        })
    }

    /// The request with this method and body. `config`: the settings of its host may have a type.
    fn put_into(&self, mut request: Request, config: &Config) -> Request {
        if let Some(method) = &self.method {
            request.method.clone_from(method);
        }
        if let Some(body) = &self.body {
            request.body.clone_from(body);
            let url = CrawlUrl::parse(&request.url).ok();
            let of_host = url.and_then(|url| config.frontier().own_hosts.of(&url));
            let of_host = of_host.into_iter().flat_map(|own| &own.settings.headers);
            let mut own = request.headers.iter().chain(of_host);
            let has_type = own.any(|(name, _)| name.eq_ignore_ascii_case(CONTENT_TYPE));
            if self.is_form && !has_type {
                request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
            }
        }
        request
    }
}

/// Refuses a method that is none, and warns of one that is rarely meant.
fn check_method(method: &str, has_data: bool) -> Result<(), Usage> {
    let capitals = method.to_ascii_uppercase();
    if method.trim().is_empty() {
        return Err(Usage(
            "-X: the method is empty; leave -X out, or give one, such as -X HEAD".to_owned(),
        ));
    }
    if !method.chars().all(|c| c.is_ascii_graphic()) {
        let first = capitals.split_whitespace().next().unwrap_or_default();
        let meant = METHODS.iter().find(|known| **known == first);
        return Err(Usage(format!(
            "-X: {method:?} is no method, which is one word; write -X {}",
            meant.unwrap_or(&"POST")
        )));
    }
    if METHODS.contains(&capitals.as_str()) && method != capitals {
        log::warn!(
            "-X {method}: methods are in capitals, and servers may not know this one: write -X {capitals}"
        );
    }
    if has_data && ["GET", "HEAD"].contains(&capitals.as_str()) {
        log::warn!(
            "-X {method} sends the data of -d as a body, which servers ignore for the most part: write it behind the \
             URL, as in 'http://example.com/?a=b', or leave -X out for a POST"
        );
    }
    Ok(())
}

/// Methods that most servers know.
const METHODS: [&str; 8] = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE",
];

/// Appends data to a body. That of a file of `-d` has no line ends and NULs, as in curl.
fn read_data(flag: &str, data: &str, body: &mut Vec<u8>) -> Result<(), Usage> {
    let Some(path) = data.strip_prefix('@') else {
        body.extend_from_slice(data.as_bytes());
        return Ok(());
    };
    let mut read = Vec::new();
    let opened = match path {
        STDOUT => io::stdin().take(BODY_MAX + 1).read_to_end(&mut read),
        path => File::open(path).and_then(|file| file.take(BODY_MAX + 1).read_to_end(&mut read)),
    };
    opened.map_err(|error| {
        Usage(format!(
            "{flag} {data}: {path} cannot be read: {error}; give a readable file, or data without @"
        ))
    })?;
    if read.len() as u64 > BODY_MAX {
        return Err(Usage(format!(
            "{flag} {data}: {path} has more than {} MiB; send less",
            BODY_MAX >> 20
        )));
    }
    if flag == "-d" {
        read.retain(|byte| !b"\r\n\0".contains(byte));
    }
    body.append(&mut read);
    Ok(())
}

const CONTENT_TYPE: &str = "Content-Type";

/// Standard output as a file of a body, and standard input as one of data.
const STDOUT: &str = "-";

/// Bytes of a file of data: it is in memory, once for each URL.
const BODY_MAX: u64 = 64 << 20;

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
fn take(seen: &mut Seen, page: Page, keep_body: bool, is_body_to_stdout: bool) {
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
    if seen.unwritten.is_none() {
        let mut line = Vec::new();
        write_line(&page, None, &mut line);
        if is_body_to_stdout {
            stderr::write(&String::from_utf8_lossy(&line));
        } else {
            let mut out = io::stdout().lock();
            seen.unwritten = out.write_all(&line).and_then(|()| out.flush()).err();
        }
    }
    if keep_body {
        let failed = page.failure.as_ref().filter(|_| page.status.is_some());
        let cut = page.truncated.map(|cut| match cut {
            Truncation::Length => "it is longer than DOWNLOAD_MAXSIZE".to_owned(),
            other => format!("truncated ({other})"),
        });
        seen.cut = failed.map(ToString::to_string).or(cut);
        seen.body = Some(page.body);
    }
}
