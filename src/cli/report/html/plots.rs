//! Plots as inline SVG: bars, columns over time, and ranges of percentiles. Each has a title, and its numbers are in
//! the table beside it.

use super::markup::Markup;
use crate::cli::report::percentiles::Percentiles;

/// A bar with its label and its value as text.
pub struct Bar {
    pub label: String,
    pub value: f64,
    pub shown: String,
}

/// Units of a plot's coordinates.
const WIDTH: f64 = 720.0;
const ROW: f64 = 20.0;
/// Where bars begin and how long the longest is.
const LEFT: f64 = 210.0;
const LONGEST: f64 = 380.0;
/// Height of columns.
const HEIGHT: f64 = 120.0;
/// Most characters of a label that fit.
const LABEL_CHARS: usize = 30;

/// Horizontal bars, the longest over the whole width.
pub fn bars(markup: &mut Markup, title: &'static str, bars: &[Bar]) {
    let most = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    if most <= 0.0 {
        return;
    }
    open(markup, ROW * bars.len() as f64, title);
    for (at, bar) in bars.iter().enumerate() {
        let top = ROW * at as f64;
        let length = LONGEST * bar.value / most;
        label(markup, LEFT - 8.0, top, "end", &shortened(&bar.label));
        rect(markup, "a", [LEFT, top + 3.0, length, ROW - 6.0]);
        label(markup, LEFT + length + 6.0, top, "start", &bar.shown);
    }
    markup.raw("</svg>\n");
}

/// Columns of values at equal intervals. `values`: each with the part of it that has the second colour; `highest`:
/// the text at the top.
pub fn columns(markup: &mut Markup, title: &'static str, values: &[(f64, f64)], highest: &str) {
    let most = values.iter().map(|(value, _)| *value).fold(0.0, f64::max);
    if most <= 0.0 {
        return;
    }
    open(markup, HEIGHT + ROW, title);
    label(markup, 0.0, 0.0, "start", highest);
    let step = WIDTH / values.len() as f64;
    for (class, part) in [("a", 0), ("b", 1)] {
        for (at, value) in values.iter().enumerate() {
            let value = [value.0, value.1][part];
            if value > 0.0 {
                let height = (HEIGHT * value / most).max(0.5);
                let top = ROW + HEIGHT - height;
                rect(markup, class, [step * at as f64, top, step, height]);
            }
        }
    }
    markup.raw("</svg>\n");
}

/// A row for each distribution on a logarithmic scale: a line from the least to the greatest, a bar from the median
/// to the 99th percentile, and a mark at the 90th.
pub fn ranges(markup: &mut Markup, title: &'static str, rows: &[(&str, &Percentiles)]) {
    // A nanosecond is the least that is measured.
    let log = |seconds: f64| seconds.max(1e-9).log10();
    let least = rows.iter().map(|(_, row)| log(row.min.max(1e-6)));
    let greatest = rows.iter().map(|(_, row)| log(row.max));
    let least = least.fold(f64::INFINITY, f64::min).floor();
    let greatest = greatest.fold(f64::NEG_INFINITY, f64::max).ceil();
    if rows.is_empty() {
        return;
    }
    let greatest = greatest.max(least + 1.0);
    let x = |seconds: f64| {
        let share = (log(seconds) - least) / (greatest - least);
        LEFT + (WIDTH - LEFT - 40.0) * share.clamp(0.0, 1.0)
    };
    open(markup, ROW * (rows.len() + 1) as f64, title);
    for power in least as i32..=greatest as i32 {
        let at = x(10_f64.powi(power));
        rect(markup, "g", [at, ROW, 1.0, ROW * rows.len() as f64]);
        label(markup, at, 0.0, "middle", &decade(power));
    }
    for (at, (name, row)) in rows.iter().enumerate() {
        let top = ROW * (at + 1) as f64;
        label(markup, LEFT - 8.0, top, "end", name);
        let width = |from: f64, to: f64| (x(to) - x(from)).max(1.0);
        rect(
            markup,
            "c",
            [x(row.min), top + 9.0, width(row.min, row.max), 2.0],
        );
        rect(
            markup,
            "a",
            [x(row.p50), top + 4.0, width(row.p50, row.p99), ROW - 8.0],
        );
        rect(markup, "b", [x(row.p90), top + 4.0, 2.0, ROW - 8.0]);
    }
    markup.raw("</svg>\n");
}

