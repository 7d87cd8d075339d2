//! The JSON object of a seeds line: its keys, and the forms of their values.

use std::fmt;
use std::time::Duration;

use data_encoding::BASE64;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::frontier::request::Request;
use crate::wire::proxy::Route;

/// A seeds line's JSON object; `docs/reference/seeds.md` describes its keys.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Object {
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Scopes>,
    /// Scrapy's name for a single scope; read, never written.
    #[serde(default, skip_serializing)]
    pub download_slot: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub depth: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub sitemap: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<Headers>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_b64: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub dont_adjust_delay: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Seconds>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_max: Option<u64>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub ignore_robots: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub dont_follow: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub dont_filter: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub private_headers: Vec<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub headers_for_host: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub dont_send_credentials: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub dont_merge_cookies: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub tag: u64,
}

impl Object {
    /// The object of a request. Destructures it, so that a new field does not compile without a key.
    pub fn of(request: &Request) -> Object {
        let Request {
            url,
            method,
            headers,
            body,
            priority,
            depth,
            sitemap,
            scopes,
            scope_costs,
            dont_adjust_delay,
            timeout,
            body_max,
            ignore_robots,
            dont_follow,
            dont_filter,
            route,
            private_headers,
            headers_for_host,
            dont_send_credentials,
            dont_merge_cookies,
            meta,
            tag,
        } = request;
        Object {
            url: url.clone(),
            scopes: (scopes.as_ref()).map(|names| Scopes::of(names, scope_costs)),
            download_slot: None,
            priority: *priority,
            depth: *depth,
            sitemap: *sitemap,
            method: (!method.is_empty()).then(|| method.clone()),
            headers: (!headers.is_empty()).then(|| Headers(headers.clone())),
            body_b64: (!body.is_empty()).then(|| BASE64.encode(body)),
            dont_adjust_delay: *dont_adjust_delay,
            timeout: timeout.map(Seconds),
            body_max: *body_max,
            ignore_robots: *ignore_robots,
            dont_follow: *dont_follow,
            dont_filter: *dont_filter,
            private_headers: private_headers.clone(),
            headers_for_host: *headers_for_host,
            dont_send_credentials: *dont_send_credentials,
            dont_merge_cookies: *dont_merge_cookies,
            proxy: route.as_ref().map(Route::to_text),
            meta: meta.as_deref().map(in_one_line),
            tag: *tag,
        }
    }

    /// Whether it has no key but `url` when it is written.
    pub fn has_only_url(&self) -> bool {
        let Object {
            url: _,
            scopes: None,
            download_slot: _,
            priority: 0,
            depth: 0,
            sitemap: 0,
            method: None,
            headers: None,
            body_b64: None,
            dont_adjust_delay: false,
            timeout: None,
            body_max: None,
            ignore_robots: false,
            dont_follow: false,
            dont_filter: false,
            private_headers,
            headers_for_host: false,
            dont_send_credentials: false,
            dont_merge_cookies: false,
            proxy: None,
            meta: None,
            tag: 0,
        } = self
        else {
            return false;
        };
        private_headers.is_empty()
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A name, a list of names, or a map of names to costs, in the order of the line.
#[derive(Debug)]
pub(super) struct Scopes {
    pub names: Vec<String>,
    pub costs: Vec<f64>,
}

impl Scopes {
    /// The scopes of a request. A map has each name once: of two costs in one scope the larger is
    /// written, as throttling uses the larger.
    fn of(names: &[String], costs: &[f64]) -> Self {
        let mut scopes = Scopes {
            names: names.to_vec(),
            costs: costs.to_vec(),
        };
        if costs.is_empty() {
            return scopes;
        }
        scopes.names.clear();
        scopes.costs.clear();
        let costs = costs.iter().copied().chain(std::iter::repeat(1.0));
        for (name, cost) in names.iter().zip(costs) {
            match scopes.names.iter().position(|known| known == name) {
                Some(at) => scopes.costs[at] = scopes.costs[at].max(cost),
                None => {
                    scopes.names.push(name.clone());
                    scopes.costs.push(cost);
                }
            }
        }
        scopes
    }
}

impl<'de> Deserialize<'de> for Scopes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Forms;
        impl<'de> Visitor<'de> for Forms {
            type Value = Scopes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`scopes` as a name, a list of names or a map of names to costs")
            }

            fn visit_str<E>(self, name: &str) -> Result<Scopes, E> {
                Ok(Scopes {
                    names: vec![name.to_owned()],
                    costs: Vec::new(),
                })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Scopes, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = list.next_element()? {
                    names.push(name);
                }
                Ok(Scopes {
                    names,
                    costs: Vec::new(),
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scopes, A::Error> {
                let (mut names, mut costs) = (Vec::<String>::new(), Vec::new());
                while let Some((name, cost)) = map.next_entry()? {
                    if names.contains(&name) {
                        return Err(A::Error::custom(format_args!(
                            "`scopes` names {name:?} twice"
                        )));
                    }
                    names.push(name);
                    costs.push(cost);
                }
                Ok(Scopes { names, costs })
            }
        }
        from.deserialize_any(Forms)
    }
}

impl Serialize for Scopes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.costs.is_empty() {
            return self.names.serialize(to);
        }
        to.collect_map(self.names.iter().zip(&self.costs))
    }
}

/// A map of names to values, or a list of pairs, in which a name may occur more than once.
#[derive(Debug)]
pub(super) struct Headers(pub Vec<(String, String)>);

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Forms;
        impl<'de> Visitor<'de> for Forms {
            type Value = Headers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`headers` as a map of names to values or a list of [name, value]")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Headers, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = list.next_element()? {
                    pairs.push(pair);
                }
                Ok(Headers(pairs))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Headers(pairs))
            }
        }
        from.deserialize_any(Forms)
    }
}

impl Serialize for Headers {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

/// A duration as a number of seconds. Parsed and written digit by digit: an `f64` is not exact to the
/// nanosecond for long durations.
#[derive(Debug)]
pub(super) struct Seconds(pub Duration);

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(from)?;
        match seconds(text.get()) {
            Some(duration) => Ok(Seconds(duration)),
            None => Err(D::Error::custom(format_args!(
                "{text} is not a duration; write seconds, 0 or more, such as 2.5"
            ))),
        }
    }
}

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Seconds(duration) = self;
        let mut text = duration.as_secs().to_string();
        if duration.subsec_nanos() != 0 {
            let digits = format!("{:09}", duration.subsec_nanos());
            text.push('.');
            text.push_str(digits.trim_end_matches('0'));
        }
        let number = RawValue::from_string(text).expect("digits with a point are JSON");
        number.serialize(to)
    }
}

/// The duration of a JSON number in seconds. Digits after the nanoseconds are dropped.
fn seconds(number: &str) -> Option<Duration> {
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    if is_digits(whole) && is_digits(part) {
        let nanos = part.bytes().chain(std::iter::repeat(b'0')).take(9);
        let nanos = nanos.fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
        return Some(Duration::new(whole.parse().ok()?, nanos));
    }
    // With an exponent. JSON has no infinities.
    Duration::try_from_secs_f64(number.parse().ok()?).ok()
}

/// JSON on one line. A line end in JSON is white space between tokens; strings contain it escaped only.
fn in_one_line(json: &RawValue) -> Box<RawValue> {
    let text = json.get().replace(['\n', '\r'], " ");
    RawValue::from_string(text).expect("only white space was changed")
}
