//! Lines of files: every line once, whatever the ranges, the parallelism and the moment of a restore.

mod sources_support;

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use runtime_core::source::{Source, SourceReader, SourceStatus};
use runtime_core::sources::{FileLines, FileSplit};
use sources_support::{context, drain, events, poll, read_all, readers};
use state_api::{CodecKind, Error, ErrorKind};
use tempfile::TempDir;

fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    for (name, content) in files {
        fs::write(folder.path().join(name), content).expect("the folder can be written");
    }
    folder
}

fn numbered(lines: usize) -> Vec<u8> {
    (0..lines)
        .flat_map(|n| format!("line {n}\n").into_bytes())
        .collect()
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

#[track_caller]
fn refused<T>(result: Result<T, Error>, kind: ErrorKind, needle: &str) -> Error {
    let error = result.map(|_| ()).expect_err("it was taken");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(needle), "{error}");
    error
}

#[test]
fn every_line_is_read_the_last_one_without_end_included() {
    let input = folder(&[("a.txt", b"one\r\ntwo\n\nfour \xc3\xa9\nfive")]);
    let lines = read_all(&FileLines::new(input.path().join("a.txt")), 1).unwrap();
    assert_eq!(lines, ["one", "two", "", "four é", "five"]);
}

#[test]
fn a_folder_is_read_in_the_order_of_names_without_hidden_files_and_folders() {
    let input = folder(&[
        ("b", b"3\n4"),
        ("a", b"1\n2\n"),
        ("c", b""),
        (".hidden", b"x\n"),
        ("_SUCCESS", b"x\n"),
    ]);
    fs::create_dir(input.path().join("d")).unwrap();
    assert_eq!(
        read_all(&FileLines::new(input.path()), 1).unwrap(),
        ["1", "2", "3", "4"]
    );
}

#[test]
fn one_large_file_keeps_every_subtask_busy() {
    let content = numbered(20_000);
    let input = folder(&[("big", &content)]);
    let source = FileLines::new(input.path().join("big"));
    let expected: Vec<String> = (0..20_000).map(|n| format!("line {n}")).collect();
    for parallelism in [1, 2, 3, 7] {
        let splits = source.enumerate(parallelism).unwrap();
        assert!(splits.len() >= parallelism as usize);
        let shares: Vec<u64> = splits.iter().map(FileSplit::remaining).collect();
        let even = content.len() as u64 / splits.len() as u64;
        assert!(
            shares.iter().all(|share| share.abs_diff(even) < even / 10),
            "{shares:?}"
        );
        let mut all = Vec::new();
        for mut reader in readers(&source, splits, parallelism).unwrap() {
            let lines = drain(&mut reader).unwrap();
            assert!(!lines.is_empty());
            all.extend(lines);
        }
        assert_eq!(sorted(all), sorted(expected.clone()));
    }
}

#[test]
fn k_740_a_restore_goes_on_at_the_offset_at_any_parallelism() {
    let content = numbered(3_000);
    let input = folder(&[("a", &content), ("b", b"x\ny\nz")]);
    let source = FileLines::new(input.path()).range_bytes(5_000);
    let mut expected: Vec<String> = (0..3_000).map(|n| format!("line {n}")).collect();
    expected.extend(["x", "y", "z"].map(str::to_owned));
    for (before, after) in [(1, 1), (2, 4), (4, 1), (3, 2)] {
        let mut seen = Vec::new();
        let mut splits = Vec::new();
        for mut reader in readers(&source, source.enumerate(before).unwrap(), before).unwrap() {
            for budget in [1, 7, 260] {
                seen.extend(poll(&mut reader, budget).unwrap().0);
            }
            splits.extend(reader.snapshot().unwrap());
            // Read after the snapshot, lost with the crash, read again.
            let _ = poll(&mut reader, 50).unwrap();
        }
        // Through bytes, as a checkpoint keeps them.
        let splits: Vec<FileSplit> = splits
            .iter()
            .map(|split| {
                let mut bytes = Vec::new();
                CodecKind::Compact.encode(split, &mut bytes);
                CodecKind::Compact.decode_all(&bytes).unwrap()
            })
            .collect();
        for mut reader in readers(&source, splits, after).unwrap() {
            seen.extend(drain(&mut reader).unwrap());
        }
        assert_eq!(
            sorted(seen),
            sorted(expected.clone()),
            "{before} to {after}"
        );
    }
}

