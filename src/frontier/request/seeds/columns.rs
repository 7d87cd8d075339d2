//! The columns of a seeds file that is a table with a header: CSV, or tabs or semicolons between fields.

use std::borrow::Cow;

use super::{SeedError, csv_field, csv_fields, parse_line, shortened};

/// Where the rows of a CSV file have their URL or host. Fields may also be separated by tabs or semicolons: the header
/// shows which.
///
/// ```
/// use argiope::Request;
/// use argiope::parts::SeedColumns;
///
/// let columns = SeedColumns::of_header("status,url,title").expect("a header");
/// let line = columns.seed("200,https://example.com/?a=1,\"A, b\"")?;
/// let request = Request::from_line(&line)?.expect("a URL");
/// assert_eq!(request.url, "https://example.com/?a=1");
/// assert!(SeedColumns::of_header("https://example.com/").is_none());
/// # Ok::<(), argiope::SeedError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedColumns {
    /// The index of the column.
    at: usize,
    separator: char,
    /// Number of columns.
    count: usize,
}

impl SeedColumns {
    /// Reads the first line of a file; `None` if it is no header with a column of URLs or hosts. No line that is a seed is
    /// one.
    pub fn of_header(line: &str) -> Option<Self> {
        // A tab at the beginning is behind a column without a name.
        let is_space = |c: char| c.is_whitespace() && c != '\t';
        let line = line.trim_start_matches('\u{feff}').trim_matches(is_space);
        if line.len() > HEADER_MAX || !matches!(parse_line(line), Err(SeedError::NotAUrl(_))) {
            return None;
        }
        SEPARATORS
            .into_iter()
            .find_map(|separator| SeedColumns::of_fields(line, separator))
    }

    /// The same of fields that this character separates.
    fn of_fields(line: &str, separator: char) -> Option<Self> {
        let fields = csv_fields(line, separator)?;
        let is_named = |name: &&str| {
            let mut fields = fields.iter();
            fields.position(|field| field.trim().eq_ignore_ascii_case(name))
        };
        let at = NAMES.iter().find_map(is_named)?;
        Some(SeedColumns {
            at,
            separator,
            count: fields.len(),
        })
    }

    /// The seeds line that a row has in its column, for [`Request::from_line`](crate::Request::from_line). Lines that are no
    /// rows are returned as they are: blank lines, comments and JSON.
    ///
    /// # Errors
    /// The row is no CSV, or has fewer columns.
    pub fn seed<'a>(&self, line: &'a str) -> Result<Cow<'a, str>, SeedError> {
        let is_space = |c: char| c.is_whitespace() && c != self.separator;
        let row = line.trim_start_matches('\u{feff}').trim_matches(is_space);
        let is_quoted = row.starts_with('"');
        if row.is_empty() || row.starts_with(['#', '{']) || self.count == 1 && !is_quoted {
            return Ok(line.into());
        }
        let no_row = || SeedError::NotAUrl(shortened(row, 80));
        let mut rest = Some(row);
        for _ in 0..self.at {
            let (_, behind) = self.field(rest).ok_or_else(no_row)?;
            rest = behind;
        }
        let (field, _) = self.field(rest).ok_or_else(no_row)?;
        // So that it is read as one field again.
        match field.contains(['"', ',', '\t', ' ']) {
            true => Ok(format!("\"{}\"", field.replace('"', "\"\"")).into()),
            false => Ok(field),
        }
    }

    /// The first field of the rest of a row, and what is behind it.
    fn field<'a>(&self, rest: Option<&'a str>) -> Option<(Cow<'a, str>, Option<&'a str>)> {
        csv_field(rest?, self.separator)
    }
}

/// What may separate fields.
const SEPARATORS: [char; 3] = [',', '\t', ';'];

/// Names of columns with URLs, then of those with hosts; none of them is a host itself.
const NAMES: [&str; 12] = [
    "url",
    "uri",
    "link",
    "href",
    "page",
    "address",
    "host",
    "hostname",
    "domain",
    "domain name",
    "site",
    "website",
];

/// Longest header that is read.
const HEADER_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn seed(header: &str, row: &str) -> Option<String> {
        let columns = SeedColumns::of_header(header).unwrap_or_else(|| panic!("{header}"));
        let line = columns.seed(row).ok()?;
        parse_line(&line).ok()?.map(|request| request.url)
    }

    #[test]
    fn a_row_has_its_seed_in_the_column_that_the_header_names() {
        let check = |header: &str, row: &str, url: &str| {
            assert_eq!(seed(header, row).as_deref(), Some(url), "{header}: {row}");
        };
        check(
            "url,status,title",
            "http://a.test/x,200,\"T, u\"",
            "http://a.test/x",
        );
        check(
            "url,status",
            "\"http://a.test/x,y\",200",
            "http://a.test/x,y",
        );
        check("status,url", "200,http://a.test/x", "http://a.test/x");
        let of_errors = "status,error.kind,url";
        check(of_errors, "200,,http://a.test/x", "http://a.test/x");
        check(
            "\u{feff}GlobalRank,TldRank,Domain,TLD",
            "1,1,a.test,test",
            "http://a.test",
        );
        check("\"Rank\",\"Domain\"", "\"1\",\"a.test\"", "http://a.test");
        check("rank,host,url", "1,b.test,http://a.test/", "http://a.test/");
        let quoted = "\"http://a.test/a,\"\"b\"\"\",5";
        check("url,status", quoted, "http://a.test/a,\"b\"");
        let spaced = "http://a.test/x http://b.test/y";
        check("url,status", &format!("\"{spaced}\",200"), spaced);
        check("url,status", &format!("{spaced},200"), spaced);
        check("status;url", &format!("200;{spaced}"), spaced);
        // Other separators.
        let of_tabs = "\turl\tstatus\ttitle";
        check(
            of_tabs,
            "0\thttp://a.test/x,y\t200\tT, u",
            "http://a.test/x,y",
        );
        check(of_tabs, "\t\"http://a.test/x\"\t\t", "http://a.test/x");
        check("status\turl", "\thttp://a.test/x", "http://a.test/x");
        check("url;status", "http://a.test/x,y;200", "http://a.test/x,y");
        check(
            "status;url",
            "200;\"http://a.test/x;y\"",
            "http://a.test/x;y",
        );
        // A list under the word has no other columns.
        check("url", "http://a.test/a,b", "http://a.test/a,b");
        check("url", "\"http://a.test/a,b\"", "http://a.test/a,b");
        check(
            "url,status",
            "{\"url\": \"http://a.test/,1\"}",
            "http://a.test/,1",
        );
        assert_eq!(seed("url,status", "# none"), None);
        assert_eq!(seed("title,url", "only one"), None);
        assert_eq!(seed("url,status", "\"http://a.test/,200"), None);
    }

    #[test]
    fn what_may_be_a_seed_is_no_header() {
        for line in [
            "http://url/",
            "url.test",
            "url.test,host",
            "1,url.test",
            "# url,status",
            "",
            "title,status",
            "title\tstatus",
            "http://a.test/\turl",
            "url.test\thost",
            "{\"url\": 3}",
            "\"url",
        ] {
            assert_eq!(SeedColumns::of_header(line), None, "{line}");
        }
        let long = format!("url,{}", "x".repeat(HEADER_MAX));
        assert_eq!(SeedColumns::of_header(&long), None);
    }
}
