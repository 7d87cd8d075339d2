//! What is still to fetch.

pub mod request;
pub mod seeds;

pub mod settings;
