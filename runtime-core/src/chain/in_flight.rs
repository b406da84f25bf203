//! Records in flight: what lies on the input channels of a chain when the barrier of an unaligned checkpoint overtakes it.
//!
//! While the barriers of such a checkpoint come in, a [`Recording`] takes the encoded records of all ports. When the last one
//! is in it goes to the async part of the snapshot, which waits for it. At a restore the records come before everything else.
//! The layout of the bytes is described in `docs/formats/in-flight.md`.
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::Arc;

use futures_channel::oneshot;
use managed_state::raw::{RawStreams, restore_raw_keyed, restore_raw_operator};
use state_api::{
    CheckpointId, Error, HashId, KeyGroup, KeyGroupRange, KeyHash, MaxParallelism,
    OperatorSnapshot, OperatorUid, PersistContext, Result, StateKey, StateType,
};

use super::environment::Environment;
use super::key_selector::{KeySelector, Keyed};
use crate::alignment::AlignmentReport;
use crate::execution::Failpoint;
use crate::operator::Side;
use crate::record::{Record, Timed};

const VERSION: u8 = 1;

/// Bytes after which records without a key go to another partition: what a rescale deals out.
const PARTITION_BYTES: usize = 64 << 10;

/// Encodes the records of a stream.
#[derive(Debug)]
pub(crate) struct RecordCodec<T> {
    fingerprint: u64,
    encode: fn(&T, &mut Vec<u8>),
    decode: fn(&mut &[u8]) -> Result<T>,
}

impl<T> Clone for RecordCodec<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for RecordCodec<T> {}

impl<T: StateType> RecordCodec<T> {
    /// Creates the compact codec of a type.
    pub(crate) fn compact() -> Self {
        Self {
            fingerprint: T::schema().fingerprint(),
            encode: T::encode,
            decode: T::decode,
        }
    }
}

/// Makes records in flight on one edge part of a checkpoint.
pub(crate) trait InFlightCodec<W>: Send + Sync {
    /// Names the type of the records.
    fn fingerprint(&self) -> u64;

    /// Returns the key group of a record; `None` for an edge without keys.
    fn group(&self, record: &W) -> Option<KeyGroup>;

    fn encode(&self, record: &W, out: &mut Vec<u8>);

    fn decode(&self, input: &mut &[u8]) -> Result<W>;
}

impl<T: Record> InFlightCodec<T> for RecordCodec<T> {
    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn group(&self, _record: &T) -> Option<KeyGroup> {
        None
    }

    fn encode(&self, record: &T, out: &mut Vec<u8>) {
        (self.encode)(record, out);
    }

    fn decode(&self, input: &mut &[u8]) -> Result<T> {
        (self.decode)(input)
    }
}

/// Encodes the records of two streams that an operator reads together.
pub(crate) struct SidesCodec<A, B> {
    pub(crate) first: SharedCodec<A>,
    pub(crate) second: SharedCodec<B>,
}

impl<A: Record, B: Record> InFlightCodec<Side<A, B>> for SidesCodec<A, B> {
    fn fingerprint(&self) -> u64 {
        let second = self.second.fingerprint();
        self.first.fingerprint().rotate_left(1) ^ second
    }

    fn group(&self, _record: &Side<A, B>) -> Option<KeyGroup> {
        None
    }

    fn encode(&self, record: &Side<A, B>, out: &mut Vec<u8>) {
        match record {
            Side::First(record) => {
                out.push(0);
                self.first.encode(record, out);
            }
            Side::Second(record) => {
                out.push(1);
                self.second.encode(record, out);
            }
        }
    }

    fn decode(&self, input: &mut &[u8]) -> Result<Side<A, B>> {
        match take(input)? {
            [0] => self.first.decode(input).map(Side::First),
            [1] => self.second.decode(input).map(Side::Second),
            [side] => Err(Error::corrupt(format!(
                "a record in flight is of input {side} of two"
            ))),
        }
    }
}

/// Encodes keyed records: without their key, which is made anew.
pub(crate) struct KeyedCodec<K, T> {
    record: SharedCodec<T>,
    selector: KeySelector<K, T>,
    max_parallelism: MaxParallelism,
}

impl<K, T> KeyedCodec<K, T> {
    pub(crate) fn new(
        record: SharedCodec<T>,
        selector: KeySelector<K, T>,
        max_parallelism: MaxParallelism,
    ) -> Self {
        Self {
            record,
            selector,
            max_parallelism,
        }
    }
}

impl<K: StateKey, T: Record> InFlightCodec<Keyed<K, T>> for KeyedCodec<K, T> {
    fn fingerprint(&self) -> u64 {
        self.record.fingerprint()
    }

    fn group(&self, record: &Keyed<K, T>) -> Option<KeyGroup> {
        Some(record.hash.group())
    }

