//! Writes HTML. Only constants of this program are written as they are; every other text is escaped.

use std::fmt::{self, Display, Write};

use argiope::parts::printable;

/// The page so far.
pub struct Markup {
    out: String,
}

/// A cell of a table.
pub enum Cell {
    Text(String),
    /// Aligned to the right.
    Number(String),
}

impl Markup {
    pub fn new() -> Self {
        Markup { out: String::new() }
    }

    /// Writes a constant text, which may have tags.
    pub fn raw(&mut self, html: &'static str) -> &mut Self {
        self.out.push_str(html);
        self
    }

    /// Writes a value as text, in an element or in a quoted attribute. Characters that are special there are escaped,
    /// and so are control characters and those that change the direction of text.
    pub fn text(&mut self, value: impl Display) -> &mut Self {
        let _ = write!(Escaping(&mut self.out), "{value}");
        self
    }

    /// Writes an element around a text.
    pub fn element(
        &mut self,
        open: &'static str,
        value: impl Display,
        close: &'static str,
    ) -> &mut Self {
        self.raw(open).text(value).raw(close)
    }

    /// Writes a table. The first cell of a row is its heading.
    pub fn table(
        &mut self,
        caption: &str,
        heads: &[&'static str],
        rows: impl IntoIterator<Item = Vec<Cell>>,
    ) {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            self.element("<p class=\"none\">", caption, ": none.</p>\n");
            return;
        }
        self.element("<table><caption>", caption, "</caption><thead><tr>");
        for head in heads {
            self.element("<th scope=\"col\">", head, "</th>");
        }
        self.raw("</tr></thead><tbody>\n");
        for row in rows {
            self.raw("<tr>");
            for (at, cell) in row.iter().enumerate() {
                match (at, cell) {
                    (0, Cell::Text(text) | Cell::Number(text)) => {
                        self.element("<th scope=\"row\">", text, "</th>")
                    }
                    (_, Cell::Text(text)) => self.element("<td>", text, "</td>"),
                    (_, Cell::Number(text)) => self.element("<td class=\"n\">", text, "</td>"),
                };
            }
            self.raw("</tr>\n");
        }
        self.raw("</tbody></table>\n");
    }

    pub fn finish(self) -> String {
        self.out
    }
}

/// Escapes what is written to it.
struct Escaping<'a>(&'a mut String);

impl Write for Escaping<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for char in printable(text).chars() {
            match char {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                '`' => self.0.push_str("&#96;"),
                '\n' | '\t' => self.0.push(' '),
                char => self.0.push(char),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let mut markup = Markup::new();
        markup.text(text);
        assert_eq!(markup.finish(), expected);
    }

    #[test]
    fn special_characters_are_escaped_and_control_characters_shown() {
        check("a.test/é", "a.test/é");
        check("<script>", "&lt;script&gt;");
        check("\"'`&", "&quot;&#39;&#96;&amp;");
        check("]]>-->", "]]&gt;--&gt;");
        check("\0\x1b[1m\u{9b}\u{202e}", "\\u0000\\u001b[1m\\u009b\\u202e");
        check("two\r\nlines", "two\\u000d lines");
    }

    #[test]
    fn an_empty_table_is_a_sentence() {
        let mut markup = Markup::new();
        markup.table("Hosts", &["host"], Vec::new());
        assert_eq!(markup.finish(), "<p class=\"none\">Hosts: none.</p>\n");
    }
}
