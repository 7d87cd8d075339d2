//! Short flags of wget and Scrapy for `crawl`, and those of curl with the same letters for `fetch`.

use std::path::Path;

use super::{Foreign, TRIES, Unknown};
use crate::cli::shell::quoted;

const CRAWL: &[&str] = &["crawl"];
const FETCH: &[&str] = &["fetch"];

/// What to write in place of a letter whose meaning the value behind it shows: that of curl or Scrapy, and not that of
/// wget.
pub(super) fn of_value(unknown: Unknown<'_>) -> Option<String> {
    let value = unknown.value?;
    let is_url = value.starts_with("http://") || value.starts_with("https://");
    let word = || quoted(Path::new(value));
    let header = |name: &str| quoted(Path::new(&format!("{name}: {value}")));
    let is_pair = value.contains('=') && !is_url;
    match (unknown.command, unknown.flag) {
        ("crawl" | "fetch", "-b") if is_pair => Some(format!(
            "for a cookie write -H {}, for those of single hosts --cookies FILE",
            header("Cookie")
        )),
        ("crawl" | "fetch", "-b") if Path::new(value).is_file() => {
            Some(format!("for a file of cookies write --cookies {}", word()))
        }
        ("crawl" | "fetch", "-e") if is_url => {
            Some(format!("for that header write -H {}", header("Referer")))
        }
        ("crawl", "-t") if FORMATS.contains(&value) => Some(format!(
            "result lines are JSON, in DIR/results.jsonl of --out DIR; for a table write `argiope export DIR --csv \
             url status` behind the crawl (got {value})"
        )),
        ("crawl", "-a") if is_pair => Some(match value.split_once('=') {
            Some(("start_url" | "start_urls" | "url" | "urls", urls)) => {
                let urls = urls.replace(',', " ");
                format!("URLs need no flag: write {urls}")
            }
            _ => format!(
                "there is no spider with an argument {}: leave it out; a setting is written -s NAME=VALUE, as in -s \
                 RETRY_TIMES=2",
                word()
            ),
        }),
        _ => None,
    }
}

/// What Scrapy's `-t` names.
const FORMATS: [&str; 8] = [
    "json",
    "jsonl",
    "jsonlines",
    "jl",
    "csv",
    "xml",
    "pickle",
    "marshal",
];

/// Each letter, for `crawl` and for `fetch`.
pub(super) const ROWS: &[Foreign] = &[
    Foreign {
        commands: CRAWL,
        flags: &["-w"],
        cure: "for a gap between the requests to a host write --delay D",
        tries: &["--delay 2"],
    },
    Foreign {
        commands: FETCH,
        flags: &["-w", "--write-out"],
        cure: "leave it out: the line on stdout has status, times and sizes as JSON",
        tries: &[""],
    },
    Foreign {
        commands: CRAWL,
        flags: &["-j", "-n", "-Z"],
        cure: "to limit the requests in flight to a host write --concurrency N, in all -s CONCURRENT_REQUESTS=N",
        tries: &["--concurrency 4", "-s CONCURRENT_REQUESTS=16"],
    },
    Foreign {
        commands: FETCH,
        flags: &["-j", "--junk-session-cookies"],
        cure: "leave it out: cookies are sent only of --cookies FILE, and kept only then or with -s COOKIES_ENABLED=true",
        tries: &["", "--cookies cookies.txt", "-s COOKIES_ENABLED=true"],
    },
    Foreign {
        commands: FETCH,
        flags: &["-n"],
        cure: "to log in to a host write --user-for HOST NAME:PASSWORD",
        tries: &["--user-for a.test name:password"],
    },
    Foreign {
        commands: FETCH,
        flags: &["-Z"],
        cure: "leave it out: hosts are asked at once; for several requests in flight to one write --concurrency N",
        tries: &["", "--concurrency 4"],
    },
    Foreign {
        commands: CRAWL,
        flags: &["-t"],
        cure: TRIES,
        tries: &["-s RETRY_TIMES=2"],
    },
    Foreign {
        commands: FETCH,
        flags: &["-t", "--telnet-option"],
        cure: "only http and https are fetched; for the number of retries write -s RETRY_TIMES=N",
        tries: &["-s RETRY_TIMES=2"],
    },
    Foreign {
        commands: FETCH,
        flags: &["-e"],
        cure: "write the header out: --header 'Referer: https://example.com/'",
        tries: &["--header Referer:https://example.com/"],
    },
    Foreign {
        commands: FETCH,
        flags: &["-r", "--range"],
        cure: "to ask for a part write --header 'Range: bytes=0-99'",
        tries: &["--header Range:bytes=0-99"],
    },
    Foreign {
        commands: FETCH,
        flags: &["-F", "--form"],
        cure: "to send a form write -d 'a=b&c=d'; one with files is made by another program, and sent by --data-binary @FILE",
        tries: &["-d a=b&c=d", "--data-binary @form"],
    },
];
