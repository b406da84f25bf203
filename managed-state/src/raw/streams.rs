use state_api::{KeyGroupRange, KeyGroupsHandle, OperatorStateHandle, Result, Snapshot};

use super::keyed::RawKeyedOutput;
use super::operator::RawOperatorOutput;

/// The raw streams of one operator in one snapshot, opened when they are first asked for.
///
/// Dropping it without [`finish`](Self::finish) throws everything away; nothing has left memory by then.
#[derive(Debug)]
pub struct RawStreams {
    range: KeyGroupRange,
    keyed: Option<RawKeyedOutput>,
    operator: Option<RawOperatorOutput>,
}

/// The async parts of raw streams; `None` for one that was not used.
#[derive(Default)]
pub struct RawSnapshots {
    /// Bytes per key group.
    pub keyed: Option<Box<dyn Snapshot<KeyGroupsHandle>>>,
    /// Bytes in partitions.
    pub operator: Option<Box<dyn Snapshot<OperatorStateHandle>>>,
}

impl RawStreams {
    /// Creates the streams of a subtask with these key groups; empty for an operator that is not keyed.
    #[must_use]
    pub fn new(range: KeyGroupRange) -> Self {
        Self {
            range,
            keyed: None,
            operator: None,
        }
    }

    /// Returns the keyed stream, the same each time.
    pub fn keyed(&mut self) -> &mut RawKeyedOutput {
        self.keyed
            .get_or_insert_with(|| RawKeyedOutput::new(self.range))
    }

    /// Returns the operator stream, the same each time.
    pub fn operator(&mut self) -> &mut RawOperatorOutput {
        self.operator.get_or_insert_with(RawOperatorOutput::new)
    }

    /// Ends the streams and returns their async parts. Streams that the operator has closed are ended all the same.
    ///
    /// # Errors
    /// `Bug` when the streams contradict themselves.
    pub fn finish(self) -> Result<RawSnapshots> {
        let keyed = match self.keyed {
            Some(keyed) => keyed.finish()?,
            None => None,
        };
        Ok(RawSnapshots {
            keyed,
            operator: self.operator.and_then(RawOperatorOutput::finish),
        })
    }
}
