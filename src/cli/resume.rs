//! `crawl --resume`: what a crawl was given, kept in its state for the run that continues it.

use std::path::{Path, PathBuf};

use argiope::settings::{SettingSource, all as settings};
use argiope::sink::directory::{self, DirectoryLock};
use argiope::{Config, State};
use serde_json::{Map, Value, json};

use super::Usage;

/// What a crawl was given: settings, and seeds in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunInputs {
    /// Settings that are not at their defaults.
    pub settings: Map<String, Value>,
    /// URLs of the command line.
    pub urls: Vec<String>,
    /// Seeds files, by absolute paths; `-` is standard input.
    pub seeds: Vec<PathBuf>,
}

/// A crawl to be continued.
pub struct Resumed {
    /// The lock of its directory.
    pub lock: DirectoryLock,
    /// Its state.
    pub state: State,
    /// What it was given.
    pub inputs: RunInputs,
}

impl RunInputs {
    /// What this run is given.
    pub fn of(config: &Config, urls: &[String], seeds: &[PathBuf]) -> Self {
        let is_set = |name: &str| *config.source(name) != SettingSource::Default;
        let set = settings().iter().filter(|setting| is_set(setting.name));
        let value_of = |name: &str| config.get(name).map_or(Value::Null, Value::from);
        RunInputs {
            settings: set
                .map(|setting| (setting.name.to_owned(), value_of(setting.name)))
                .collect(),
            urls: urls.to_vec(),
            seeds: seeds.iter().map(|path| absolute(path)).collect(),
        }
    }

    /// Whether there are neither URLs nor seeds files.
    pub fn has_no_seeds(&self) -> bool {
        self.urls.is_empty() && self.seeds.is_empty()
    }

    /// As text, for the state.
    pub fn to_text(&self) -> String {
        let seeds: Vec<_> = self
            .seeds
            .iter()
            .map(|path| path.to_string_lossy())
            .collect();
        json!({"settings": self.settings, "urls": self.urls, "seeds": seeds}).to_string()
    }

    fn from_text(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let texts = |name: &str| -> Option<Vec<String>> {
            let items = value.get(name)?.as_array()?.iter();
            items.map(|item| item.as_str().map(str::to_owned)).collect()
        };
        Some(RunInputs {
            settings: value.get("settings")?.as_object()?.clone(),
            urls: texts("urls")?,
            seeds: texts("seeds")?.into_iter().map(PathBuf::from).collect(),
        })
    }
}

impl Resumed {
    /// Reads the state of the crawl in this directory.
    pub fn load(out: &Path) -> anyhow::Result<Self> {
        let lock = directory::lock(out).map_err(|error| Usage(format!("--resume: {error}")))?;
        let state = State::load(out).map_err(|error| Usage(format!("--resume: {error}")))?;
        let inputs = RunInputs::from_text(state.settings()).ok_or_else(|| {
            Usage(format!(
                "--resume: the state in {} was not written by this command",
                out.display()
            ))
        })?;
        Ok(Resumed {
            lock,
            state,
            inputs,
        })
    }
}

fn absolute(path: &Path) -> PathBuf {
    match path.as_os_str() == "-" {
        true => path.to_owned(),
        false => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_was_given_is_read_back_from_its_text() {
        let config = Config::default()
            .with("DOWNLOAD_DELAY", "250ms")
            .and_then(|config| config.with("ROBOTSTXT_OBEY", false))
            .expect("they are valid");
        let urls = ["http://a.test/".to_owned()];
        let inputs = RunInputs::of(&config, &urls, &["-".into(), "/s.txt".into()]);
        assert_eq!(inputs.settings.len(), 2);
        assert_eq!(RunInputs::from_text(&inputs.to_text()), Some(inputs));
        assert_eq!(RunInputs::from_text("{}"), None);
    }
}
