//! Figures as a plot and a table of the same numbers.

use std::time::Duration;

use super::markup::{Cell, Markup};
use super::plots::{self, Bar};
use crate::cli::progress::{bytes, span};
use crate::cli::report::counts::Ranking;
use crate::cli::report::percentiles::Percentiles;

/// Bars and a table of the same counts.
pub fn counted(
    page: &mut Markup,
    caption: &'static str,
    head: &'static str,
    counts: impl Iterator<Item = (String, u64)> + Clone,
) {
    counted_plot(page, caption, counts.clone());
    let rows = counts.map(|(name, count)| vec![Cell::Text(name), number(count)]);
    page.table(caption, &[head, "count"], rows);
}

/// Bars of counts.
pub fn counted_plot(
    page: &mut Markup,
    title: &'static str,
    counts: impl Iterator<Item = (String, u64)>,
) {
    let bar = |(label, count): (String, u64)| Bar {
        label,
        value: count as f64,
        shown: count.to_string(),
    };
    let bars: Vec<Bar> = counts.take(BARS_MAX).map(bar).collect();
    plots::bars(page, title, &bars);
}

/// Bars and a table of the most frequent names.
pub fn ranking(page: &mut Markup, caption: &'static str, head: &'static str, ranking: &Ranking) {
    let counts = ranking.rows.iter().map(|row| (row.name.clone(), row.count));
    counted_plot(page, caption, counts);
    let rows = ranking.rows.iter().map(|row| {
        vec![
            text(&row.name),
            number(row.count),
            Cell::Number(bytes(row.bytes_wire)),
        ]
    });
    page.table(caption, &[head, "count", "received"], rows);
    if ranking.others > 0 {
        page.element("<p>Others: ", ranking.others, ".</p>\n");
    }
}

/// A table of percentiles.
pub fn percentiles(page: &mut Markup, caption: &str, rows: &[(&str, &Percentiles)]) {
    let rows = rows.iter().map(|(name, row)| {
        let values = [
            row.mean, row.min, row.p50, row.p90, row.p95, row.p99, row.p999, row.max,
        ];
        let values = values.map(|value| Cell::Number(seconds(value)));
        let mut cells = vec![text(name), number(row.count)];
        cells.extend(values);
        cells
    });
    page.table(caption, &PERCENTILES, rows);
}

/// A cell with a text.
pub fn text(text: &str) -> Cell {
    Cell::Text(text.to_owned())
}

/// A cell with a count.
pub fn number(number: u64) -> Cell {
    Cell::Number(number.to_string())
}

/// Seconds with a unit that fits.
pub fn seconds(seconds: f64) -> String {
    Duration::try_from_secs_f64(seconds).map_or_else(|_| format!("{seconds} s"), span)
}

/// Most bars of a plot; the table beside it has all rows.
const BARS_MAX: usize = 40;

const PERCENTILES: [&str; 10] = [
    "of", "count", "mean", "least", "p50", "p90", "p95", "p99", "p99.9", "greatest",
];
