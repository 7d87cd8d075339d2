//! Patterns of hosts: `*.example.com` matches every host below `example.com`.

/// The patterns that match a host, the narrowest first: `*.b.test` and `*.test` for `a.b.test`.
pub fn patterns_above(host: &str) -> impl Iterator<Item = String> + '_ {
    let dots = host.match_indices('.');
    dots.map(|(dot, _)| format!("*{}", &host[dot..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patterns_of_a_host_come_from_narrow_to_wide() {
        let patterns: Vec<String> = patterns_above("a.b.test").collect();
        assert_eq!(patterns, ["*.b.test", "*.test"]);
        assert_eq!(patterns_above("localhost").count(), 0);
    }
}
