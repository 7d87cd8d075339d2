//! The binary with bad input, bad servers and bad timing: exit codes, messages, files.
//!
//! Every test runs the real binary against its own scripted servers on loopback.
#![cfg(feature = "cli")]

#[path = "../../src/base/loud.rs"]
mod loud;
#[expect(dead_code, reason = "other tests ask it for more")]
#[path = "../authority/mod.rs"]
mod authority;
#[path = "../terminal/mod.rs"]
mod terminal;
mod run;
mod server;

mod addresses;
mod advice;
mod again;
mod bodies;
mod browser;
mod control;
mod credentials;
mod demo;
mod ends;
mod everyday;
mod extracting;
mod full_disk;
mod indexes;
mod fetching;
mod limits;
mod lost_stderr;
mod machine;
mod mistakes;
mod mistyped;
mod names;
mod other_tools;
mod outages;
mod output;
mod page;
mod pipes;
mod probe_outputs;
mod probing;
mod probing_targets;
mod redirects;
mod reloading;
mod replies;
mod report;
mod requests;
mod resuming;
mod resuming_damaged;
mod resuming_seeds;
mod seeds;
mod seeds_again;
mod state;
mod stopping;
mod timeouts;
mod tls;
mod usage;
mod wrong_files;