    fn encode(&self, record: &Keyed<K, T>, out: &mut Vec<u8>) {
        self.record.encode(&record.value, out);
    }

    fn decode(&self, input: &mut &[u8]) -> Result<Keyed<K, T>> {
        let value = self.record.decode(input)?;
        let hash = |key: &K| KeyHash::of(key, HashId::default(), self.max_parallelism);
        let (hash, key) = match &self.selector {
            KeySelector::Made(make) => {
                let key = make(&value);
                (hash(&key), Some(key))
            }
            KeySelector::Held(find) => (hash(find(&value)), None),
        };
        Ok(Keyed { key, hash, value })
    }
}

/// The encoded records of a checkpoint so far.
struct Recorded {
    header: Vec<u8>,
    groups: BTreeMap<KeyGroup, Vec<u8>>,
    partitions: Vec<Vec<u8>>,
    bytes: u64,
}

impl Recorded {
    fn push<W>(&mut self, port: u8, record: &Timed<W>, codec: &dyn InFlightCodec<W>) {
        let header = &self.header;
        let out = match codec.group(&record.value) {
            Some(group) => self.groups.entry(group).or_insert_with(|| header.clone()),
            None => {
                if self
                    .partitions
                    .last()
                    .is_none_or(|last| last.len() >= PARTITION_BYTES)
                {
                    self.partitions.push(header.clone());
                }
                let last = self.partitions.len() - 1;
                &mut self.partitions[last]
            }
        };
        let start = out.len();
        out.push(port);
        out.extend(record.time.to_le_bytes());
        out.extend([0; 4]);
        let body = out.len();
        codec.encode(&record.value, out);
        let len = u32::try_from(out.len() - body).unwrap_or(u32::MAX);
        out[body - 4..body].copy_from_slice(&len.to_le_bytes());
        self.bytes += (out.len() - start) as u64;
    }

    async fn persist(
        self,
        range: KeyGroupRange,
        cx: &PersistContext,
        done: &mut OperatorSnapshot,
    ) -> Result<()> {
        let mut streams = RawStreams::new(range);
        let failed =
            |error: std::io::Error| Error::bug("records in flight were not taken").caused_by(error);
        for (group, bytes) in self.groups {
            streams.keyed().start_group(group)?;
            streams.keyed().write_all(&bytes).map_err(failed)?;
        }
        for bytes in self.partitions {
            streams.operator().start_partition()?;
            streams.operator().write_all(&bytes).map_err(failed)?;
        }
        let snapshots = streams.finish()?;
        if let Some(keyed) = snapshots.keyed {
            done.in_flight_keyed.push(keyed.persist(cx.clone()).await?);
        }
        if let Some(plain) = snapshots.operator {
            done.in_flight.push(plain.persist(cx.clone()).await?);
        }
        Ok(())
    }
}

/// What the task's thread hands over when the last barrier is in.
type HandOver = (Recorded, AlignmentReport);

/// Takes the records in flight of one checkpoint while its barriers come in.
///
/// Dropping it fails the checkpoint of this subtask.
pub(crate) struct Recording {
    pub(crate) id: CheckpointId,
    recorded: Recorded,
    done: oneshot::Sender<Result<HandOver>>,
}

impl Recording {
    /// Begins a recording; `fingerprints` are those of the ports.
    pub(crate) fn begin(
        id: CheckpointId,
        fingerprints: &[u64],
        uid: OperatorUid,
        range: KeyGroupRange,
    ) -> (Self, RecordsInFlight) {
        let (done, coming) = oneshot::channel();
        let recorded = Recorded {
            header: header(fingerprints),
            groups: BTreeMap::new(),
            partitions: Vec::new(),
            bytes: 0,
        };
        let in_flight = RecordsInFlight { uid, range, coming };
        (Self { id, recorded, done }, in_flight)
    }

    /// Takes a record of a port.
    pub(crate) fn push<W>(&mut self, port: u8, record: &Timed<W>, codec: &dyn InFlightCodec<W>) {
        self.recorded.push(port, record, codec);
    }

    /// Returns the bytes taken so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.recorded.bytes
    }

    /// Hands everything over: the last barrier is in.
    pub(crate) fn finish(self, mut report: AlignmentReport) {
        report.persisted_bytes = self.recorded.bytes;
        // Nobody listens any more when the snapshot failed or was given up.
        drop(self.done.send(Ok((self.recorded, report))));
    }

    /// Says why the last barrier will not come.
    pub(crate) fn fail(self, error: Error) {
        drop(self.done.send(Err(error)));
    }
}

fn header(fingerprints: &[u64]) -> Vec<u8> {
    let ports = u8::try_from(fingerprints.len()).unwrap_or(u8::MAX);
    let mut header = vec![VERSION, ports];
    for fingerprint in fingerprints {
        header.extend(fingerprint.to_le_bytes());
    }
    header
}

