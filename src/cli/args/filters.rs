//! Flags that say which URLs a crawl fetches, for the commands that crawl and that explain a URL.

use std::path::PathBuf;

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
    /// Fetch only URLs that match one of these
    #[arg(long, value_name = "REGEX")]
    allow: Vec<String>,
    /// Do not fetch URLs that match one of these
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
