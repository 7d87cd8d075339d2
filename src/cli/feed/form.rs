//! The form of a seeds file: lines that are seeds, or rows of a table.

use argiope::SeedError;
use argiope::parts::SeedColumns;

/// The form of a file, by its first line that is no comment.
#[derive(Default)]
pub enum Form {
    #[default]
    NotKnown,
    /// A seeds line in each line.
    Lines,
    /// Rows of CSV under a header.
    Rows(SeedColumns),
}

impl Form {
    /// The seeds line that a line of the file has: none in the header.
    pub fn seed(&mut self, text: String) -> Result<String, (String, SeedError)> {
        if let Form::NotKnown = self {
            let begun = text.trim_start_matches('\u{feff}').trim();
            if begun.is_empty() || begun.starts_with('#') {
                return Ok(text);
            }
            match SeedColumns::of_header(&text) {
                Some(columns) => {
                    *self = Form::Rows(columns);
                    return Ok(String::new());
                }
                None => *self = Form::Lines,
            }
        }
        match self {
            Form::Rows(columns) => match columns.seed(&text) {
                Ok(seed) => Ok(seed.into_owned()),
                Err(error) => Err((text, error)),
            },
            Form::NotKnown | Form::Lines => Ok(text),
        }
    }
}
