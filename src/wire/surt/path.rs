//! The path of a key.

use std::sync::LazyLock;

use regex::bytes::Regex;

use super::escape;

/// A decoded path in lower case, encoded again: without session ids and a slash at its end, and below a host
/// without dot segments and empty ones.
pub(super) fn canonical(decoded: Vec<u8>, has_host: bool) -> Vec<u8> {
    let path = match has_host {
        true => normal(&decoded),
        false => decoded,
    };
    let path = escape(&path).to_ascii_lowercase();
    let mut path = without_session_id(path);
    if path.len() > 1 && path.ends_with(b"/") {
        path.pop();
    }
    path
}

/// Without dot segments and empty segments.
fn normal(path: &[u8]) -> Vec<u8> {
    let mut kept: Vec<&[u8]> = Vec::new();
    // Before the first slash is nothing.
    for segment in path.split(|byte| *byte == b'/').skip(1) {
        match segment {
            b"." => {}
            b".." if !kept.is_empty() => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    let mut normal = vec![b'/'];
    if let Some((last, others)) = kept.split_last() {
        for segment in others.iter().filter(|segment| !segment.is_empty()) {
            normal.extend_from_slice(segment);
            normal.push(b'/');
        }
        normal.extend_from_slice(last);
    }
    normal
}

/// Without the segment in which ASP.NET keeps its session ids: `/(s(0123456789abcdefghijklmn))/page.aspx`, and
/// earlier `/(0123456789abcdefghijklmn)/page.aspx`.
fn without_session_id(mut path: Vec<u8>) -> Vec<u8> {
    if !path.windows(5).any(|five| five == b".aspx") {
        return path;
    }
    for pattern in &*SESSION_SEGMENTS {
        if let Some(found) = pattern.captures(&path)
            && let (Some(before), Some(behind)) = (found.get(1), found.get(2))
        {
            path = [before.as_bytes(), behind.as_bytes()].concat();
        }
    }
    path
}

static SESSION_SEGMENTS: LazyLock<[Regex; 2]> = LazyLock::new(|| {
    let pattern = |id: &str| {
        let pattern = format!(r"(?-u)^(.*/){id}/([^?]+\.aspx.*)$");
        Regex::new(&pattern).expect("a valid pattern")
    };
    [
        pattern(r"\((?:[a-z]\([0-9a-z]{24}\))+\)"),
        pattern(r"\([0-9a-z]{24}\)"),
    ]
});
