//! Fields of result lines by their names, a key or a path of keys as in `error.kind`, and the type of each.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::AddError;
use crate::cli::Usage;
use crate::cli::foreign::nearest;

/// A column: keys from the outside in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name, as it was given.
    pub name: String,
    /// The type of its values.
    pub kind: Kind,
    keys: Vec<String>,
}

/// The type of the values of a field. Each may be null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Integer,
    Boolean,
    Text,
    /// RFC 3339 in UTC with nanoseconds.
    Time,
    /// A number that may have a fraction.
    Seconds,
    /// A list of texts.
    Texts,
    /// An object, or anything.
    Json,
}

impl Field {
    /// The field with this name. `extracted`: the keys of `fields` in this crawl, which need no `fields.`
    /// before them unless a result line has such a key of its own.
    ///
    /// # Errors
    /// A result line has no such key.
    pub fn parse(name: &str, extracted: &[String]) -> Result<Field, Usage> {
        let mut keys: Vec<String> = name.split('.').map(str::to_owned).collect();
        let is_extracted = BUILT_IN.contains(&name) || extracted.iter().any(|key| key == name);
        if !is_key(&keys[0]) && is_extracted {
            keys.insert(0, FIELDS.to_owned());
        }
        let known = KEYS.iter().find(|(key, _)| *key == keys[0]);
        let Some((key, shape)) = known else {
            let all: Vec<&str> = KEYS.iter().map(|(key, _)| *key).collect();
            let others = extracted.iter().map(String::as_str);
            let others = others.chain(BUILT_IN.iter().copied());
            if let Some(near) = near(&keys[0], all.iter().copied().chain(others)) {
                let meant = name.replacen(&keys[0], near, 1);
                return Err(Usage(format!(
                    "{name:?} is no field of a result line; did you mean {meant}? For one that is still to come give \
                     {FIELDS}.{name}"
                )));
            }
            let extracted = match extracted {
                [] => "no result line has other fields (crawl --extract NAME=CSS)".to_owned(),
                all => format!("this crawl extracted {}", all.join(", ")),
            };
            return Err(Usage(format!(
                "{name:?} is no field of a result line: give one of {}; {extracted}. For one that is still to come give \
                 {FIELDS}.{name}",
                all.join(", ")
            )));
        };
        let kind = match (shape, &keys[1..]) {
            (Shape::Value(kind), []) => Some(*kind),
            (Shape::Object(_) | Shape::Named, []) | (Shape::Any, _) => Some(Kind::Json),
            // Also one that no line has: the crawl may extract it from now on.
            (Shape::Named, [below]) if is_name(below) => Some(Kind::Text),
            (Shape::Object(all), [below]) => (all.iter())
                .find(|(key, _)| key == below)
                .map(|(_, kind)| *kind),
            _ => None,
        };
        if let Some(kind) = kind {
            return Ok(Field {
                name: name.to_owned(),
                kind,
                keys,
            });
        }
        Err(Usage(match shape {
            Shape::Value(_) => format!("{name:?} is no field: {key} is one value"),
            Shape::Object(all) => {
                let all: Vec<String> = (all.iter())
                    .map(|(below, _)| format!("{key}.{below}"))
                    .collect();
                format!("{name:?} is no field: give {key}, {}", all.join(", "))
            }
            Shape::Named => {
                format!("{name:?} is no field: give {FIELDS}.NAME, as --extract named it")
            }
            Shape::Any => format!("{name:?} is no field"),
        }))
    }
}

/// The field that a name means which is none: one with almost the same letters, or what other programs call so.
fn near<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = name.to_ascii_lowercase().replace(['-', ' '], "_");
    let mut synonyms = SYNONYMS.iter();
    let synonym = synonyms.find(|(words, _)| words.contains(&plain.as_str()));
    synonym
        .map(|(_, key)| *key)
        .or_else(|| nearest(&plain, known))
}

/// Whether a name can only be that of what the crawl extracted.
pub fn may_be_extracted(name: &str) -> bool {
    is_name(name) && !is_key(name) && !BUILT_IN.contains(&name)
}

/// Whether a result line has a key of this name.
pub fn is_key(name: &str) -> bool {
    KEYS.iter().any(|(key, _)| *key == name)
}

