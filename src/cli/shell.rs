//! Words of the shell, for commands in messages.

use std::path::Path;

/// A path as a word of the shell.
pub fn quoted(path: &Path) -> String {
    word(&path.to_string_lossy())
}

/// A text as a word of the shell.
pub fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:,@%=".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => in_quotes(text),
    }
}

/// The same in quotes, whatever is in it.
pub fn in_quotes(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_other_characters_is_quoted() {
        let check = |path: &str, expected: &str| assert_eq!(quoted(Path::new(path)), expected);
        check("a/b-1.txt", "a/b-1.txt");
        check("my crawl", "'my crawl'");
        check("it's", r"'it'\''s'");
        check("", "''");
    }

    #[test]
    fn a_text_is_quoted_where_the_shell_would_change_it() {
        let check = |text: &str, expected: &str| assert_eq!(word(text), expected);
        check("http://a.test/", "http://a.test/");
        check("http://a.test/?a=b&c", "'http://a.test/?a=b&c'");
        check("*.a.test", "'*.a.test'");
        assert_eq!(in_quotes("a"), "'a'");
    }
}
