use state_api::{Error, Result};

use super::crc32c::{crc32c, masked};

const BLOCK: usize = 32 << 10;
const HEADER: usize = 4 + 2 + 1;

const FULL: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;

/// Appends a record to a log of RocksDB's, which is in blocks of 32 KiB.
pub(super) fn append(log: &mut Vec<u8>, record: &[u8]) {
    let (mut rest, mut is_first) = (record, true);
    loop {
        let left = BLOCK - log.len() % BLOCK;
        if left < HEADER {
            log.resize(log.len() + left, 0);
            continue;
        }
        let (part, later) = rest.split_at(rest.len().min(left - HEADER));
        let kind = match (is_first, later.is_empty()) {
            (true, true) => FULL,
            (true, false) => FIRST,
            (false, false) => MIDDLE,
            (false, true) => LAST,
        };
        let checksum = masked(crc32c(&[&[kind], part]));
        log.extend_from_slice(&checksum.to_le_bytes());
        // At most a block.
        log.extend_from_slice(&(part.len() as u16).to_le_bytes());
        log.push(kind);
        log.extend_from_slice(part);
        (rest, is_first) = (later, false);
        if rest.is_empty() {
            return;
        }
    }
}

/// Reads the records of a log of RocksDB's. One that was being written is not among them.
///
/// # Errors
/// `Corrupt` for a record that is damaged, `Unsupported` for one of a kind that only other logs have.
pub(super) fn records(log: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut records = Vec::new();
    let mut open: Option<Vec<u8>> = None;
    for block in log.chunks(BLOCK) {
        let mut rest = block;
        while let Some((header, after)) = rest.split_at_checked(HEADER) {
            let [c0, c1, c2, c3, l0, l1, kind] = *header else {
                break;
            };
            let len = usize::from(u16::from_le_bytes([l0, l1]));
            if kind == 0 && len == 0 {
                // Space that was set aside and not written.
                break;
            }
            let Some((part, later)) = after.split_at_checked(len) else {
                if block.len() < BLOCK {
                    return Ok(records);
                }
                return Err(Error::corrupt("a record of the manifest ends early"));
            };
            if masked(crc32c(&[&[kind], part])) != u32::from_le_bytes([c0, c1, c2, c3]) {
                return Err(Error::corrupt(
                    "a record of the manifest differs from its checksum",
                ));
            }
            match (kind, open.take()) {
                (FULL, None) => records.push(part.to_vec()),
                (FIRST, None) => open = Some(part.to_vec()),
                (MIDDLE, Some(mut record)) => {
                    record.extend_from_slice(part);
                    open = Some(record);
                }
                (LAST, Some(mut record)) => {
                    record.extend_from_slice(part);
                    records.push(record);
                }
                (FULL | FIRST | MIDDLE | LAST, _) => {
                    return Err(Error::corrupt("a record of the manifest lacks a part"));
                }
                _ => {
                    return Err(Error::unsupported(
                        "a record of the manifest is of an unknown kind",
                    )
                    .with("kind", kind));
                }
            }
            rest = later;
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_any_length_come_back_across_blocks() {
        let lens = [
            0,
            1,
            7,
            BLOCK - HEADER,
            BLOCK,
            3 * BLOCK,
            100,
            BLOCK - 120,
            5,
        ];
        let written: Vec<Vec<u8>> = lens
            .iter()
            .map(|len| (0..*len).map(|i| (i * 7 + len) as u8).collect())
            .collect();
        let mut log = Vec::new();
        for record in &written {
            append(&mut log, record);
        }
        assert_eq!(records(&log).unwrap(), written);
        for len in (0..log.len()).step_by(997) {
            let whole = records(&log[..len]).unwrap();
            assert_eq!(whole, written[..whole.len()], "the first {len} bytes");
        }
    }

    #[test]
    fn a_flipped_bit_is_noticed() {
        let mut log = Vec::new();
        append(&mut log, b"record");
        for at in 0..log.len() {
            let mut damaged = log.clone();
            damaged[at] ^= 1;
            let read = records(&damaged);
            assert!(read.is_err() || read.unwrap().is_empty(), "at {at}");
        }
    }
}
