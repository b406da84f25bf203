//! Whole jobs stepped on one thread in seeded orders.
mod job_support;

use job_support::{Ledger, expected, lines, parts, settings, totals, with_memory, wordcount};
use runtime_core::testing::Driver;

#[test]
fn a_seeded_driver_steps_the_word_count_with_checkpoints_to_the_same_answer() {
    for seed in 0..20 {
        let (lines, ledger) = (lines(300), Ledger::new());
        let (parts, store) = with_memory(parts());
        let mut driver = Driver::new(seed);
        let outcome = driver
            .run(&wordcount(&lines, 2, &ledger), &settings(10), parts)
            .unwrap();
        assert_eq!(totals(&ledger.records()), expected(&lines), "seed {seed}");
        assert!(outcome.checkpoints >= 2, "seed {seed}: {outcome:?}");
        assert_eq!(store.completed().len(), 1, "seed {seed}");
    }
}

#[test]
fn a_job_without_checkpoints_commits_at_its_end() {
    let (lines, ledger) = (lines(50), Ledger::new());
    let outcome = Driver::new(1)
        .run(&wordcount(&lines, 3, &ledger), &settings(10), parts())
        .unwrap();
    assert_eq!(totals(&ledger.records()), expected(&lines));
    assert_eq!(outcome.checkpoints, 0);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let (lines, ledger) = (lines(100), Ledger::new());
        let (parts, _) = with_memory(parts());
        let mut driver = Driver::new(seed);
        driver
            .run(&wordcount(&lines, 2, &ledger), &settings(10), parts)
            .unwrap();
        (driver.steps(), ledger.records())
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7).0, run(8).0);
}
