use super::*;
use state_api::ErrorKind;

fn file(number: u64) -> FileLayout {
    FileLayout {
        number,
        level: number % 3,
        size: 100 + number,
        smallest: [b"a".as_slice(), &[1; 8]].concat(),
        largest: [b"z".as_slice(), &[1; 8]].concat(),
        smallest_sequence: number,
        largest_sequence: number + 1,
        epoch: number,
        fields: vec![(5, vec![1]), (12, vec![9; 16])],
    }
}

fn layout(files: usize) -> Layout {
    let column = |state: &str, numbers: std::ops::Range<u64>| ColumnLayout {
        state: state.to_owned(),
        files: numbers.map(file).collect(),
    };
    let half = 10 + files as u64 / 2;
    Layout {
        prefix_len: 2,
        last_sequence: 1 << 40,
        columns: vec![
            column("one", 10..half),
            column("a\0b%", half..10 + files as u64),
            column("empty", 0..0),
        ],
    }
}

#[test]
fn a_manifest_says_what_was_written_in_blocks_of_any_number() {
    for files in [0, 2, 7, 3_000] {
        assert_eq!(read(&write(&layout(files)), 2).unwrap(), layout(files));
    }
}

fn record(parts: &[(u64, &[u64])]) -> Vec<u8> {
    let mut record = Vec::new();
    for (tag, values) in parts {
        put_varint(&mut record, *tag);
        for value in *values {
            put_varint(&mut record, *value);
        }
    }
    record
}

fn with(mut manifest: Vec<u8>, records: &[Vec<u8>]) -> Vec<u8> {
    for record in records {
        record_log::append(&mut manifest, record);
    }
    manifest
}

#[test]
fn a_group_of_edits_counts_when_all_of_it_is_there() {
    let delete = |number, left| {
        record(&[
            (DELETED_FILE, &[number % 3, number]),
            (COLUMN, &[1]),
            (IN_GROUP, &[left]),
        ])
    };
    let started = with(write(&layout(8)), &[delete(10, 1)]);
    assert_eq!(read(&started, 2).unwrap(), layout(8));
    let both = with(started, &[delete(11, 0)]);
    let numbers: Vec<u64> = read(&both, 2).unwrap().columns[0]
        .files
        .iter()
        .map(|file| file.number)
        .collect();
    assert_eq!(numbers, [12, 13]);
}

#[test]
fn a_file_moves_to_another_level_under_its_number() {
    let mut moved = record(&[(DELETED_FILE, &[1, 10]), (COLUMN, &[1])]);
    let mut deeper = file(10);
    deeper.level = 5;
    put_file(&mut moved, &deeper);
    let read = read(&with(write(&layout(8)), &[moved]), 2).unwrap();
    assert_eq!(read.columns[0].files[0], deeper);
    assert_eq!(read.files().count(), 8);
}

#[test]
fn a_dropped_column_is_gone_and_what_is_not_known_is_refused() {
    let dropped = with(
        write(&layout(8)),
        &[record(&[(COLUMN, &[1]), (COLUMN_DROPPED, &[])])],
    );
    let states: Vec<String> = read(&dropped, 2)
        .unwrap()
        .columns
        .into_iter()
        .map(|column| column.state)
        .collect();
    assert_eq!(states, ["a\0b%", "empty"]);
    let mut comparator = Vec::new();
    put_varint(&mut comparator, COMPARATOR);
    put_bytes(&mut comparator, b"other");
    let mut blob = file(99);
    blob.fields = vec![(FIELD_OLDEST_BLOB, vec![1])];
    let mut elsewhere = file(99);
    elsewhere.fields = vec![(FIELD_NEEDED + 1, vec![1])];
    let with_file = |file| {
        let mut record = Vec::new();
        put_file(&mut record, &file);
        record
    };
    // Nobody knows what is in a column that is of no state.
    let mut of_others = with_file(file(99));
    for (tag, value) in [(COLUMN, 9), (COLUMN_ADDED, 0)] {
        put_varint(&mut of_others, tag);
        match value {
            0 => put_bytes(&mut of_others, b"other"),
            id => put_varint(&mut of_others, id),
        }
    }
    for refused in [
        comparator,
        record(&[(400, &[1, 2, 3])]),
        record(&[(SKIPPABLE + 2, &[1])]),
        with_file(blob),
        with_file(elsewhere),
        of_others,
    ] {
        let manifest = with(write(&layout(2)), &[refused]);
        assert_eq!(
            read(&manifest, 2).unwrap_err().kind(),
            ErrorKind::Unsupported
        );
    }
    let twice = with(
        write(&layout(2)),
        &[record(&[(DELETED_FILE, &[0, 77]), (COLUMN, &[1])])],
    );
    assert_eq!(read(&twice, 2).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn a_cut_ends_with_the_edits_that_bring_its_mark_into_a_file() {
    let flushed = |number: u8, sequence: u64, column: u8, left: Option<u8>| {
        let mut edit = Vec::new();
        let mut file = file(u64::from(number));
        (file.level, file.smallest_sequence, file.largest_sequence) = (0, sequence, sequence);
        put_file(&mut edit, &file);
        put_varint(&mut edit, COLUMN);
        put_varint(&mut edit, u64::from(column));
        if let Some(left) = left {
            put_varint(&mut edit, IN_GROUP);
            put_varint(&mut edit, u64::from(left));
        }
        edit
    };
    let start = write(&layout(2));
    let from = start.len();
    let cut = |edits: &[Vec<u8>], mark| {
        let manifest = with(start.clone(), edits);
        let layout = read_to_mark(&manifest, from, mark, 2);
        layout.map(|layout| {
            layout.map(|layout| layout.files().map(|file| file.number).collect::<Vec<_>>())
        })
    };
    let edits = [
        flushed(50, 60, 1, None),
        flushed(51, 69, 1, Some(1)),
        flushed(52, 70, 0, Some(0)),
        flushed(53, 80, 1, Some(1)),
        flushed(54, 81, 0, Some(0)),
    ];
    // What was written later is left out, and so are the files of the marks.
    assert_eq!(cut(&edits, 70).unwrap().unwrap(), [10, 50, 51, 11]);
    assert_eq!(cut(&edits, 81).unwrap().unwrap(), [10, 50, 51, 53, 11]);
    // Not there yet, also when a part of the edits is.
    assert_eq!(cut(&edits[..1], 70).unwrap(), None);
    assert_eq!(cut(&edits[..2], 70).unwrap(), None);
    assert_eq!(cut(&edits[..4], 81).unwrap(), None);
    // What comes from before the cut says nothing about it.
    let manifest = with(start.clone(), &edits);
    assert_eq!(
        read_to_mark(&manifest, manifest.len(), 70, 2).unwrap(),
        None
    );
    // Two flushes became one: the cut can't be had any more.
    let error = cut(
        &[flushed(51, 75, 1, Some(1)), flushed(52, 76, 0, Some(0))],
        70,
    )
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retryable);
    assert_eq!(error.context("file"), Some("000051.sst"));
}
