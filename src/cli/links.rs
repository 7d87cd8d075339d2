//! `argiope links`: the links that a crawl would follow from a page.

use std::fs;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use argiope::CrawlUrl;
use argiope::parts::{LinkOptions, links_of};
use serde::{Deserialize, Serialize};

use super::json_lines::{answer_each, octets, put_line};
use super::stderr;

/// Arguments of the command.
#[derive(Clone, Debug, Default)]
pub struct LinksArgs {
    /// Path of the page; `-` reads questions as JSON lines from stdin.
    pub file: PathBuf,
    /// The page's URL.
    pub base: Option<String>,
    /// Its Content-Type.
    pub content_type: Option<String>,
    /// Answer in JSON, with where each link was found.
    pub json: bool,
}

/// Runs the command under the current settings; returns its exit code.
pub fn run(args: &LinksArgs, options: &LinkOptions<'_>) -> Result<i32> {
    run_on(args, options, io::stdin().lock(), io::stdout().lock())
}

fn run_on(
    args: &LinksArgs,
    options: &LinkOptions<'_>,
    input: impl BufRead,
    mut out: impl Write,
) -> Result<i32> {
    if args.file.as_os_str() == "-" {
        answer_each(input, out, |question| answer(question, args, options))?;
        return Ok(0);
    }
    let shown = args.file.to_string_lossy();
    if shown.contains("://") {
        stderr::write_line(&format!(
            "argiope links: {shown} is no file; `argiope fetch {shown} -o page.html` makes one, and --base {shown} names it"
        ));
        return Ok(2);
    }
    let base = match args.base.as_deref().map(CrawlUrl::parse) {
        Some(Ok(base)) => base,
        Some(Err(error)) => {
            stderr::write_line(&format!(
                "argiope links: --base is not a valid URL: {error}"
            ));
            return Ok(2);
        }
        None => {
            stderr::write_line("argiope links: --base is missing; give the page's URL: --base URL");
            return Ok(2);
        }
    };
    let file = match fs::read(&args.file) {
        Ok(file) => file,
        Err(error) => {
            stderr::write_line(&format!(
                "argiope links: cannot read {}: {error}",
                args.file.display()
            ));
            return Ok(2);
        }
    };
    let content_type = args.content_type.as_deref();
    for link in links_of(&file, content_type, &base, options).links {
        let line = if args.json {
            serde_json::to_string(&Detail {
                url: link.url.as_str(),
                element: link.element,
                attribute: link.attribute,
                nofollow: link.nofollow,
            })?
        } else {
            link.url.to_string()
        };
        if !put_line(&mut out, &line)? {
            break;
        }
    }
    Ok(0)
}

/// One JSON line of the input.
#[derive(Deserialize)]
struct Question {
    html: Option<String>,
    html_b64: Option<String>,
    base: Option<String>,
    content_type: Option<String>,
}

#[derive(Serialize)]
struct Answer {
    links: Vec<String>,
}

/// The answer with `--json`, a line for each link.
#[derive(Serialize)]
struct Detail<'a> {
    url: &'a str,
    element: &'a str,
    attribute: &'a str,
    nofollow: bool,
}

fn answer(question: Question, args: &LinksArgs, options: &LinkOptions<'_>) -> Result<Answer> {
    // Text from JSON is decoded already, whatever charset the page declares.
    let is_text = question.html_b64.is_none();
    let page = octets("html", question.html, question.html_b64)?;
    let base = question.base.or_else(|| args.base.clone());
    let base = CrawlUrl::parse(&base.context("base is missing")?).context("base")?;
    let content_type = question.content_type.or_else(|| args.content_type.clone());
    let content_type = if is_text {
        Some("text/html; charset=utf-8")
    } else {
        content_type.as_deref()
    };
    let found = links_of(&page, content_type, &base, options);
    Ok(Answer {
        links: found
            .links
            .iter()
            .map(|link| link.url.to_string())
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(file: &str, base: Option<&str>, json: bool, input: &str, expected: (i32, &str)) {
        let args = LinksArgs {
            file: file.into(),
            base: base.map(str::to_owned),
            content_type: None,
            json,
        };
        let mut out = Vec::new();
        let code = run_on(&args, &LinkOptions::default(), input.as_bytes(), &mut out).unwrap();
        assert_eq!((code, String::from_utf8(out).unwrap().as_str()), expected);
    }

    #[test]
    fn each_link_has_a_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(
            &file,
            b"<meta charset=latin1><a href=/\xFC><a rel=nofollow href=/no>",
        )
        .unwrap();
        let path = file.path().to_str().unwrap();
        let base = Some("http://a.test/");
        check(path, base, false, "", (0, "http://a.test/%C3%BC\n"));
        check(
            path,
            base,
            true,
            "",
            (
                0,
                "{\"url\":\"http://a.test/%C3%BC\",\"element\":\"a\",\"attribute\":\"href\",\"nofollow\":false}\n",
            ),
        );
        check(path, None, false, "", (2, ""));
        check(path, Some("nonsense"), false, "", (2, ""));
        check("/nonexistent/page.html", base, false, "", (2, ""));
    }

    #[test]
    fn questions_come_as_json_lines() {
        check(
            "-",
            None,
            false,
            "{\"html_b64\":\"PGEgaHJlZj0v/D/8Pg==\",\"base\":\"http://a.test/\",\"content_type\":\"text/html; charset=latin1\"}\n\
             {\"html\":\"<meta charset=latin1><a href=/ü>\",\"base\":\"http://a.test/\"}\n\
             {\"html\":\"\"}\n{\"html\":\"\",\"base\":\"x\"}\n",
            (
                0,
                "{\"links\":[\"http://a.test/%C3%BC?%FC\"]}\n{\"links\":[\"http://a.test/%C3%BC\"]}\n\
                 {\"error\":\"base is missing\"}\n\
                 {\"error\":\"base: not an absolute URL (http://HOST/… or https://HOST/…)\"}\n",
            ),
        );
    }
}
