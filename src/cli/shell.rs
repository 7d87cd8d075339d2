//! Words of the shell, for commands in messages.

use std::path::Path;

/// A path as a word of the shell.
pub fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:,@%=".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.into_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
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
}