/// Whether `--extract` accepts such a name.
fn is_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    !name.is_empty() && name.len() <= 64 && name.bytes().all(is_inner)
}

/// A result line.
pub struct Row<'a>(Keys<'a>);

type Keys<'a> = BTreeMap<&'a str, &'a RawValue>;

impl<'a> Row<'a> {
    /// Reads a line.
    ///
    /// # Errors
    /// It is no JSON object.
    pub fn parse(line: &'a [u8]) -> Result<Row<'a>, String> {
        let row = serde_json::from_slice(line).map(Row);
        row.map_err(|error| error.to_string())
    }

    /// The names of what was extracted from the page; `None` if nothing was.
    pub fn extracted(&self) -> Option<Vec<String>> {
        let fields = self.0.get(FIELDS)?;
        let fields: Keys<'a> = serde_json::from_str(fields.get()).ok()?;
        Some(fields.into_keys().map(str::to_owned).collect())
    }

    /// Whether it is the last line of a page: not of a robots.txt or a sitemap, nor of an attempt after which another one
    /// or a redirect follows.
    pub fn is_page(&self) -> bool {
        let is = |key, json| self.0.get(key).is_none_or(|value| value.get() == json);
        is("kind", "\"page\"") && is("final", "true")
    }

    /// Whether it has no status: it is of a page, a robots.txt or a sitemap that was not requested, or whose request
    /// failed.
    pub fn has_no_reply(&self) -> bool {
        self.0
            .get("status")
            .is_none_or(|value| value.get() == "null")
    }

    /// The value of a field as JSON; `None` if it is null or absent.
    pub fn get(&self, field: &Field) -> Option<&'a str> {
        let mut keys = field.keys.iter();
        let mut value = *self.0.get(keys.next()?.as_str())?;
        for key in keys {
            let below: Keys<'a> = serde_json::from_str(value.get()).ok()?;
            value = *below.get(key.as_str())?;
        }
        Some(value.get()).filter(|json| *json != "null")
    }
}

/// Columns of extracted fields that no line has had so far.
pub struct Missing {
    /// As they were given, and as `--extract` names them.
    columns: Vec<(String, String)>,
    has_lines: bool,
}

impl Missing {
    /// Before the first line. Names that are neither built in nor begin with `fields.` are refused without a line that
    /// has them.
    pub fn of(names: &[String]) -> Missing {
        let extracted = |name: &String| match name.split_once('.') {
            Some((FIELDS, field)) => Some((name.clone(), field.to_owned())),
            None if BUILT_IN.contains(&name.as_str()) => Some((name.clone(), name.clone())),
            _ => None,
        };
        Missing {
            columns: names.iter().filter_map(extracted).collect(),
            has_lines: false,
        }
    }

    /// After a line.
    pub fn see(&mut self, row: &Row<'_>) {
        self.has_lines = true;
        if !self.columns.is_empty()
            && let Some(found) = row.extracted()
        {
            self.columns.retain(|(_, field)| !found.contains(field));
        }
    }

    /// What to do about columns that are empty, after the last line.
    pub fn warning(&self) -> Option<String> {
        if self.columns.is_empty() || !self.has_lines {
            return None;
        }
        let (named, flags): (Vec<&str>, Vec<String>) = (self.columns.iter())
            .map(|(name, field)| match BUILT_IN.contains(&field.as_str()) {
                true => (name.as_str(), format!("--extract {field}")),
                false => (name.as_str(), format!("--extract {field}=CSS")),
            })
            .unzip();
        let fields = if named.len() == 1 { "field" } else { "fields" };
        Some(format!(
            "no line has the {fields} {}: to have what pages have there, crawl with {}",
            named.join(", "),
            flags.join(" ")
        ))
    }
}

/// The text that a JSON string is, or the JSON of another value.
///
/// # Errors
/// An escape in it is no character: half of a surrogate pair.
pub fn text_of<'a>(json: &'a str, field: &Field) -> Result<Cow<'a, str>, AddError> {
    match json.strip_prefix('"') {
        None => Ok(json.into()),
        Some(rest) if !json.contains('\\') => Ok(rest.trim_end_matches('"').into()),
        Some(_) => serde_json::from_str(json)
            .map(Cow::Owned)
            .map_err(|error| AddError::Value(format!("{}: {error}", field.name))),
    }
}

