use std::fmt;
use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use state_api::{EnumSchema, Error, IntType, Result, Schema, Value};

use crate::columns::{Column, Part, columns_of};
use crate::entry::Entry;
use crate::find::FoundState;
use crate::json::kind_word;

/// Rows of a row group, and bytes of it that are gathered in memory, whichever is reached first.
const GROUP_ROWS: usize = 64 * 1024;
const GROUP_BYTES: usize = 16 << 20;

/// Writes entries as a Parquet file, in the columns of [`CsvRows`](crate::CsvRows).
///
/// Truth values, numbers of up to 64 bits, text and byte strings are columns of their own types; everything nested is
/// JSON text. What an entry does not have, and an option that is empty, is null. With several states, keys and values
/// are JSON text. A row group is gathered in memory, of at most some 16 MiB and one entry.
pub struct ParquetRows<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    columns: Vec<(Column, Cells)>,
    rows: usize,
    bytes: usize,
}

/// The cells of one column that are not written yet.
struct Cells {
    form: Form,
    /// For each row 1, or 0 for null.
    present: Vec<i16>,
    values: Values,
}

/// The values of a column that are not null.
enum Values {
    Bools(Vec<bool>),
    Ints(Vec<i32>),
    Longs(Vec<i64>),
    Floats(Vec<f32>),
    Doubles(Vec<f64>),
    Bytes(Vec<ByteArray>),
}

/// How values of a column are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Bool,
    /// Of that many bits, signed or not.
    Int(i8, bool),
    Float,
    Double,
    /// Milliseconds since the Unix epoch.
    Time,
    Bytes,
    Text,
    Json,
}

impl Form {
    /// Decides by the schema of a value.
    fn of(schema: &Schema) -> Self {
        match schema {
            Schema::Bool => Self::Bool,
            Schema::Int(int) => match int {
                IntType::I8 => Self::Int(8, true),
                IntType::I16 => Self::Int(16, true),
                IntType::I32 => Self::Int(32, true),
                IntType::I64 => Self::Int(64, true),
                IntType::U8 => Self::Int(8, false),
                IntType::U16 => Self::Int(16, false),
                IntType::U32 => Self::Int(32, false),
                IntType::U64 => Self::Int(64, false),
                // No type of a column is as wide.
                _ => Self::Text,
            },
            Schema::F32 => Self::Float,
            Schema::F64 => Self::Double,
            Schema::Char | Schema::String => Self::Text,
            Schema::Bytes => Self::Bytes,
            Schema::Option(inner) => match &**inner {
                // Whether there is something empty would be lost.
                Schema::Option(_) => Self::Json,
                inner => Self::of(inner),
            },
            Schema::Struct(it) => match it.fields.as_slice() {
                [one] if one.name == "0" => Self::of(&one.schema),
                _ => Self::Json,
            },
            Schema::Enum(it) if has_no_fields(it) => Self::Text,
            _ => Self::Json,
        }
    }

    fn physical(self) -> Physical {
        match self {
            Self::Bool => Physical::BOOLEAN,
            Self::Int(64, _) | Self::Time => Physical::INT64,
            Self::Int(..) => Physical::INT32,
            Self::Float => Physical::FLOAT,
            Self::Double => Physical::DOUBLE,
            Self::Bytes | Self::Text | Self::Json => Physical::BYTE_ARRAY,
        }
    }

    fn logical(self) -> Option<LogicalType> {
        match self {
            Self::Int(bits, signed) => Some(LogicalType::integer(bits, signed)),
            Self::Time => Some(LogicalType::timestamp(
                true,
                parquet::basic::TimeUnit::MILLIS,
            )),
            Self::Text => Some(LogicalType::String),
            Self::Json => Some(LogicalType::Json),
            Self::Bool | Self::Float | Self::Double | Self::Bytes => None,
        }
    }
}

fn has_no_fields(schema: &EnumSchema) -> bool {
    let mut variants = schema.variants.iter();
    variants.all(|variant| variant.fields.as_slice().is_empty())
}

/// Takes a value out of options and structs of one unnamed field; `None` for an empty option.
fn plain(value: &Value) -> Option<&Value> {
    match value {
        Value::Option(inner) => inner.as_deref().and_then(plain),
        Value::Record { fields, .. } => match fields.as_slice() {
            [(name, one)] if name == "0" => plain(one),
            _ => Some(value),
        },
        value => Some(value),
    }
}

