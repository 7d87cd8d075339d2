//! The door: flags to config to exit code.

#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the command that starts it comes next")
)]
mod cli;

fn main() {}
