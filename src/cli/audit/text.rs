//! The verdicts as text: those of the scopes with most violations, and the first violations.

use std::fmt::{self, Write as _};

use argiope::audit::{Kind, ScopeVerdict, Verdict};
use argiope::parts::printable;

use super::FilesRead;

/// Scopes that are listed.
const SCOPES: usize = 20;
/// Violations that are listed.
const VIOLATIONS: usize = 50;

/// The text.
pub fn of(verdict: &Verdict, read: &FilesRead) -> String {
    let mut text = String::new();
    write(&mut text, verdict, read).expect("a text can be written to");
    text
}

fn write(text: &mut String, verdict: &Verdict, read: &FilesRead) -> fmt::Result {
    writeln!(
        text,
        "{}: {} violations in {} requests of {} scopes, {} runs",
        verdict.verdict,
        verdict.violated,
        verdict.departures,
        verdict.scopes.len(),
        verdict.runs.len()
    )?;
    if !verdict.kinds.is_empty() {
        writeln!(text, "  {}", counts(&verdict.kinds))?;
    }
    for period in &verdict.unobserved {
        match period.to {
            Some(to) => writeln!(text, "  unobserved: {} to {to}", period.from)?,
            None => writeln!(text, "  unobserved: from {}", period.from)?,
        }
    }
    if !verdict.unjudged.is_none() {
        let of = &verdict.unjudged;
        writeln!(
            text,
            "  not judged: {} late lines, {} under too many names, {} without their robots.txt, {} under limits of \
             too many requests",
            of.unordered, of.beyond_names, of.robots_unknown, of.beyond_departures
        )?;
    }
    let of = &read.results;
    if of.bad > 0 || of.incomplete {
        writeln!(
            text,
            "  results.jsonl: {} damaged lines{}",
            of.bad,
            if of.incomplete {
                ", and an incomplete one"
            } else {
                ""
            }
        )?;
    }
    for (name, read) in [
        ("runs.jsonl", Some(&read.runs)),
        ("robots.jsonl", read.robots.as_ref()),
        ("orders.jsonl", read.orders.as_ref()),
    ] {
        if let Some((line, reason)) = read.and_then(|read| read.first_bad.as_ref()) {
            writeln!(
                text,
                "  {name}: line {line} is damaged: {}",
                printable(reason)
            )?;
        }
    }
    writeln!(text)?;
    write_scopes(text, &verdict.scopes)?;
    write_violations(text, verdict)
}

fn write_scopes(text: &mut String, scopes: &[ScopeVerdict]) -> fmt::Result {
    let listed = &scopes[..scopes.len().min(SCOPES)];
    let names: Vec<_> = listed.iter().map(|row| printable(&row.scope)).collect();
    let width = names
        .iter()
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0);
    let width = width.clamp(5, 60);
    writeln!(
        text,
        "{:width$}  verdict   requests  shortest gap  allowed     violations",
        "scope"
    )?;
    for (row, name) in listed.iter().zip(names) {
        writeln!(
            text,
            "{name:width$}  {:8}  {:>8}  {:>12}  {:>10}  {}",
            row.verdict,
            row.departures,
            in_seconds(row.gap_min),
            in_seconds(row.gap_allowed),
            match row.unobserved_gaps {
                0 => counts(&row.violations),
                gaps => format!("{} ({gaps} gaps unobserved)", counts(&row.violations)),
            }
        )?;
    }
    match scopes.len() - listed.len() {
        0 => Ok(()),
        more => {
            let violated = scopes[SCOPES..].iter().filter(|row| row.violated() > 0);
            writeln!(
                text,
                "and {more} more, {} of them violated; --json has all",
                violated.count()
            )
        }
    }
}

fn write_violations(text: &mut String, verdict: &Verdict) -> fmt::Result {
    if verdict.violations.is_empty() {
        return Ok(());
    }
    writeln!(text)?;
    for violation in verdict.violations.iter().take(VIOLATIONS) {
        let after = match violation.after {
            Some(id) => format!(" (after {id})"),
            None => String::new(),
        };
        writeln!(
            text,
            "{}  {}  request {} at {}: {}{after}",
            violation.kind,
            printable(&violation.scope),
            violation.id,
            violation.sent,
            printable(&violation.detail)
        )?;
    }
    let listed = verdict.violations.len().min(VIOLATIONS) as u64;
    match verdict.violated - listed {
        0 => Ok(()),
        more => writeln!(
            text,
            "and {more} more; --json has the first {}",
            verdict.violations.len()
        ),
    }
}

fn counts(kinds: &[(Kind, u64)]) -> String {
    let counts = kinds.iter().map(|(kind, count)| format!("{kind} {count}"));
    let counts: Vec<String> = counts.collect();
    match counts.is_empty() {
        true => "-".to_owned(),
        false => counts.join(", "),
    }
}

fn in_seconds(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.3} s"))
}
