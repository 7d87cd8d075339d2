//! Entry point of the binary: runs the command line and exits with its code.

#![deny(unsafe_code)]

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
