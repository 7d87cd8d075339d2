//! Words that stand where URLs do on the command line, and are something else: each is refused with what was meant.

use std::path::Path;

use argiope::Request;

use super::Usage;

/// Refuses the first word that is no URL and no host. `resumes`: whether `--resume` is given.
pub fn check_urls(words: &[String], resumes: bool) -> Result<(), Usage> {
    match words.iter().find_map(|word| mistake(word, resumes)) {
        Some(what) => Err(Usage(what)),
        None => Ok(()),
    }
}

/// What is wrong with a word, and what to write.
fn mistake(word: &str, resumes: bool) -> Option<String> {
    const LONG_DASHES: [char; 3] = ['\u{2013}', '\u{2014}', '\u{2212}'];
    if word.starts_with(LONG_DASHES) {
        let name = word.trim_start_matches(LONG_DASHES);
        return Some(format!(
            "{word:?} begins with a long dash: write --{name} with two hyphens"
        ));
    }
    let path = word.strip_prefix('@').unwrap_or(word);
    let path = path.strip_prefix("file://").unwrap_or(path);
    if Path::new(path).is_file() {
        let host = match word.contains(['/', '@']) {
            true => String::new(),
            false => format!(", for a host of that name http://{word}/"),
        };
        return Some(format!(
            "{path} is a file here: to read URLs from it write --seeds {path}{host}"
        ));
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
        let meant = match is_setting {
            true => format!("-s {word}: each setting has its own -s"),
            false => format!("--{name} {value}"),
        };
        return Some(format!("{word:?} is no URL: write {meant}"));
    }
    if resumes && Path::new(word).is_dir() {
        return Some(format!(
            "{word:?} is no URL: to continue the crawl in that directory write --resume --out {word}"
        ));
    }
    Some(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(word: &str, resumes: bool, expected: Option<&str>) {
        let found = mistake(word, resumes);
        match (&found, expected) {
            (None, None) => {}
            (Some(found), Some(part)) if found.contains(part) => {}
            _ => panic!("{word}: {found:?}"),
        }
    }

    #[test]
    fn words_that_are_no_urls_are_answered_with_what_was_meant() {
        check("http://a.test/", false, None);
        check("a.test:81/x?y=z", false, None);
        check("\u{2014}max-pages", false, Some("write --max-pages"));
        check("RETRY_TIMES=2", false, Some("write -s RETRY_TIMES=2"));
        check("max-pages=1", false, Some("write --max-pages 1"));
        check("not a url", false, Some("neither a URL nor a host"));
        check("", false, Some("no URL"));
    }

    #[test]
    fn files_and_directories_of_these_names_are_pointed_out() {
        let folder = tempfile::tempdir().unwrap();
        let shown = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(shown("urls.txt"), "http://a.test/\n").unwrap();
        let file = shown("urls.txt");
        let cure = format!("write --seeds {file}");
        for word in [file.clone(), format!("@{file}"), format!("file://{file}")] {
            check(&word, false, Some(&cure));
        }
        let crawl = folder.path().to_str().unwrap();
        check(crawl, true, Some("--resume --out"));
        check(crawl, false, Some("neither a URL nor a host"));
    }
}
