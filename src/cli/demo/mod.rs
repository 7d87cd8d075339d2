//! `argiope demo`: a web of many hosts on the loopback device, crawled through real sockets and
//! then asked what it saw.

pub mod web;

mod server;

mod site;

mod answer;

mod ledger;

pub mod report;

mod http;

mod dns;

mod gzip;

mod stamp;

use argiope::crawl::config::Config;

use super::args::Demo;

/// Not built yet, and says so.
pub fn run(_config: Config, _args: Demo) -> anyhow::Result<i32> {
    anyhow::bail!("`demo` is not built yet")
}
