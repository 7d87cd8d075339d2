//! Scopes, and when each may send. Pure: time is an argument.
//!
//! `engine` is the story; `scope` holds one scope's state; `signal` reads what an answer means and
//! `strategy` what the pace does about it.

pub mod engine;
pub mod scope;
pub mod signal;
pub mod decision;
pub mod cause;
pub mod strategy;
pub mod strategies;
pub mod autothrottle;
mod robust;
mod suspect;
pub mod diagnosis;
mod mix;
mod quota;
mod backoff;
pub mod map;
pub mod settings;

#[cfg(test)]
mod tests;
