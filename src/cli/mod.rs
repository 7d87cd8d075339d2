//! Flags to config to exit code; each sub-command in its own file, on the library's public API.

pub mod robots;
pub mod url;
pub mod links;

mod json_lines;
//! The command line, on the library's public interface only.

#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the crawl command reads its seeds through it")
)]
pub mod seeds;
