//! Writes rows as a Parquet file: a column for each field, of the type of its values.

use std::borrow::Cow;
use std::error::Error;
use std::io::{self, Write};
use std::iter;
use std::mem;
use std::sync::Arc;

use argiope::audit::Time;
use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};
use serde_json::value::RawValue;

use super::fields::{Field, Kind, Row, text_of};
use super::{AddError, Table};

/// A Parquet file. Rows are kept until they are a row group, which is written column by column.
pub struct ParquetFile<'a, W: Write + Send> {
    file: SerializedFileWriter<W>,
    columns: Vec<Column<'a>>,
    rows: usize,
    /// Memory that they take.
    bytes: usize,
    bounds: Bounds,
}

/// At which size of its rows a row group is written.
#[derive(Clone, Copy)]
struct Bounds {
    rows: usize,
    bytes: usize,
}

impl<'a, W: Write + Send> ParquetFile<'a, W> {
    /// With these columns.
    pub fn new(out: W, fields: &'a [Field]) -> io::Result<Self> {
        ParquetFile::with_bounds(out, fields, BOUNDS)
    }

    fn with_bounds(out: W, fields: &'a [Field], bounds: Bounds) -> io::Result<Self> {
        let file = schema(fields).and_then(|schema| {
            let level = ZstdLevel::try_new(ZSTD_LEVEL)?;
            let properties = WriterProperties::builder()
                .set_created_by(concat!("argiope version ", env!("CARGO_PKG_VERSION")).to_owned())
                .set_compression(Compression::ZSTD(level))
                .build();
            SerializedFileWriter::new(out, schema, Arc::new(properties))
        });
        Ok(ParquetFile {
            file: file.map_err(io_error)?,
            columns: fields.iter().map(Column::new).collect(),
            rows: 0,
            bytes: 0,
            bounds,
        })
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.file.next_row_group()?;
        for column in &mut self.columns {
            let mut writer = group
                .next_column()?
                .expect("the schema was made of these columns");
            column.write(&mut writer)?;
            writer.close()?;
        }
        group.close()?;
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }
}

impl<W: Write + Send> Table for ParquetFile<'_, W> {
    fn add(&mut self, row: &Row<'_>) -> Result<(), AddError> {
        // All values are read before the first is added, so that a damaged one adds nothing.
        let values: Vec<Value<'_>> = (self.columns.iter())
            .map(|column| Value::parse(row.get(column.field), column.field))
            .collect::<Result<_, _>>()?;
        for (column, value) in self.columns.iter_mut().zip(values) {
            self.bytes += column.push(value);
        }
        self.rows += 1;
        if self.rows >= self.bounds.rows || self.bytes >= self.bounds.bytes {
            self.write_group().map_err(io_error)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.write_group().map_err(io_error)?;
        self.file.finish().map(drop).map_err(io_error)
    }
}

/// A value of a row.
enum Value<'a> {
    Null,
    Integer(i64),
    Boolean(bool),
    Number(f64),
    Text(Cow<'a, str>),
    Texts(Vec<Cow<'a, str>>),
}

impl<'a> Value<'a> {
    /// Reads a field's JSON.
    fn parse(json: Option<&'a str>, field: &Field) -> Result<Value<'a>, AddError> {
        let Some(json) = json else {
            return Ok(Value::Null);
        };
        let text = |json: &'a str| match json.starts_with('"') {
            true => text_of(json, field).map(Some),
            false => Ok(None),
        };
        let value = match field.kind {
            Kind::Integer => json.parse().ok().map(Value::Integer),
            Kind::Boolean => json.parse().ok().map(Value::Boolean),
            Kind::Seconds => json.parse().ok().map(Value::Number),
            Kind::Time => (text(json)?)
                .and_then(|text| Time::parse(&text))
                // As every system reads it; the file has nanoseconds.
                .and_then(|time| i64::try_from(time.0 / 1000).ok())
                .map(Value::Integer),
            Kind::Text => text(json)?.map(Value::Text),
            Kind::Json => Some(Value::Text(text_of(json, field)?)),
            Kind::Texts => match serde_json::from_str::<Vec<&'a RawValue>>(json) {
                Err(_) => None,
                Ok(list) => (list.into_iter())
                    .map(|element| text(element.get()))
                    .collect::<Result<Option<_>, _>>()?
                    .map(Value::Texts),
            },
        };
        value.ok_or_else(|| {
            let kind = format!("{:?}", field.kind).to_lowercase();
            AddError::Value(format!("{} is not of the type {kind}", field.name))
        })
    }
}

/// The values of a column in the rows that are not written yet, in the form of Parquet: those that are
/// there, and for each row whether it has one.
struct Column<'a> {
    field: &'a Field,
    values: Values,
    /// How much of the path to the value is there: nothing for null.
    definitions: Vec<i16>,
    /// Of a column of lists: 1 for what continues the list of the value before.
    repetitions: Vec<i16>,
}

enum Values {
    Integers(Vec<i64>),
    Booleans(Vec<bool>),
    Numbers(Vec<f64>),
    /// One after the other, and where each ends.
    Texts(Vec<u8>, Vec<usize>),
}

impl<'a> Column<'a> {
    fn new(field: &'a Field) -> Self {
        let values = match field.kind {
            Kind::Integer | Kind::Time => Values::Integers(Vec::new()),
            Kind::Boolean => Values::Booleans(Vec::new()),
            Kind::Seconds => Values::Numbers(Vec::new()),
            Kind::Text | Kind::Json | Kind::Texts => Values::Texts(Vec::new(), Vec::new()),
        };
        Column {
            field,
            values,
            definitions: Vec::new(),
            repetitions: Vec::new(),
        }
    }

