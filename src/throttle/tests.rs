//! The engine against a simulated origin: every figure is read at the origin, in virtual time.

mod world;
mod pace;
mod scopes;
mod fairness;
mod refusals;
mod slow_limits;
mod quotas;
mod changes;
mod holds;
mod strategies;
mod memory;
mod autothrottle;
