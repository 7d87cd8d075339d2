//! Sizes and content types of replies.

use serde::Serialize;

use super::counts::{Counts, Ranking};
use super::line::Line;

/// Sizes and types of replies with a status.
pub struct BodyCounts {
    wire: Powers,
    body: Powers,
    types: Counts,
    untyped: u64,
}

/// Sizes and types.
#[derive(Serialize)]
pub struct Bodies {
    /// Bytes of replies as received, above TLS.
    pub bytes_wire: Sizes,
    /// Bytes of bodies after decoding.
    pub bytes_body: Sizes,
    /// Replies by content type, without parameters and in lower case.
    pub types: Ranking,
    /// Replies without a content type.
    pub untyped: u64,
}

/// Distribution of sizes.
#[derive(Serialize)]
pub struct Sizes {
    pub count: u64,
    /// Null without replies.
    pub mean: Option<f64>,
    pub max: u64,
    /// From the smallest size to the largest, in powers of two.
    pub ranges: Vec<SizeRange>,
}

/// Sizes in a range.
#[derive(Serialize)]
pub struct SizeRange {
    /// The smallest size of the range.
    pub from: u64,
    /// The largest.
    pub to: u64,
    pub count: u64,
}

/// Most content types that are listed.
const TYPES_LISTED: usize = 30;

impl BodyCounts {
    pub fn new() -> Self {
        BodyCounts {
            wire: Powers::new(),
            body: Powers::new(),
            types: Counts::new(),
            untyped: 0,
        }
    }

    pub fn add(&mut self, line: &Line<'_>) {
        if line.status.is_none() {
            return;
        }
        self.wire.add(line.bytes_wire);
        self.body.add(line.bytes_body);
        let Some(text) = &line.content_type else {
            self.untyped += 1;
            return;
        };
        let name = text.0.split(';').next().unwrap_or_default().trim();
        match name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => self.types.add(&name.to_ascii_lowercase(), line.bytes_wire),
            false => self.types.add(name, line.bytes_wire),
        }
    }

    pub fn bodies(&self) -> Bodies {
        Bodies {
            bytes_wire: self.wire.sizes(),
            bytes_body: self.body.sizes(),
            types: self.types.ranked(TYPES_LISTED),
            untyped: self.untyped,
        }
    }
}

/// Counts of numbers by their number of binary digits.
struct Powers {
    counts: [u64; 65],
    sum: u64,
    max: u64,
}

impl Powers {
    fn new() -> Self {
        Powers {
            counts: [0; 65],
            sum: 0,
            max: 0,
        }
    }

    fn add(&mut self, number: u64) {
        self.counts[(u64::BITS - number.leading_zeros()) as usize] += 1;
        self.sum = self.sum.saturating_add(number);
        self.max = self.max.max(number);
    }

    fn sizes(&self) -> Sizes {
        let count = self.counts.iter().sum();
        let range = |digits: usize| SizeRange {
            from: digits.checked_sub(1).map_or(0, |power| 1 << power),
            to: 1_u64
                .checked_shl(digits as u32)
                .map_or(u64::MAX, |end| end - 1),
            count: self.counts[digits],
        };
        let first = self.counts.iter().position(|count| *count > 0);
        let last = self.counts.iter().rposition(|count| *count > 0);
        let ranges = match (first, last) {
            (Some(first), Some(last)) => (first..=last).map(range).collect(),
            _ => Vec::new(),
        };
        Sizes {
            count,
            mean: (count > 0).then(|| self.sum as f64 / count as f64),
            max: self.max,
            ranges,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_counted_between_powers_of_two() {
        let mut powers = Powers::new();
        for number in [0, 1, 2, 3, 4, 7, 8, u64::MAX] {
            powers.add(number);
        }
        let sizes = powers.sizes();
        assert_eq!((sizes.count, sizes.max), (8, u64::MAX));
        let ranges: Vec<(u64, u64, u64)> = sizes
            .ranges
            .iter()
            .filter(|range| range.count > 0)
            .map(|range| (range.from, range.to, range.count))
            .collect();
        let last = (1 << 63, u64::MAX, 1);
        let expected = [(0, 0, 1), (1, 1, 1), (2, 3, 2), (4, 7, 2), (8, 15, 1), last];
        assert_eq!(ranges, expected);
        assert!(Powers::new().sizes().ranges.is_empty());
    }
}
