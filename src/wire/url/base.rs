//! The base of a page's references.
//!
//! The `url` library resolves references, except plain ones, which need no parser: absolute URLs that are
//! canonical, and paths and queries that remain as they are written, after leading dot segments.

use std::cell::Cell;

use super::standard::Parsed;
use super::{CrawlUrl, LENGTH_MAX, UrlError, plain};
use crate::base::units::Units;
use crate::wire::charset::{LACKING_MAX, LACKING_UNITS, QueryEncoding};

/// A page's URL, parsed once, against which its references are resolved.
///
/// Unlike a [`CrawlUrl`] it may have any scheme: a page's `<base>` may be a URL that cannot be
/// fetched.
#[derive(Clone, Debug)]
pub struct Base {
    url: Parsed,
    /// The same as a URL that can be fetched, if it is one.
    canonical: Option<CrawlUrl>,
    /// The encoding of queries, if it is not UTF-8.
    encoding: Option<QueryEncoding>,
}

impl Base {
    /// The base given by the page's own URL.
    pub fn of(url: &CrawlUrl) -> Self {
        Base {
            url: Parsed::of(url),
            canonical: Some(url.clone()),
            encoding: None,
        }
    }

    /// The same, for references in a document with this encoding; `None` is UTF-8.
    pub(crate) fn in_encoding(self, encoding: Option<QueryEncoding>) -> Self {
        Base { encoding, ..self }
    }

    /// Resolves a reference to a URL that can be fetched.
    pub fn join(&self, reference: &str) -> Result<CrawlUrl, UrlError> {
        self.join_within(reference, &mut Units::unbounded())
    }

    /// The same; characters missing in the document's encoding cost units.
    pub(crate) fn join_within(
        &self,
        reference: &str,
        units: &mut Units,
    ) -> Result<CrawlUrl, UrlError> {
        let within = || plain::join(self.canonical.as_ref()?, reference);
        if let Some(url) = plain::read(reference).or_else(within) {
            return Ok(url);
        }
        let lacking = Cell::default();
        let url = self.resolve(reference, &lacking);
        units.spend(lacking.get() * LACKING_UNITS);
        match lacking.get() > LACKING_MAX {
            true => Err(UrlError::Long),
            false => url?.into_crawl_url(),
        }
    }

    /// The base set by a `<base href>` on this page; the page's own if that is invalid, or a
    /// `data:` or `javascript:` URL (WHATWG HTML, 4.2.3).
    pub fn rebased(&self, reference: &str) -> Self {
        match self.resolve(reference, &Cell::default()) {
            Ok(url) if !matches!(url.scheme(), "data" | "javascript") => Base {
                canonical: url.clone().into_crawl_url().ok(),
                url,
                encoding: self.encoding,
            },
            _ => self.clone(),
        }
    }

    /// The lengths that this base contributes to resolved references.
    pub(crate) fn reach(&self) -> Reach {
        Reach::of(self.url.href())
    }

    fn resolve(&self, reference: &str, lacking: &Cell<usize>) -> Result<Parsed, UrlError> {
        if reference.len() > LENGTH_MAX {
            return Err(UrlError::Long);
        }
        self.url.join(reference, self.encoding, lacking)
    }
}

/// The lengths of a base's parts that a resolved reference keeps: used to reject URLs that would be
/// too long without building them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reach {
    /// Kept by an absolute path: scheme and authority.
    origin: usize,
    /// Kept by a relative path: the folder as well.
    folder: usize,
    /// Kept by a query: the path as well.
    path: usize,
    /// Everything except the fragment.
    whole: usize,
}

impl Reach {
    /// From a URL in the standard's form. All lengths are 0 if it cannot be fetched, or if a part
    /// of its authority is removed.
    fn of(href: &str) -> Self {
        let scheme = href
            .find("://")
            .filter(|end| matches!(&href[..*end], "http" | "https"));
        let Some(scheme) = scheme else {
            return Reach::default();
        };
        let start = scheme + "://".len();
        let whole = href.find('#').unwrap_or(href.len());
        let path = href[..whole].find('?').unwrap_or(whole);
        let origin = href[..path][start..]
            .find('/')
            .map_or(path, |at| start + at);
        let authority = &href[start..origin];
        let host = authority
            .rsplit_once(':')
            .map_or(authority, |(host, _)| host);
        if authority.contains('@') || host.ends_with('.') {
            return Reach::default();
        }
        Reach {
            origin,
            folder: href[..path]
                .rfind('/')
                .map_or(origin, |at| (at + 1).max(origin)),
            path,
            whole,
        }
    }