impl Cells {
    fn new(form: Form) -> Self {
        let values = match form.physical() {
            Physical::BOOLEAN => Values::Bools(Vec::new()),
            Physical::INT32 => Values::Ints(Vec::new()),
            Physical::INT64 => Values::Longs(Vec::new()),
            Physical::FLOAT => Values::Floats(Vec::new()),
            Physical::DOUBLE => Values::Doubles(Vec::new()),
            _ => Values::Bytes(Vec::new()),
        };
        Self {
            form,
            present: Vec::new(),
            values,
        }
    }

    /// Adds a number of the checkpoint's own, or null; returns how many bytes that takes.
    fn number(&mut self, number: Option<i64>) -> usize {
        self.present.push(i16::from(number.is_some()));
        match (&mut self.values, number) {
            (Values::Longs(values), Some(number)) => values.push(number),
            // Indexes of subtasks and key groups.
            (Values::Ints(values), Some(number)) => values.push(number as i32),
            _ => {}
        }
        10
    }

    fn text(&mut self, text: String) -> usize {
        self.present.push(1);
        let len = text.len();
        if let Values::Bytes(values) = &mut self.values {
            values.push(text.into_bytes().into());
        }
        len + 32
    }

    /// Adds a value, or null; returns how many bytes that takes.
    fn value(&mut self, value: Option<&Value>) -> Result<usize> {
        if self.form == Form::Json {
            return Ok(match value {
                None | Some(Value::Option(None)) => self.null(),
                Some(value) => self.text(value.to_json_string()),
            });
        }
        let Some(value) = value.and_then(plain) else {
            return Ok(self.null());
        };
        match (&mut self.values, value) {
            (Values::Bools(values), Value::Bool(it)) => values.push(*it),
            (Values::Floats(values), Value::F32(it)) => values.push(*it),
            (Values::Doubles(values), Value::F64(it)) => values.push(*it),
            // Unsigned numbers keep their bits.
            (Values::Ints(values), Value::Int(it)) => values.push(*it as i32),
            (Values::Ints(values), Value::UInt(it)) => values.push(*it as i32),
            (Values::Longs(values), Value::Int(it)) => values.push(*it as i64),
            (Values::Longs(values), Value::UInt(it)) => values.push(*it as i64),
            (Values::Bytes(values), Value::Bytes(it)) => {
                values.push(it.clone().into());
                self.present.push(1);
                return Ok(it.len() + 32);
            }
            (Values::Bytes(_), value) => {
                return match word(value) {
                    Some(text) => Ok(self.text(text)),
                    None => Err(unfit(value)),
                };
            }
            (_, value) => return Err(unfit(value)),
        }
        self.present.push(1);
        Ok(10)
    }

    fn null(&mut self) -> usize {
        self.present.push(0);
        2
    }

    /// Writes the cells as a part of a row group, and forgets them.
    fn write<W: Write + Send>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<()> {
        let present = std::mem::take(&mut self.present);
        match &mut self.values {
            Values::Bools(values) => write::<BoolType, W>(group, values, &present),
            Values::Ints(values) => write::<Int32Type, W>(group, values, &present),
            Values::Longs(values) => write::<Int64Type, W>(group, values, &present),
            Values::Floats(values) => write::<FloatType, W>(group, values, &present),
            Values::Doubles(values) => write::<DoubleType, W>(group, values, &present),
            Values::Bytes(values) => write::<ByteArrayType, W>(group, values, &present),
        }
    }
}

/// Writes a value of a column of text; `None` for one that does not belong there.
fn word(value: &Value) -> Option<String> {
    Some(match value {
        Value::Str(text) => text.clone(),
        Value::Char(it) => it.to_string(),
        Value::Int(it) => it.to_string(),
        Value::UInt(it) => it.to_string(),
        Value::Variant { variant, .. } => variant.to_string(),
        _ => return None,
    })
}

fn unfit(value: &Value) -> Error {
    Error::bug(format!(
        "a value of kind {} does not fit the column of its schema",
        value.kind()
    ))
}

fn write<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &mut Vec<T::T>,
    present: &[i16],
) -> Result<()> {
    let column = group.next_column().map_err(failed)?;
    let mut column = column.ok_or_else(|| Error::bug("a table has too many columns"))?;
    let typed = column.typed::<T>();
    let written = typed.write_batch(values, Some(present), None);
    written.map_err(failed)?;
    values.clear();
    column.close().map_err(failed)
}

