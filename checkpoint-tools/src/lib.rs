//! Reads and changes what is in a checkpoint, without the program that wrote it.
//!
//! A checkpoint says of each state what its bytes are ([`state_api::StateMeta`]), so that they decode to dynamic values
//! ([`state_api::Value`]). Everything here starts at a [`CheckpointSource`] and never changes what it reads: what is changed is
//! written as a new checkpoint.
//!
//! | module | what it does |
//! | --- | --- |
//! | `source`, `keyed` | a checkpoint that is read; keyed state of a subtask in the canonical format |
//! | `formats`, `store_format`, `changes_format` | native formats of backends, turned into the canonical one on the way |
//! | `entry`, `decode`, `entries` | entries as dynamic values, one after the other |
//! | `find`, `lookup` | a state by its name, and what it holds of one key |
//! | `json`, `json_text`, `json_value` | entries and values as JSON, and back |
//! | `columns`, `csv_rows`, `cell`, `table_head`, `rows` | entries as records of a table, and rows of either kind |
//! | `parquet_rows` | entries as a Parquet file (feature `parquet`) |
//! | `canonical` | the order of values, and the one form of sets and maps |
//! | `diff`, `raw_diff` | how two checkpoints differ, entry by entry; which bytes without entries do |
//! | `target`, `copy_state` | a new checkpoint in a folder of its own, and state that is copied into it |
//! | `spill`, `repartition` | entries in any order on their way into canonical streams |
//! | `convert`, `rescale`, `bootstrap` | what writes a new checkpoint |
//! | `edit`, `edit_keyed`, `edit_own` | a checkpoint with changes, row by row |
mod bootstrap;
mod canonical;
mod cell;
mod changes_format;
mod columns;
mod convert;
mod copy_state;
mod csv_rows;
mod decode;
mod diff;
mod edit;
mod edit_keyed;
mod edit_own;
mod entries;
mod entry;
mod find;
mod formats;
mod json;
mod json_text;
mod json_value;
mod keyed;
mod lookup;
#[cfg(feature = "parquet")]
mod parquet_rows;
mod progress;
mod raw_diff;
mod repartition;
mod rescale;
mod rows;
mod scratch;
mod source;
mod spill;
mod store_format;
mod table_head;
mod target;
mod watched;

pub use bootstrap::{Bootstrap, NewOperator};
pub use changes_format::ChangesFormat;
pub use convert::convert;
pub use csv_rows::CsvRows;
pub use diff::{DiffOptions, Difference, StateDiff, diff};
pub use edit::{DroppedState, Edit, EditReport, Editing};
pub use entries::Selection;
pub use entry::{Entry, Item, RawKind, RawPart};
pub use find::FoundState;
pub use formats::{Conversion, Formats, NativeFormat, NativePart};
pub use json::{entry_json, item_json};
pub use json_value::value_from_text;
pub use keyed::KeyedPart;
pub use lookup::KeyQuery;
#[cfg(feature = "parquet")]
pub use parquet_rows::ParquetRows;
pub use progress::{Progress, Silent};
pub use raw_diff::{RawDifference, raw_differences};
pub use rescale::{RescaledOperator, rescale};
pub use rows::Row;
pub use source::{CheckpointSource, Toolbox};
pub use store_format::StoreFormat;
pub use table_head::TableHead;
pub use target::NewCheckpoint;
