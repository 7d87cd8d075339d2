//! Parses structured fields (RFC 9651) member by member: an invalid member does not affect the
//! others.
//!
//! Hand-written, because the RFC ignores the whole field in that case, and so does the crate `sfv`. The
//! fields parsed here slow a crawl down or mark a reply as cached, so a partial result is better than
//! none; servers in use send such fields, as the vectors of `tests/conformance_ratelimit.rs` show.

/// The members of a list or dictionary, without surrounding white space.
pub(super) fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    Split::new(value, b',').filter(|member| !member.is_empty())
}

/// The first part of a member, and its parameters: a key, and a value unless it is a flag.
pub(super) fn item(member: &[u8]) -> (&[u8], impl Iterator<Item = Pair<'_>>) {
    let mut parts = Split::new(member, b';');
    (parts.next().unwrap_or_default(), parts.map(pair))
}

/// A key and the value after its equals sign.
pub(super) type Pair<'a> = (&'a [u8], Option<&'a [u8]>);

/// Splits a key and its value.
pub(super) fn pair(part: &[u8]) -> Pair<'_> {
    match part.iter().position(|&byte| byte == b'=') {
        Some(at) => (part[..at].trim_ascii(), Some(part[at + 1..].trim_ascii())),
        None => (part, None),
    }
}

/// The text of a quoted string; `None` for anything else.
pub(super) fn string(value: &[u8]) -> Option<String> {
    let inside = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let mut text = String::with_capacity(inside.len());
    let mut bytes = inside.iter();
    while let Some(&byte) = bytes.next() {
        text.push(match byte {
            b'\\' => match *bytes.next()? {
                escaped @ (b'"' | b'\\') => char::from(escaped),
                _ => return None,
            },
            b'"' => return None,
            b' '..=b'~' => char::from(byte),
            _ => return None,
        });
    }
    Some(text)
}

/// A non-negative number: digits, optionally with a fraction. Infinite if it exceeds the range of
/// `f64`.
pub(super) fn number(value: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(value).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    (digits(whole) && digits(fraction)).then(|| text.parse().ok())?
}

/// Splits a value at separators outside of quoted strings.
struct Split<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> Split<'a> {
    fn new(value: &'a [u8], separator: u8) -> Self {
        Split {
            rest: Some(value),
            separator,
        }
    }
}

impl<'a> Iterator for Split<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let value = self.rest?;
        let mut quoted = false;
        let mut escaped = false;
        let end = value.iter().position(|&byte| {
            if escaped {
                escaped = false;
            } else if byte == b'"' {
                quoted = !quoted;
            } else if byte == b'\\' {
                escaped = quoted;
            }
            !quoted && byte == self.separator
        });
        self.rest = end.map(|end| &value[end + 1..]);
        Some(value[..end.unwrap_or(value.len())].trim_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_members(value: &str, expected: &[&str]) {
        let found: Vec<_> = members(value.as_bytes())
            .map(String::from_utf8_lossy)
            .collect();
        assert_eq!(found, expected, "{value}");
    }

    #[test]
    fn members_end_at_commas_outside_of_strings() {
        check_members("", &[]);
        check_members(" , ", &[]);
        check_members("a;b=1 ,\t\"c\";d", &["a;b=1", "\"c\";d"]);
        check_members(r#"a;b="x, y", c"#, &[r#"a;b="x, y""#, "c"]);
        check_members(r#"a;b="\", y", c"#, &[r#"a;b="\", y""#, "c"]);
        check_members(r#"a, "not ended, b"#, &["a", r#""not ended, b"#]);
    }

    #[test]
    fn an_item_is_followed_by_its_parameters() {
        let (name, mut parameters) = item(br#""a;b"; w=60 ;hit;k=:cA==:"#);
        assert_eq!(name, br#""a;b""#);
        assert_eq!(parameters.next(), Some((&b"w"[..], Some(&b"60"[..]))));
        assert_eq!(parameters.next(), Some((&b"hit"[..], None)));
        assert_eq!(parameters.next(), Some((&b"k"[..], Some(&b":cA==:"[..]))));
        assert_eq!(parameters.next(), None);
    }

    #[test]
    fn a_string_is_quoted_ascii_and_nothing_else() {
        let check = |value: &str, expected: Option<&str>| {
            assert_eq!(string(value.as_bytes()).as_deref(), expected, "{value}");
        };
        check(r#""""#, Some(""));
        check(r#""a b""#, Some("a b"));
        check(r#""a\"\\b""#, Some(r#"a"\b"#));
        check(r#""a\n""#, None);
        check(r#""a"b""#, None);
        check(r#"""#, None);
        check(r#""\""#, None);
        check("token", None);
        check("\"é\"", None);
    }

    #[test]
    fn a_number_is_digits_and_perhaps_a_fraction() {
        let check = |value: &str, expected: Option<f64>| {
            assert_eq!(number(value.as_bytes()), expected, "{value}");
        };
        check("0", Some(0.0));
        check("00598.50", Some(598.5));
        check(&"9".repeat(400), Some(f64::INFINITY));
        for garbage in [
            "",
            ".",
            "1.",
            ".5",
            "1.5.2",
            "-1",
            "+1",
            "1e3",
            "0x10",
            "nan",
            "inf",
            "infinity",
            "１２０",
            " 1",
            "1_000",
        ] {
            check(garbage, None);
        }
    }
}
