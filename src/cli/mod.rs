//! Flags to config to exit code; each sub-command in its own file, on the library's public API.

pub mod robots;
pub mod url;
pub mod links;

mod json_lines;
