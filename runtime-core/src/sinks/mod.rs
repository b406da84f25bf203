//! Outputs that come with the runtime.
//!
//! | sink | after a failure |
//! | --- | --- |
//! | [`FileSink`]: part files in a folder, visible once their checkpoint is complete | each record once |
//! | `KafkaSink` (feature `kafka`): a topic, visible to consumers that read committed records | each record once |
//! | [`TransactionalCollect`]: a list in memory, with the same protocol | each record once, within the process |
//! | [`CollectSink`]: a list in memory | records may be there twice |
//! | [`PrintSink`]: lines to a writer | records may be there twice |

mod all_recovered;
mod collect_sink;
mod file_sink;
mod file_transaction;
mod file_writer;
#[cfg(feature = "kafka")]
mod kafka_broker;
#[cfg(feature = "kafka")]
mod kafka_protocol;
#[cfg(all(test, feature = "kafka"))]
mod kafka_protocol_tests;
#[cfg(feature = "kafka")]
mod kafka_records;
#[cfg(all(test, feature = "kafka", feature = "testing"))]
mod kafka_simulation_tests;
#[cfg(feature = "kafka")]
mod kafka_sink;
mod output_folder;
mod part_file;
mod part_name;
mod print_sink;
mod transactional_collect;

pub use collect_sink::{CollectSink, CollectWriter};
pub use file_sink::FileSink;
pub use file_transaction::FileTransaction;
pub use file_writer::FileSinkWriter;
#[cfg(feature = "kafka")]
pub use kafka_protocol::KafkaTransaction;
#[cfg(feature = "kafka")]
pub use kafka_records::KafkaRecord;
#[cfg(feature = "kafka")]
pub use kafka_sink::{KafkaSink, KafkaSinkWriter};
pub use print_sink::{PrintSink, PrintWriter};
pub use transactional_collect::{
    CollectedTransaction, TransactionalCollect, TransactionalCollectWriter,
};
