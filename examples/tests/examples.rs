//! Each example runs to its end; it checks its own result.
use std::process::Command;

fn run(example: &str) -> String {
    let output = Command::new(example).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn a_word_count_counts() {
    assert!(run(env!("CARGO_BIN_EXE_wordcount")).contains("2000"));
}

#[test]
fn another_backend_gives_the_same_results() {
    let said = run(env!("CARGO_BIN_EXE_switch_backend"));
    assert!(said.contains("agree on 10000 results"), "{said}");
    assert!(said.contains("known: filesystem, fs, hashmap, reference"), "{said}");
}

#[test]
fn an_embedded_loop_recovers_from_its_last_checkpoint() {
    let said = run(env!("CARGO_BIN_EXE_embed"));
    assert_eq!(said, "restored checkpoint 5, going on at 500\n");
}

#[test]
fn a_strategy_of_ones_own_keeps_every_rule() {
    run(env!("CARGO_BIN_EXE_live_strategy"));
}

#[test]
fn a_byte_store_of_ones_own_keeps_every_rule() {
    run(env!("CARGO_BIN_EXE_byte_store"));
}

#[test]
fn sessions_of_clicks_are_found_though_they_come_out_of_order() {
    let said = run(env!("CARGO_BIN_EXE_sessions"));
    let expected = ["ann 0-70 s: 3", "bob 5-35 s: 1", "bob 50-90 s: 2"];
    assert!(expected.iter().all(|session| said.contains(session)), "{said}");
    assert!(said.ends_with(", 0 late\n"), "{said}");
}

#[cfg(feature = "kafka")]
#[test]
fn words_from_a_topic_are_counted_into_a_topic() {
    let said = run(env!("CARGO_BIN_EXE_kafka"));
    for count in ["to 1", "to 2", "be 2", "or 1", "not 1"] {
        assert_eq!(said.matches(&format!("{count:?}")).count(), 1, "{said}");
    }
}

#[test]
fn a_backend_over_another_store_brings_a_job_through_a_failure() {
    let said = run(env!("CARGO_BIN_EXE_redb"));
    assert!(said.contains("went on from a checkpoint in redb"), "{said}");
}

#[test]
fn an_operator_is_simulated_through_crashes_and_keeps_its_answer() {
    let said = run(env!("CARGO_BIN_EXE_simulate"));
    assert!(said.contains("every answer right"), "{said}");
}

#[test]
fn a_changed_job_is_checked_against_the_checkpoint_of_the_old_one() {
    let said = run(env!("CARGO_BIN_EXE_upgrade"));
    for line in [
        "of job sums: compatible\n",
        "    sum (value): migrates: the value widens from u32 to u64\n",
        "of job sums: incompatible\n",
        "    sum (value): INCOMPATIBLE: the value can't change from u32 to f64\n",
    ] {
        assert!(said.contains(line), "{said}");
    }
}

#[test]
fn an_example_has_less_than_60_lines() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bin");
    let mut seen = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines < 60, "{} has {lines} lines", path.display());
        seen += 1;
    }
    assert_eq!(seen, 10);
}
