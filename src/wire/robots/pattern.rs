//! Path patterns of robots rules: normalisation, and matching in time independent of the number of
//! stars.
//!
//! Hand-written as the rest of the parser: one of the crates tried hangs on a rule of many stars, and a
//! regular expression for each rule would have to be compiled and kept for every host.

use std::borrow::Cow;

/// Normalises a rule's path so that equivalent bytes compare equal (RFC 9309, 2.2.2).
///
/// Unreserved characters are decoded, reserved ones stay as written, and all others are
/// percent-encoded in upper case. `*`, and `$` at the end, stay special; a literal star or dollar
/// is `%2A` or `%24`.
pub(super) fn of_rule(path: &[u8]) -> String {
    let mut out = String::with_capacity(path.len());
    let (body, anchor) = match path.split_last() {
        Some((b'$', body)) => (body, "$"),
        _ => (path, ""),
    };
    let mut rest = body;
    while let Some((&first, _)) = rest.split_first() {
        if first != b'*' {
            rest = push_octet(&mut out, rest);
            continue;
        }
        // Consecutive stars mean the same as one.
        if !out.ends_with('*') {
            out.push('*');
        }
        rest = &rest[1..];
    }
    out.push_str(anchor);
    out
}

/// Normalises the path and query of a URL in the same way as [`of_rule`].
pub(super) fn of_path(path: &str) -> Cow<'_, str> {
    if path.bytes().all(is_plain) {
        return Cow::Borrowed(path);
    }
    let mut out = String::with_capacity(path.len() + 16);
    let mut rest = path.as_bytes();
    while !rest.is_empty() {
        rest = push_octet(&mut out, rest);
    }
    Cow::Owned(out)
}

/// Returns whether a pattern matches the beginning of a path; both must be normalised.
///
/// Each piece between stars is matched at its leftmost position. That is never wrong, because a
/// later position leaves less for the following pieces, and it avoids backtracking: a piece is
/// compared at most once per position, so the steps are bounded by pattern × path. `None`: the
/// budget of steps is used up.
pub(super) fn matches(pattern: &str, path: &str, steps: &mut Steps) -> Option<bool> {
    let (pattern, anchored) = match pattern.strip_suffix('$') {
        Some(body) => (body, true),
        None => (pattern, false),
    };
    let Some((first, others)) = pattern.split_once('*') else {
        steps.take(pattern.len())?;
        return Some(if anchored {
            path == pattern
        } else {
            path.starts_with(pattern)
        });
    };
    steps.take(first.len())?;
    let Some(mut path) = path.strip_prefix(first) else {
        return Some(false);
    };
    let mut pieces = others.split('*');
    let last = if anchored { pieces.next_back() } else { None };
    for piece in pieces {
        match find(path, piece, steps)? {
            Some(end) => path = &path[end..],
            None => return Some(false),
        }
    }
    let Some(last) = last else {
        return Some(true);
    };
    steps.take(last.len())?;
    Some(path.ends_with(last))
}

/// The number of comparisons that a decision may still take.
pub(super) struct Steps(pub(super) usize);

impl Steps {
    /// Takes one step for the start, and one for each byte compared.
    pub(super) fn take(&mut self, octets: usize) -> Option<()> {
        self.0 = self.0.checked_sub(octets + 1)?;
        Some(())
    }
}

/// The end of the leftmost occurrence of `piece` in `path`.
fn find(path: &str, piece: &str, steps: &mut Steps) -> Option<Option<usize>> {
    let Some(first) = piece.chars().next() else {
        steps.take(0)?;
        return Some(Some(0));
    };
    let (octets, wanted) = (path.as_bytes(), piece.as_bytes());
    let mut start = 0;
    loop {
        // Most positions are skipped eight at a time.
        let rest = path.get(start..).unwrap_or("");
        let Some(at) = rest.find(first) else {
            steps.take(rest.len() / 8)?;
            return Some(None);
        };
        start += at;
        let Some(place) = octets.get(start..start + wanted.len()) else {
            steps.take(at / 8)?;
            return Some(None);
        };
        let same = place.iter().zip(wanted).take_while(|(a, b)| a == b).count();
        steps.take(at / 8 + same)?;
        if same == wanted.len() {
            return Some(Some(start + same));
        }
        start += first.len_utf8();
    }
}

/// Appends the first byte of `rest`, which may be percent-encoded, and returns the rest after it.
fn push_octet<'a>(out: &mut String, rest: &'a [u8]) -> &'a [u8] {
    let (octet, encoded, after) = match rest {
        [b'%', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
            (value(*high) << 4 | value(*low), true, after)
        }
        [octet, after @ ..] => (*octet, false, after),
        [] => return rest,
    };
    let stands_for_itself = if encoded {
        is_unreserved(octet)
    } else {
        is_plain(octet)
    };
    if stands_for_itself {
        out.push(char::from(octet));
    } else {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        out.push('%');
        out.push(char::from(DIGITS[usize::from(octet >> 4)]));
        out.push(char::from(DIGITS[usize::from(octet & 15)]));
    }
    after
}

fn value(digit: u8) -> u8 {
    char::from(digit).to_digit(16).unwrap_or(0) as u8
}

/// Unreserved characters (RFC 3986, 2.3).
fn is_unreserved(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || b"-._~".contains(&octet)
}

