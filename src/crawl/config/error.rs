//! Errors of settings: each names the source, what was wrong, and how to mend it.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use crate::base::sentence::debug_as_sentence;

/// Source of a value, in ascending precedence: a value from a later variant overrides one from an
/// earlier variant, in whatever order they were set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingSource {
    /// Not set.
    Default,
    /// A named bundle of values.
    Preset(String),
    /// A file, and the line if it is known (otherwise 0).
    File {
        /// Its path, as the user wrote it.
        path: PathBuf,
        /// The line of the key, from 1; 0: unknown.
        line: usize,
    },
    /// `-s NAME=VALUE`.
    Option,
    /// A flag of the command line, as the user writes it (`--timeout`).
    Flag(String),
    /// The program that embeds the crawler.
    Program,
}

impl SettingSource {
    /// Its precedence; the higher rank wins.
    pub(crate) fn rank(&self) -> u8 {
        match self {
            SettingSource::Default => 0,
            SettingSource::Preset(_) => 1,
            SettingSource::File { .. } => 2,
            SettingSource::Option => 3,
            SettingSource::Flag(_) => 4,
            SettingSource::Program => 5,
        }
    }

    /// The location of the setting `name` in this source, for messages.
    fn locate(&self, name: &str) -> String {
        let name = shown(name);
        match self {
            SettingSource::Flag(flag) => flag.clone(),
            SettingSource::Option => format!("-s {name}"),
            SettingSource::File { line: 0, .. } | SettingSource::Preset(_) => {
                format!("{self}: {name}")
            }
            SettingSource::File { .. } => format!("{self}: {}", name.to_ascii_lowercase()),
            SettingSource::Default | SettingSource::Program => name.into_owned(),
        }
    }
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingSource::Default => f.write_str("default"),
            SettingSource::Preset(name) => write!(f, "preset {name}"),
            SettingSource::File { path, line: 0 } => write!(f, "{}", path.display()),
            SettingSource::File { path, line } => write!(f, "{}:{line}", path.display()),
            SettingSource::Option => f.write_str("-s"),
            SettingSource::Flag(flag) => f.write_str(flag),
            SettingSource::Program => f.write_str("program"),
        }
    }
}

/// An invalid setting. Its text is one line: where it was set, what was wrong, how to mend it.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {problem}", source_of.locate(name), path(&problem.entry))]
#[non_exhaustive]
pub struct ConfigError {
    /// Where it was set.
    pub source_of: SettingSource,
    /// The setting.
    pub name: String,
    /// What was wrong.
    pub problem: Box<Problem>,
}

debug_as_sentence!(ConfigError);

impl ConfigError {
    /// The stable code: `config`.
    pub const fn code(&self) -> &'static str {
        "config"
    }

    /// Whether a retry could succeed: never.
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

/// What was wrong with a key that its table does not have.
pub(super) const UNKNOWN_KEY: &str = "unknown key";

/// What was wrong with a value, and how to mend it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// Keys from the setting to the invalid value, if that is inside a table.
    pub entry: Vec<String>,
    /// What was wrong, with the value.
    pub what: String,
    /// How to mend it.
    pub mend: String,
}

debug_as_sentence!(Problem);

impl Problem {
    /// A problem with the whole value.
    pub(crate) fn new(what: impl Into<String>, mend: impl Into<String>) -> Self {
        Problem {
            entry: Vec::new(),
            what: what.into(),
            mend: mend.into(),
        }
    }

    /// Prepends a key to the path of the invalid value.
    pub(crate) fn within(mut self, key: &str) -> Self {
        self.entry.insert(0, key.to_owned());
        self
    }

    /// Drops the path: the setting itself is the invalid value.
    pub(super) fn whole(self) -> Self {
        Problem {
            entry: Vec::new(),
            ..self
        }
    }

    /// Adds the source and the name of the setting.
    pub(crate) fn at(self, source_of: SettingSource, name: &str) -> ConfigError {
        ConfigError {
            source_of,
            name: name.to_owned(),
            problem: Box::new(self),
        }
    }
}

impl std::error::Error for Problem {}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.mend)
    }
}

/// An untrusted name on one line: control characters escaped, at most [`NAME_MAX`] characters.
fn shown(name: &str) -> Cow<'_, str> {
    match name.chars().any(char::is_control) || name.len() > NAME_MAX {
        false => Cow::Borrowed(name),
        true => {
            let start: String = name.chars().take(NAME_MAX).collect();
            let rest = if start.len() < name.len() { "…" } else { "" };
            Cow::Owned(format!("{start:?}{rest}"))
        }
    }
}

/// Longest unknown name that is shown in full; longer names are cut, and compared with no setting.
const NAME_MAX: usize = 80;

/// The keys as TOML writes them: `."example.com".delay`.
fn path(entry: &[String]) -> String {
    let bare = |key: &str| {
        !key.is_empty()
            && key
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
    };
    entry
        .iter()
        .map(|key| match bare(key) {
            true => format!(".{key}"),
            false => format!(".{key:?}"),
        })
        .collect()
}

/// The most similar name in `known`, if it is similar enough for `name` to be a typing error.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > NAME_MAX {
        return None;
    }
    let name = name.to_ascii_lowercase();
    known
        .map(|candidate| (distance(&name, &candidate.to_ascii_lowercase()), candidate))
        .min()
        .filter(|(edits, candidate)| *edits <= 3 && *edits * 2 < candidate.len())
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance: bytes inserted, removed or replaced to get from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let (from, to) = (from.as_bytes(), to.as_bytes());
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_with_source_fact_and_remedy() {
        let check = |source: SettingSource, entry: &[&str], expected: &str| {
            let problem = entry
                .iter()
                .rev()
                .fold(Problem::new("is negative", "give 0 or more"), |p, key| {
                    p.within(key)
                });
            assert_eq!(problem.at(source, "DOWNLOAD_DELAY").to_string(), expected);
        };
        let mend = "is negative; give 0 or more";
        check(
            SettingSource::Flag("--delay".into()),
            &[],
            &format!("--delay: {mend}"),
        );
        check(
            SettingSource::Option,
            &[],
            &format!("-s DOWNLOAD_DELAY: {mend}"),
        );
        check(
            SettingSource::File {
                path: "a.toml".into(),
                line: 3,
            },
            &["example.com", "delay"],
            &format!("a.toml:3: download_delay.\"example.com\".delay: {mend}"),
        );
    }

    #[test]
    fn nearest_name_is_suggested_only_if_close() {
        let known = ["DOWNLOAD_DELAY", "RETRY_TIMES", "FOLLOW"];
        let check = |name, expected| assert_eq!(nearest(name, known.into_iter()), expected);
        check("download_dealy", Some("DOWNLOAD_DELAY"));
        check("RETRY_TIME", Some("RETRY_TIMES"));
        check("DOWNLOAD_DEALY", Some("DOWNLOAD_DELAY"));
        check("FOO", None);
        check("BACKOFF_WINDOW", None);
    }
}
