//! What is to be fetched: one URL with what its caller said about it.

use serde_json::value::RawValue;

/// A request as a user submits it: by a seeds line, from code, or found as a link.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The URL, absolute.
    pub url: String,
    /// The method; empty means GET.
    pub method: String,
    /// Further header fields, in order.
    pub headers: Vec<(String, String)>,
    /// The body; empty means none.
    pub body: Vec<u8>,
    /// Higher goes first within its lane; 0 is the default.
    pub priority: i32,
    /// Links followed from a seed to get here.
    pub depth: u32,
    /// The scopes to be throttled under, in place of the mapped ones; none at all means that only
    /// the global limits hold.
    pub scopes: Option<Vec<String>>,
    /// What this request is expected to cost each of `scopes`, in the same order, in the units of
    /// their quotas. Empty where nothing was said: 1 each.
    pub scope_costs: Vec<f64>,
    /// Scrapy's `autothrottle_dont_adjust_delay`: the reply teaches AutoThrottle nothing.
    pub dont_adjust_delay: bool,
    /// The caller's own JSON, handed back with the result.
    pub meta: Option<Box<RawValue>>,
    /// The caller's own number, handed back with the result.
    pub tag: u64,
}

impl Request {
    /// A GET of `url`.
    pub fn get(url: impl Into<String>) -> Self {
        Request {
            url: url.into(),
            ..Request::default()
        }
    }
}

/// What a request is for; `kind` of a result line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A page, asked for by a seed or a link.
    Page,
    /// A robots.txt.
    Robots,
    /// A sitemap.
    Sitemap,
}

impl Kind {
    /// The word in result lines.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Page => "page",
            Kind::Robots => "robots",
            Kind::Sitemap => "sitemap",
        }
    }
}
