//! The hooks of an operator with a broadcast input: raw bytes, watermarks, what must be before a barrier.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod job_support;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use job_support::{Items, Ledger, parts, settings, with_memory};
use managed_state::keyed::{At, Timers};
use managed_state::operator::{BroadcastState, OperatorStates};
use managed_state::raw::{RawKeyedInput, RawStreams};
use runtime_core::operator::BroadcastSide;
use runtime_core::restart::RestartStrategy;
use runtime_core::testing::Driver;
use runtime_core::{BroadcastOperator, ExecutionSettings, Job, Out, States};
use state_api::{CheckpointId, Error, KeyGroup, Result};

/// Holds records back until a barrier or the end, and counts them per key group outside of its states.
#[derive(Clone, Default)]
struct HoldsBack {
    held: Vec<u64>,
    counted: BTreeMap<u16, u64>,
    rules: BroadcastState<u32, u64>,
    timers: Timers,
    watermarks: Arc<Mutex<Vec<i64>>>,
}

impl HoldsBack {
    fn emit_held(&mut self, out: &mut Out<'_, (bool, u64)>) -> Result<()> {
        self.held.drain(..).try_for_each(|n| out.emit((true, n)))
    }
}

impl BroadcastOperator for HoldsBack {
    type Key = u32;
    type In = (u32, i64, u64);
    type Broadcast = (u32, u64);
    /// A record, or a count.
    type Out = (bool, u64);

    fn restore_raw(&mut self, raw: RawKeyedInput) -> Result<()> {
        for mut partition in raw {
            let mut bytes = [0; 8];
            let read = partition.reader.read_exact(&mut bytes);
            read.map_err(|e| Error::corrupt("a count is cut off").caused_by(e))?;
            self.counted
                .insert(partition.group.0, u64::from_le_bytes(bytes));
        }
        Ok(())
    }

    fn snapshot_raw(&mut self, raw: &mut RawStreams) -> Result<()> {
        for (group, count) in &self.counted {
            raw.keyed().start_group(KeyGroup(*group))?;
            let written = raw.keyed().write_all(&count.to_le_bytes());
            written.map_err(|e| Error::bug("a count was not written").caused_by(e))?;
        }
        Ok(())
    }

    fn open(&mut self, states: &mut States<'_, u32>, broadcast: &mut OperatorStates) -> Result<()> {
        self.timers = states.event_timers("unused")?;
        self.rules = broadcast.broadcast("rules")?;
        self.watermarks.lock().unwrap().push(i64::MIN);
        Ok(())
    }

    fn process(
        &mut self,
        record: (u32, i64, u64),
        at: &mut At<'_, u32>,
        _: &OperatorStates,
        _: &mut Out<'_, (bool, u64)>,
    ) -> Result<()> {
        *self.counted.entry(at.key_group().0).or_default() += 1;
        self.held.push(record.2);
        Ok(())
    }

    fn process_broadcast(
        &mut self,
        (key, rule): (u32, u64),
        side: &mut BroadcastSide<'_, u32>,
        _: &mut Out<'_, (bool, u64)>,
    ) -> Result<()> {
        side.broadcast.entries_mut(self.rules)?.insert(key, rule);
        Ok(())
    }

    fn on_watermark(
        &mut self,
        watermark: i64,
        broadcast: &mut OperatorStates,
        _: &mut Out<'_, (bool, u64)>,
    ) -> Result<()> {
        // Event time is that of both inputs, so all rules are there.
        assert_eq!(broadcast.entries(self.rules)?.len(), 3);
        self.watermarks.lock().unwrap().push(watermark);
        Ok(())
    }

    fn prepare_barrier(
        &mut self,
        _: CheckpointId,
        _: &mut OperatorStates,
        out: &mut Out<'_, (bool, u64)>,
    ) -> Result<()> {
        self.emit_held(out)
    }

    fn finish(&mut self, out: &mut Out<'_, (bool, u64)>) -> Result<()> {
        self.emit_held(out)?;
        out.emit((false, self.counted.values().sum()))
    }
}

#[test]
fn a_broadcast_operator_keeps_raw_bytes_and_empties_its_buffer_before_each_barrier() {
    let events: Vec<_> = (0..300).map(|i| ((i % 7) as u32, i as i64, i)).collect();
    for seed in 0..6 {
        let ledger = Ledger::new();
        let (parts, _) = with_memory(parts());
        let watermarks = Arc::default();
        for (parallelism, fails_after) in [(2, 120 + seed), (3, 100), (1, 0)] {
            let job = Job::new("holds").parallelism(parallelism);
            let rules = Items::new(vec![(1, 10), (2, 20), (3, 30)], 1);
            let rules = job.source("rules", rules).parallelism(1);
            let seen = AtomicU64::new(0);
            let operator = HoldsBack {
                watermarks: Arc::clone(&watermarks),
                ..HoldsBack::default()
            };
            job.source("events", Items::new(events.clone(), 4))
                .try_map(move |event| {
                    if seen.fetch_add(1, Ordering::Relaxed) + 1 == fails_after {
                        return Err(Error::user("on purpose"));
                    }
                    Ok(event)
                })
                .assign_watermarks(0, |e: &(u32, i64, u64)| e.1)
                .key_by(|e| e.0)
                .connect_broadcast(&rules, "holds", operator)
                .sink_exactly_once("out", ledger.clone());
            let settings = ExecutionSettings {
                restart: RestartStrategy::None,
                ..settings(10)
            };
            let outcome = Driver::new(seed).run(&job, &settings, parts.clone());
            assert_eq!(outcome.is_err(), fails_after > 0, "seed {seed}");
        }
        let (records, counts): (Vec<_>, Vec<_>) = ledger
            .records()
            .into_iter()
            .partition(|(is_record, _)| *is_record);
        let mut records: Vec<u64> = records.into_iter().map(|(_, n)| n).collect();
        records.sort_unstable();
        assert_eq!(records, (0..300).collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(counts, [(false, 300)], "seed {seed}");
        assert_eq!(watermarks.lock().unwrap().last(), Some(&i64::MAX));
    }
}