/// The records in flight of a checkpoint on their way to the store.
pub(crate) struct RecordsInFlight {
    uid: OperatorUid,
    range: KeyGroupRange,
    coming: oneshot::Receiver<Result<HandOver>>,
}

impl RecordsInFlight {
    /// Returns the operator that they belong to.
    pub(crate) fn uid(&self) -> &OperatorUid {
        &self.uid
    }

    /// Waits for the last barrier and writes the records; returns what the alignment cost.
    pub(crate) async fn persist(
        self,
        cx: &PersistContext,
        done: &mut OperatorSnapshot,
    ) -> Result<AlignmentReport> {
        let (recorded, report) = self
            .coming
            .await
            .unwrap_or_else(|_| Err(Error::cancelled("the checkpoint was given up")))?;
        recorded.persist(self.range, cx, done).await?;
        Ok(report)
    }
}

/// Takes the restored records of a port.
pub(crate) trait Recover {
    /// Returns the fingerprint of the port's record type; `None` if its records can't be part of a checkpoint.
    fn fingerprint(&self) -> Option<u64>;

    /// Takes an encoded record with its event time.
    fn recover(&mut self, time: i64, record: &mut &[u8]) -> Result<()>;
}

/// Reads the records in flight of the checkpoint that a subtask is restored from, and gives them to its ports.
///
/// # Errors
/// `Corrupt` when the bytes are damaged, `Incompatible` when the job has other record types or none that can be restored.
pub(crate) async fn restore(
    env: &Environment,
    uid: &OperatorUid,
    ports: &mut [&mut dyn Recover],
) -> Result<()> {
    let Some((_, snapshot)) = env.restored(uid) else {
        return Ok(());
    };
    let none = snapshot.in_flight_keyed.is_empty() && snapshot.in_flight.is_empty();
    if none || env.failpoints.reach(Failpoint::InFlight) {
        return Ok(());
    }
    let range = env.max_parallelism.range_of(env.subtask)?;
    let storage = env.restore_storage.as_ref();
    let mut bytes = Vec::new();
    for partition in restore_raw_keyed(&snapshot.in_flight_keyed, range, storage).await? {
        give(partition.reader, &mut bytes, ports)?;
    }
    for partition in restore_raw_operator(&snapshot.in_flight, storage).await? {
        give(partition, &mut bytes, ports)?;
    }
    Ok(())
}

fn give(mut reader: impl Read, bytes: &mut Vec<u8>, ports: &mut [&mut dyn Recover]) -> Result<()> {
    bytes.clear();
    let read = reader.read_to_end(bytes);
    read.map_err(|error| Error::corrupt("records in flight can't be read").caused_by(error))?;
    decode(bytes, ports)
}

/// Decodes one key group or partition.
pub(crate) fn decode(bytes: &[u8], ports: &mut [&mut dyn Recover]) -> Result<()> {
    let mut input = bytes;
    let [version, count] = take(&mut input)?;
    if version != VERSION {
        return Err(Error::incompatible(format!(
            "records in flight are in version {version} of their format, known is {VERSION}"
        )));
    }
    let mut known = count as usize == ports.len();
    for number in 0..count as usize {
        let fingerprint = u64::from_le_bytes(take(&mut input)?);
        let port = ports.get(number).and_then(|port| port.fingerprint());
        known &= port == Some(fingerprint);
    }
    if !known {
        return Err(Error::incompatible(
            "the checkpoint has records in flight of another type than the job's: restore it with the job that wrote it, or a savepoint",
        ));
    }
    while !input.is_empty() {
        let [port] = take(&mut input)?;
        let time = i64::from_le_bytes(take(&mut input)?);
        let len = u32::from_le_bytes(take(&mut input)?) as usize;
        let (mut record, rest) = input.split_at_checked(len).ok_or_else(short)?;
        input = rest;
        let port = ports
            .get_mut(port as usize)
            .ok_or_else(|| Error::corrupt("a record in flight is of no input"))?;
        port.recover(time, &mut record)?;
        if !record.is_empty() {
            return Err(Error::corrupt(
                "a record in flight is longer than its value",
            ));
        }
    }
    Ok(())
}

fn take<const N: usize>(input: &mut &[u8]) -> Result<[u8; N]> {
    let (head, rest) = input.split_first_chunk().ok_or_else(short)?;
    *input = rest;
    Ok(*head)
}

fn short() -> Error {
    Error::corrupt("records in flight end too early")
}

/// A codec on its way to a port, shared by the runs of a job.
pub(crate) type SharedCodec<W> = Arc<dyn InFlightCodec<W>>;

#[cfg(test)]
#[path = "in_flight_tests.rs"]
mod tests;