    /// Adds a value of the field; returns the memory that it takes.
    fn push(&mut self, value: Value<'_>) -> usize {
        let from = self.definitions.len();
        self.definitions.push(match &value {
            Value::Null => 0,
            Value::Texts(list) if list.is_empty() => EMPTY_LIST,
            Value::Texts(_) => IN_LIST,
            _ => 1,
        });
        let bytes = match (&mut self.values, value) {
            (_, Value::Null) => 0,
            (Values::Integers(all), Value::Integer(value)) => push_value(value, all),
            (Values::Booleans(all), Value::Boolean(value)) => push_value(value, all),
            (Values::Numbers(all), Value::Number(value)) => push_value(value, all),
            (Values::Texts(all, ends), Value::Text(text)) => push_text(&text, all, ends),
            (Values::Texts(all, ends), Value::Texts(list)) => {
                // The first element has the level above.
                let further = list.len().saturating_sub(1);
                self.definitions.extend(iter::repeat_n(IN_LIST, further));
                (list.iter()).map(|text| push_text(text, all, ends)).sum()
            }
            _ => unreachable!("values are parsed as the kind of their field"),
        };
        if self.field.kind == Kind::Texts {
            self.repetitions.push(0);
            self.repetitions.resize(self.definitions.len(), 1);
        }
        bytes + (self.definitions.len() - from) * LEVELS_SIZE
    }

    /// Writes all values, and forgets them.
    fn write(&mut self, writer: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        let definitions = Some(&*self.definitions);
        match &mut self.values {
            Values::Integers(all) => {
                (writer.typed::<Int64Type>()).write_batch(all, definitions, None)?;
                all.clear();
            }
            Values::Booleans(all) => {
                (writer.typed::<BoolType>()).write_batch(all, definitions, None)?;
                all.clear();
            }
            Values::Numbers(all) => {
                (writer.typed::<DoubleType>()).write_batch(all, definitions, None)?;
                all.clear();
            }
            Values::Texts(all, ends) => {
                let whole = ByteArray::from(mem::take(all));
                let mut from = 0;
                let texts: Vec<ByteArray> = (ends.drain(..))
                    .map(|end| {
                        let start = mem::replace(&mut from, end);
                        whole.slice(start, end - start)
                    })
                    .collect();
                let is_list = self.field.kind == Kind::Texts;
                let repetitions = is_list.then_some(&*self.repetitions);
                (writer.typed::<ByteArrayType>()).write_batch(&texts, definitions, repetitions)?;
            }
        }
        self.definitions.clear();
        self.repetitions.clear();
        Ok(())
    }
}

/// Adds a value; returns the memory that it takes.
fn push_value<T>(value: T, all: &mut Vec<T>) -> usize {
    all.push(value);
    size_of::<T>()
}

/// Adds a text; returns the memory that it takes, also while it is written.
fn push_text(text: &str, all: &mut Vec<u8>, ends: &mut Vec<usize>) -> usize {
    all.extend_from_slice(text.as_bytes());
    ends.push(all.len());
    text.len() + size_of::<usize>() + size_of::<ByteArray>()
}

/// The columns of a file: all values may be missing.
fn schema(fields: &[Field]) -> Result<TypePtr, ParquetError> {
    let columns = fields.iter().map(column_type).collect::<Result<_, _>>()?;
    let root = Type::group_type_builder("results").with_fields(columns);
    Ok(Arc::new(root.build()?))
}

fn column_type(field: &Field) -> Result<TypePtr, ParquetError> {
    let (physical, logical) = match field.kind {
        Kind::Integer => (Physical::INT64, None),
        Kind::Boolean => (Physical::BOOLEAN, None),
        Kind::Seconds => (Physical::DOUBLE, None),
        // Spark and BigQuery read no nanoseconds.
        Kind::Time => (
            Physical::INT64,
            Some(LogicalType::timestamp(true, TimeUnit::MICROS)),
        ),
        Kind::Text | Kind::Json => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Texts => {
            let element = Type::primitive_type_builder("element", Physical::BYTE_ARRAY)
                .with_repetition(Repetition::REQUIRED)
                .with_logical_type(Some(LogicalType::String))
                .build()?;
            let list = Type::group_type_builder("list")
                .with_repetition(Repetition::REPEATED)
                .with_fields(vec![Arc::new(element)])
                .build()?;
            let column = Type::group_type_builder(&field.name)
                .with_repetition(Repetition::OPTIONAL)
                .with_logical_type(Some(LogicalType::List))
                .with_fields(vec![Arc::new(list)])
                .build()?;
            return Ok(Arc::new(column));
        }
    };
    let column = Type::primitive_type_builder(&field.name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .build()?;
    Ok(Arc::new(column))
}

/// The error of the file below, if it is that.
fn io_error(error: ParquetError) -> io::Error {
    let inner: Box<dyn Error + Send + Sync> = match error {
        ParquetError::External(inner) => inner,
        other => return io::Error::other(other),
    };
    match inner.downcast::<io::Error>() {
        Ok(error) => *error,
        Err(other) => io::Error::other(other),
    }
}

/// As large as readers like it (DuckDB: at least 122 880 rows, Spark: below 128 MiB), and small enough for
/// memory: while a column is written, its values are there a second time.
const BOUNDS: Bounds = Bounds {
    rows: 256 * 1024,
    bytes: 64 * 1024 * 1024,
};

/// Definition levels of a list without elements, and of an element of a list.
const EMPTY_LIST: i16 = 1;
const IN_LIST: i16 = 2;

/// Memory of the levels of a value.
const LEVELS_SIZE: usize = 2 * size_of::<i16>();

/// As of the result lines that are compressed.
const ZSTD_LEVEL: i32 = 3;

#[cfg(test)]
mod tests;
