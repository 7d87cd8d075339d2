//! Errors of settings: each names the source, the fault and the remedy.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

/// Where a value comes from. The order is the precedence: a later one wins, in whatever order they were set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingSource {
    /// Not set.
    Default,
    /// A named bundle of values.
    Preset(String),
    /// A file, at a line where that is known (0 where it is not).
    File {
        /// Its path, as the user wrote it.
        path: PathBuf,
        /// The line of the key, from 1.
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
    /// Its place in the precedence; the higher wins.
    pub fn rank(&self) -> u8 {
        match self {
            SettingSource::Default => 0,
            SettingSource::Preset(_) => 1,
            SettingSource::File { .. } => 2,
            SettingSource::Option => 3,
            SettingSource::Flag(_) => 4,
            SettingSource::Program => 5,
        }
    }

    /// Place of the setting `name` in that source, for messages.
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

/// A setting that cannot be taken. Its text is one line: where, what, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {problem}", source_of.locate(name), path(&problem.entry))]
pub struct ConfigError {
    /// Where it was set.
    pub source_of: SettingSource,
    /// The setting.
    pub name: String,
    /// The fault.
    pub problem: Box<Problem>,
}

impl ConfigError {
    /// The stable name.
    pub const fn code(&self) -> &'static str {
        "config"
    }

    /// Whether another try may end otherwise: never.
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

/// What is wrong with a value, and how to mend it; its source is added later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Keys that lead from the setting to the value that is wrong, where it is inside.
    pub entry: Vec<String>,
    /// The fact.
    pub what: String,
    /// The remedy.
    pub mend: String,
}

impl Problem {
    /// A problem with the whole value.
    pub fn new(what: impl Into<String>, mend: impl Into<String>) -> Self {
        Problem {
            entry: Vec::new(),
            what: what.into(),
            mend: mend.into(),
        }
    }

    /// The same problem, seen from one level further out.
    pub fn within(mut self, key: &str) -> Self {
        self.entry.insert(0, key.to_owned());
        self
    }

    /// The same problem, where the setting is the value itself.
    pub(super) fn whole(self) -> Self {
        Problem {
            entry: Vec::new(),
            ..self
        }
    }

    /// Adds the source and the name of the setting.
    pub fn at(self, source_of: SettingSource, name: &str) -> ConfigError {
        ConfigError {
            source_of,
            name: name.to_owned(),
            problem: Box::new(self),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.mend)
    }
}

/// A name that may be anything, on one line.
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

/// No setting's name is as long: more of one that is none tells nobody anything, nor is it the mistyped
/// name of one.
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

/// The name in `known` that `name` was probably meant to be.
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

/// How many letters must be inserted, dropped or replaced to get from one word to the other.
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
    fn an_error_is_one_line_with_place_fact_and_mend() {
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
    fn the_nearest_name_is_found_and_a_stranger_has_none() {
        let known = ["DOWNLOAD_DELAY", "RETRY_TIMES", "FOLLOW"];
        let check = |name, expected| assert_eq!(nearest(name, known.into_iter()), expected);
        check("download_dealy", Some("DOWNLOAD_DELAY"));
        check("RETRY_TIME", Some("RETRY_TIMES"));
        check("DOWNLOAD_DEALY", Some("DOWNLOAD_DELAY"));
        check("FOO", None);
        check("BACKOFF_WINDOW", None);
    }
}
