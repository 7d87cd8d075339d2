//! Fields of result lines by their names: a key, or a path of keys as in `error.kind`.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::cli::Usage;

/// A column: keys from the outside in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name, as it was given.
    pub name: String,
    keys: Vec<String>,
}

impl Field {
    /// The field with this name.
    ///
    /// # Errors
    /// A result line has no such key.
    pub fn parse(name: &str) -> Result<Field, Usage> {
        let keys: Vec<String> = name.split('.').map(str::to_owned).collect();
        let known = KEYS.iter().find(|(key, _)| *key == keys[0]);
        let Some((key, below)) = known else {
            let all: Vec<&str> = KEYS.iter().map(|(key, _)| *key).collect();
            return Err(Usage(format!(
                "{name:?} is no field of a result line: give one of {}",
                all.join(", ")
            )));
        };
        let is_known = match (keys.get(1), below) {
            (None, _) => true,
            (Some(_), Below::Any) => true,
            (Some(below_key), Below::Keys(all)) => {
                keys.len() == 2 && all.contains(&below_key.as_str())
            }
        };
        if is_known {
            return Ok(Field {
                name: name.to_owned(),
                keys,
            });
        }
        Err(Usage(match below {
            Below::Keys([]) => format!("{name:?} is no field: {key} is one value"),
            Below::Keys(all) => {
                let all: Vec<String> = all.iter().map(|below| format!("{key}.{below}")).collect();
                format!("{name:?} is no field: give {key}, {}", all.join(", "))
            }
            Below::Any => format!("{name:?} is no field"),
        }))
    }
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

/// What a key has below it.
enum Below {
    /// These keys, if any.
    Keys(&'static [&'static str]),
    /// What the user gave.
    Any,
}

const VALUE: Below = Below::Keys(&[]);

/// The keys of a result line.
const KEYS: &[(&str, Below)] = &[
    ("id", VALUE),
    ("parent", VALUE),
    ("seed", VALUE),
    ("final", VALUE),
    ("kind", VALUE),
    ("url", VALUE),
    ("method", VALUE),
    ("depth", VALUE),
    ("attempt", VALUE),
    ("scopes", VALUE),
    ("status", VALUE),
    ("error", Below::Keys(&["kind", "code", "detail"])),
    ("truncated", VALUE),
    ("redirect", VALUE),
    ("version", VALUE),
    ("content_type", VALUE),
    ("remote", VALUE),
    ("local", VALUE),
    ("reused", VALUE),
    (
        "tls",
        Below::Keys(&["version", "cipher", "resumed", "verified"]),
    ),
    ("bytes_wire", VALUE),
    ("bytes_body", VALUE),
    ("digest", VALUE),
    ("links", VALUE),
    ("robots", Below::Keys(&["meta", "header"])),
    ("warc", Below::Keys(&["file", "offset", "length"])),
    ("started", VALUE),
    ("due", VALUE),
    ("sent", VALUE),
    ("dns", VALUE),
    ("connect", VALUE),
    ("tls_handshake", VALUE),
    ("request", VALUE),
    ("first_byte", VALUE),
    ("headers", VALUE),
    ("body", VALUE),
    ("ended", VALUE),
    ("latency", VALUE),
    ("server_latency", VALUE),
    ("clock", VALUE),
    ("bound", VALUE),
    ("refetched", VALUE),
    ("lateness", VALUE),
    ("delay", VALUE),
    (
        "hold",
        Below::Keys(&["from", "seconds", "source", "scopes", "redirect"]),
    ),
    ("robots_ignored", VALUE),
    ("proxied", VALUE),
    ("meta", Below::Any),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_value_is_found_by_its_path_and_null_where_there_is_none() {
        let line = br#"{"id": 7, "delay": 0.00003, "error": {"kind": "dns"}, "warc": null, "meta": {"a": {"b": [1]}}}"#;
        let row = Row::parse(line).expect("JSON");
        let value = |name: &str| row.get(&Field::parse(name).expect("a field"));
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
    fn a_name_that_is_no_field_is_refused_with_those_that_are() {
        let check = |name: &str, part: &str| {
            let Usage(message) = Field::parse(name).expect_err(name);
            assert!(
                message.contains(name) && message.contains(part),
                "{message}"
            );
        };
        check("statuss", "content_type");
        check("", "url");
        check("error.kinds", "error.code");
        check("error.kind.x", "error.code");
        check("url.host", "one value");
    }

    #[test]
    fn the_fields_are_the_keys_that_are_documented() {
        let page = include_str!("../../../docs/reference/results.md");
        let (_, table) = page
            .split_once("| key | value | meaning |")
            .expect("a table");
        let table = table.split("\n\n").next().unwrap_or_default();
        let rows = table.lines().filter_map(|row| row.strip_prefix("| `"));
        let documented: BTreeSet<&str> = rows.filter_map(|row| row.split('`').next()).collect();
        let mut known: BTreeSet<&str> = KEYS.iter().map(|(key, _)| *key).collect();
        // A file has no such lines.
        known.insert("seq");
        assert_eq!(known, documented);
    }
}
