//! The door: flags to config to exit code.

fn main() {}
