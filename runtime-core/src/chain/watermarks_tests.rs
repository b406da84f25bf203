use std::sync::Arc;

use state_api::{ManualClock, Result};

use super::chained::Stage;
use super::link::Control;
use super::watermarks::WatermarkStage;
use crate::job::Watermarks;
use crate::record::{END_OF_TIME, Emit, SplitEvent};

/// What went down the chain.
#[derive(Debug, PartialEq)]
enum Sent {
    Watermark(i64),
    Idle,
}

#[derive(Default)]
struct Behind(Vec<Sent>);

impl Emit<i64> for Behind {
    fn emit(&mut self, _: i64, _: i64) -> Result<()> {
        Ok(())
    }
}

impl Control for Behind {
    fn next(&mut self) -> Option<&mut dyn Control> {
        None
    }

    fn watermark(&mut self, time: i64) -> Result<()> {
        self.0.push(Sent::Watermark(time));
        Ok(())
    }

    fn idle(&mut self) -> Result<()> {
        self.0.push(Sent::Idle);
        Ok(())
    }
}

/// A stage for records that are their own event time, up to 2 ms out of order, idle after 1,000 ms.
struct Run<F> {
    stage: WatermarkStage<i64, F>,
    clock: Arc<ManualClock>,
    behind: Behind,
}

fn run() -> Run<impl Fn(&i64) -> i64 + Send + Sync + 'static> {
    let clock = Arc::new(ManualClock::at(0));
    let watermarks = Watermarks::out_of_order(2).idle_after(1_000);
    let time_of = Arc::new(|time: &i64| *time);
    Run {
        stage: WatermarkStage::new(time_of, watermarks, clock.clone()),
        clock,
        behind: Behind::default(),
    }
}

impl<F: Fn(&i64) -> i64 + Send + Sync + 'static> Run<F> {
    fn split(&mut self, event: SplitEvent) {
        self.stage.split(event, &mut self.behind).unwrap();
    }

    /// Brings records of a split, and passes on what follows from them.
    fn records(&mut self, split: u64, times: &[i64]) {
        self.split(SplitEvent::Selected(split));
        for time in times {
            self.stage.process(*time, *time, &mut self.behind).unwrap();
        }
        self.stage.flush(&mut self.behind).unwrap();
    }

    /// Waits for records at a time of the clock; returns when to look again.
    fn wait_at(&mut self, now_ms: i64) -> Option<i64> {
        self.clock.set(now_ms);
        self.stage.tick(&mut self.behind).unwrap()
    }

    fn sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.behind.0)
    }
}

#[test]
fn a_split_that_is_silent_for_the_time_allowed_holds_back_no_other() {
    let mut run = run();
    run.split(SplitEvent::Started(1));
    run.split(SplitEvent::Started(2));
    run.records(1, &[10, 9]);
    // Split 2 may bring records of any time.
    assert_eq!(run.sent(), []);
    assert_eq!(run.wait_at(0), Some(1_000));
    run.records(1, &[20]);
    run.wait_at(500);
    run.records(1, &[30]);
    run.wait_at(900);
    assert_eq!(run.sent(), []);
    // Between two records there was nothing to read, which counts; with records of split 1, 100 ms of it do.
    for now in [1_000, 1_100, 2_000] {
        run.wait_at(now);
    }
    assert_eq!(run.sent(), [Sent::Idle]);
    // The first record of either ends it; the other one is still left out.
    run.records(1, &[40]);
    assert_eq!(run.sent(), [Sent::Watermark(37)]);
    // Split 2 is back, and behind: the watermark stands until it has caught up.
    run.records(2, &[5]);
    run.records(1, &[60]);
    assert_eq!(run.sent(), []);
    run.records(2, &[50]);
    assert_eq!(run.sent(), [Sent::Watermark(47)]);
}

#[test]
fn time_in_which_nothing_could_be_read_is_no_silence() {
    let mut run = run();
    run.split(SplitEvent::Started(1));
    run.split(SplitEvent::Started(2));
    run.records(2, &[1]);
    run.records(1, &[10]);
    assert_eq!(run.sent(), [Sent::Watermark(-2)]);
    // For an hour those behind had no room.
    run.clock.set(3_600_000);
    run.records(1, &[20]);
    assert_eq!(run.sent(), []);
}

#[test]
fn a_stage_whose_splits_are_all_silent_says_so_once_and_asks_to_be_woken_for_it() {
    let mut run = run();
    run.records(0, &[5]);
    assert_eq!(run.sent(), [Sent::Watermark(2)]);
    run.wait_at(10);
    assert_eq!(run.wait_at(20), Some(1_000));
    assert_eq!(run.wait_at(1_000), None);
    assert_eq!(run.wait_at(5_000), None);
    assert_eq!(run.sent(), [Sent::Idle]);
    run.records(0, &[9]);
    assert_eq!(run.sent(), [Sent::Watermark(6)]);
    run.stage.watermark(END_OF_TIME, &mut run.behind).unwrap();
    assert_eq!(run.wait_at(10_000), None);
    assert_eq!(run.sent(), [Sent::Watermark(END_OF_TIME)]);
}

#[test]
fn without_a_time_allowed_a_silent_split_is_waited_for() {
    let clock = Arc::new(ManualClock::at(0));
    let time_of = Arc::new(|time: &i64| *time);
    let watermarks = Watermarks::out_of_order(0);
    let mut run = Run {
        stage: WatermarkStage::new(time_of, watermarks, clock.clone()),
        clock,
        behind: Behind::default(),
    };
    run.split(SplitEvent::Started(1));
    run.split(SplitEvent::Started(2));
    run.records(1, &[10]);
    assert_eq!(run.wait_at(1_000_000), None);
    assert_eq!(run.sent(), []);
    // A split that ends is waited for no longer; what begins later is again.
    run.split(SplitEvent::Finished(2));
    run.records(1, &[11]);
    assert_eq!(run.sent(), [Sent::Watermark(10)]);
    run.split(SplitEvent::Finished(1));
    run.split(SplitEvent::Started(3));
    run.records(3, &[5]);
    assert_eq!(run.sent(), []);
    run.records(3, &[15]);
    assert_eq!(run.sent(), [Sent::Watermark(14)]);
}
