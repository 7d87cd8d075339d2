//! `argiope robots`: evaluates a robots.txt for URLs.

pub mod fetched;

use std::fs;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use argiope::parts::{Robots, Rules, request_target_of};
use argiope::{CrawlUrl, Request};
use serde::{Deserialize, Serialize};

use super::json_lines::{answer_each, octets, put_line};
use super::stderr;

/// Arguments of the command.
#[derive(Clone, Debug, Default)]
pub struct RobotsArgs {
    /// Path of the robots.txt; `-` reads questions as JSON lines from stdin; a URL fetches that of its origin.
    pub file: PathBuf,
    /// The product token of the crawler; empty: as configured.
    pub agent: String,
    /// The URLs or paths to check.
    pub urls: Vec<String>,
    /// Answer in JSON.
    pub json: bool,
}

/// Whether the argument is a URL, and not the path of a file.
pub fn is_url(file: &Path) -> bool {
    let text = file.to_string_lossy();
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|it| it.eq_ignore_ascii_case("http") || it.eq_ignore_ascii_case("https"))
}

/// The URL to write in place of a file that does not exist and has rather the name of a host: `example.com`,
/// `localhost:8080`.
pub fn url_of_host(file: &Path) -> Option<String> {
    let name = file.to_string_lossy();
    let has_dot = name.contains(['.', ':']) && !name.starts_with('.');
    let is_host = has_dot && !name.ends_with(".txt") && !name.contains('/');
    // As `crawl` reads a bare host.
    let request = Request::from_line(&name).ok()??;
    let url = request.url.trim_end_matches('/').to_owned();
    (is_host && !file.exists() && CrawlUrl::parse(&url).is_ok()).then_some(url)
}

/// Runs the command; returns its exit code.
pub fn run(args: &RobotsArgs) -> Result<i32> {
    run_on(args, io::stdin().lock(), io::stdout().lock())
}

fn run_on(args: &RobotsArgs, input: impl BufRead, mut out: impl Write) -> Result<i32> {
    if args.file.as_os_str() == "-" {
        answer_each(input, out, |question| answer(question, &args.agent))?;
        return Ok(0);
    }
    let file = match fs::read(&args.file) {
        Ok(file) => file,
        Err(error) => {
            stderr::write_line(&format!(
                "argiope robots: cannot read {}: {error}",
                args.file.display()
            ));
            return Ok(2);
        }
    };
    if args.urls.is_empty() {
        stderr::write_line("argiope robots: nothing is to be checked; name URLs or paths");
        return Ok(2);
    }
    if !file.is_empty() && !has_group(&file) {
        log::warn!(
            "{}: no line begins with User-agent, so that everything is allowed: is it a robots.txt?",
            args.file.display()
        );
    }
    let robots = Robots::parse(&file);
    let rules = robots.agent(&args.agent);
    for url in &args.urls {
        let target = match request_target_of(url) {
            Ok(target) => target,
            Err(error) => {
                stderr::write_line(&format!(
                    "argiope robots: `{url}` is not a valid URL: {error}"
                ));
                return Ok(2);
            }
        };
        let answer = Answered {
            url,
            target: &target,
            has_file: true,
        };
        if !answer.put(&mut out, (&robots, &rules), args.json)? {
            break;
        }
    }
    Ok(0)
}

/// Whether a line of the file begins a group of rules.
fn has_group(file: &[u8]) -> bool {
    const BEGINNING: &[u8] = b"user-agent";
    let lines = file.split(|byte| matches!(byte, b'\n' | b'\r'));
    let mut lines = lines.map(|line| line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line));
    lines.any(|line| {
        let begin = line.trim_ascii_start().get(..BEGINNING.len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(BEGINNING))
    })
}

/// A URL that is answered for.
struct Answered<'a> {
    url: &'a str,
    target: &'a str,
    /// Whether the rules are those of a file, which the deciding one is in.
    has_file: bool,
}

