//! `argiope crawl`.

use argiope::crawl::config::Config;

use super::args::Crawl;

/// Not built yet, and says so.
pub fn run(_config: Config, _args: Crawl) -> anyhow::Result<i32> {
    anyhow::bail!("`crawl` is not built yet")
}