/// What a key leads to.
enum Shape {
    /// One value.
    Value(Kind),
    /// An object with these keys.
    Object(&'static [(&'static str, Kind)]),
    /// An object of texts, whose keys the crawl was given.
    Named,
    /// What the user gave.
    Any,
}

const INTEGER: Shape = Shape::Value(Kind::Integer);
const BOOLEAN: Shape = Shape::Value(Kind::Boolean);
const TEXT: Shape = Shape::Value(Kind::Text);
const TIME: Shape = Shape::Value(Kind::Time);
const SECONDS: Shape = Shape::Value(Kind::Seconds);
const TEXTS: Shape = Shape::Value(Kind::Texts);

/// The key of what was extracted from a page (`EXTRACT`).
const FIELDS: &str = "fields";

/// What `--extract` knows by name.
const BUILT_IN: &[&str] = &["title", "lang", "description", "canonical", "h1"];

/// The keys of a result line.
const KEYS: &[(&str, Shape)] = &[
    ("id", INTEGER),
    ("parent", INTEGER),
    ("seed", BOOLEAN),
    ("final", BOOLEAN),
    ("kind", TEXT),
    ("url", TEXT),
    ("method", TEXT),
    ("depth", INTEGER),
    ("attempt", INTEGER),
    ("scopes", TEXTS),
    ("status", INTEGER),
    ("judged", INTEGER),
    (
        "error",
        Shape::Object(&[
            ("kind", Kind::Text),
            ("code", Kind::Text),
            ("detail", Kind::Text),
        ]),
    ),
    ("truncated", TEXT),
    ("redirect", TEXT),
    ("version", TEXT),
    ("content_type", TEXT),
    ("remote", TEXT),
    ("local", TEXT),
    ("reused", BOOLEAN),
    (
        "tls",
        Shape::Object(&[
            ("version", Kind::Text),
            ("cipher", Kind::Text),
            ("resumed", Kind::Boolean),
            ("verified", Kind::Boolean),
        ]),
    ),
    ("bytes_wire", INTEGER),
    ("bytes_body", INTEGER),
    ("digest", TEXT),
    ("links", INTEGER),
    (
        "robots",
        Shape::Object(&[("meta", Kind::Texts), ("header", Kind::Texts)]),
    ),
    (FIELDS, Shape::Named),
    (
        "warc",
        Shape::Object(&[
            ("file", Kind::Text),
            ("offset", Kind::Integer),
            ("length", Kind::Integer),
        ]),
    ),
    ("started", TIME),
    ("due", TIME),
    ("sent", TIME),
    ("dns", SECONDS),
    ("connect", SECONDS),
    ("tls_handshake", SECONDS),
    ("request", SECONDS),
    ("first_byte", SECONDS),
    ("headers", SECONDS),
    ("body", SECONDS),
    ("ended", SECONDS),
    ("latency", SECONDS),
    ("server_latency", SECONDS),
    ("clock", TEXT),
    ("bound", BOOLEAN),
    ("refetched", BOOLEAN),
    ("lateness", SECONDS),
    ("delay", SECONDS),
    (
        "hold",
        Shape::Object(&[
            ("from", Kind::Time),
            ("seconds", Kind::Seconds),
            ("source", Kind::Text),
            // Seconds by scope.
            ("scopes", Kind::Json),
            ("redirect", Kind::Seconds),
        ]),
    ),
    ("robots_ignored", BOOLEAN),
    ("proxied", BOOLEAN),
    ("meta", Shape::Any),
];

