//! The door: flags to config to exit code.

mod cli;

fn main() {}
