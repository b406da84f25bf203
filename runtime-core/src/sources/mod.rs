//! Inputs that come with the runtime.
//!
//! | source | replayable | splits |
//! | --- | --- | --- |
//! | [`FileLines`]: lines of a file or of the files of a folder | yes, by byte offset | byte ranges that begin and end with a line |
//! | [`Generator`]: a function of an index, or a collection | yes, by index | every n-th index |
//! | `KafkaSource` (feature `kafka`): a topic | yes, by offset | partitions |
//! | [`Stdin`]: lines of the standard input | no | one |
//!
//! [`RateLimited`] slows any of them down.

mod file_lines;
mod file_ranges;
mod file_split;
mod generator;
#[cfg(feature = "kafka")]
mod kafka_reader;
#[cfg(feature = "kafka")]
mod kafka_source;
#[cfg(feature = "kafka")]
mod kafka_split;
mod line_buffer;
mod line_queue;
mod line_reader;
mod pace;
mod rate_limited;
mod stdin;

pub use file_lines::FileLines;
pub use file_split::FileSplit;
pub use generator::{Generator, GeneratorReader, IndexSplit};
#[cfg(feature = "kafka")]
pub use kafka_reader::{KafkaMessage, KafkaReader};
#[cfg(feature = "kafka")]
pub use kafka_source::{KafkaSource, KafkaStart};
#[cfg(feature = "kafka")]
pub use kafka_split::KafkaSplit;
pub use line_reader::LineReader;
pub use rate_limited::{RateLimited, RateLimitedReader};
pub use stdin::{Stdin, StdinReader, StdinSplit};