/// What other programs call fields of a result.
const SYNONYMS: &[(&[&str], &str)] = &[
    (
        &[
            "status_code",
            "http_status",
            "http_code",
            "response_code",
            "code",
        ],
        "status",
    ),
    (&["uri", "link", "address", "location", "page"], "url"),
    (&["ip", "remote_ip", "server_ip", "remote_addr"], "remote"),
    (
        &["size", "length", "content_length", "size_download", "bytes"],
        "bytes_body",
    ),
    (&["mime", "mime_type", "mimetype"], "content_type"),
    (&["time", "date", "timestamp", "fetch_time"], "started"),
    (
        &["duration", "elapsed", "time_total", "total_time"],
        "ended",
    ),
    (&["ttfb", "time_starttransfer"], "first_byte"),
    (&["download_latency", "response_time"], "latency"),
    (&["redirect_url", "final_url"], "redirect"),
    (&["referer", "referrer", "source"], "parent"),
    (&["hash", "sha1", "checksum"], "digest"),
    (&["exception", "failure", "reason"], "error.kind"),
    (&["retries", "retry_times"], "attempt"),
    (&["host", "domain"], "scopes"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_by_its_path_and_null_where_there_is_none() {
        let line = br#"{"id": 7, "delay": 0.00003, "error": {"kind": "dns"}, "warc": null, "meta": {"a": {"b": [1]}}}"#;
        let row = Row::parse(line).expect("JSON");
        let value = |name: &str| row.get(&Field::parse(name, &[]).expect("a field"));
        assert_eq!(value("id"), Some("7"));
        assert_eq!(value("delay"), Some("0.00003"));
        assert_eq!(value("error.kind"), Some("\"dns\""));
        assert_eq!(value("error.code"), None);
        assert_eq!(value("warc"), None);
        assert_eq!(value("warc.file"), None);
        assert_eq!(value("meta.a.b"), Some("[1]"));
        assert_eq!(value("meta.a.c"), None);
        assert!(Row::parse(b"nonsense").is_err());
    }

    #[test]
    fn an_extracted_field_that_no_line_has_is_pointed_out() {
        let check = |names: &[&str], lines: &[&str], expected: Option<&str>| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let mut missing = Missing::of(&names);
            for line in lines {
                missing.see(&Row::parse(line.as_bytes()).expect("JSON"));
            }
            let warning = missing.warning();
            assert_eq!(warning.is_some(), expected.is_some(), "{warning:?}");
            assert!(
                warning
                    .unwrap_or_default()
                    .ends_with(expected.unwrap_or(""))
            );
        };
        let lines = [r#"{"id": 1}"#, r#"{"id": 2, "fields": {"title": null}}"#];
        check(&["url", "title", "meta.h1"], &lines, None);
        check(&["title", "h1"], &lines, Some("crawl with --extract h1"));
        let both = "crawl with --extract title --extract a=CSS";
        check(&["title", "fields.a"], &lines[..1], Some(both));
        check(&["title"], &[], None);
    }

    #[test]
    fn a_name_that_is_no_field_is_refused_with_those_that_are() {
        let check = |name: &str, part: &str| {
            let Usage(message) = Field::parse(name, &[]).expect_err(name);
            assert!(
                message.contains(name) && message.contains(part),
                "{message}"
            );
        };
        check("colour", "content_type");
        check("", "url");
        check("error.kinds", "error.code");
        check("error.kind.x", "error.code");
        check("url.host", "one value");
    }

    #[test]
    fn what_was_extracted_needs_no_prefix() {
        let line = br#"{"id": 7, "url": "u", "fields": {"title": "Tea", "price": null, "url": "of the page"}}"#;
        let row = Row::parse(line).expect("JSON");
        let extracted = row.extracted().expect("there are some");
        assert_eq!(extracted, ["price", "title", "url"]);
        let value = |name: &str| {
            let field =
                Field::parse(name, &extracted).unwrap_or_else(|Usage(error)| panic!("{error}"));
            (row.get(&field), field.kind)
        };
        assert_eq!(value("title"), (Some("\"Tea\""), Kind::Text));
        assert_eq!(value("fields.title"), (Some("\"Tea\""), Kind::Text));
        assert_eq!(value("price"), (None, Kind::Text));
        assert_eq!(value("url").0, Some("\"u\""));
        assert_eq!(value("fields.url").0, Some("\"of the page\""));
        assert_eq!(value("fields").1, Kind::Json);
        let check = |name: &str, extracted: &[String], part: &str| {
            let Usage(message) = Field::parse(name, extracted).expect_err(name);
            assert!(message.contains(part), "{message}");
        };
        check(
            "colour",
            &extracted,
            "this crawl extracted price, title, url",
        );
        check("colour", &[], "fields.colour");
        check("fields.a b", &[], "fields.NAME");
        check("fields.a.b", &[], "fields.NAME");
    }

    #[test]
    fn what_no_line_has_yet_is_a_field() {
        for name in ["title", "lang", "h1", "fields.price"] {
            let field = Field::parse(name, &[]).unwrap_or_else(|Usage(error)| panic!("{error}"));
            assert_eq!(field.kind, Kind::Text, "{name}");
        }
        let mut config = argiope::Config::default();
        let source = argiope::settings::SettingSource::Option;
        for name in BUILT_IN {
            config
                .set("EXTRACT", *name, source.clone())
                .expect("it is built in");
        }
        let refused = config
            .set("EXTRACT", "titel", source)
            .expect_err("it is not");
        let refused = refused.to_string();
        assert!(refused.contains(&BUILT_IN.join(", ")), "{refused}");
    }

    #[test]
    fn a_selector_without_a_name_is_given_one_that_no_key_has() {
        for (key, _) in KEYS {
            let source = argiope::settings::SettingSource::Program;
            let nameless = argiope::Config::default()
                .set("EXTRACT", format!(".{key}"), source)
                .expect_err("it has no name");
            let expected = format!("; write {key}_text=.{key}");
            assert!(nameless.to_string().ends_with(&expected), "{nameless}");
        }
    }

    #[test]
    fn a_field_that_is_almost_written_or_called_so_elsewhere_is_named() {
        let check = |name: &str, expected: &str| {
            let Usage(what) = Field::parse(name, &["price".to_owned()]).expect_err(name);
            assert!(
                what.contains(&format!("did you mean {expected}?")),
                "{what}"
            );
            Field::parse(expected, &["price".to_owned()]).expect("the cure is a field");
        };
        check("statsu", "status");
        check("Status", "status");
        check("content-type", "content_type");
        check("eror.kind", "error.kind");
        check("pricee", "price");
        check("titel", "title");
        for (words, key) in SYNONYMS {
            words.iter().for_each(|word| check(word, key));
        }
        let Usage(what) = Field::parse("nonsense", &[]).expect_err("it is unknown");
        assert!(what.contains("give one of id, parent"), "{what}");
    }

    #[test]
    fn the_last_line_of_a_page_is_one_of_a_page() {
        let check = |line: &str, expected: bool| {
            let row = Row::parse(line.as_bytes()).expect("JSON");
            assert_eq!(row.is_page(), expected, "{line}");
        };
        check(r#"{"kind": "page", "final": true}"#, true);
        check(r#"{"kind": "page", "final": false}"#, false);
        check(r#"{"kind": "robots", "final": true}"#, false);
        check(r#"{"kind": "sitemap", "final": true}"#, false);
    }

    #[test]
    fn the_fields_are_the_keys_that_are_documented_with_their_types() {
        let page = include_str!("../../../docs/reference/results.md");
        let (_, table) = page
            .split_once("| key | value | meaning |")
            .expect("a table");
        let table = table.split("\n\n").next().unwrap_or_default();
        let rows = table.lines().filter_map(|row| row.strip_prefix("| `"));
        let cells = |row: &'static str| {
            let mut cells = row.split(" | ");
            let key = cells.next()?.strip_suffix('`')?;
            let value = cells.next()?;
            Some((key, value.trim_end_matches(" or null")))
        };
        let documented: BTreeMap<&str, &str> = rows.filter_map(cells).collect();
        let mut known: BTreeMap<&str, &str> = BTreeMap::new();
        for (key, _) in KEYS {
            let value = match Field::parse(key, &[]).expect("a field").kind {
                Kind::Integer => "integer",
                Kind::Boolean => "boolean",
                Kind::Text => "text",
                Kind::Time => "time",
                Kind::Seconds => "seconds",
                Kind::Texts => "list of texts",
                Kind::Json if *key == "meta" => "any JSON",
                Kind::Json => "object",
            };
            known.insert(key, value);
        }
        // Absent rather than null.
        for key in ["bound", "refetched", "robots_ignored"] {
            assert_eq!(known.insert(key, "true, or absent"), Some("boolean"));
        }
        known.insert("proxied", "boolean, or absent");
        known.insert("judged", "integer, or absent");
        known.insert("fields", "object, or absent");
        // A file has no such lines.
        known.insert("seq", "integer, or absent");
        assert_eq!(known, documented);
    }
}
