//! Runs readers of sources as a subtask would.
#![allow(dead_code, reason = "not every test file uses all of it")]

use std::sync::Arc;
use std::task::Waker;

use runtime_core::source::{Source, SourceContext, SourceOutput, SourceReader, SourceStatus};
use runtime_core::{Emit, SplitEvent};
use state_api::{CheckpointId, Clock, ManualClock, OperatorUid, Result, Subtask};

pub(crate) fn context(index: u32, parallelism: u32) -> SourceContext {
    context_with(Arc::new(ManualClock::at(0)), index, parallelism)
}

pub(crate) fn context_with(clock: Arc<dyn Clock>, index: u32, parallelism: u32) -> SourceContext {
    SourceContext {
        uid: OperatorUid::new("input").expect("a valid uid"),
        subtask: Subtask { index, parallelism },
        restored: Some(CheckpointId(1)),
        clock,
        waker: Waker::noop().clone(),
    }
}

/// Deals splits out in turn.
pub(crate) fn deal<T>(splits: Vec<T>, parallelism: u32) -> Vec<Vec<T>> {
    let mut hands: Vec<Vec<T>> = (0..parallelism).map(|_| Vec::new()).collect();
    for (at, split) in splits.into_iter().enumerate() {
        hands[at % parallelism as usize].push(split);
    }
    hands
}

pub(crate) fn readers<S: Source>(
    source: &S,
    splits: Vec<S::Split>,
    parallelism: u32,
) -> Result<Vec<S::Reader>> {
    let hands = deal(splits, parallelism).into_iter().enumerate();
    hands
        .map(|(index, hand)| source.reader(&context(index as u32, parallelism), hand))
        .collect()
}

/// Polls once for at most `budget` records.
pub(crate) fn poll<R: SourceReader>(
    reader: &mut R,
    budget: usize,
) -> Result<(Vec<R::Out>, SourceStatus)> {
    let mut records = Vec::new();
    let status = reader.poll(&mut SourceOutput::new(&mut records, budget))?;
    Ok((records, status))
}

/// Polls until the reader is finished.
pub(crate) fn drain<R: SourceReader>(reader: &mut R) -> Result<Vec<R::Out>> {
    let mut all = Vec::new();
    loop {
        let (records, status) = poll(reader, 100)?;
        all.extend(records);
        match status {
            SourceStatus::More => {}
            SourceStatus::Finished => return Ok(all),
            SourceStatus::Waiting { .. } => panic!("the reader waits"),
        }
    }
}

/// Reads a whole input at a parallelism.
pub(crate) fn read_all<S: Source>(source: &S, parallelism: u32) -> Result<Vec<S::Out>> {
    let mut all = Vec::new();
    for mut reader in readers(source, source.enumerate(parallelism)?, parallelism)? {
        all.extend(drain(&mut reader)?);
    }
    Ok(all)
}

/// Keeps records and split events in one list.
#[derive(Debug, Default)]
pub(crate) struct Events(pub(crate) Vec<String>);

impl<T: std::fmt::Display> Emit<T> for Events {
    fn emit(&mut self, value: T, _: i64) -> Result<()> {
        self.0.push(value.to_string());
        Ok(())
    }

    fn split(&mut self, event: SplitEvent) -> Result<()> {
        self.0.push(match event {
            SplitEvent::Started(id) => format!("+{id}"),
            SplitEvent::Selected(id) => format!("@{id}"),
            SplitEvent::Finished(id) => format!("-{id}"),
        });
        Ok(())
    }
}

/// Drains a reader into a list of records and split events.
pub(crate) fn events<R: SourceReader<Out: std::fmt::Display>>(
    reader: &mut R,
) -> Result<Vec<String>> {
    let mut events = Events::default();
    loop {
        let status = reader.poll(&mut SourceOutput::new(&mut events, 3))?;
        if status == SourceStatus::Finished {
            return Ok(events.0);
        }
    }
}
