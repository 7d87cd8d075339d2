//! Writes rows as CSV (RFC 4180), with LF as line end.

use std::io::{self, Write};

use super::fields::{Field, Row, text_of};
use super::{AddError, Table};

/// A CSV file: the names of the fields, then a line for each row.
pub struct Csv<'a, W: Write> {
    out: W,
    fields: &'a [Field],
    has_head: bool,
    line: String,
}

impl<'a, W: Write> Csv<'a, W> {
    /// With these columns.
    pub fn new(out: W, fields: &'a [Field]) -> Self {
        Csv {
            out,
            fields,
            has_head: false,
            line: String::new(),
        }
    }

    fn write_head(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.has_head, true) {
            return Ok(());
        }
        self.line.clear();
        for (at, field) in self.fields.iter().enumerate() {
            if at > 0 {
                self.line.push(',');
            }
            push_text(&field.name, &mut self.line);
        }
        self.line.push('\n');
        self.out.write_all(self.line.as_bytes())
    }
}

impl<W: Write> Table for Csv<'_, W> {
    fn add(&mut self, row: &Row<'_>) -> Result<(), AddError> {
        self.write_head()?;
        self.line.clear();
        for (at, field) in self.fields.iter().enumerate() {
            if at > 0 {
                self.line.push(',');
            }
            match row.get(field) {
                None => {}
                Some(json) => push_text(&text_of(json, field)?, &mut self.line),
            }
        }
        self.line.push('\n');
        Ok(self.out.write_all(self.line.as_bytes())?)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.write_head()?;
        self.out.flush()
    }
}

/// Appends a text, in quotation marks if it needs them: an empty one has them, so that it is not null.
fn push_text(text: &str, out: &mut String) {
    let is_plain = !text.is_empty() && !text.contains(['"', ',', '\n', '\r']);
    if is_plain {
        out.push_str(text);
        return;
    }
    out.push('"');
    for part in text.split_inclusive('"') {
        out.push_str(part);
        if part.ends_with('"') {
            out.push('"');
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csv(names: &[&str], lines: &[&str]) -> String {
        let fields: Vec<Field> = (names.iter())
            .map(|name| Field::parse(name, &[]).expect("a field"))
            .collect();
        let mut out = Vec::new();
        let mut table = Csv::new(&mut out, &fields);
        for line in lines {
            let row = Row::parse(line.as_bytes()).expect("JSON");
            table.add(&row).expect("a Vec takes all");
        }
        table.finish().expect("a Vec takes all");
        drop(table);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn each_row_has_the_fields_in_order() {
        let lines = [
            r#"{"url": "http://a.test/", "status": 200, "seed": true, "delay": 0.00003}"#,
            r#"{"url": "http://b.test/", "status": null, "seed": false, "error": {"kind": "dns"}}"#,
        ];
        let expected = "status,url,error.kind,seed,delay\n\
            200,http://a.test/,,true,0.00003\n\
            ,http://b.test/,dns,false,\n";
        assert_eq!(
            csv(&["status", "url", "error.kind", "seed", "delay"], &lines),
            expected
        );
        assert_eq!(csv(&["url"], &[]), "url\n");
    }

    #[test]
    fn texts_with_special_characters_are_quoted() {
        let line = r#"{"url": "a,b", "redirect": "call \"x\"", "clock": "", "meta": {"a": "l1\nl2\r"}, "scopes": ["a", "b"]}"#;
        let expected = "url,redirect,clock,meta.a,scopes\n\
            \"a,b\",\"call \"\"x\"\"\",\"\",\"l1\nl2\r\",\"[\"\"a\"\", \"\"b\"\"]\"\n";
        let names = ["url", "redirect", "clock", "meta.a", "scopes"];
        assert_eq!(csv(&names, &[line]), expected);
    }
}
