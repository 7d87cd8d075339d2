//! Reads a page: its links, blocks, headings and tables.

use std::collections::BTreeSet;

/// The targets of a page's links.
pub fn links(text: &str) -> impl Iterator<Item = &str> {
    let outside_blocks = text.split("```").step_by(2);
    outside_blocks.flat_map(|part| {
        part.split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
    })
}

/// The code blocks of a page: language and content.
pub fn blocks(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("```")
        .skip(1)
        .step_by(2)
        .filter_map(|block| block.split_once('\n'))
}

/// The anchors of a page's headings, as mdBook and code hosts make them.
pub fn headings(text: &str) -> BTreeSet<String> {
    let outside_blocks = text.split("```").step_by(2);
    let lines = outside_blocks.flat_map(str::lines);
    let anchor = |heading: &str| -> String {
        let kept = heading.trim().chars().filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
            _ => None,
        });
        kept.collect()
    };
    lines
        .filter(|line| line.starts_with('#'))
        .map(|line| anchor(line.trim_start_matches('#')))
        .collect()
}

/// The tables of a page, each with its heading.
pub fn tables(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut start, mut at) = (None, 0);
    for line in text.split_inclusive('\n').chain(["\n"]) {
        match (line.starts_with('|'), start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                found.push(&text[from..at]);
                start = None;
            }
            _ => {}
        }
        at = (at + line.len()).min(text.len());
    }
    found
}

/// The cells of each row of a table, without its heading.
pub fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    let rows = table.lines().skip(2);
    rows.map(|line| line.trim_matches('|').split('|').collect())
}

/// The texts in backticks in the first column of a table.
pub fn names(table: &str) -> BTreeSet<String> {
    rows(table)
        .flat_map(|row| quoted(row[0]).map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// The texts in backticks in the second column of the row of this name.
pub fn named_in_row(page: &str, name: &str) -> BTreeSet<String> {
    let name = format!("`{name}`");
    let mut rows = tables(page).into_iter().flat_map(rows);
    let row = rows.find(|row| row[0].split(',').any(|cell| cell.trim() == name));
    let row = row.unwrap_or_else(|| panic!("{name} has no row"));
    quoted(row[1]).map(str::to_owned).collect()
}

/// The texts in backticks.
pub fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}
