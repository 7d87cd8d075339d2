//! `argiope url`: explains how a URL is parsed, and whether a crawl would fetch it.

use std::fs;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;

use anyhow::Result;
use argiope::parts::{LeftOut, Robots, UrlCheck, parse_any};
use argiope::settings::SettingSource;
use argiope::{AddressKind as Kind, Config, CrawlUrl, Host, Request, UrlError};
use serde::{Deserialize, Serialize};

use super::Usage;
use super::json_lines::{answer_each, put_line};

/// Arguments of the command.
#[derive(Clone, Debug, Default)]
pub struct UrlArgs {
    /// The URLs; a single `-` reads questions as JSON lines from stdin.
    pub urls: Vec<String>,
    /// The base for relative URLs.
    pub base: Option<String>,
    /// Seeds from which they are links; none: they are seeds themselves.
    pub from: Vec<String>,
    /// Links from a seed.
    pub depth: Option<u32>,
    /// Path of a robots.txt by which they are judged.
    pub robots: Option<PathBuf>,
    /// Exit with 1 if one of them would not be fetched.
    pub fail: bool,
    /// Answer in JSON.
    pub json: bool,
}

/// Runs the command; returns its exit code.
pub fn run(args: &UrlArgs, config: &Config) -> Result<i32> {
    let judge = Judge::new(args, config)?;
    run_on(args, &judge, io::stdin().lock(), io::stdout().lock())
}

fn run_on(
    args: &UrlArgs,
    judge: &Judge<'_>,
    input: impl BufRead,
    mut out: impl Write,
) -> Result<i32> {
    let mut are_fetched = true;
    let answer =
        |input: &str, base: Option<&str>| Answer::of(input, base.or(args.base.as_deref()), judge);
    if let [only] = &args.urls[..]
        && only == "-"
    {
        answer_each(input, out, |question: Question| {
            let answer = answer(&question.input, question.base.as_deref());
            are_fetched &= answer.is_fetched();
            Ok(answer)
        })?;
    } else {
        let are_seeds = args.base.is_none() && args.from.is_empty();
        for url in &args.urls {
            let mut answer = answer(url, None);
            if are_seeds && !answer.is_read() {
                answer = answer.or_as_seed(judge);
            }
            are_fetched &= answer.is_fetched();
            let text = if args.json {
                serde_json::to_string(&answer)?
            } else {
                answer.to_text()
            };
            if !put_line(&mut out, &text)? {
                break;
            }
        }
    }
    Ok(if args.fail && !are_fetched { 1 } else { 0 })
}

/// Decides whether a crawl with these settings would fetch a URL.
struct Judge<'a> {
    config: &'a Config,
    check: UrlCheck,
    /// Links from a seed; 0: the URLs are seeds.
    depth: u32,
    robots: Option<Robots>,
}

impl<'a> Judge<'a> {
    fn new(args: &UrlArgs, config: &'a Config) -> Result<Self> {
        let mut check = UrlCheck::new(config).map_err(|error| Usage(error.to_string()))?;
        for seed in &args.from {
            // A bare host is a seed as well.
            let request = Request::from_line(seed);
            let url = request.map_err(|error| Usage(format!("--from {seed}: {error}")))?;
            let url = url.map(|request| CrawlUrl::parse(&request.url));
            let Some(Ok(url)) = url else {
                let what = format!("--from {seed}: not a URL; give a seed, as https://example.com");
                return Err(Usage(what).into());
            };
            check.add_seed(&url);
        }
        let read = |path: &PathBuf| {
            let file = fs::read(path).map_err(|error| {
                let path = path.display();
                let mend = match path.to_string().contains("://") {
                    true => format!("`argiope robots {path} > robots.txt` makes a file, give that"),
                    false => "give a robots.txt file".to_owned(),
                };
                Usage(format!("--robots {path}: cannot be read: {error}; {mend}"))
            });
            file.map(|file| Robots::parse(&file))
        };
        Ok(Judge {
            config,
            check,
            depth: match args.from.is_empty() {
                true => 0,
                false => args.depth.unwrap_or(1),
            },
            robots: args.robots.as_ref().map(read).transpose()?,
        })
    }