fn failed(error: ParquetError) -> Error {
    match error {
        ParquetError::External(cause) => match cause.downcast::<std::io::Error>() {
            Ok(error) => Error::retryable("rows can't be written").caused_by(*error),
            Err(cause) => Error::retryable(format!("rows can't be written: {cause}")),
        },
        error => Error::bug(format!("rows can't be written: {error}")),
    }
}

/// Decides how the cells of a column are stored; `one` is the only state of the table.
fn form_of(column: &Column, one: Option<&FoundState<'_>>) -> Form {
    match column {
        Column::Operator | Column::State | Column::Kind => Form::Text,
        Column::Subtask | Column::KeyGroup => Form::Int(32, true),
        Column::Index => Form::Int(64, true),
        // Times of timers may lie past all calendars.
        Column::Time => Form::Int(64, true),
        Column::Renewed | Column::Expires => Form::Time,
        Column::Part(part, field) => {
            let Some(state) = one else {
                return Form::Json;
            };
            let meta = state.meta;
            let schema = match part {
                Part::Key => Some(&meta.key.schema),
                Part::Namespace => Some(&meta.namespace.schema),
                Part::MapKey => meta.map_key.as_ref().map(|key| &key.schema),
                Part::Value => Some(&meta.value.schema),
            };
            let schema = match (schema, field) {
                (Some(Schema::Struct(it)), Some(name)) => {
                    let field = it.fields.as_slice().iter().find(|f| f.name == *name);
                    field.map(|field| &field.schema)
                }
                (schema, _) => schema,
            };
            schema.map_or(Form::Json, Form::of)
        }
    }
}

impl<W: Write + Send> ParquetRows<W> {
    /// Begins a file of the entries of one state, or of several.
    ///
    /// # Errors
    /// `Retryable`, caused by an [`std::io::Error`], when the writer fails.
    pub fn new(states: &[FoundState<'_>], writer: W) -> Result<Self> {
        let one = match states {
            [one] => Some(one),
            _ => None,
        };
        let columns: Vec<(Column, Cells)> = columns_of(states)
            .into_iter()
            .map(|column| {
                let form = form_of(&column, one);
                (column, Cells::new(form))
            })
            .collect();
        let fields = columns.iter().map(|(column, cells)| {
            let field = Type::primitive_type_builder(&column.name(), cells.form.physical())
                .with_repetition(Repetition::OPTIONAL)
                .with_logical_type(cells.form.logical())
                .build();
            field.map(Arc::new)
        });
        let fields = fields.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let schema = Type::group_type_builder("entry")
            .with_fields(fields)
            .build()
            .map_err(failed)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(format!("holdfast {}", env!("CARGO_PKG_VERSION")))
            .build();
        let writer = SerializedFileWriter::new(writer, Arc::new(schema), Arc::new(properties));
        Ok(Self {
            writer: writer.map_err(failed)?,
            columns,
            rows: 0,
            bytes: 0,
        })
    }

    /// Adds one entry.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn entry(&mut self, entry: &Entry) -> Result<()> {
        for (column, cells) in &mut self.columns {
            self.bytes += match column {
                Column::Operator => cells.text(entry.operator.to_string()),
                Column::State => cells.text(entry.state.to_string()),
                Column::Kind => cells.text(kind_word(entry).to_owned()),
                Column::Subtask => cells.number(Some(entry.subtask.into())),
                Column::KeyGroup => cells.number(entry.key_group.map(|group| group.0.into())),
                Column::Index => cells.number(entry.index.map(|index| index as i64)),
                Column::Time => cells.number(entry.time_ms),
                Column::Renewed => cells.number(entry.renewed_ms),
                Column::Expires => cells.number(entry.expires_ms),
                Column::Part(part, field) => cells.value(part.of(entry, field.as_deref()))?,
            };
        }
        self.rows += 1;
        if self.rows >= GROUP_ROWS || self.bytes >= GROUP_BYTES {
            self.write_group()?;
        }
        Ok(())
    }

    /// Writes what is gathered and the end of the file.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn finish(mut self) -> Result<()> {
        if self.rows > 0 {
            self.write_group()?;
        }
        self.writer.close().map(drop).map_err(failed)
    }

    fn write_group(&mut self) -> Result<()> {
        let mut group = self.writer.next_row_group().map_err(failed)?;
        for (_, cells) in &mut self.columns {
            cells.write(&mut group)?;
        }
        group.close().map_err(failed)?;
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }
}

impl<W: Write + Send> fmt::Debug for ParquetRows<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParquetRows")
            .field("columns", &self.columns.len())
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}
