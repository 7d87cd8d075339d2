//! `--filtered FILE`: a second name for the file of what filters leave out, outside the output directory.
//!
//! The lines themselves stay in the output directory, where a crawl that is resumed cuts them to its last commit.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::Context;
use argiope::Config;
use argiope::sink::files::Rotation;

use super::Usage;

/// The file's name in the output directory.
const NAME: &str = "filtered.jsonl";

/// How the names begin of several such files.
const SERIES: &str = "filtered-";

/// A symbolic link to the file in the output directory.
#[derive(Debug)]
pub struct FilteredLink {
    path: PathBuf,
    /// Whether this run has made it.
    is_made: bool,
}

impl FilteredLink {
    /// Checks that a link can be made at `path`. Nothing is changed.
    ///
    /// # Errors
    /// Another file is there, or the lines go to several files.
    pub fn new(path: &Path, config: &Config, out: &Path) -> Result<Self, Usage> {
        let refused = |what: String| Err(Usage(format!("--filtered={}: {what}", path.display())));
        if config.rotation() != Rotation::default() {
            return refused(format!(
                "with RESULTS_SIZE_MAX, RESULTS_TIME_MAX or RESULTS_COMPRESSION the lines go to several files in {}: \
                 write --filtered without a file",
                out.display()
            ));
        }
        let link = FilteredLink {
            path: path.to_owned(),
            is_made: false,
        };
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => match link.has_folder(out) {
                true => Ok(link),
                false => refused("its folder does not exist".to_owned()),
            },
            Err(error) => refused(error.to_string()),
            Ok(_) if link.is_of(out) => {
                link.warn_if_rotated(out);
                Ok(link)
            }
            Ok(there) => refused(match there.is_file() {
                true => format!(
                    "the file exists, and is left as it is: give another name; to read URLs from it write --seeds {}",
                    path.display()
                ),
                false => "there is something else: give another name".to_owned(),
            }),
        }
    }

    /// Whether its folder exists, or is the output directory, which the crawl makes.
    fn has_folder(&self, out: &Path) -> bool {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let folder = self.path.parent();
        folder.is_none_or(|folder| {
            folder.as_os_str().is_empty() || folder.is_dir() || absolute(folder) == absolute(out)
        })
    }

    /// Whether it is there already, or is the file itself.
    fn is_of(&self, out: &Path) -> bool {
        let Ok(out) = fs::canonicalize(out) else {
            return false;
        };
        let target = out.join(NAME);
        fs::read_link(&self.path).is_ok_and(|found| found == target)
            || fs::canonicalize(&self.path).is_ok_and(|found| found == target)
    }

    /// Makes the link. The directory exists.
    pub fn make(&mut self, out: &Path) -> anyhow::Result<()> {
        let target = fs::canonicalize(out).map(|out| out.join(NAME));
        let target = target.with_context(|| format!("cannot look at {}", out.display()))?;
        if self.is_of(out) || std::path::absolute(&self.path).is_ok_and(|path| path == target) {
            return Ok(());
        }
        symlink(&target, &self.path)
            .map_err(|error| Usage(format!("--filtered={}: {error}", self.path.display())))?;
        self.is_made = true;
        Ok(())
    }

    /// Warns if the file in the output directory has other names since an order to begin others: then the link has no
    /// file.
    pub fn warn_if_rotated(&self, out: &Path) {
        let is_rotated = |name: &str| name.starts_with(SERIES) && name != NAME;
        if fs::metadata(&self.path).is_ok() || fs::symlink_metadata(&self.path).is_err() {
            return;
        }
        let entries = fs::read_dir(out).into_iter().flatten().flatten();
        let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        if names.any(|name| is_rotated(&name)) {
            log::warn!(
                "--filtered={}: the link has no file since `argiope ctl rotate`: the lines are in {}",
                self.path.display(),
                out.join(format!("{SERIES}*.jsonl")).display()
            );
        }
    }

    /// Removes it, if this run has made it: the run has fetched nothing.
    pub fn discard(&self) {
        if self.is_made {
            let _ = fs::remove_file(&self.path);
        }
    }
}
