//! What is read from disk and from stores: nothing that stands in it makes a reader panic, or go on with nonsense.
use backend_testkit::fuzz::fuzz;
use state_api::ErrorKind;

use super::crc32c::crc32c;
use super::layout::{ColumnLayout, FileLayout, Layout};
use super::{manifest, record_log};

fn sample() -> Layout {
    let file = |number: u64| FileLayout {
        number,
        level: number % 4,
        size: 1 << number,
        smallest: [&[number as u8, 1][..], &[7; 8]].concat(),
        largest: [&[number as u8, 2][..], &[7; 8]].concat(),
        smallest_sequence: number,
        largest_sequence: 2 * number,
        epoch: number,
        fields: vec![(5, vec![3]), (12, vec![number as u8; 16])],
    };
    Layout {
        prefix_len: 1,
        last_sequence: 1_000,
        columns: vec![
            ColumnLayout {
                state: "first".to_owned(),
                files: (2..6).map(file).collect(),
            },
            ColumnLayout {
                state: "second".to_owned(),
                files: (6..20).map(file).collect(),
            },
        ],
    }
}

#[test]
fn damaged_layouts_are_refused_or_whole() {
    let whole = sample().encode();
    let body = whole[..whole.len() - 4].to_vec();
    fuzz(20_000, &[whole, body], |random, mut bytes| {
        // Half of them under a checksum that is right.
        if random.below(2) == 0 {
            let checksum = crc32c(&[&bytes]);
            bytes.extend(checksum.to_le_bytes());
        }
        match Layout::decode(&bytes) {
            Ok(layout) => assert_eq!(Layout::decode(&layout.encode()).unwrap(), layout),
            Err(error) => assert!(
                matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported),
                "{error}"
            ),
        }
    });
}

#[test]
fn damaged_manifests_are_refused_or_whole() {
    let manifest = manifest::write(&sample());
    let records = record_log::records(&manifest).unwrap();
    fuzz(10_000, &[manifest], |_, bytes| {
        if let Ok(layout) = manifest::read(&bytes, 1) {
            layout.check().unwrap();
        }
    });
    fuzz(10_000, &records, |_, bytes| {
        let mut log = manifest::write(&sample());
        record_log::append(&mut log, &bytes);
        match manifest::read(&log, 1) {
            Ok(layout) => layout.check().unwrap(),
            Err(error) => assert!(
                matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported),
                "{error}"
            ),
        }
    });
}
