//! What a program does with the library: embedding, control, settings, bodies, sources, proxies, errors.

mod any_settings;
mod api;
#[allow(dead_code, reason = "other tests ask it for more")]
#[path = "../authority/mod.rs"]
mod authority;
mod cookies;
mod errors;
mod expanding;
mod feeding;
mod handle;
mod judged_bodies;
#[allow(dead_code, reason = "other tests ask it for more")]
#[path = "../loopback/mod.rs"]
mod loopback;
#[path = "../../src/base/loud.rs"]
mod loud;
#[allow(dead_code, reason = "its main is a user's to run")]
#[path = "../../examples/pace_by_body.rs"]
mod pace_by_body;
mod proxies;
mod pull;
mod requests;
mod same_crawl;
mod sim;
mod streaming;
mod tasks;
