use super::*;
use state_api::ErrorKind;

/// An internal key: as RocksDB has it, number of the change and kind after it.
fn internal(key: &[u8], tail: [u8; 8]) -> Vec<u8> {
    [key, &tail].concat()
}

fn file(number: u64, first: &[u8], last: &[u8]) -> FileLayout {
    FileLayout {
        number,
        level: 1,
        size: 1_000,
        smallest: internal(first, [1; 8]),
        largest: internal(last, [1; 8]),
        smallest_sequence: 5,
        largest_sequence: 9,
        epoch: 3,
        fields: vec![(5, vec![1]), (12, vec![7; 16])],
    }
}

fn layout() -> Layout {
    Layout {
        prefix_len: 1,
        last_sequence: 10,
        columns: vec![
            ColumnLayout {
                state: "count".to_owned(),
                files: vec![file(7, b"\x01a", b"\x02b"), file(9, b"\x03", b"\x04")],
            },
            ColumnLayout {
                state: "empty".to_owned(),
                files: vec![],
            },
        ],
    }
}

#[test]
fn a_layout_comes_back_as_it_was() {
    let bytes = layout().encode();
    assert_eq!(Layout::decode(&bytes).unwrap(), layout());
    let mut newer = bytes.clone();
    newer[7] = 9;
    assert_eq!(
        Layout::decode(&newer).unwrap_err().kind(),
        ErrorKind::Unsupported
    );
}

#[test]
fn each_damaged_byte_and_each_cut_is_noticed() {
    let bytes = layout().encode();
    for at in 0..bytes.len() {
        for bit in [1, 0x80] {
            let mut damaged = bytes.clone();
            damaged[at] ^= bit;
            assert!(Layout::decode(&damaged).is_err(), "byte {at}");
        }
        assert!(Layout::decode(&bytes[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn what_contradicts_itself_is_refused_whatever_its_checksum() {
    let changes: [fn(&mut Layout); 8] = [
        |l| l.columns[1].state = "count".to_owned(),
        |l| l.columns[0].files[1].number = 7,
        |l| l.columns[0].files[0].largest_sequence = 11,
        |l| l.columns[0].files[0].smallest_sequence = 10,
        |l| l.columns[0].files[0].smallest = b"\x01".to_vec(),
        |l| l.columns[0].files[0].smallest = internal(b"\x05", [0; 8]),
        |l| l.columns[0].files[0].level = 64,
        |l| l.columns[0].files[0].size = 0,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut wrong = layout();
        change(&mut wrong);
        let error = Layout::decode(&wrong.encode()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "change {number}");
    }
}

#[test]
fn a_file_is_within_bounds_that_it_goes_up_to_but_does_not_reach() {
    use state_api::KeyGroup;
    let bounds = Bounds::of(KeyGroupRange::new(KeyGroup(3), KeyGroup(5)), 1);
    assert_eq!(bounds.start, [3]);
    assert_eq!(bounds.end.as_deref(), Some(&[6][..]));
    // (first, last, intersects, is within)
    for (first, last, intersects, within) in [
        (&b"\x01"[..], &b"\x02zz"[..], false, false),
        (b"\x01", b"\x03", true, false),
        (b"\x03", b"\x05zz", true, true),
        (b"\x05zz", b"\x06", true, false),
        (b"\x06", b"\x07", false, false),
    ] {
        let file = file(1, first, last);
        assert_eq!(
            file.intersects(&bounds),
            intersects,
            "{first:?} to {last:?}"
        );
        assert_eq!(file.is_within(&bounds), within, "{first:?} to {last:?}");
    }
    let mut deleted_up_to_end = file(1, b"\x05", b"\x06");
    deleted_up_to_end.largest = internal(b"\x06", EXCLUDED);
    assert!(deleted_up_to_end.is_within(&bounds));
    deleted_up_to_end.smallest = internal(b"\x01", [1; 8]);
    deleted_up_to_end.largest = internal(b"\x03", EXCLUDED);
    assert!(!deleted_up_to_end.intersects(&bounds));
}

#[test]
fn k_258_the_bounds_of_the_last_key_groups_have_no_overflow() {
    use state_api::KeyGroup;
    let bounds = |start, end, len| {
        let bounds = Bounds::of(KeyGroupRange::new(KeyGroup(start), KeyGroup(end)), len);
        (bounds.start, bounds.end)
    };
    assert_eq!(bounds(112, 127, 1), (vec![112], Some(vec![128])));
    assert_eq!(
        bounds(32_752, 32_767, 2),
        (vec![0x7F, 0xF0], Some(vec![0x80]))
    );
    assert_eq!(bounds(255, 255, 2), (vec![0, 255], Some(vec![1])));
}
