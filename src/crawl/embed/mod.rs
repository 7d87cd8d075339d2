//! How a program around a crawl feeds it, steers it, drives it and takes its results.

pub(super) mod handle;
pub(super) mod inbox;
pub(super) mod steer;
pub(super) mod stop;
pub(super) mod snapshot;
pub(super) mod feed;
pub(super) mod found;
pub(super) mod drive;
pub(super) mod pull;