fn decade(power: i32) -> String {
    match power {
        ..=-7 => format!("{:.0} ns", 10_f64.powi(power + 9)),
        -6..=-4 => format!("{:.0} µs", 10_f64.powi(power + 6)),
        -3..=-1 => format!("{:.0} ms", 10_f64.powi(power + 3)),
        _ => format!("{:.0} s", 10_f64.powi(power)),
    }
}

fn open(markup: &mut Markup, height: f64, title: &'static str) {
    markup
        .raw("<svg role=\"img\" viewBox=\"0 0 720 ")
        .text(format_args!("{height:.0}"))
        .element("\"><title>", title, "</title>\n");
}

fn rect(markup: &mut Markup, class: &'static str, [x, y, width, height]: [f64; 4]) {
    markup
        .element("<rect class=\"", class, "\"")
        .element(" x=\"", format_args!("{x:.1}"), "\"")
        .element(" y=\"", format_args!("{y:.1}"), "\"")
        .element(" width=\"", format_args!("{width:.1}"), "\"")
        .element(" height=\"", format_args!("{height:.1}"), "\"/>");
}

/// A text in the row that begins at `top`.
fn label(markup: &mut Markup, x: f64, top: f64, anchor: &'static str, text: &str) {
    markup
        .element("<text x=\"", format_args!("{x:.1}"), "\"")
        .element(" y=\"", format_args!("{:.1}", top + 14.0), "\"")
        .element(" text-anchor=\"", anchor, "\">")
        .element("", text, "</text>\n");
}

/// A label that fits beside a bar.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(LABEL_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(draw: impl FnOnce(&mut Markup)) -> String {
        let mut markup = Markup::new();
        draw(&mut markup);
        markup.finish()
    }

    #[test]
    fn labels_of_bars_are_escaped_and_shortened() {
        let label = format!("</text><script>{}", "x".repeat(100));
        let bar = Bar {
            label,
            value: 1.0,
            shown: "]]>".to_owned(),
        };
        let svg = drawn(|markup| bars(markup, "Types", &[bar]));
        assert!(
            svg.contains(">&lt;/text&gt;&lt;script&gt;xxxxxxxxxxxxxxx…<"),
            "{svg}"
        );
        assert!(svg.contains("]]&gt;</text>"), "{svg}");
        assert!(svg.contains("<title>Types</title>"), "{svg}");
    }

    #[test]
    fn plots_without_values_are_left_out() {
        assert_eq!(drawn(|markup| bars(markup, "A", &[])), "");
        assert_eq!(drawn(|markup| columns(markup, "A", &[(0.0, 0.0)], "")), "");
        assert_eq!(drawn(|markup| ranges(markup, "A", &[])), "");
    }

    #[test]
    fn ranges_lie_within_their_plot() {
        let row = |least: f64, greatest: f64| Percentiles {
            count: 1,
            mean: least,
            min: least,
            p50: least,
            p90: greatest,
            p95: greatest,
            p99: greatest,
            p999: greatest,
            max: greatest,
        };
        let (zero, long) = (row(0.0, 0.0), row(0.0005, 3600.0));
        let svg = drawn(|markup| ranges(markup, "A", &[("zero", &zero), ("long", &long)]));
        for x in svg.split(" x=\"").skip(1) {
            let x: f64 = x.split('"').next().and_then(|x| x.parse().ok()).expect("x");
            assert!((0.0..=WIDTH).contains(&x), "{x} in {svg}");
        }
        assert!(svg.contains(">1 µs<") && svg.contains(">10000 s<"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
