//! What tests say past their harness, which keeps for itself what passing ones print.

use std::fmt::Display;
use std::io::Write as _;

/// Says what this machine lacks, and that a test therefore checks less than it might.
pub fn skip(lacks: impl Display) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {lacks}");
}
