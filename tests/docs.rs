//! Compares the documentation with the code: tables, the summary, examples, links.

#[path = "docs/benchmarks.rs"]
mod benchmarks;
#[path = "docs/codes.rs"]
mod codes;
#[cfg(feature = "cli")]
#[path = "docs/command.rs"]
mod command;
#[path = "docs/files.rs"]
mod files;
#[cfg(feature = "cli")]
#[allow(dead_code, reason = "other tests ask it for more")]
mod loopback;
#[path = "docs/markdown.rs"]
mod markdown;
#[path = "docs/metrics.rs"]
mod metrics;
#[path = "docs/pages.rs"]
mod pages;
#[path = "docs/scopes.rs"]
mod scopes;
#[path = "docs/tree.rs"]
mod tree;
#[path = "docs/versions.rs"]
mod versions;
