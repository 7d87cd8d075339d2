//! Kinds of what is fetched: they are read by different parsers.

use std::fmt;

/// Purpose of a request; `kind` of a result line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum PageKind {
    /// A page: a seed or the target of a link.
    #[default]
    Page,
    /// A robots.txt.
    Robots,
    /// A sitemap.
    Sitemap,
}

impl PageKind {
    /// The word in result lines.
    pub const fn as_str(self) -> &'static str {
        match self {
            PageKind::Page => "page",
            PageKind::Robots => "robots",
            PageKind::Sitemap => "sitemap",
        }
    }
}

impl fmt::Display for PageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
