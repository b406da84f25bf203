use std::collections::VecDeque;

use state_api::{CheckpointId, Error, Result};

use super::gate::{Gate, InputPort};
use super::in_flight::{Recover, SharedCodec};
use super::valve::{Advance, Valve};
use crate::alignment::Arrival;
use crate::channel::{BATCH_RECORDS, Barrier, BarrierMode, Element, Received, Receiver, Urgent};
use crate::record::Timed;

/// What the channels of a port bring next.
pub(crate) enum Polled {
    /// Records, to be taken by [`Port::next_record`].
    Records,
    /// Event time advanced.
    Watermark(i64),
    /// All channels are idle.
    Idle,
    /// The inputs agreed on a cut: ask the gate.
    Cut,
    /// The last channel brought its end.
    Ended,
    /// Nothing for now.
    Nothing,
}

/// The input channels of one edge.
pub(crate) struct Port<T> {
    receivers: Vec<Receiver<Timed<T>>>,
    /// Number of the first channel within the gate.
    first: usize,
    closed: Vec<bool>,
    ended: Vec<bool>,
    cursor: usize,
    batch: VecDeque<Timed<T>>,
    /// The channel that the batch came from; `None` for restored records.
    batch_from: Option<usize>,
    valve: Valve,
    /// Its place among the ports of the chain.
    number: u8,
    /// Makes records in flight part of a checkpoint.
    codec: Option<SharedCodec<T>>,
    /// Restored records that were in flight; before everything else.
    recovered: VecDeque<Vec<Timed<T>>>,
    /// By channel, the number of the first element that is not recorded.
    recorded: Vec<u64>,
    /// Takes the bytes of a record that is only measured.
    measured: Vec<u8>,
}

impl<T> Port<T> {
    pub(crate) fn new(receivers: Vec<Receiver<Timed<T>>>, first: usize) -> Self {
        let channels = receivers.len();
        Self {
            receivers,
            first,
            closed: vec![false; channels],
            ended: vec![false; channels],
            cursor: 0,
            batch: VecDeque::new(),
            batch_from: None,
            valve: Valve::new(channels),
            number: 0,
            codec: None,
            recovered: VecDeque::new(),
            recorded: vec![0; channels],
            measured: Vec::new(),
        }
    }

    /// Makes records in flight part of checkpoints, as those of port `number` of the chain.
    pub(crate) fn persisted(mut self, number: u8, codec: Option<SharedCodec<T>>) -> Self {
        (self.number, self.codec) = (number, codec);
        self
    }

    #[inline]
    pub(crate) fn next_record(&mut self) -> Option<Timed<T>> {
        self.batch.pop_front()
    }

    /// Iterates over the records of the batch that are not taken yet.
    #[inline]
    pub(crate) fn ahead(&self) -> impl ExactSizeIterator<Item = &T> {
        self.batch.iter().map(|record| &record.value)
    }

    pub(crate) fn has_records(&self) -> bool {
        !self.batch.is_empty()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.iter().all(|ended| *ended)
    }

    /// Gives the memory of the last batch back to where it came from.
    fn recycle(&mut self) {
        if self.batch.capacity() > 0 && self.batch.is_empty() {
            let spent = std::mem::take(&mut self.batch).into();
            if let Some(channel) = self.batch_from {
                self.receivers[channel].recycle(spent);
            }
        }
    }

    /// Returns about how many bytes the records of a batch are: as many times those of the first one, encoded, where records have a
    /// codec; where they have none, the memory of the records themselves without what they own elsewhere.
    fn bytes_of(&mut self, records: &[Timed<T>]) -> usize {
        let of_one = match (&self.codec, records.first()) {
            (Some(codec), Some(first)) => {
                self.measured.clear();
                codec.encode(&first.value, &mut self.measured);
                self.measured.len()
            }
            _ => size_of::<T>(),
        };
        records.len() * of_one
    }

    /// Records a batch that was taken from a channel, if it belongs to a checkpoint and was not recorded when it was queued.
    fn record_taken(&mut self, channel: usize, records: &[Timed<T>], gate: &mut Gate) {
        let number = self.receivers[channel].taken() - 1;
        if let Some(recording) = gate.recording_of(self.first + channel)
            && let Some(codec) = &self.codec
            && number >= self.recorded[channel]
        {
            for record in records {
                recording.push(self.number, record, codec.as_ref());
            }
            self.recorded[channel] = number + 1;
        }
    }

    /// Records what is queued on a channel before the barrier of a recording that goes on, or all if that has not come.
    fn record_channel(&mut self, channel: usize, cut: Option<u64>, gate: &mut Gate) {
        let (Some(codec), Some(recording)) = (&self.codec, &mut gate.recording) else {
            return;
        };
        let receiver = &self.receivers[channel];
        self.recorded[channel] =
            receiver.read_before(recording.id, self.recorded[channel], cut, |records| {
                for record in records {
                    recording.push(self.number, record, codec.as_ref());
                }
            });
    }

