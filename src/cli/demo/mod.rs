//! `argiope demo`.

use argiope::crawl::config::Config;

use super::args::Demo;

/// Not built yet, and says so.
pub fn run(_config: Config, _args: Demo) -> anyhow::Result<i32> {
    anyhow::bail!("`demo` is not built yet")
}
