//! Makes text from servers safe for display on a terminal.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns whether a terminal may interpret a character instead of displaying it: the control
/// characters of ASCII and of C1 (U+0080 to U+009F, one of which starts commands like ESC [), line
/// separators, and those that change the writing direction.
pub fn is_control(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// Replaces such characters by escapes like `\u009b`. Line ends and tabs stay.
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_shown = |char: char| matches!(char, '\n' | '\t') || !is_control(char);
    if text.chars().all(is_shown) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        match is_shown(char) {
            true => shown.push(char),
            false => {
                let _ = write!(shown, "\\u{:04x}", u32::from(char));
            }
        }
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_displayed_as_escapes() {
        let check = |text: &str, shown: &str| assert_eq!(printable(text), shown);
        check("plain, bücher 💡\n\tmore", "plain, bücher 💡\n\tmore");
        check("\x1b[31mred\x07", "\\u001b[31mred\\u0007");
        check("a\u{9b}2Jb\u{85}\u{7f}", "a\\u009b2Jb\\u0085\\u007f");
        check("\u{202e}txt.exe\u{2028}", "\\u202etxt.exe\\u2028");
        check("over\rwritten", "over\\u000dwritten");
    }
}