#[test]
fn k_730_splits_of_a_failed_subtask_come_back_once() {
    let input = folder(&[("a", b"1\n2\n"), ("b", b"3\n4\n"), ("c", b"5\n")]);
    let source = FileLines::new(input.path());
    let splits = source.enumerate(1).unwrap();
    let mut reader = source.reader(&context(0, 1), splits.clone()).unwrap();
    assert_eq!(reader.snapshot().unwrap(), splits);
    let (records, _) = poll(&mut reader, 2).unwrap();
    assert_eq!(records, ["1", "2"]);
    // What is read to its end is not handed out again.
    assert_eq!(reader.snapshot().unwrap(), splits[1..]);
    drain(&mut reader).unwrap();
    assert_eq!(reader.snapshot().unwrap(), []);
}

#[test]
fn every_file_holds_the_watermark_until_it_is_begun() {
    let input = folder(&[("a", b"1\n2\n"), ("b", b"3\n"), ("c", b"")]);
    let source = FileLines::new(input.path());
    let mut reader = source
        .reader(&context(0, 1), source.enumerate(1).unwrap())
        .unwrap();
    assert_eq!(
        events(&mut reader).unwrap(),
        ["+0", "+1", "@0", "1", "2", "-0", "@1", "3", "-1"]
    );

    let source = source.in_time_order();
    let mut reader = source
        .reader(&context(0, 1), source.enumerate(1).unwrap())
        .unwrap();
    assert_eq!(events(&mut reader).unwrap(), ["1", "2", "3"]);

    let source = FileLines::new(input.path().join("a")).range_bytes(2);
    let splits = source.enumerate(1).unwrap();
    assert_eq!(splits.len(), 2);
    let mut reader = source.reader(&context(0, 1), splits).unwrap();
    assert_eq!(events(&mut reader).unwrap(), ["1", "2"]);
}

#[test]
fn the_header_of_each_file_is_skipped_once() {
    let input = folder(&[
        ("a.csv", b"name,n\nx,1\ny,2\n"),
        ("b.csv", b"\xef\xbb\xbfname,n\nz,3"),
    ]);
    let source = FileLines::new(input.path()).skip_header().range_bytes(1);
    assert_eq!(read_all(&source, 1).unwrap(), ["x,1", "y,2", "z,3"]);
    let with_mark = FileLines::new(input.path().join("b.csv"));
    assert_eq!(read_all(&with_mark, 1).unwrap(), ["name,n", "z,3"]);
}

#[test]
fn lines_are_parsed_filtered_and_errors_say_where() {
    let input = folder(&[("n", b"1\n\n2\nx\n")]);
    let source = FileLines::new(input.path()).parsed(|line| {
        if line.is_empty() {
            return Ok(None);
        }
        line.parse::<u32>()
            .map(Some)
            .map_err(|e| Error::user("not a number").caused_by(e))
    });
    let mut reader = source
        .reader(&context(0, 1), source.enumerate(1).unwrap())
        .unwrap();
    assert_eq!(poll(&mut reader, 2).unwrap().0, [1, 2]);
    let error = refused(poll(&mut reader, 2), ErrorKind::User, "not a number");
    assert_eq!(error.context("file"), Some("n"));
    assert_eq!(error.context("offset"), Some("5"));
}