    fn verdict(&self, url: &CrawlUrl) -> Result<(), LeftOut> {
        self.check.check(url, self.depth)?;
        match &self.robots {
            Some(robots) => self.check.check_robots(url, robots),
            None => Ok(()),
        }
    }

    /// The last line about a URL.
    fn to_text(&self, url: &CrawlUrl, left_out: Option<&LeftOut>) -> String {
        let Some(left_out) = left_out else {
            let how = match self.depth {
                0 => "as a seed".to_owned(),
                1 => "as a link of a seed".to_owned(),
                depth => format!("as a link at depth {depth}"),
            };
            let mut unknown = Vec::new();
            if self.check.obeys_robots() && self.robots.is_none() {
                unknown.push("its robots.txt allows it");
            }
            if matches!(url.host(), Host::Name(_)) {
                unknown.push("its address is allowed");
            }
            return match unknown.is_empty() {
                true => format!("yes, {how}"),
                false => format!("yes, {how}, if {}", unknown.join(" and ")),
            };
        };
        let source = left_out.setting.map(|setting| self.config.source(setting));
        let source = source.filter(|source| **source != SettingSource::Default);
        let source = source.map(|source| format!(", set by {source}"));
        let LeftOut { filter, why, .. } = left_out;
        let source = source.unwrap_or_default();
        format!("no: {why} (filter {filter}{source})")
    }
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
        fetched: bool,
        filter: Option<&'static str>,
        rule: Option<String>,
        why: Option<String>,
        /// The same in words.
        #[serde(skip)]
        text: String,
    },
    Failed {
        input: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        href: Option<String>,
        failure: &'static str,
        detail: String,
        fetched: bool,
    },
}

impl Answer {
    fn of(input: &str, base: Option<&str>, judge: &Judge<'_>) -> Self {
        let input = input.to_owned();
        let (href, url) = match parse_any(&input, base) {
            Ok(reading) => (Some(reading.href), reading.url),
            Err(error) => (None, Err(error)),
        };
        match (href, url) {
            (Some(href), Ok(url)) => {
                let verdict = judge.verdict(&url);
                let left_out = verdict.as_ref().err();
                Answer::Read {
                    input,
                    href,
                    canonical: url.to_string(),
                    scopes: judge.config.scopes_of(&url),
                    address: address(&url),
                    fetched: verdict.is_ok(),
                    filter: left_out.map(|left_out| left_out.filter),
                    rule: left_out.and_then(|left_out| left_out.rule.clone()),
                    why: left_out.map(|left_out| left_out.why.clone()),
                    text: judge.to_text(&url, left_out),
                }
            }
            (href, url) => {
                let error = url.err().unwrap_or(UrlError::Empty);
                Answer::Failed {
                    input,
                    href,
                    failure: error.code(),
                    detail: error.to_string(),
                    fetched: false,
                }
            }
        }
    }

    fn is_read(&self) -> bool {
        matches!(self, Answer::Read { .. })
    }

    /// The same, of a text that is no URL, as a crawl reads it among its seeds: `example.com`, `localhost:8080`.
    fn or_as_seed(self, judge: &Judge<'_>) -> Self {
        let Answer::Failed { input: text, .. } = &self else {
            return self;
        };
        let seed = Request::from_line(text).ok().flatten();
        match seed.map(|seed| Answer::of(&seed.url, None, judge)) {
            Some(mut answer @ Answer::Read { .. }) => {
                if let Answer::Read { input, .. } = &mut answer {
                    input.clone_from(text);
                }
                answer
            }
            _ => self,
        }
    }

    fn is_fetched(&self) -> bool {
        match self {
            Answer::Read { fetched, .. } | Answer::Failed { fetched, .. } => *fetched,
        }
    }

