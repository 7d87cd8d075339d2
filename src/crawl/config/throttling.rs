//! Values of throttling: kinds of errors, targets, mapping rules, and registered managers.

use serde_json::{Map, Value};

use super::choices::OneOf;
use super::error::{Problem, nearest};
use super::form::{Form, items, text, wrong};
use super::quantity::Whole;
use crate::fetch::failure::FailureKind;
use crate::throttle::settings::{Manager, MapKind};

/// Kinds of errors, named as in result lines.
pub(super) struct Exceptions;

impl Form for Exceptions {
    type Of = Vec<FailureKind>;
    const KIND: &'static str = "list of error kinds";

    fn read(value: &Value) -> Result<Self::Of, Problem> {
        items(value)?.iter().map(kind).collect()
    }

    fn write(of: &Self::Of) -> Value {
        of.iter().map(|kind| Value::from(kind.as_str())).collect()
    }
}

/// Kinds of errors, or single codes of a kind: `timeout`, `dns.servfail`.
pub(super) struct Errors;

impl Form for Errors {
    type Of = Vec<String>;
    const KIND: &'static str = "list of errors";

    fn read(value: &Value) -> Result<Self::Of, Problem> {
        let one = |item: &Value| {
            let Some((family, code)) = text(item)?.trim().split_once('.') else {
                return Ok(kind(item)?.as_str().to_owned());
            };
            let family = kind(&family.into())?.as_str();
            let code = code.to_ascii_lowercase();
            let is_code = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            match !code.is_empty() && code.bytes().all(is_code) {
                true => Ok(format!("{family}.{code}")),
                false => Err(wrong(
                    item,
                    "not an error code",
                    "write KIND.CODE as in result lines, such as dns.servfail",
                )),
            }
        };
        items(value)?.iter().map(one).collect()
    }

    fn write(of: &Self::Of) -> Value {
        of.clone().into()
    }
}

fn kind(item: &Value) -> Result<FailureKind, Problem> {
    let word = text(item)?.trim().to_ascii_lowercase();
    let names = || FailureKind::ALL.iter().map(|kind| kind.as_str());
    FailureKind::from_name(&word).ok_or_else(|| {
        let mend = match nearest(&word, names()) {
            Some(name) => format!("did you mean {name}?"),
            None => format!("give {}", names().collect::<Vec<_>>().join(", ")),
        };
        wrong(item, "not a kind of error", mend)
    })
}

/// A number of refusals, or a range `[low, high]` of such numbers.
pub(super) struct Target;

impl Form for Target {
    type Of = (u32, u32);
    const KIND: &'static str = "number or [low, high]";

    fn read(value: &Value) -> Result<Self::Of, Problem> {
        const MEND: &str = "give a whole number of 1 or more, or [low, high] with low ≤ high";
        let numbers: Vec<u32> = items(value)
            .map_err(|_| wrong(value, "not a target", MEND))?
            .iter()
            .map(Whole::<u32, 0>::read)
            .collect::<Result<_, _>>()
            .map_err(|problem| Problem::new(problem.what, MEND))?;
        match numbers[..] {
            [both] if both > 0 => Ok((both, both)),
            [low, high] if low <= high && high > 0 => Ok((low, high)),
            // Ramp-up cannot aim at no refusals.
            [0] | [0, 0] => Err(wrong(value, "zero", MEND)),
            [_, _] => Err(wrong(value, "a range with low above high", MEND)),
            _ => Err(wrong(value, "not a target", MEND)),
        }
    }

    fn write(of: &Self::Of) -> Value {
        match of {
            (low, high) if low == high => (*low).into(),
            (low, high) => vec![*low, *high].into(),
        }
    }
}

/// One mapping rule or several, without duplicates.
pub(super) struct MapKinds;

impl Form for MapKinds {
    type Of = Vec<MapKind>;
    const KIND: &'static str = OneOf::<MapKind>::KIND;

    fn read(value: &Value) -> Result<Self::Of, Problem> {
        let mut kinds = Vec::new();
        for item in items(value)? {
            let kind = OneOf::<MapKind>::read(&item)?;
            if kinds.contains(&kind) {
                return Err(wrong(
                    value,
                    "a list with one rule twice",
                    "name each rule once",
                ));
            }
            kinds.push(kind);
        }
        match kinds.is_empty() {
            false => Ok(kinds),
            // Without any scope only the global limit would apply.
            true => Err(wrong(
                value,
                "an empty list",
                format!("give {}", Self::KIND),
            )),
        }
    }

    fn write(of: &Self::Of) -> Value {
        match &of[..] {
            [one] => OneOf::write(one),
            several => several.iter().map(OneOf::<MapKind>::write).collect(),
        }
    }
}

/// A manager by its registered name, with arguments in a table; `default` is the built-in one.
pub(super) struct Registered;

impl Form for Registered {
    type Of = Manager;
    const KIND: &'static str = "name, or table with name and arguments";

    fn read(value: &Value) -> Result<Manager, Problem> {
        const MEND: &str = r#"give a name, or a table: {name = "mine", other keys are arguments}"#;
        let parsed = match value {
            Value::String(text) if text.trim_start().starts_with('{') => {
                serde_json::from_str(text).ok()
            }
            _ => None,
        };
        let value = parsed.as_ref().unwrap_or(value);
        let (name, arguments) = match value {
            Value::String(name) => (name.trim(), Map::new()),
            Value::Object(table) => {
                let mut arguments = table.clone();
                arguments.remove("name");
                let name = table.get("name").and_then(Value::as_str);
                (name.unwrap_or_default().trim(), arguments)
            }
            _ => return Err(wrong(value, "not a name", MEND)),
        };
        if name.is_empty() {
            return Err(wrong(value, "missing a name", MEND));
        }
        if name == Manager::BUILT_IN && !arguments.is_empty() {
            let mend = "leave them out, or give the name of a registered manager";
            return Err(wrong(
                value,
                "the built-in manager, which takes no arguments",
                mend,
            ));
        }
        if let Some((key, argument)) = arguments.iter().find(|(_, value)| !is_toml_value(value)) {
            let mend = "give text, numbers, true, false, lists and tables";
            return Err(wrong(argument, "not a value that TOML can represent", mend).within(key));
        }
        Ok(Manager {
            name: name.to_owned(),
            arguments,
        })
    }

    fn write(of: &Manager) -> Value {
        if of.arguments.is_empty() {
            return of.name.as_str().into();
        }
        let mut table = of.arguments.clone();
        table.insert("name".to_owned(), of.name.as_str().into());
        table.into()
    }
}

/// Whether TOML can represent a value: it has no null, and its integers are signed 64-bit.
fn is_toml_value(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Number(number) => number.as_u64().is_none_or(|n| i64::try_from(n).is_ok()),
        Value::Array(items) => items.iter().all(is_toml_value),
        Value::Object(table) => table.values().all(is_toml_value),
        Value::Bool(_) | Value::String(_) => true,
    }
}

/// A manager for all scopes; `None` is the built-in one.
pub(super) struct ManagerForm;

impl Form for ManagerForm {
    type Of = Option<Manager>;
    const KIND: &'static str = Registered::KIND;

    fn read(value: &Value) -> Result<Self::Of, Problem> {
        Ok(Registered::read(value)?.unless_built_in())
    }

    fn write(of: &Self::Of) -> Value {
        match of {
            Some(manager) => Registered::write(manager),
            None => Manager::BUILT_IN.into(),
        }
    }
}