    /// The length of the base.
    pub fn length(&self) -> usize {
        self.whole
    }

    /// Lower bound of the length of the resolved reference, in bytes.
    pub fn length_min(&self, reference: &str) -> usize {
        let text = reference.trim_matches(|c| c <= ' ');
        let is_odd = |octet: u8| matches!(octet, b'\t' | b'\n' | b'\r' | b':' | b'%' | b'\\');
        let mut octets = text.bytes();
        match (octets.next(), octets.next()) {
            (None | Some(b'#'), _) => self.whole,
            // Possibly a scheme, or something that is removed.
            _ if text.bytes().any(is_odd) => 0,
            (Some(b'?'), _) => self.path,
            (Some(b'/'), Some(b'/')) => 0,
            (Some(b'/'), _) => self.origin,
            _ if text.contains("..") => self.origin,
            _ => self.folder,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The resolved URL has at least this length, and `expected` is the bound.
    fn check(base: &str, reference: &str, expected: usize) {
        let page = CrawlUrl::parse("http://a.test/").expect("a URL");
        let base = Base::of(&page).rebased(base);
        let least = base.reach().length_min(reference);
        assert_eq!(least, expected, "{reference:?} at {base:?}");
    }

    #[test]
    fn the_minimum_length_is_known_without_resolving() {
        let base = "http://a.test/dir/page?query#part";
        for (reference, expected) in [
            ("x", "http://a.test/dir/"),
            (" x ", "http://a.test/dir/"),
            ("./x", "http://a.test/dir/"),
            ("?x", "http://a.test/dir/page"),
            ("", "http://a.test/dir/page?query"),
            ("#x", "http://a.test/dir/page?query"),
            ("/x", "http://a.test"),
            ("../x", "http://a.test"),
            ("//b.test/", ""),
            ("%2e%2e/x", ""),
            ("http:x", ""),
            ("a\tb", ""),
        ] {
            check(base, reference, expected.len());
        }
        // A part of the authority is removed.
        check("http://user:password@a.test/dir/", "x", 0);
        check("http://a.test./dir/", "x", 0);
        check("ftp://a.test/dir/", "x", 0);
        check("mailto:a", "x", 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8000))]
        #[test]
        fn plain_references_are_resolved_as_the_standard_says(
            base in "(https?|ftp)://(u@)?[ab.]{1,3}(:[0-9]{2,3})?(/[a.%2e]{0,3}){0,4}([?]q'?)?(#f)?",
            reference in "[/?]?([.]{1,2}/){0,3}([a-f./?#:%@' \\t2e\\\\ü-]{0,9}|[a-f/.?#&=]{0,12})",
        ) {
            let page = CrawlUrl::parse("http://a.test/a/b").expect("a URL");
            let base = Base::of(&page).rebased(&base);
            let full = base.resolve(&reference, &Cell::default());
            prop_assert_eq!(base.join(&reference), full.and_then(Parsed::into_crawl_url));
        }

        #[test]
        fn the_minimum_length_is_a_lower_bound(
            base in "(https?|ftp)://(u@)?[ab.]{1,3}(:[0-9]{2,3})?(/[a.]{0,3}){0,4}([?]q)?(#f)?",
            reference in "[ab./?#:% \\t2e@\\\\-]{0,9}",
        ) {
            let page = CrawlUrl::parse("http://a.test/a/b").expect("a URL");
            let base = Base::of(&page).rebased(&base);
            if let Ok(url) = base.join(&reference) {
                let least = base.reach().length_min(&reference);
                prop_assert!(url.as_str().len() >= least, "{url} of {reference:?} at {base:?}");
            }
        }
    }
}
