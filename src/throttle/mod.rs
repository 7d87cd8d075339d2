//! Scopes, and when each may send. Pure: time is an argument.
//!
//! `engine` is the story; `scope` holds one scope's state. The way of a 429: `signal` reads what it
//! means, `engine/answers` which scopes it is about, `scope/rules` puts the pace together again from
//! what each rule asks for, and `backoff` is the rule that asks for more time.

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
