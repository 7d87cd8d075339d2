//! Converts Python values to values of settings and of requests.

use argiope::serde_json::{Value, json};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

/// Most lists and dicts that are one in the other: fewer than the reader of JSON accepts. A dict that contains itself
/// has no end.
const DEPTH_MAX: usize = 100;

/// Converts the value of one setting, or of a key of a request. What cannot be converted raises `ValueError`.
pub fn setting(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    within(value, DEPTH_MAX)
}

/// A str as it is in a request. A lone surrogate, which Python has for an undecodable byte, has no UTF-8.
pub fn text(value: &Bound<'_, PyString>) -> PyResult<String> {
    let text = value.to_str().map(str::to_owned);
    text.map_err(|error| PyValueError::new_err(format!("a str is not Unicode: {error}")))
}

/// Converts a value within which at most `depth` lists and dicts are one in the other.
fn within(value: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    if value.is_none() {
        return Ok(Value::Null);
    }
    if value.is_instance_of::<PyBool>() {
        return Ok(json!(value.extract::<bool>()?));
    }
    if value.is_instance_of::<PyInt>() {
        return integer(value);
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(json!(value.extract::<f64>()?));
    }
    if let Ok(value) = value.cast::<PyString>() {
        return Ok(json!(text(value)?));
    }
    let Some(depth) = depth.checked_sub(1) else {
        let why = format!("a value is nested more than {DEPTH_MAX} deep, or contains itself");
        return Err(PyValueError::new_err(why));
    };
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let items = value.try_iter()?.map(|item| within(&item?, depth));
        return Ok(Value::Array(items.collect::<PyResult<_>>()?));
    }
    let table = value.cast::<PyDict>().map_err(|_| {
        PyValueError::new_err(format!("a value cannot be of type {}", value.get_type()))
    })?;
    let entries = table
        .iter()
        .map(|(name, value)| Ok((key(&name)?, within(&value, depth)?)));
    Ok(Value::Object(entries.collect::<PyResult<_>>()?))
}

/// An integer: a signed one of 64 bits, or an unsigned one, as tags are.
fn integer(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Ok(signed) = value.extract::<i64>() {
        return Ok(json!(signed));
    }
    let unsigned = value.extract::<u64>().map_err(|_| {
        PyValueError::new_err("an integer is below -2**63 or not below 2**64: it has 64 bits")
    })?;
    Ok(json!(unsigned))
}

/// The key of a dict, such as the name of a setting.
pub fn key(name: &Bound<'_, PyAny>) -> PyResult<String> {
    let name = name.cast::<PyString>().map_err(|_| {
        let kind = name.get_type();
        PyValueError::new_err(format!("a key of a dict is a str, not {kind}"))
    })?;
    text(name)
}