#[test]
fn text_that_is_not_utf_8_fails_or_is_replaced() {
    let input = folder(&[("l", b"good\nbad \xff\n")]);
    let error = refused(
        read_all(&FileLines::new(input.path()), 1),
        ErrorKind::InvalidArgument,
        "not UTF-8",
    );
    assert_eq!(error.context("offset"), Some("5"));
    assert_eq!(
        read_all(&FileLines::new(input.path()).lossy(), 1).unwrap(),
        ["good", "bad \u{fffd}"]
    );
}

#[test]
fn a_line_past_the_limit_is_an_error_and_no_memory() {
    let input = folder(&[("l", &[b'x'; 300_000])]);
    let source = FileLines::new(input.path()).longest_line(200_000);
    refused(
        read_all(&source, 4),
        ErrorKind::LimitExceeded,
        "longer than 200000 bytes",
    );
    let whole = FileLines::new(input.path());
    assert_eq!(read_all(&whole, 4).unwrap()[0].len(), 300_000);
}

#[test]
fn what_is_no_input_is_refused_with_its_path() {
    let input = folder(&[]);
    for (path, needle) in [
        ("missing", "does not exist"),
        (".", "holds no files"),
        ("missing/deeper", "does not exist"),
    ] {
        let path = input.path().join(path);
        let error = refused(
            FileLines::new(&path).enumerate(1),
            ErrorKind::Config,
            needle,
        );
        assert!(
            error
                .context("input")
                .unwrap()
                .contains(path.to_str().unwrap()),
            "{error}"
        );
    }
    refused(
        FileLines::new(Path::new("")).enumerate(1),
        ErrorKind::Config,
        "does not exist",
    );
    let empty = folder(&[("nothing", b"")]);
    assert_eq!(read_all(&FileLines::new(empty.path()), 2).unwrap(), [""; 0]);
}

#[cfg(unix)]
#[test]
fn files_that_may_not_be_read_and_dangling_links_are_refused() {
    let input = folder(&[("a", b"1\n")]);
    std::os::unix::fs::symlink("nowhere", input.path().join("b")).unwrap();
    refused(
        FileLines::new(input.path()).enumerate(1),
        ErrorKind::Config,
        "does not exist",
    );
    refused(
        FileLines::new("/dev/null").enumerate(1),
        ErrorKind::Config,
        "neither a regular file nor a folder",
    );
}

