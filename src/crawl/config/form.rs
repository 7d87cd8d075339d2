//! Reading and writing of each kind of value.
//!
//! Everything comes as JSON. Text is read the way a command line means it, so that `-s`, a flag, a
//! file and a program share one syntax.

use serde_json::Value;

use super::error::Problem;

/// A kind of value. What [`Form::write`] gives, [`Form::read`] takes back unchanged.
pub(super) trait Form {
    type Of;
    /// Description for users: `duration`, `bytes`, `true or false`.
    const KIND: &'static str;
    fn read(value: &Value) -> Result<Self::Of, Problem>;
    fn write(of: &Self::Of) -> Value;
}

/// The items of a list: an array, JSON text of one, or text with commas; a lone value is one item.
pub(super) fn items(value: &Value) -> Result<Vec<Value>, Problem> {
    match value {
        Value::Array(items) => Ok(items.clone()),
        Value::String(text) if text.trim_start().starts_with('[') => {
            match serde_json::from_str(text) {
                Ok(Value::Array(items)) => Ok(items),
                // Not JSON: an IPv6 address in brackets, perhaps.
                _ => Ok(text.split(',').map(|item| item.trim().into()).collect()),
            }
        }
        Value::String(text) => Ok(text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
            .map(Value::from)
            .collect()),
        Value::Number(_) => Ok(vec![value.clone()]),
        _ => Err(wrong(value, "no list", "give a list")),
    }
}

/// The text that a value must be.
pub(super) fn text(value: &Value) -> Result<&str, Problem> {
    value
        .as_str()
        .ok_or_else(|| wrong(value, "no text", "put it in quotes"))
}

/// `value is what; mend`, with the value shown on one line.
pub(super) fn wrong(value: &Value, what: &str, mend: impl Into<String>) -> Problem {
    let mut shown = value.to_string();
    if shown.chars().count() > SHOWN_MAX {
        shown = shown.chars().take(SHOWN_MAX).collect::<String>() + "…";
    }
    Problem::new(format!("{shown} is {what}"), mend)
}

pub(super) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// Characters of a wrong value that an error shows.
const SHOWN_MAX: usize = 60;
