//! Words that stand where URLs do on the command line, and are something else: each is refused with what was meant.

use std::path::{Path, PathBuf};

use argiope::Request;

use super::Usage;
use super::args::filters::is_named_as_lines;
use super::args::flags_of_commands;
use super::foreign::{Answer, Unknown};

/// A command that is given URLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// `crawl`.
    Crawl,
    /// `crawl --resume`.
    Resume,
    /// `fetch`.
    Fetch,
    /// `probe`.
    Probe,
}

/// Refuses the first word that is no URL and no host.
pub fn check_urls(words: &[String], to: Given) -> Result<(), Usage> {
    match words.iter().find_map(|word| mistake(word, to)) {
        Some(what) => Err(Usage(what)),
        None => Ok(()),
    }
}

/// Refuses a word behind `--resume` that is the directory of a crawl, or without `--out` its name. `has_out`: whether
/// `--out` is given.
pub fn check_directories(words: &[String], has_out: bool) -> Result<(), Usage> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-/".contains(c);
    let is_name = |word: &str| word != "localhost" && word.chars().all(is_plain);
    // Without --out it is the crawl in ./crawl that is continued, which may be given such a host as a further seed.
    let has_none = || !has_out && !Path::new("crawl").is_dir();
    let is_meant = |word: &str| {
        let is_crawl = Path::new(word).join("state").is_dir();
        is_crawl || (words.len() == 1 && is_name(word) && has_none())
    };
    match words.iter().find(|word| is_meant(word)) {
        Some(word) => Err(Usage(to_resume(word))),
        None => Ok(()),
    }
}

/// Refuses a URL where a seeds file is expected.
pub fn check_seeds(files: &[PathBuf]) -> Result<(), Usage> {
    let mut texts = files.iter().map(|file| (file, file.to_string_lossy()));
    let is_url = |text: &str| text.starts_with("http://") || text.starts_with("https://");
    match texts.find(|(file, text)| is_url(text) && !file.exists()) {
        Some((_, url)) => Err(Usage(format!(
            "--seeds {url}: a URL, and --seeds reads a file: give it without --seeds, as in `argiope crawl {url}`"
        ))),
        None => Ok(()),
    }
}

/// What continues the crawl in a directory.
fn to_resume(word: &str) -> String {
    format!(
        "{word:?} is no URL: to continue the crawl in that directory write --resume --out {word}"
    )
}

impl Given {
    fn command(self) -> &'static str {
        match self {
            Given::Crawl | Given::Resume => "crawl",
            Given::Fetch => "fetch",
            Given::Probe => "probe",
        }
    }

    /// What reads URLs from a file.
    fn of_file(self, path: &str) -> String {
        match self {
            Given::Crawl | Given::Resume => format!("write --seeds {path}"),
            Given::Fetch => format!("write `argiope crawl --seeds {path} --follow none`"),
            Given::Probe => format!("write --targets {path} --every 15s"),
        }
    }
}

/// The flag without a value that a word of this command line stands behind.
fn switch_before(word: &str) -> Option<String> {
    let args: Vec<String> = std::env::args_os()
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    let at = args.iter().position(|arg| arg == word)?;
    let before = args.get(at.checked_sub(1)?)?;
    before.starts_with("--").then(|| before.clone())
}

/// The whole message about the name of a file that is not there. No top-level domain has these endings.
fn output_named(word: &str, switch: Option<&str>, to: Given) -> Option<String> {
    const ENDINGS: [&str; 4] = [".warc", ".cdxj", ".parquet", ".xml"];
    let is_named = is_named_as_lines(word) || ENDINGS.iter().any(|ending| word.ends_with(ending));
    let first = word.split('/').next().unwrap_or(word);
    let is_below_host =
        first.len() < word.len() && (first.contains(['.', ':']) || first == "localhost");
    if !is_named || is_below_host || word.contains([':', '?', '@', ' ']) {
        return None;
    }
    let what = format!("{word:?} is no URL, and no file is there");
    let cure = match switch {
        Some("--links") => {
            "--links takes no file: leave the word out, the links go to links.jsonl in --out DIR"
        }
        Some("--warc") => {
            "--warc takes no file: leave the word out, WARC files go to the folder warc in --out DIR"
        }
        _ if to.command() == "crawl" && word.contains(".warc") => {
            "WARC files go to the folder warc in --out DIR: leave the word out"
        }
        _ if to.command() == "crawl" => {
            return Some(format!(
                "{what}: leave it out; --seeds FILE reads URLs from a file, and --results - > {word} writes result \
                 lines to one"
            ));
        }
        _ => "give a URL like https://example.com/",
    };
    Some(format!("{what}: {cure}"))
}