impl Answered<'_> {
    /// Writes the line that answers, and to stderr the rule that decides, which is in the JSON otherwise. Returns false
    /// if no more is read.
    fn put(
        &self,
        out: &mut impl Write,
        (robots, rules): (&Robots, &Rules),
        json: bool,
    ) -> Result<bool> {
        let url = self.url;
        let verdict = rules.allowed(self.target);
        let decides = verdict.rule.filter(|_| self.has_file);
        let rule = decides.map(|rule| {
            let key = if rule.allow { "Allow" } else { "Disallow" };
            format!("{key}: {}", rule.pattern)
        });
        let line = decides.map(|rule| rule.line);
        let text = match (json, verdict.allowed) {
            (false, true) => format!("allowed {url}"),
            (false, false) => format!("disallowed {url}"),
            (true, allowed) => serde_json::to_string(&Detail {
                url,
                allowed,
                crawl_delay: delay(rules),
                rule: rule.clone(),
                line,
                sitemaps: robots.sitemaps(),
            })?,
        };
        let goes_on = put_line(out, &text)?;
        if let (false, true, Some(rule), Some(line)) = (json, goes_on, rule, line) {
            stderr::write_line(&format!("{url}: by {rule} (line {line})"));
        }
        Ok(goes_on)
    }
}

/// One JSON line of the input.
#[derive(Deserialize)]
struct Question {
    robots: Option<String>,
    robots_b64: Option<String>,
    agent: Option<String>,
    url: String,
}

#[derive(Serialize)]
struct Answer {
    allowed: bool,
    crawl_delay: Option<f64>,
}

/// The answer with `--json`.
#[derive(Serialize)]
struct Detail<'a> {
    url: &'a str,
    allowed: bool,
    crawl_delay: Option<f64>,
    rule: Option<String>,
    line: Option<u32>,
    sitemaps: &'a [String],
}

fn answer(question: Question, agent: &str) -> Result<Answer> {
    let file = octets("robots", question.robots, question.robots_b64)?;
    let target = request_target_of(&question.url).context("url")?;
    let rules = Robots::parse(&file).agent(question.agent.as_deref().unwrap_or(agent));
    Ok(Answer {
        allowed: rules.allowed(&target).allowed,
        crawl_delay: delay(&rules),
    })
}

fn delay(rules: &Rules) -> Option<f64> {
    rules.crawl_delay().map(|delay| delay.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str =
        "User-agent: *\nDisallow: /x\nCrawl-delay: 1.5\nSitemap: http://a.test/s.xml\n";

    fn check(file: &str, urls: &[&str], json: bool, input: &str, expected: &str) {
        let args = RobotsArgs {
            file: file.into(),
            agent: "argiope".to_owned(),
            urls: urls.iter().map(|url| (*url).to_owned()).collect(),
            json,
        };
        let mut out = Vec::new();
        assert_eq!(run_on(&args, input.as_bytes(), &mut out).unwrap(), 0);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn each_url_has_a_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, FILE).unwrap();
        let path = file.path().to_str().unwrap();
        check(
            path,
            &["http://a.test/x?y", "/z"],
            false,
            "",
            "disallowed http://a.test/x?y\nallowed /z\n",
        );
        check(
            path,
            &["http://a.test/x", "http://a.test/"],
            true,
            "",
            "{\"url\":\"http://a.test/x\",\"allowed\":false,\"crawl_delay\":1.5,\
             \"rule\":\"Disallow: /x\",\"line\":2,\"sitemaps\":[\"http://a.test/s.xml\"]}\n\
             {\"url\":\"http://a.test/\",\"allowed\":true,\"crawl_delay\":1.5,\
             \"rule\":null,\"line\":null,\"sitemaps\":[\"http://a.test/s.xml\"]}\n",
        );
    }

    #[test]
    fn questions_come_as_json_lines() {
        let robots = serde_json::to_string(FILE).unwrap();
        check(
            "-",
            &[],
            false,
            &format!(
                "{{\"robots\":{robots},\"agent\":\"f\",\"url\":\"http://a.test/x\"}}\n\
                 {{\"robots_b64\":\"/w==\",\"url\":\"ftp://a.test/\"}}\n\
                 {{\"robots\":\"\",\"url\":\"http://:x/\"}}\n{{\"url\":\"/\"}}\n"
            ),
            "{\"allowed\":false,\"crawl_delay\":1.5}\n{\"allowed\":true,\"crawl_delay\":null}\n\
             {\"error\":\"url: the URL has no host\"}\n\
             {\"error\":\"both robots and robots_b64 are missing; give one\"}\n",
        );
    }

    #[test]
    fn a_file_that_cannot_be_read_is_a_usage_error() {
        let args = RobotsArgs {
            file: "/nonexistent/robots.txt".into(),
            ..RobotsArgs::default()
        };
        assert_eq!(run_on(&args, &b""[..], Vec::new()).unwrap(), 2);
    }
}