#[test]
fn an_input_that_changed_since_the_checkpoint_is_refused_at_the_restore() {
    let content = numbered(2_000);
    let input = folder(&[("a", &content)]);
    let path = input.path().join("a");
    let source = FileLines::new(&path);
    let mut reader = source
        .reader(&context(0, 1), source.enumerate(1).unwrap())
        .unwrap();
    poll(&mut reader, 1_000).unwrap();
    let splits = reader.snapshot().unwrap();
    let restore = || source.reader(&context(0, 1), splits.clone());
    assert!(restore().is_ok());

    fs::write(&path, &content[..content.len() - 1]).unwrap();
    refused(restore(), ErrorKind::Incompatible, "has shrunk");
    let mut other = content.clone();
    other[3] = b'?';
    fs::write(&path, &other).unwrap();
    refused(restore(), ErrorKind::Incompatible, "its first bytes differ");
    let mut other = content.clone();
    other[splits[0].position as usize - 1] = b'?';
    fs::write(&path, &other).unwrap();
    refused(
        restore(),
        ErrorKind::Incompatible,
        "no line begins at the offset",
    );
    fs::remove_file(&path).unwrap();
    refused(restore(), ErrorKind::Incompatible, "is gone");

    let mut longer = content.clone();
    longer.extend_from_slice(b"appended\n");
    fs::write(&path, &longer).unwrap();
    assert_eq!(drain(&mut restore().unwrap()).unwrap().len(), 1_000);
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_refused() {
    let content = numbered(40_000);
    let input = folder(&[("a", &content)]);
    let path = input.path().join("a");
    let source = FileLines::new(&path).range_bytes(u64::MAX);
    let mut reader = source
        .reader(&context(0, 1), source.enumerate(1).unwrap())
        .unwrap();
    poll(&mut reader, 1).unwrap();
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(1_000)
        .unwrap();
    refused(
        drain(&mut reader),
        ErrorKind::Incompatible,
        "has shrunk while it was read",
    );
}

#[test]
fn an_input_that_moved_is_found_by_its_name() {
    let one = folder(&[("a", b"1\n2\n")]);
    let source = FileLines::new(one.path().join("a"));
    let mut reader = source
        .reader(&context(0, 1), source.enumerate(1).unwrap())
        .unwrap();
    poll(&mut reader, 1).unwrap();
    let splits = reader.snapshot().unwrap();
    let other = folder(&[("a", b"1\n2\n")]);
    let moved = FileLines::new(other.path().join("a"));
    assert_eq!(
        drain(&mut moved.reader(&context(0, 1), splits).unwrap()).unwrap(),
        ["2"]
    );
}

#[test]
fn a_damaged_split_leads_nowhere_else() {
    let input = folder(&[("a", b"1\n2\n")]);
    let source = FileLines::new(input.path());
    let good = source.enumerate(1).unwrap().remove(0);
    for file in ["../a", "/etc/passwd", "", ".", "..", "x/a"] {
        let split = FileSplit {
            file: file.to_owned(),
            ..good.clone()
        };
        refused(
            source.reader(&context(0, 1), vec![split]),
            ErrorKind::Corrupt,
            "no plain file",
        );
    }
    for (start, position, end, length) in [
        (3, 2, 4, 4),
        (0, 5, 4, 4),
        (0, 0, 9, 4),
        (u64::MAX, 0, 4, 4),
    ] {
        let split = FileSplit {
            start,
            position,
            end,
            length,
            ..good.clone()
        };
        refused(
            source.reader(&context(0, 1), vec![split]),
            ErrorKind::Corrupt,
            "contradict",
        );
    }
}

#[test]
fn a_split_is_described_with_its_offset() {
    let input = folder(&[("a.csv", b"1\n2\n3\n")]);
    let source = FileLines::new(input.path());
    let mut reader = source
        .reader(&context(0, 1), source.enumerate(1).unwrap())
        .unwrap();
    poll(&mut reader, 2).unwrap();
    assert_eq!(source.describe(&reader.snapshot().unwrap()[0]), "a.csv 4/6");
    let ranges = source.range_bytes(3).enumerate(1).unwrap();
    assert_eq!(
        FileLines::new("x").describe(&ranges[1]),
        "a.csv 4 in 4..6/6"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Ranges of any size, polls of any budget and a restore at any point give each line once, in order per range.
    #[test]
    fn any_division_and_any_restore_give_every_line_once(
        content in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b'x'), Just(b'y')], 0..300),
        range in 1u64..80,
        budgets in proptest::collection::vec(1usize..6, 1..40),
        after in 1u32..4,
    ) {
        let text = String::from_utf8(content.clone()).unwrap();
        let mut expected: Vec<String> =
            text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line).to_owned()).collect();
        if content.last().is_none_or(|last| *last == b'\n') {
            expected.pop();
        }
        let input = folder(&[("f", &content)]);
        let source = FileLines::new(input.path()).range_bytes(range);
        let mut reader = source.reader(&context(0, 1), source.enumerate(1).unwrap()).unwrap();
        let mut seen = Vec::new();
        for budget in budgets {
            let (records, status) = poll(&mut reader, budget).unwrap();
            seen.extend(records);
            if status == SourceStatus::Finished {
                break;
            }
        }
        if after == 1 {
            seen.extend(drain(&mut source.reader(&context(0, 1), reader.snapshot().unwrap()).unwrap()).unwrap());
            prop_assert_eq!(seen, expected);
        } else {
            for mut reader in readers(&source, reader.snapshot().unwrap(), after).unwrap() {
                seen.extend(drain(&mut reader).unwrap());
            }
            prop_assert_eq!(sorted(seen), sorted(expected));
        }
    }
}
