use backend_testkit::only_subtask;
use state_api::{ErrorKind, JobId, OperatorUid, Subtask};

use super::*;
use crate::fault_tests::SmallDisk;

fn context(operator: &str, index: u32) -> BackendContext {
    BackendContext {
        job: JobId::new("job.1").unwrap(),
        operator: OperatorUid::new(operator).unwrap(),
        subtask: Subtask {
            index,
            parallelism: 4,
        },
        ..only_subtask(128, Path::new(""), &[])
    }
}

fn create(below: &Path) -> InstanceFolder {
    InstanceFolder::create(&context("count", 0), &[below.to_owned()]).unwrap()
}

fn entries(path: &Path) -> usize {
    fs::read_dir(path).unwrap().count()
}

#[test]
fn k_237_a_folder_names_whose_it_is_and_goes_when_it_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let one = InstanceFolder::create(&context("a/b c", 2), &[dir.path().to_owned()]).unwrap();
    let two = create(dir.path());
    let name = one.path().file_name().unwrap().to_str().unwrap();
    assert!(
        name.starts_with("holdfast-rocksdb-job_1-a_b_c-3of4-"),
        "{name}"
    );
    fs::create_dir(one.database()).unwrap();
    fs::write(one.database().join("file"), "x").unwrap();
    let path = one.path().to_owned();
    drop(one);
    assert!(!path.exists() && two.path().exists());
    drop(two);
    assert_eq!(entries(dir.path()), 0);
}

#[test]
fn k_274_dp_01_dp_05_what_a_dead_process_left_is_removed_at_start_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let alive = create(dir.path());
    let leftover = dir.path().join("holdfast-rocksdb-job-op-1of1-dead");
    fs::create_dir_all(leftover.join("db/archive")).unwrap();
    fs::write(leftover.join("db/000001.sst"), "x").unwrap();
    // As after a kill: the file is there, its lock is not held.
    fs::write(leftover.join(LOCK), "").unwrap();
    let unfinished = dir.path().join("holdfast-rocksdb-job-op-1of1-unfinished");
    fs::create_dir(&unfinished).unwrap();
    let foreign = dir.path().join("holdfast-rocksdb-notes");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("notes.txt"), "mine").unwrap();
    let file = dir.path().join("holdfast-rocksdb-file");
    fs::write(&file, "mine").unwrap();
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();

    let next = create(dir.path());
    assert!(!leftover.exists() && !unfinished.exists());
    assert!(alive.path().exists() && next.path().exists());
    assert!(foreign.join("notes.txt").exists() && file.exists() && other.exists());
}

#[test]
fn a_removal_that_was_interrupted_goes_on_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let half = dir.path().join("holdfast-rocksdb-job-op-1of1-half");
    fs::create_dir(&half).unwrap();
    fs::write(half.join(LOCK), "").unwrap();
    let _next = create(dir.path());
    assert!(!half.exists());
}

#[test]
fn k_233_k_236_subtasks_take_turns_and_a_folder_that_cant_be_used_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let folders = [dir.path().join("a"), dir.path().join("b")];
    let of = |index| InstanceFolder::create(&context("op", index), &folders);
    assert!(of(0).unwrap().path().starts_with(&folders[0]));
    assert!(of(1).unwrap().path().starts_with(&folders[1]));
    assert!(of(2).unwrap().path().starts_with(&folders[0]));
    fs::remove_dir_all(&folders[1]).unwrap();
    fs::write(&folders[1], "a file").unwrap();
    assert!(of(1).unwrap().path().starts_with(&folders[0]));
}

#[test]
fn k_233_without_a_folder_to_use_the_error_names_each_with_the_operation() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let below = file.join("below");
    let error =
        InstanceFolder::create(&context("op", 0), std::slice::from_ref(&below)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(error.context("operation"), Some("create folder"));
    assert_eq!(error.context("path"), below.to_str());
    let other = file.join("other");
    let error =
        InstanceFolder::create(&context("op", 0), &[below.clone(), other.clone()]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    let text = error.to_string();
    assert!(
        text.contains(below.to_str().unwrap()) && text.contains(other.to_str().unwrap()),
        "{text}"
    );
}

#[test]
fn rt_04_a_file_gets_a_second_name_and_what_is_there_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let missing = link_or_copy(&from, &to).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    assert!(!to.exists());
    fs::write(&from, "one").unwrap();
    link_or_copy(&from, &to).unwrap();
    // The same file, whatever becomes of the first name.
    fs::write(&from, "two").unwrap();
    assert_eq!(fs::read(&to).unwrap(), b"two");
    let other = dir.path().join("other");
    fs::write(&other, "mine").unwrap();
    let taken = link_or_copy(&from, &other).unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&other).unwrap(), b"mine");
}

#[test]
fn rt_04_a_file_is_copied_where_it_can_have_no_second_name_and_half_a_copy_is_removed() {
    let Some(disk) = SmallDisk::new("size=4m") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), disk.path.join("to"));
    let bytes: Vec<u8> = (0..3_u32 << 18).flat_map(u32::to_le_bytes).collect();
    fs::write(&from, &bytes).unwrap();
    let unlinked = fs::hard_link(&from, &to).unwrap_err();
    assert_eq!(unlinked.kind(), io::ErrorKind::CrossesDevices);
    link_or_copy(&from, &to).unwrap();
    fs::write(&from, &bytes[1..]).unwrap();
    assert!(fs::read(&to).unwrap() == bytes);
    // There is room for a third of the next one.
    let second = disk.path.join("second");
    let full = link_or_copy(&from, &second).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    assert!(!second.exists());
    fs::remove_file(&to).unwrap();
    link_or_copy(&from, &second).unwrap();
    assert!(fs::read(&second).unwrap() == bytes[1..]);
}
