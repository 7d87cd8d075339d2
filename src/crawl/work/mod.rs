//! What the crawl has still to do and does not queue yet: admission, requests that wait for an answer,
//! for their scopes or for a moment of their own, credentials, memory for more.

pub mod admission;
pub mod credentials;
pub mod delayed;
pub mod description;
pub mod mapping;
pub mod memory;
pub mod offers;
