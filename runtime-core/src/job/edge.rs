use std::sync::{Arc, Mutex, PoisonError};

use crate::channel::{QUEUE_RECORDS, Receiver, Sender, Signal, channel};
use crate::record::Timed;

/// The channels of one exchange in one run, from every subtask of one vertex to every subtask of another.
pub(crate) struct Edge<W> {
    channels: Mutex<Channels<W>>,
}

/// An exchange, with the number of the vertex in front of it.
pub(crate) type Incoming<W> = (usize, Arc<Edge<W>>);

struct Channels<W> {
    /// By subtask in front.
    senders: Vec<Vec<Sender<Timed<W>>>>,
    /// By subtask behind.
    receivers: Vec<Vec<Receiver<Timed<W>>>>,
}

impl<W> Default for Edge<W> {
    fn default() -> Self {
        Self {
            channels: Mutex::new(Channels {
                senders: Vec::new(),
                receivers: Vec::new(),
            }),
        }
    }
}

impl<W> Edge<W> {
    /// Hands the channels to a subtask in front, by subtask behind; once per run.
    pub(crate) fn take_senders(&self, index: u32) -> Vec<Sender<Timed<W>>> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        channels
            .senders
            .get_mut(index as usize)
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Hands the channels to a subtask behind, by subtask in front; once per run.
    pub(crate) fn take_receivers(&self, index: u32) -> Vec<Receiver<Timed<W>>> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        channels
            .receivers
            .get_mut(index as usize)
            .map(std::mem::take)
            .unwrap_or_default()
    }
}

/// An exchange whose record type is hidden.
pub(crate) trait Connect: Send + Sync {
    /// Makes new channels between subtasks, given by their signals; the old ones are gone.
    fn connect(&self, front: &[Arc<Signal>], behind: &[Arc<Signal>]);
}

impl<W: Send> Connect for Edge<W> {
    fn connect(&self, front: &[Arc<Signal>], behind: &[Arc<Signal>]) {
        let mut senders = Vec::new();
        let mut receivers: Vec<Vec<_>> = behind.iter().map(|_| Vec::new()).collect();
        for to_sender in front {
            let mut row = Vec::new();
            for (column, to_receiver) in receivers.iter_mut().zip(behind) {
                let (sender, receiver) = channel(
                    QUEUE_RECORDS,
                    Arc::clone(to_sender),
                    Arc::clone(to_receiver),
                );
                row.push(sender);
                column.push(receiver);
            }
            senders.push(row);
        }
        *self.channels.lock().unwrap_or_else(PoisonError::into_inner) =
            Channels { senders, receivers };
    }
}