    fn to_text(&self) -> String {
        match self {
            Answer::Read {
                input,
                canonical,
                scopes,
                address,
                text: verdict,
                ..
            } => {
                let mut text = format!("{input}\n  canonical  {canonical}\n  scopes     ");
                text.push_str(&scopes.join(", "));
                if let Some(address) = address {
                    text.push_str("\n  address    ");
                    text.push_str(address);
                }
                text.push_str("\n  fetched    ");
                text.push_str(verdict);
                text
            }
            Answer::Failed { input, detail, .. } => {
                format!("{input}\n  failure    {detail}\n  fetched    no")
            }
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
            ..UrlArgs::default()
        };
        check_as(&args, &Config::default(), input, 0, expected);
    }

    fn check_as(args: &UrlArgs, config: &Config, input: &str, code: i32, expected: &str) {
        let judge = Judge::new(args, config).expect("sound arguments");
        let mut out = Vec::new();
        let exit = run_on(args, &judge, input.as_bytes(), &mut out).unwrap();
        assert_eq!(
            (exit, String::from_utf8(out).unwrap().as_str()),
            (code, expected)
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
             address    loopback\n  fetched    no: 127.0.0.1 is not globally routable (loopback); \
             --allow-net 127.0.0.1 allows it (filter not_global)\nmailto:x\n  failure    the \
             scheme mailto: is not supported (only http: and https:)\n  fetched    no\n",
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
             \"canonical\":\"https://a.test:8443/x\",\"scopes\":[\"a.test:8443\"],\"address\":null,\
             \"fetched\":true,\"filter\":null,\"rule\":null,\"why\":null}\n",
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
             \"scopes\":[\"[::1]\"],\"address\":\"loopback\",\"fetched\":false,\"filter\":\"not_global\",\
             \"rule\":\"ALLOW_NET\",\"why\":\"::1 is not globally routable (loopback); \
             --allow-net ::1 allows it\"}\n\
             {\"input\":\"http://a b/\",\"failure\":\"host\",\
             \"detail\":\"the host is neither a name nor an address\",\"fetched\":false}\n\
             {\"input\":\"data:x\",\"href\":\"data:x\",\"failure\":\"scheme\",\
             \"detail\":\"the scheme data: is not supported (only http: and https:)\",\"fetched\":false}\n\
             {\"error\":\"the line is not a valid question: missing field `input` at line 1 column 12\"}\n",
        );
    }

    #[test]
    fn the_rule_that_prevents_the_fetch_is_named_with_its_source() {
        let config = Config::default();
        let config = config.with("DENY", "[.]pdf$").expect("a pattern");
        let args = |url: &str, from: &[&str], fail| UrlArgs {
            urls: vec![url.to_owned()],
            from: from.iter().map(|seed| (*seed).to_owned()).collect(),
            fail,
            ..UrlArgs::default()
        };
        let check = |args: &UrlArgs, code, verdict: &str| {
            let url = &args.urls[0];
            let expected =
                format!("{url}\n  canonical  {url}\n  scopes     a.test\n  fetched    {verdict}\n");
            check_as(args, &config, "", code, &expected);
        };
        let denied = "no: a pattern matches it: DENY=[.]pdf$ (filter denied, set by program)";
        check(&args("http://a.test/x.pdf", &[], false), 0, denied);
        check(&args("http://a.test/x.pdf", &[], true), 1, denied);
        let open = "if its robots.txt allows it and its address is allowed";
        let link = format!("yes, as a link of a seed, {open}");
        check(&args("http://a.test/", &["a.test"], true), 0, &link);
        let seed = format!("yes, as a seed, {open}");
        check(&args("http://a.test/", &[], true), 0, &seed);
        let offsite = "no: its host is none of the seeds' (FOLLOW=host) (filter offsite)";
        check(&args("http://a.test/", &["b.test"], true), 1, offsite);
    }
}
