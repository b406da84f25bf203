use futures_util::future::LocalBoxFuture;
use state_api::{CheckpointId, Result, SnapshotRequest};

use super::environment::Environment;
use super::link::{Control, Link, first_error};
use crate::channel::Barrier;
use crate::record::{Emit, Record, SplitEvent};
use crate::task::SubtaskSnapshot;

/// Gives every record to several links; none at all is a stream that nobody reads.
pub(crate) struct FanOut<T> {
    links: Vec<Box<dyn Link<T>>>,
}

impl<T> FanOut<T> {
    pub(crate) fn new(links: Vec<Box<dyn Link<T>>>) -> Self {
        Self { links }
    }

    fn each(&mut self, f: impl FnMut(&mut Box<dyn Link<T>>) -> Result<()>) -> Result<()> {
        self.links.iter_mut().try_for_each(f)
    }

    /// Calls `f` for all, also after an error; returns the first one.
    fn tell_all(&mut self, mut f: impl FnMut(&mut Box<dyn Link<T>>) -> Result<()>) -> Result<()> {
        let mut result = Ok(());
        for link in &mut self.links {
            result = first_error(result, f(link));
        }
        result
    }
}

impl<T: Record> Emit<T> for FanOut<T> {
    fn emit(&mut self, value: T, time: i64) -> Result<()> {
        let Some((last, others)) = self.links.split_last_mut() else {
            return Ok(());
        };
        for link in others {
            link.emit(value.clone(), time)?;
        }
        last.emit(value, time)
    }

    fn split(&mut self, event: SplitEvent) -> Result<()> {
        self.each(|link| link.split(event))
    }
}

impl<T: Record> Control for FanOut<T> {
    fn next(&mut self) -> Option<&mut dyn Control> {
        None
    }

    fn open<'a>(&'a mut self, env: &'a Environment) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            for link in &mut self.links {
                link.open(env).await?;
            }
            Ok(())
        })
    }

    fn watermark(&mut self, time: i64) -> Result<()> {
        self.each(|link| link.watermark(time))
    }

    fn idle(&mut self) -> Result<()> {
        self.each(|link| link.idle())
    }

    fn flush(&mut self) -> Result<()> {
        self.each(|link| link.flush())
    }

    fn pump(&mut self) -> bool {
        // Each one has its turn, also behind one that has no room.
        let mut clear = true;
        for link in &mut self.links {
            clear &= link.pump();
        }
        clear
    }

    fn prepare_barrier(&mut self, barrier: &Barrier) -> Result<()> {
        self.each(|link| link.prepare_barrier(barrier))
    }

    fn emit_barrier(&mut self, barrier: Option<&Barrier>, id: CheckpointId) {
        self.links
            .iter_mut()
            .for_each(|link| link.emit_barrier(barrier, id));
    }

    fn snapshot(&mut self, request: &SnapshotRequest, set: &mut SubtaskSnapshot) -> Result<()> {
        self.each(|link| link.snapshot(request, set))
    }

    fn completed(&mut self, id: CheckpointId) -> Result<()> {
        self.tell_all(|link| link.completed(id))
    }

    fn aborted(&mut self, id: CheckpointId) -> Result<()> {
        self.tell_all(|link| link.aborted(id))
    }

    fn finish(&mut self) -> Result<()> {
        self.each(|link| link.finish())
    }

    fn maintain(&mut self) -> bool {
        let mut more = false;
        for link in &mut self.links {
            more |= link.maintain();
        }
        more
    }
}
