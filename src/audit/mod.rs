//! Judges by the files of a crawl whether it was polite: whether it kept the limits of its settings, and what third
//! parties asked for.
//!
//! It shares no code with what paces a crawl: it knows only the files. Nothing here opens one.

mod address;
mod attempt;
mod auditor;
mod lines;
mod names;
mod orders;
mod row;
mod receipt;
mod robots;
mod runs;
mod settings;
mod time;
mod verdict;
mod waiting;

#[cfg(test)]
mod tests;

pub use self::attempt::Attempt;
pub use self::auditor::{Auditor, Evidence};
pub use self::lines::Read;
pub use self::orders::Orders;
pub use self::receipt::{Receipt, ReceiptMaker};
pub use self::robots::RobotsLog;
pub use self::runs::{Run, RunLog, Unobserved};
pub use self::time::Time;
pub use self::verdict::{Kind, ScopeVerdict, Unjudged, Verdict, Violation};
