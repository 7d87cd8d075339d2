//! Scopes, and when each may send. Pure: the current time is an argument.
//!
//! Start reading at `engine`; `scope` holds the state of one scope. A 429 passes through these
//! files: `signal` interprets it, `engine/answers` selects the scopes it concerns, `scope/rules`
//! recomputes the pace from all rules, and `backoff` is the rule that makes the delay longer.

pub mod engine;
pub mod scope;
pub mod signal;
pub mod asked;
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
