//! Places of bytes in a stream: runs that follow each other take two small numbers each.
use state_api::wire::{get_varint, put_varint};
use state_api::{Error, GroupExtent, KeyGroupOffsets, KeyGroupRange, Result};

/// Appends `2 * len`, plus 1 and the offset if the run does not start where the last one ended.
fn put_extent(out: &mut Vec<u8>, end: &mut u64, offset: u64, len: u64) {
    let expected = if len == 0 { 0 } else { *end };
    // Lengths stay below 2^63: they count bytes of an object.
    put_varint(out, (len << 1) | u64::from(offset != expected));
    if offset != expected {
        put_varint(out, offset);
    }
    if len > 0 {
        *end = offset.saturating_add(len);
    }
}

fn get_extent(input: &mut &[u8], end: &mut u64) -> Result<(u64, u64)> {
    let token = get_varint(input)?;
    let len = token >> 1;
    let expected = if len == 0 { 0 } else { *end };
    let offset = if token & 1 == 0 {
        expected
    } else {
        get_varint(input)?
    };
    if token & 1 == 1 && offset == expected {
        return Err(Error::corrupt(
            "an offset is written that follows from the last one",
        ));
    }
    let sum = offset
        .checked_add(len)
        .ok_or_else(|| Error::corrupt("a run ends past 64 bits"))?;
    if len > 0 {
        *end = sum;
    }
    Ok((offset, len))
}

pub(super) fn put_range(out: &mut Vec<u8>, range: KeyGroupRange) {
    put_varint(out, range.len() as u64);
    if !range.is_empty() {
        put_varint(out, u64::from(range.start().0));
    }
}

pub(super) fn get_range(input: &mut &[u8]) -> Result<KeyGroupRange> {
    let len = get_varint(input)?;
    if len == 0 {
        return Ok(KeyGroupRange::EMPTY);
    }
    let start = get_varint(input)?;
    let bad = || Error::corrupt(format!("{len} key groups from {start} on are no range"));
    let end = start.checked_add(len - 1).ok_or_else(bad)?;
    match (i64::try_from(start), i64::try_from(end)) {
        (Ok(start), Ok(end)) => KeyGroupRange::try_new(start, end).map_err(|e| bad().caused_by(e)),
        _ => Err(bad()),
    }
}

pub(super) fn put_offsets(out: &mut Vec<u8>, offsets: &KeyGroupOffsets) {
    put_range(out, offsets.range());
    let mut end = 0;
    for (_, extent) in offsets.iter() {
        put_extent(out, &mut end, extent.offset, extent.len);
    }
}

pub(super) fn get_offsets(input: &mut &[u8]) -> Result<KeyGroupOffsets> {
    let range = get_range(input)?;
    if range.len() > input.len() {
        return Err(Error::corrupt(format!(
            "{} key groups don't fit into {} bytes",
            range.len(),
            input.len()
        )));
    }
    let mut end = 0;
    let mut extents = Vec::with_capacity(range.len());
    for _ in 0..range.len() {
        let (offset, len) = get_extent(input, &mut end)?;
        extents.push(GroupExtent { offset, len });
    }
    KeyGroupOffsets::from_extents(range, extents)
        .map_err(|e| Error::corrupt("bad offsets").caused_by(e))
}

pub(super) fn put_elements(out: &mut Vec<u8>, elements: &[(u64, u64)]) {
    put_varint(out, elements.len() as u64);
    let mut end = 0;
    for (offset, len) in elements {
        put_extent(out, &mut end, *offset, *len);
    }
}

pub(super) fn get_elements(input: &mut &[u8]) -> Result<Vec<(u64, u64)>> {
    let count = state_api::wire::get_len(input)?;
    let mut end = 0;
    let mut elements = Vec::with_capacity(count);
    for _ in 0..count {
        elements.push(get_extent(input, &mut end)?);
    }
    Ok(elements)
}

#[cfg(test)]
mod tests {
    use super::*;
    use state_api::KeyGroup;

    #[test]
    fn runs_that_follow_each_other_take_one_number() {
        let range = KeyGroupRange::new(KeyGroup(3), KeyGroup(7));
        let extents = [(10, 5), (15, 7), (0, 0), (22, 1), (9, 0)]
            .map(|(offset, len)| GroupExtent { offset, len });
        let offsets = KeyGroupOffsets::from_extents(range, extents.to_vec()).unwrap();
        let mut out = Vec::new();
        put_offsets(&mut out, &offsets);
        assert_eq!(out, [5, 3, 11, 10, 14, 0, 2, 1, 9]);
        let mut input = &out[..];
        assert_eq!(get_offsets(&mut input).unwrap(), offsets);
        assert!(input.is_empty());
    }

    #[test]
    fn impossible_ranges_and_runs_are_damage() {
        for bad in [&[1, 0x80, 0x80, 0x02][..], &[0xff, 0xff, 3, 0], &[5, 0, 0]] {
            assert!(get_offsets(&mut &bad[..]).is_err(), "{bad:?}");
        }
        let mut overflow = vec![1, 3];
        put_varint(&mut overflow, u64::MAX);
        assert!(get_elements(&mut &overflow[..]).is_err());
    }
}
