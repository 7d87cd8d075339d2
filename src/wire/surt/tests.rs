//! URLs and their keys.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// URLs and the keys that `surt` 0.3.1 for Python makes of them.
const KEYS: &str = include_str!("keys.txt");

#[test]
fn a_url_has_the_key_that_readers_compute() {
    let keys: BTreeMap<&str, &str> = (KEYS.lines())
        .map(|line| line.split_once('\t').expect("a URL and its key"))
        .collect();
    let wrong: Vec<String> = (keys.iter())
        .map(|(url, key)| (url, key, key_of(url)))
        .filter(|(_, expected, key)| *expected != key)
        .map(|(url, expected, key)| format!("{url}: {key} instead of {expected}"))
        .collect();
    assert!(keys.len() > 150 && wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_url_without_a_key_is_its_own_and_has_no_space() {
    for (url, key) in [
        ("http://a.test:x/", "http://a.test:x/"),
        ("http://a.test:65536/ \n{", "http://a.test:65536/%20%0A{"),
        ("http://a.test:1:2/ü", "http://a.test:1:2/%C3%BC"),
        ("", "-"),
        (" \t", "-"),
    ] {
        assert_eq!(key_of(url), key, "{url}");
    }
}

#[test]
fn escapes_of_escapes_are_decoded_in_one_pass() {
    let check = |text: &str, decoded: &str| {
        assert_eq!(unescape(text.as_bytes()), decoded.as_bytes(), "{text}");
    };
    check("%2525252e", ".");
    check("%4%31", "A");
    check("%%341%3", "A%3");
    let deep = format!("%{}41", "25".repeat(1 << 20));
    check(&deep, "A");
}

proptest! {
    #[test]
    fn a_key_is_a_word_of_ascii(url in "(https?:/{0,3})?\\PC{0,40}|[\\x00-\\xff]{0,40}") {
        let key = key_of(&url);
        prop_assert!(!key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic()), "{key:?}");
    }
}
