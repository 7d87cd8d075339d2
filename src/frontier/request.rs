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

    /// A POST of `body` to `url`.
    pub fn post(url: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Request {
            url: url.into(),
            method: "POST".to_owned(),
            body: body.into(),
            ..Request::default()
        }
    }

    /// Sends this field too.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Goes before those of lower priority in its lane; 0 is the usual one.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Is throttled under this scope instead of the mapped ones. Said again, under both.
    pub fn scope(mut self, name: impl Into<String>) -> Self {
        self.scopes.get_or_insert_default().push(name.into());
        self
    }

    /// Is throttled under no scope: only the global limits hold.
    pub fn without_scopes(mut self) -> Self {
        self.scopes = Some(Vec::new());
        self
    }

    /// Asks that its reply teach AutoThrottle nothing, however slow it is.
    pub fn dont_adjust_delay(mut self) -> Self {
        self.dont_adjust_delay = true;
        self
    }

    /// JSON of the caller's own, handed back with the result.
    pub fn meta(mut self, meta: impl Into<serde_json::Value>) -> Self {
        let text = meta.into().to_string();
        self.meta = Some(RawValue::from_string(text).expect("a JSON value is written as JSON"));
        self
    }

    /// A number of the caller's own, handed back with the result.
    pub fn tag(mut self, tag: u64) -> Self {
        self.tag = tag;
        self
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