    /// Takes the next element of some channel that is not blocked; the records of the last one must have been taken.
    pub(crate) fn poll(&mut self, gate: &mut Gate) -> Polled {
        self.recycle();
        if let Some(records) = self.recovered.pop_front() {
            (self.batch, self.batch_from) = (records.into(), None);
            return Polled::Records;
        }
        let channels = self.receivers.len();
        let mut empty = 0;
        while empty < channels {
            let channel = self.cursor;
            let global = self.first + channel;
            let received = if self.closed[channel] || gate.is_blocked(global) {
                Received::Empty
            } else {
                self.receivers[channel].receive()
            };
            let element = match received {
                Received::Element(element) => element,
                Received::Empty => {
                    self.cursor = (channel + 1) % channels;
                    empty += 1;
                    continue;
                }
                Received::Closed => {
                    self.closed[channel] = true;
                    gate.on(Arrival::EndOfPartition { channel: global });
                    if gate.has_cut() {
                        return Polled::Cut;
                    }
                    continue;
                }
            };
            let advance = match element {
                Element::Batch(records) => {
                    // After each batch another channel has its turn, so that none starves.
                    self.cursor = (channel + 1) % channels;
                    if gate.is_aligning() {
                        gate.processed(self.bytes_of(&records));
                    }
                    self.record_taken(channel, &records, gate);
                    self.valve.active(channel);
                    (self.batch, self.batch_from) = (records.into(), Some(channel));
                    return Polled::Records;
                }
                Element::Watermark(time) => self.valve.watermark(channel, time),
                Element::Idle => self.valve.idle(channel),
                Element::Barrier(barrier) => {
                    // In line: all that came before it was taken.
                    gate.passed(global, barrier, self.receivers[channel].taken());
                    Advance::Nothing
                }
                Element::CancelMarker(id) => {
                    gate.on(Arrival::Cancel {
                        channel: global,
                        id,
                    });
                    Advance::Nothing
                }
                Element::EndOfInput => {
                    self.ended[channel] = true;
                    if self.has_ended() {
                        return Polled::Ended;
                    }
                    Advance::Nothing
                }
            };
            if gate.has_cut() {
                return Polled::Cut;
            }
            match advance {
                Advance::Watermark(time) => return Polled::Watermark(time),
                Advance::Idle => return Polled::Idle,
                Advance::Nothing => empty = 0,
            }
        }
        Polled::Nothing
    }
}

impl<T> Recover for Port<T> {
    fn fingerprint(&self) -> Option<u64> {
        self.codec.as_ref().map(|codec| codec.fingerprint())
    }

    fn recover(&mut self, time: i64, record: &mut &[u8]) -> Result<()> {
        let codec = self
            .codec
            .as_ref()
            .ok_or_else(|| Error::bug("a port without codec is given records"))?;
        let value = codec.decode(record)?;
        let record = Timed { value, time };
        match self.recovered.back_mut() {
            Some(batch) if batch.len() < BATCH_RECORDS => batch.push(record),
            _ => self.recovered.push_back(vec![record]),
        }
        Ok(())
    }
}

impl<T> InputPort for Port<T> {
    fn let_overtake(&mut self) {
        self.receivers.iter().for_each(Receiver::let_overtake);
    }

    fn receive_urgent(&mut self, gate: &mut Gate) {
        for channel in 0..self.receivers.len() {
            let global = self.first + channel;
            while let Some(urgent) = self.receivers[channel].receive_urgent() {
                match urgent {
                    Urgent::Announced(barrier) => gate.on(Arrival::Announced {
                        channel: global,
                        barrier,
                    }),
                    Urgent::Barrier { barrier, cut } => self.passed(channel, barrier, cut, gate),
                }
            }
        }
    }

    fn pull_barriers(&mut self, id: CheckpointId, gate: &mut Gate) {
        for channel in 0..self.receivers.len() {
            if let Some((mut barrier, cut)) = self.receivers[channel].pull_barrier(id) {
                barrier.mode = BarrierMode::Unaligned;
                self.passed(channel, barrier, cut, gate);
            }
        }
    }

    fn record_queued(&mut self, gate: &mut Gate) {
        if let (Some(codec), Some(recording)) = (&self.codec, &mut gate.recording) {
            let waiting = self.batch.iter().chain(self.recovered.iter().flatten());
            waiting.for_each(|record| recording.push(self.number, record, codec.as_ref()));
        }
        self.recorded.fill(0);
        for channel in 0..self.receivers.len() {
            let cut = gate.cut_of(self.first + channel);
            self.record_channel(channel, cut, gate);
        }
    }
}

impl<T> Port<T> {
    /// Takes a barrier that overtook: with it, all that comes before it is known.
    fn passed(&mut self, channel: usize, barrier: Barrier, cut: u64, gate: &mut Gate) {
        let global = self.first + channel;
        if gate
            .recording_of(global)
            .is_some_and(|r| r.id == barrier.id)
        {
            self.record_channel(channel, Some(cut), gate);
        }
        gate.passed(global, barrier, cut);
    }
}

#[cfg(test)]
impl<T> Port<T> {
    /// Takes the restored records out.
    pub(crate) fn take_recovered(&mut self) -> impl Iterator<Item = Timed<T>> {
        std::mem::take(&mut self.recovered).into_iter().flatten()
    }
}
