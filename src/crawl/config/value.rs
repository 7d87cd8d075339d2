//! A value of a setting from a program, a file or a command line.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value};

use super::form::Form;
use super::quantity::Delay;

/// An unchecked value of a setting: a boolean, a number, a duration, text, a list, or a table as JSON.
///
/// Text has the syntax of the command line: `"10s"`, `"10MiB"`, `"a,b"`. [`fmt::Display`] writes JSON.
///
/// ```
/// use argiope::Config;
/// use argiope::serde_json::json;
/// use std::time::Duration;
///
/// let config = Config::default()
///     .with("DOWNLOAD_DELAY", Duration::from_millis(250))?
///     .with("RETRY_HTTP_CODES", [500, 503])?
///     .with("THROTTLING_SCOPES", json!({"example.com": {"concurrency": 1}}))?;
/// assert_eq!(config.get("DOWNLOAD_DELAY").unwrap().to_string(), "0.25");
/// # Ok::<(), argiope::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SettingValue(Value);

impl SettingValue {
    pub(crate) fn as_json(&self) -> &Value {
        &self.0
    }
}

impl From<Value> for SettingValue {
    fn from(value: Value) -> Self {
        SettingValue(value)
    }
}

impl From<&Value> for SettingValue {
    fn from(value: &Value) -> Self {
        SettingValue(value.clone())
    }
}

impl From<SettingValue> for Value {
    fn from(value: SettingValue) -> Self {
        value.0
    }
}

impl From<Duration> for SettingValue {
    fn from(span: Duration) -> Self {
        SettingValue(Delay::write(&span))
    }
}

macro_rules! from {
    ($($type:ty),*) => {
        $(impl From<$type> for SettingValue {
            fn from(value: $type) -> Self {
                SettingValue(value.into())
            }
        })*
    };
}

from!(bool, i32, i64, u16, u32, u64, usize, f64, &str, String, Map<String, Value>);

impl<T: Into<SettingValue>> From<Vec<T>> for SettingValue {
    fn from(values: Vec<T>) -> Self {
        let values = values.into_iter().map(|value| value.into().0);
        SettingValue(values.collect())
    }
}

impl<T: Into<SettingValue>, const N: usize> From<[T; N]> for SettingValue {
    fn from(values: [T; N]) -> Self {
        Vec::from(values).into()
    }
}

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