/// What is wrong with a word, and what to write.
fn mistake(word: &str, to: Given) -> Option<String> {
    const LONG_DASHES: [char; 3] = ['\u{2013}', '\u{2014}', '\u{2212}'];
    if word.starts_with(LONG_DASHES) {
        let name = word.trim_start_matches(LONG_DASHES);
        return Some(format!(
            "{word:?} begins with a long dash: write --{name} with two hyphens"
        ));
    }
    let path = word.strip_prefix('@').unwrap_or(word);
    let path = path.strip_prefix("file://").unwrap_or(path);
    let is_crawl = to.command() == "crawl";
    // Where files are not read, as `fetch example.com -o example.com` leaves one.
    let is_host = || !is_crawl && path == word && !is_named_as_lines(word);
    let is_seed = || matches!(Request::from_line(word), Ok(Some(_)));
    if Path::new(path).is_file() && !(is_host() && is_seed()) {
        let host = match word.contains(['/', '@']) {
            true => String::new(),
            false => format!(", for a host of that name http://{word}/"),
        };
        let cure = to.of_file(path);
        return Some(format!(
            "{path} is a file here: to read URLs from it {cure}{host}"
        ));
    }
    if path == word
        && let Some(cure) = output_named(word, switch_before(word).as_deref(), to)
    {
        return Some(cure);
    }
    let error = match Request::from_line(word) {
        Ok(Some(_)) => return None,
        Ok(None) => format!("{word:?} is no URL: write one like https://example.com/"),
        Err(error) => error.to_string(),
    };
    if let Some((name, value)) = word.split_once('=')
        && !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
    {
        let is_setting = name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        if is_setting {
            return Some(format!(
                "{word:?} is no URL: write -s {word}: each setting has its own -s"
            ));
        }
        let flag = format!("--{}", name.replace('_', "-"));
        let flags = flags_of_commands();
        let mut commands = flags.iter();
        let own = commands.find(|(name, _)| name == to.command());
        if own.is_some_and(|(_, own)| own.contains(&flag)) {
            return Some(format!("{word:?} is no URL: write {flag} {value}"));
        }
        let unknown = Unknown {
            command: to.command(),
            flag: &flag,
            value: Some(value),
        };
        if let Some(Answer::Instead(cure)) = unknown.answer(&flags) {
            return Some(format!("{word:?} is no URL; {cure}"));
        }
    }
    if to == Given::Resume && Path::new(word).is_dir() {
        return Some(to_resume(word));
    }
    Some(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(word: &str, to: Given, expected: Option<&str>) {
        let found = mistake(word, to);
        match (&found, expected) {
            (None, None) => {}
            (Some(found), Some(part)) if found.contains(part) => {}
            _ => panic!("{word}: {found:?}"),
        }
    }

    #[test]
    fn words_that_are_no_urls_are_answered_with_what_was_meant() {
        check("http://a.test/", Given::Crawl, None);
        check("a.test:81/x?y=z", Given::Crawl, None);
        check("\u{2014}max-pages", Given::Crawl, Some("write --max-pages"));
        check(
            "RETRY_TIMES=2",
            Given::Crawl,
            Some("write -s RETRY_TIMES=2"),
        );
        check("max-pages=1", Given::Crawl, Some("write --max-pages 1"));
        check("not a url", Given::Crawl, Some("neither a URL nor a host"));
        check("", Given::Crawl, Some("no URL"));
        check("max_pages=1", Given::Crawl, Some("write --max-pages 1"));
        check("wait=3", Given::Crawl, Some("write --delay 3"));
        // Flags of another command.
        let of_crawl = Some("no --max-pages; it is a flag of `argiope crawl`");
        check("max-pages=1", Given::Fetch, of_crawl);
        check("rate=5", Given::Probe, Some("write --rate 5"));
    }

    #[test]
    fn names_of_files_that_are_not_there_are_no_hosts() {
        check("links.jsonl", Given::Crawl, Some("leave it out; --seeds"));
        check("shop.warc.gz", Given::Crawl, Some("the folder warc"));
        check("out/a.csv", Given::Crawl, Some("--results - > out/a.csv"));
        check("urls.txt", Given::Probe, Some("give a URL"));
        check("a.test/x.json", Given::Crawl, None);
        check("localhost:81/x.json", Given::Crawl, None);
        check("http://a.json/", Given::Crawl, None);
        let behind = |flag| output_named("links.jsonl", Some(flag), Given::Crawl);
        assert!(behind("--links").is_some_and(|text| text.contains("links.jsonl in --out DIR")));
    }

    #[test]
    fn files_and_directories_of_these_names_are_pointed_out() {
        let folder = tempfile::tempdir().unwrap();
        let shown = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(shown("urls.txt"), "http://a.test/\n").unwrap();
        let file = shown("urls.txt");
        let cure = format!("write --seeds {file}");
        for word in [file.clone(), format!("@{file}"), format!("file://{file}")] {
            check(&word, Given::Crawl, Some(&cure));
        }
        let of_crawl = format!("write `argiope crawl --seeds {file} --follow none`");
        check(&file, Given::Fetch, Some(&of_crawl));
        check(
            &file,
            Given::Probe,
            Some(&format!("write --targets {file} --every 15s")),
        );
        let crawl = folder.path().to_str().unwrap();
        check(crawl, Given::Resume, Some("--resume --out"));
        // Cargo.toml is a host as far as its name goes.
        check("Cargo.toml", Given::Fetch, None);
        check("Cargo.toml", Given::Probe, None);
        check("Cargo.toml", Given::Crawl, Some("for a host of that name"));
        check(crawl, Given::Crawl, Some("neither a URL nor a host"));
    }
}
