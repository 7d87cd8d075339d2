//! Whole crawls in virtual time. Politeness is checked by the simulated world, not by the crawl's log.
//!
//! Every failure prints its seed; `ARGIOPE_SEED=…` repeats it.

#[path = "../src/crawl/core/tests/folder.rs"]
mod folder;

mod simulated {
    pub mod reply;
    pub mod words;
    pub mod policy;
    pub mod proxies;
    pub mod book;
    pub mod web;
    mod stdout;
    pub mod crawl;
    pub mod random;
    mod setting_values;
    mod varied;
    mod full_sink;
    mod output_laws;
    mod routes;

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
    mod judged;
    mod every_setting;
    mod killed;
    mod throttling;
}
