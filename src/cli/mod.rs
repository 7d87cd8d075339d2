//! The command line, on the library's public interface only.

#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the crawl command reads its seeds through it")
)]
pub mod seeds;
