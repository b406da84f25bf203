use futures_util::future::LocalBoxFuture;
use state_api::{CheckpointId, Error, Result, SnapshotRequest};

use super::declared::Declared;
use super::environment::Environment;
use super::link::{Control, Link, earliest, first_error};
use crate::channel::Barrier;
use crate::operator::{SideOutputId, SideRecord};
use crate::record::{Emit, Record, SplitEvent};
use crate::task::SubtaskSnapshot;

/// What reads a side output, the type of its records hidden.
pub(crate) trait SideLink: Control {
    /// Takes a record.
    fn emit_any(&mut self, record: SideRecord<'_>, time: i64) -> Result<()>;
}

/// What reads a side output of `S`.
pub(crate) struct TypedSide<S>(pub(crate) Box<dyn Link<S>>);

impl<S: Record> SideLink for TypedSide<S> {
    fn emit_any(&mut self, record: SideRecord<'_>, time: i64) -> Result<()> {
        match record.into() {
            Some(value) => self.0.emit(value, time),
            None => Err(Error::bug("a side output has records of another type")),
        }
    }
}

impl<S> Control for TypedSide<S> {
    fn next(&mut self) -> Option<&mut dyn Control> {
        Some(self.0.as_mut())
    }
}

/// Gives every record to several links; none at all is a stream that nobody reads. Side outputs have links of their own.
pub(crate) struct FanOut<T> {
    links: Vec<Box<dyn Link<T>>>,
    sides: Vec<(SideOutputId, Box<dyn SideLink>)>,
}

impl<T: Record> FanOut<T> {
    pub(crate) fn new(
        links: Vec<Box<dyn Link<T>>>,
        sides: Vec<(SideOutputId, Box<dyn SideLink>)>,
    ) -> Self {
        Self { links, sides }
    }

    fn all(&mut self) -> impl Iterator<Item = &mut dyn Control> {
        let links = self.links.iter_mut();
        let sides = self.sides.iter_mut();
        links
            .map(|link| link.as_mut() as &mut dyn Control)
            .chain(sides.map(|(_, side)| side.as_mut() as &mut dyn Control))
    }

    fn each(&mut self, f: impl FnMut(&mut dyn Control) -> Result<()>) -> Result<()> {
        self.all().try_for_each(f)
    }

    /// Calls `f` for all, also after an error; returns the first one.
    fn tell_all(&mut self, mut f: impl FnMut(&mut dyn Control) -> Result<()>) -> Result<()> {
        let mut result = Ok(());
        for link in self.all() {
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

    fn emit_side(&mut self, record: SideRecord<'_>, time: i64) -> Result<()> {
        let mut sides = self.sides.iter_mut();
        match sides.find(|(side, _)| *side == record.id()) {
            Some((_, side)) => side.emit_any(record, time),
            None => Ok(()),
        }
    }

    fn split(&mut self, event: SplitEvent) -> Result<()> {
        self.links.iter_mut().try_for_each(|link| link.split(event))
    }
}

impl<T: Record> Control for FanOut<T> {
    fn next(&mut self) -> Option<&mut dyn Control> {
        None
    }

    fn open<'a>(&'a mut self, env: &'a Environment) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            for link in self.all() {
                link.open(env).await?;
            }
            Ok(())
        })
    }

    fn declare(&mut self, env: &Environment, declared: &mut Declared) {
        self.all().for_each(|link| link.declare(env, declared));
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

    fn tick(&mut self) -> Result<Option<i64>> {
        let mut first = None;
        for link in self.all() {
            first = earliest(first, link.tick()?);
        }
        Ok(first)
    }

    fn pump(&mut self) -> bool {
        // Each one has its turn, also behind one that has no room.
        let mut clear = true;
        for link in self.all() {
            clear &= link.pump();
        }
        clear
    }

    fn prepare_barrier(&mut self, barrier: &Barrier) -> Result<()> {
        self.each(|link| link.prepare_barrier(barrier))
    }

    fn emit_barrier(&mut self, barrier: Option<&Barrier>, id: CheckpointId) {
        self.all().for_each(|link| link.emit_barrier(barrier, id));
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
        for link in self.all() {
            more |= link.maintain();
        }
        more
    }
}
