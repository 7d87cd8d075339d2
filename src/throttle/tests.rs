//! The engine against a simulated origin in virtual time. All figures are measured at the origin.

mod world;
mod pace;
mod priorities;
mod many_lanes;
mod scopes;
mod fairness;
mod refusals;
mod slow_limits;
mod quotas;
mod changes;
mod holds;
mod strategies;
mod accounts;
mod memory;
mod autothrottle;
