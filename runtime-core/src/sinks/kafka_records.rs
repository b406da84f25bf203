use bytes::Bytes;
use state_api::{Error, Result};

/// A record as it goes into a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KafkaRecord {
    /// Decides the partition unless that is set, and what compaction keeps.
    pub key: Option<Vec<u8>>,
    /// The value; `None` is a tombstone.
    pub payload: Option<Vec<u8>>,
    /// The partition; chosen by the key unless set.
    pub partition: Option<i32>,
    /// Milliseconds since 1970; the event time of the record unless set. Kafka has no times up to 0: such a record gets the
    /// time at which it is written.
    pub timestamp_ms: Option<i64>,
    /// Names and values.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl KafkaRecord {
    /// Creates a record without key.
    #[must_use]
    pub fn new(payload: impl Into<Vec<u8>>) -> Self {
        Self {
            payload: Some(payload.into()),
            ..Self::default()
        }
    }

    /// Sets the key.
    #[must_use]
    pub fn key(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Fills in the event time and leaves out what is none to Kafka.
    pub(super) fn stamped(mut self, time_ms: Option<i64>) -> Self {
        self.timestamp_ms = self.timestamp_ms.or(time_ms).filter(|time| *time > 0);
        self
    }

    /// Appends the record as transactions in checkpoints hold it.
    ///
    /// `i32 partition or -1 ‖ i64 timestamp or i64::MIN ‖ bytes key ‖ bytes payload ‖ u32 headers ‖ (bytes name ‖ bytes value)*`,
    /// little-endian; `bytes` are a `u32` length, or `u32::MAX` for none, and as many bytes.
    ///
    /// # Errors
    /// `LimitExceeded` when a part has 4 GiB or more.
    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        let encoded = self.append(out);
        if encoded.is_err() {
            out.truncate(start);
        }
        encoded
    }

    fn append(&self, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(&self.partition.unwrap_or(-1).to_le_bytes());
        out.extend_from_slice(&self.timestamp_ms.unwrap_or(i64::MIN).to_le_bytes());
        append_bytes(out, self.key.as_deref())?;
        append_bytes(out, self.payload.as_deref())?;
        out.extend_from_slice(&length(self.headers.len())?.to_le_bytes());
        for (name, value) in &self.headers {
            append_bytes(out, Some(name.as_bytes()))?;
            append_bytes(out, value.as_deref())?;
        }
        Ok(())
    }
}

fn length(length: usize) -> Result<u32> {
    u32::try_from(length)
        .ok()
        .filter(|length| *length < u32::MAX)
        .ok_or_else(|| {
            Error::new(
                state_api::ErrorKind::LimitExceeded,
                "a record for Kafka is too large",
            )
        })
}

fn append_bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>) -> Result<()> {
    match bytes {
        None => out.extend_from_slice(&u32::MAX.to_le_bytes()),
        Some(bytes) => {
            out.extend_from_slice(&length(bytes.len())?.to_le_bytes());
            out.extend_from_slice(bytes);
        }
    }
    Ok(())
}

/// Reads records out of a transaction, which may come out of a damaged checkpoint.
pub(super) struct Records<'a> {
    left: &'a [u8],
}

impl<'a> Records<'a> {
    pub(super) fn new(bytes: &'a Bytes) -> Self {
        Self { left: bytes }
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, left) = self.left.split_first_chunk::<N>()?;
        self.left = left;
        Some(*head)
    }

    fn bytes(&mut self) -> Option<Option<&'a [u8]>> {
        match u32::from_le_bytes(self.array()?) {
            u32::MAX => Some(None),
            length => {
                let (head, left) = self.left.split_at_checked(length as usize)?;
                self.left = left;
                Some(Some(head))
            }
        }
    }

    fn record(&mut self) -> Option<KafkaRecord> {
        let partition = i32::from_le_bytes(self.array()?);
        let timestamp = i64::from_le_bytes(self.array()?);
        let key = self.bytes()?.map(<[u8]>::to_vec);
        let payload = self.bytes()?.map(<[u8]>::to_vec);
        let mut headers = Vec::new();
        for _ in 0..u32::from_le_bytes(self.array()?) {
            let name = std::str::from_utf8(self.bytes()??).ok()?.to_owned();
            headers.push((name, self.bytes()?.map(<[u8]>::to_vec)));
        }
        Some(KafkaRecord {
            key,
            payload,
            partition: (partition >= 0).then_some(partition),
            timestamp_ms: (timestamp != i64::MIN).then_some(timestamp),
            headers,
        })
    }
}

impl Iterator for Records<'_> {
    type Item = Result<KafkaRecord>;

    fn next(&mut self) -> Option<Result<KafkaRecord>> {
        if self.left.is_empty() {
            return None;
        }
        Some(self.record().ok_or_else(|| {
            self.left = &[];
            Error::corrupt("a transaction of a Kafka sink holds bytes that are no records")
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record() -> impl Strategy<Value = KafkaRecord> {
        let bytes = || proptest::option::of(proptest::collection::vec(any::<u8>(), 0..9));
        let headers = proptest::collection::vec(("[a-z]{0,3}", bytes()), 0..3);
        let partition = proptest::option::of(0..i32::MAX);
        let time = proptest::option::of(0..i64::MAX);
        (bytes(), bytes(), partition, time, headers).prop_map(
            |(key, payload, partition, timestamp_ms, headers)| KafkaRecord {
                key,
                payload,
                partition,
                timestamp_ms,
                headers,
            },
        )
    }

    #[test]
    fn the_users_time_is_above_the_event_time_and_times_before_1970_are_left_out() {
        let stamp = |own, event| {
            let record = KafkaRecord {
                timestamp_ms: own,
                ..KafkaRecord::new("x")
            };
            record.stamped(event).timestamp_ms
        };
        assert_eq!(
            [
                stamp(Some(5), Some(7)),
                stamp(None, Some(7)),
                stamp(None, Some(-7)),
                stamp(None, None)
            ],
            [Some(5), Some(7), None, None]
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

        #[test]
        fn records_come_back_and_a_cut_is_an_error_or_a_prefix(
            records in proptest::collection::vec(record(), 0..4), cut in 0_usize..80,
        ) {
            let mut bytes = Vec::new();
            records.iter().for_each(|record| record.encode(&mut bytes).unwrap());
            let whole = Bytes::from(bytes);
            let read: Vec<_> = Records::new(&whole).map(Result::unwrap).collect();
            prop_assert_eq!(&read, &records);
            let cut = whole.slice(..cut.min(whole.len()));
            let read: Vec<_> = Records::new(&cut).map_while(Result::ok).collect();
            prop_assert!(records.starts_with(&read));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let bytes = Bytes::from(bytes);
            let read = Records::new(&bytes).count();
            prop_assert!(read <= bytes.len());
        }
    }
}
