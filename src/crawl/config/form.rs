//! Reads and writes each kind of value.
//!
//! Every value arrives as JSON. Text has the syntax of the command line, so that `-s`, flags, files and
//! programs share one syntax.

use serde_json::Value;

use super::error::Problem;

/// A kind of value. [`Form::read`] of what [`Form::write`] returned yields the same value.
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
                // Not JSON: for example an IPv6 address in brackets.
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
        _ => Err(wrong(value, "not a list", "give a list")),
    }
}

/// The value as text, or an error.
pub(super) fn text(value: &Value) -> Result<&str, Problem> {
    value
        .as_str()
        .ok_or_else(|| wrong(value, "not text", "put it in quotes"))
}

/// The problem `VALUE is WHAT; MEND`, with the value on one line and cut at [`SHOWN_MAX`].
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

/// Most characters of an invalid value that an error message shows.
const SHOWN_MAX: usize = 60;
