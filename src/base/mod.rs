//! What a runtime needs under it, in a form that does not know it is in a crawler.

pub mod time;

pub mod disk;

pub mod address;
