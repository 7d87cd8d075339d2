//! `argiope fetch`.

use argiope::crawl::config::Config;

use super::args::Fetch;

/// Not built yet, and says so.
pub fn run(_config: Config, _args: Fetch) -> anyhow::Result<i32> {
    anyhow::bail!("`fetch` is not built yet")
}
