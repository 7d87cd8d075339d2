//! Flags that say which URLs a crawl fetches, for the commands that crawl and that explain a URL.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use argiope::Request;
use clap::Args;

use super::settings;
use super::sources::{Given, many, one};

/// Which URLs are fetched.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits and filters")]
pub struct Filters {
    /// Follow no links, those on the hosts of the seeds, on their domains, or all [default: host]
    #[arg(long, value_name = "none|host|domain|all")]
    follow: Option<String>,
    /// Follow at most N links from a seed; 0: no limit (--follow none follows none)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_depth: Option<String>,
    /// Fetch only URLs that match one of these, seeds included
    #[arg(long, value_name = "REGEX")]
    allow: Vec<String>,
    /// Do not fetch URLs that match one of these, seeds included
    #[arg(long, value_name = "REGEX")]
    deny: Vec<String>,
    /// Send no requests to the hosts, *.domains and CIDRs in this file
    #[arg(long, value_name = "FILE")]
    pub exclude: Vec<PathBuf>,
}

impl Filters {
    /// The settings that its flags set.
    pub fn given(&self) -> anyhow::Result<Vec<Given>> {
        let mut given = Vec::new();
        given.extend(one("--follow", "FOLLOW", &self.follow));
        given.extend(one("--max-depth", "DEPTH_LIMIT", &self.max_depth));
        given.extend(many("--allow", "ALLOW", &self.allow));
        given.extend(many("--deny", "DENY", &self.deny));
        if !self.exclude.is_empty() {
            let excluded = settings::read_exclusions(&self.exclude)?;
            given.push(Given::new("--exclude", "EXCLUDE", excluded.into()));
        }
        Ok(given)
    }
}

/// The command line with `--filtered=FILE` for `--filtered FILE`: of the words behind the flag only the first may be its
/// file, and only if it is no URL.
pub fn with_file_of_filtered(mut args: Vec<OsString>) -> Vec<OsString> {
    const FLAG: &str = "--filtered";
    let mut words = args.iter().skip(1).filter_map(|word| word.to_str());
    let is_crawl = words.find(|word| !word.starts_with('-')) == Some("crawl");
    let end = args.iter().position(|word| word == "--");
    let end = end.unwrap_or(args.len());
    let at = args[..end].iter().position(|word| word == FLAG);
    if let (true, Some(at)) = (is_crawl, at)
        && let Some(file) = args[..end].get(at + 1).and_then(|word| word.to_str())
        && is_file_of_filtered(file)
    {
        args[at] = format!("{FLAG}={file}").into();
        args.remove(at + 1);
    }
    args
}

/// Whether the word behind `--filtered` is its file: no URL or host, or rather a path than one.
fn is_file_of_filtered(word: &str) -> bool {
    if word.starts_with('-') || word.contains("://") {
        return false;
    }
    let folder = Path::new(word).parent();
    let is_in_folder = || folder.is_some_and(|it| !it.as_os_str().is_empty() && it.is_dir());
    is_named_as_lines(word) || !matches!(Request::from_line(word), Ok(Some(_))) || is_in_folder()
}

/// Whether a word has the name of a file of lines. No top-level domain has these names.
pub fn is_named_as_lines(word: &str) -> bool {
    const ENDINGS: [&str; 8] = [
        ".jsonl", ".ndjson", ".json", ".csv", ".txt", ".log", ".gz", ".zst",
    ];
    ENDINGS.iter().any(|ending| word.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_word_behind_filtered_is_its_file_and_only_if_it_is_no_url() {
        let check = |words: &str, expected: &str| {
            let words = ["argiope".to_owned(), "crawl".to_owned()]
                .into_iter()
                .chain(words.split(' ').map(str::to_owned));
            let found = with_file_of_filtered(words.map(OsString::from).collect());
            let found: Vec<&str> = found[2..].iter().filter_map(|word| word.to_str()).collect();
            assert_eq!(found.join(" "), expected);
        };
        for file in [
            "left",
            "logs/left.jsonl",
            "/data/left",
            "./left",
            "my.logs/left.jsonl",
            "a.gz",
        ] {
            let expected = format!("a.test --filtered={file}");
            check(&format!("a.test --filtered {file}"), &expected);
        }
        for same in [
            "urls.txt --filtered",
            "http://a.test/ urls.txt --filtered",
            "--filtered http://a.test/x.json",
            "--filtered a.test",
            "--filtered a.test/x urls.txt",
            "--filtered --out left",
            "a.test --filtered -- left",
            "a.test -- --filtered left",
        ] {
            check(same, same);
        }
        // A folder that is there.
        check("a.test --filtered /usr/left", "a.test --filtered=/usr/left");
        let folder = tempfile::tempdir().expect("a folder");
        let named = folder.path().join("my.logs");
        std::fs::create_dir(&named).expect("it can be made");
        let inside = format!("{}/left", named.display());
        check(
            &format!("--filtered {inside}"),
            &format!("--filtered={inside}"),
        );
        let fetch = ["argiope", "fetch", "a.test", "--filtered", "left"].map(OsString::from);
        assert_eq!(with_file_of_filtered(fetch.to_vec()), fetch);
    }
}
