//! Whole crawls in virtual time, where the simulated world, not our own log, checks our manners.
//!
//! Every failure prints the seed that led to it; `ARGIOPE_SEED=…` runs that one again.

mod simulated {
    pub mod reply;
    pub mod policy;
    pub mod book;
    pub mod web;
    pub mod crawl;
    pub mod random;

    mod many_seeds;
    mod robots;
    mod health;
    mod outages;
    mod stopping;
    mod limits;
    mod memory;
    mod connections;
    mod shortages;
    mod pace;
    mod hidden_limits;
    mod triggers;
    mod holds;
    mod crawl_delays;
    mod disguises;
    mod sharing;
    mod slots;
    mod many_scopes;
    mod random_throttling;
    mod every_setting;
    mod throttling;
}
