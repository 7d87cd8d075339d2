//! `argiope url`: explains how a URL is parsed.

use std::io::{self, BufRead, Write};

use anyhow::Result;
use argiope::parts::parse_any;
use argiope::{AddressKind as Kind, CrawlUrl, Host, UrlError};
use serde::{Deserialize, Serialize};

use super::json_lines::{answer_each, put_line};

/// Arguments of the command.
#[derive(Clone, Debug, Default)]
pub struct UrlArgs {
    /// The URLs; a single `-` reads questions as JSON lines from stdin.
    pub urls: Vec<String>,
    /// The base for relative URLs.
    pub base: Option<String>,
    /// Answer in JSON.
    pub json: bool,
}

/// The scopes of a URL under the current settings.
pub type ScopesOf<'a> = &'a dyn Fn(&CrawlUrl) -> Vec<String>;

/// Runs the command; returns its exit code.
pub fn run(args: &UrlArgs, scopes_of: ScopesOf<'_>) -> Result<i32> {
    run_on(args, scopes_of, io::stdin().lock(), io::stdout().lock())
}

fn run_on(
    args: &UrlArgs,
    scopes_of: ScopesOf<'_>,
    input: impl BufRead,
    mut out: impl Write,
) -> Result<i32> {
    if let [only] = &args.urls[..]
        && only == "-"
    {
        answer_each(input, out, |question: Question| {
            let base = question.base.as_deref().or(args.base.as_deref());
            Ok(Answer::of(&question.input, base, scopes_of))
        })?;
        return Ok(0);
    }
    for url in &args.urls {
        let answer = Answer::of(url, args.base.as_deref(), scopes_of);
        let text = if args.json {
            serde_json::to_string(&answer)?
        } else {
            answer.to_text()
        };
        if !put_line(&mut out, &text)? {
            break;
        }
    }
    Ok(0)
}

/// One JSON line of the input.
#[derive(Deserialize)]
struct Question {
    input: String,
    base: Option<String>,
}

/// Parts of a URL. A valid URL that is not fetched, such as `mailto:`, has both `href` and
/// `failure`.
#[derive(Serialize)]
#[serde(untagged)]
enum Answer {
    Read {
        input: String,
        href: String,
        canonical: String,
        scopes: Vec<String>,
        address: Option<&'static str>,
    },
    Failed {
        input: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        href: Option<String>,
        failure: &'static str,
        detail: String,
    },
}

impl Answer {
    fn of(input: &str, base: Option<&str>, scopes_of: ScopesOf<'_>) -> Self {
        let input = input.to_owned();
        let (href, url) = match parse_any(&input, base) {
            Ok(reading) => (Some(reading.href), reading.url),
            Err(error) => (None, Err(error)),
        };
        match (href, url) {
            (Some(href), Ok(url)) => Answer::Read {
                input,
                href,
                canonical: url.to_string(),
                scopes: scopes_of(&url),
                address: address(&url),
            },
            (href, url) => {
                let error = url.err().unwrap_or(UrlError::Empty);
                Answer::Failed {
                    input,
                    href,
                    failure: error.code(),
                    detail: error.to_string(),
                }
            }
        }
    }

    fn to_text(&self) -> String {
        match self {
            Answer::Read {
                input,
                canonical,
                scopes,
                address,
                ..
            } => {
                let mut text = format!("{input}\n  canonical  {canonical}\n  scopes     ");
                text.push_str(&scopes.join(", "));
                if let Some(address) = address {
                    text.push_str("\n  address    ");
                    text.push_str(address);
                }
                text
            }
            Answer::Failed { input, detail, .. } => format!("{input}\n  failure    {detail}"),
        }
    }
}

/// Kind of a literal address.
fn address(url: &CrawlUrl) -> Option<&'static str> {
    match url.host() {
        Host::Name(_) => None,
        Host::Address(address) => Some(Kind::of(address).as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(urls: &[&str], base: Option<&str>, json: bool, input: &str, expected: &str) {
        let args = UrlArgs {
            urls: urls.iter().map(|url| (*url).to_owned()).collect(),
            base: base.map(str::to_owned),
            json,
        };
        let mut out = Vec::new();
        let scopes_of = |url: &CrawlUrl| vec![url.scope_key().to_owned()];
        let code = run_on(&args, &scopes_of, input.as_bytes(), &mut out).unwrap();
        assert_eq!(
            (code, String::from_utf8(out).unwrap().as_str()),
            (0, expected)
        );
    }

    #[test]
    fn a_url_is_explained_in_words() {
        check(
            &["HTTP://127.1:80/a#b", "mailto:x"],
            None,
            false,
            "",
            "HTTP://127.1:80/a#b\n  canonical  http://127.0.0.1/a\n  scopes     127.0.0.1\n  \
             address    loopback\nmailto:x\n  failure    the scheme mailto: is not supported \
             (only http: and https:)\n",
        );
    }

    #[test]
    fn a_url_is_explained_in_json() {
        check(
            &["x#y"],
            Some("https://u:p@A.test:8443/"),
            true,
            "",
            "{\"input\":\"x#y\",\"href\":\"https://u:p@a.test:8443/x#y\",\
             \"canonical\":\"https://a.test:8443/x\",\"scopes\":[\"a.test:8443\"],\"address\":null}\n",
        );
    }

    #[test]
    fn questions_come_as_json_lines() {
        check(
            &["-"],
            None,
            false,
            "{\"input\":\"/x\",\"base\":\"http://[::1]/\"}\n{\"input\":\"http://a b/\",\"base\":null}\n\
             {\"input\":\"data:x\"}\n{\"base\":\"x\"}\n",
            "{\"input\":\"/x\",\"href\":\"http://[::1]/x\",\"canonical\":\"http://[::1]/x\",\
             \"scopes\":[\"[::1]\"],\"address\":\"loopback\"}\n\
             {\"input\":\"http://a b/\",\"failure\":\"host\",\
             \"detail\":\"the host is neither a name nor an address\"}\n\
             {\"input\":\"data:x\",\"href\":\"data:x\",\"failure\":\"scheme\",\
             \"detail\":\"the scheme data: is not supported (only http: and https:)\"}\n\
             {\"error\":\"the line is not a valid question: missing field `input` at line 1 column 12\"}\n",
        );
    }
}
