//! Converts Python values to values of settings and of requests.

use argiope::serde_json::{Value, json};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

/// Converts the value of one setting, or of a key of a request.
pub fn setting(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if value.is_none() {
        return Ok(Value::Null);
    }
    if value.is_instance_of::<PyBool>() {
        return Ok(json!(value.extract::<bool>()?));
    }
    if value.is_instance_of::<PyInt>() {
        return Ok(json!(value.extract::<i64>()?));
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(json!(value.extract::<f64>()?));
    }
    if value.is_instance_of::<PyString>() {
        return Ok(json!(value.extract::<String>()?));
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let items = value.try_iter()?.map(|item| setting(&item?));
        return Ok(Value::Array(items.collect::<PyResult<_>>()?));
    }
    let table = value.cast::<PyDict>().map_err(|_| {
        PyValueError::new_err(format!("a value cannot be of type {}", value.get_type()))
    })?;
    let entries = table
        .iter()
        .map(|(name, value)| Ok((name.extract()?, setting(&value)?)));
    Ok(Value::Object(entries.collect::<PyResult<_>>()?))
}
