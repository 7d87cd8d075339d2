//! What a reader of standard output keeps of it, by the rule for readers.

use serde_json::Value;

/// How the first line of a resumed run begins.
pub const FIRST_OF_RESUMED: &str = "{\"resumed_after\": ";

/// The first line of a run that resumes a crawl of whose lines so many are committed.
pub fn first_line(committed: u64) -> String {
    format!("{FIRST_OF_RESUMED}{committed}}}\n")
}

/// The lines to keep of what the runs of a crawl wrote, one after the other. A line without an end was cut short, and
/// the first line of the next run may follow right there.
///
/// # Panics
/// A line is not numbered in order, or a resumed run counts on lines that were not written.
pub fn kept_lines(written: &[u8]) -> Vec<u8> {
    // A line may be cut within a character.
    let text = String::from_utf8_lossy(written);
    let mut kept: Vec<&str> = Vec::new();
    let lines = text.split_inclusive('\n');
    for line in lines.filter(|line| line.ends_with('\n')) {
        if let Some(at) = line.rfind(FIRST_OF_RESUMED) {
            let after = line[at + FIRST_OF_RESUMED.len()..].trim_end_matches("}\n");
            let after = after.parse().expect("a number");
            assert!(after <= kept.len(), "{after} of {} lines", kept.len());
            kept.truncate(after);
            continue;
        }
        let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        kept.push(line);
        // Crawls without a state do not number them.
        let number = value.get("seq");
        assert!(number.is_none_or(|number| *number == kept.len()), "{line}");
    }
    kept.concat().into_bytes()
}