/// Characters that stay unencoded in a path: unreserved and reserved ones, without the two special
/// ones.
fn is_plain(octet: u8) -> bool {
    is_unreserved(octet) || b":/?#[]@!&'()+,;=".contains(&octet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(pattern: &str, path: &str, expected: bool) {
        let found = matches(
            &of_rule(pattern.as_bytes()),
            &of_path(path),
            &mut Steps(usize::MAX),
        );
        assert_eq!(found, Some(expected), "{pattern} on {path}");
    }

    #[test]
    fn a_pattern_matches_a_prefix() {
        check("/", "/anything", true);
        check("/fish", "/fish.html", true);
        check("/fish", "/Fish", false);
        check("/fish/", "/fish", false);
        check("", "/", true);
    }

    #[test]
    fn a_star_matches_any_bytes_and_a_final_dollar_the_end() {
        check("/*.php", "/x/y.php?z", true);
        check("/*.php$", "/x.php?z", false);
        check("/*.php$", "/x.php/y.php", true);
        check("/a*b*c$", "/abc", true);
        check("/a*b*c$", "/acb", false);
        check("/fish*", "/fish", true);
        check("/$", "/", true);
        check("/$", "/x", false);
        check("/a$b", "/a$bc", true);
        check("*", "/", true);
        check("*$", "/", true);
        check("/ab*ab$", "/ab", false);
    }

    #[test]
    fn percent_encoded_bytes_compare_equal_in_every_spelling() {
        check(
            "/foo/bar?baz=http://foo.bar",
            "/foo/bar?baz=http%3A%2F%2Ffoo.bar",
            false,
        );
        check("/foo/%62%61%7A", "/foo/baz", true);
        check("/foo/baz", "/foo/%62az", true);
        check("/ツ", "/%E3%83%84", true);
        check("/%e3%83%84", "/ツ", true);
        check("/a%2fb", "/a%2Fb", true);
        check("/a%2fb", "/a/b", false);
        check("/a<b", "/a%3cb", true);
        check("/a b", "/a%20b", true);
        check("/100%", "/100%25", true);
        check("/%zz", "/%zz", true);
    }

    #[test]
    fn an_encoded_star_or_dollar_is_no_special_character() {
        check("/a-%2A.html", "/a-*.html", true);
        check("/a-%2A.html", "/a-x.html", false);
        check("/foo-%24", "/foo-$", true);
        check("/foo-%24", "/foo-$x", true);
        check("/foo$", "/foo$", false);
    }

    #[test]
    fn normalising_a_pattern_twice_changes_nothing() {
        for path in ["/a%2Fb", "/%E3%83%84", "/%25", "/x?y=[z]", "/%24%2A"] {
            assert_eq!(of_path(path), path);
            assert_eq!(of_rule(path.as_bytes()), path);
        }
    }

    #[test]
    fn steps_are_bounded_by_pattern_times_path_with_any_number_of_stars() {
        let stars = of_rule("/*a".repeat(200).replace('/', "").as_bytes());
        let bushes = [
            (stars.clone() + "b$", "/".to_owned() + &"a".repeat(4000)),
            (
                format!("/*{}b", "a".repeat(1000)),
                "/".to_owned() + &"a".repeat(4000),
            ),
            (
                format!("/*{}", "a*aa".repeat(100)),
                "/".to_owned() + &"ab".repeat(2000),
            ),
        ];
        for (pattern, path) in &bushes {
            let mut steps = Steps(usize::MAX);
            assert_eq!(matches(pattern, path, &mut steps), Some(false));
            let taken = usize::MAX - steps.0;
            assert!(
                taken <= (pattern.len() + 1) * (path.len() + 1),
                "{taken} steps for {} × {}",
                pattern.len(),
                path.len()
            );
        }
        // One byte between the stars: a single pass along the path.
        let mut steps = Steps(usize::MAX);
        matches(&stars, &bushes[0].1, &mut steps);
        assert!(usize::MAX - steps.0 <= 2 * (stars.len() + bushes[0].1.len()));
    }

    #[test]
    fn an_exhausted_budget_gives_no_result() {
        let path = format!("/{}", "a".repeat(80));
        assert_eq!(matches("/*b", &path, &mut Steps(5)), None);
        assert_eq!(matches("/abcdef", "/", &mut Steps(5)), None);
    }

    /// A reference implementation, as simple as possible.
    fn means(pattern: &[u8], path: &[u8]) -> bool {
        match pattern {
            [] => true,
            b"$" => path.is_empty(),
            [b'*', rest @ ..] => (0..=path.len()).any(|at| means(rest, &path[at..])),
            [octet, rest @ ..] => path.first() == Some(octet) && means(rest, &path[1..]),
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_its_plain_meaning(pattern in "/[ab*]{0,8}[$]?", path in "/[ab]{0,8}") {
            let spelled = of_rule(pattern.as_bytes());
            let found = matches(&spelled, &path, &mut Steps(usize::MAX));
            prop_assert_eq!(found, Some(means(spelled.as_bytes(), path.as_bytes())));
        }

        #[test]
        fn a_rule_without_special_characters_matches_its_own_path(path in "/\\PC{0,30}") {
            let literal = path.replace('*', "%2A").replace('$', "%24");
            let mut steps = Steps(usize::MAX);
            prop_assert_eq!(matches(&of_rule(literal.as_bytes()), &of_path(&path), &mut steps), Some(true));
        }
    }
}
