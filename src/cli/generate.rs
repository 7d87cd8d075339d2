//! Shell completions and man pages, generated from the flags. The only file that imports `clap_complete`
//! and `clap_mangen`.

use std::fs;
use std::path::Path;

use anyhow::Context;
pub use clap_complete::Shell;

use super::{Usage, settings};

/// Prints the completions for one shell.
pub fn completions(shell: Shell, mut command: clap::Command) -> anyhow::Result<i32> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, PROGRAM, &mut script);
    settings::print(&String::from_utf8(script)?)?;
    Ok(0)
}

/// Writes `argiope.1` and a page for each command to a directory, which is created if missing.
pub fn man_pages(dir: &Path, command: clap::Command) -> anyhow::Result<i32> {
    fs::create_dir_all(dir).map_err(|error| {
        Usage(format!(
            "{}: cannot create the directory: {error}; give a writable one",
            dir.display()
        ))
    })?;
    clap_mangen::generate_to(command, dir)
        .with_context(|| format!("{}: cannot write a man page", dir.display()))?;
    Ok(0)
}

/// The name of the command in completions.
const PROGRAM: &str = "argiope";
