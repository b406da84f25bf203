//! Long lists in bytes that make no sense.
use proptest::prelude::*;
use state_api::access::ListAccess;
use state_api::{ByteStore, ErrorKind, Result, StateKind};

use super::list_tests::{Pair, Times, long, times};
use super::tests::{Fixture, bound};
use super::*;
use crate::format::{ListHead, StoredList, chunk_number};

/// Something that reads a list.
type Access<'a> = dyn Fn(&mut Pair) -> Result<()> + 'a;

/// Runs everything that reads a list; returns the kinds of errors.
fn read_all(pair: &Pair) -> Vec<ErrorKind> {
    let key = bound(&7u64);
    let other = match pair.times {
        Times::None => Times::Strict,
        _ => Times::None,
    };
    let new = Fixture::meta::<u64, u32, u64>("l", StateKind::List, other.ttl());
    let runs: [&Access<'_>; 8] = [
        &|p| p.list(1).get().map(drop),
        &|p| p.list(1).len().map(drop),
        &|p| p.list(1).retain(|n| n % 3 == 0),
        &|p| {
            while p.list(1).pop_front()?.is_some() {}
            Ok(())
        },
        &|p| p.list(1).replace(vec![1]),
        &|p| p.list(1).clear(),
        &|p| merge_lists(&mut p.state, &mut p.f.store, &key, &2u32, &[1]),
        &|p| {
            let (column, old) = (p.state.column(), p.meta());
            migrate_column::<u64>(&mut p.f.store, column, &old, &new, 0)
        },
    ];
    let mut kinds = Vec::new();
    for f in runs {
        if let Err(error) = f(&mut pair.reopened()) {
            assert_eq!(error.context("state"), Some("l"), "{error}");
            kinds.push(error.kind());
        }
    }
    kinds
}

#[test]
fn a_head_that_lies_and_chunks_that_are_missing_are_corrupt() {
    let pair = long(Times::None);
    let column = pair.state.column();
    let mut stored = pair.f.store.column(column).iter();
    let (list, value) = stored.next().unwrap();
    let chunks: Vec<_> = stored.collect();
    let StoredList::Head(head, tail) = StoredList::read(value, false).unwrap() else {
        panic!("not in chunks")
    };
    assert_eq!(chunk_number(list, chunks[0].0), Some(head.first));
    assert_eq!(read_all(&pair), []);
    let lies = [
        ListHead {
            first: head.first - 1,
            skipped: 0,
            ..head
        },
        ListHead {
            first: head.first + 1,
            skipped: 0,
            ..head
        },
        ListHead {
            next: head.next + 1,
            ..head
        },
        ListHead {
            next: u64::MAX,
            ..head
        },
        ListHead {
            next: head.next - 1,
            ..head
        },
        ListHead {
            skipped: 1_000_000,
            ..head
        },
        ListHead {
            skipped: u64::MAX,
            ..head
        },
        ListHead {
            elements: head.elements - 1,
            ..head
        },
        ListHead {
            elements: head.elements + 1,
            ..head
        },
        ListHead {
            elements: u64::MAX,
            ..head
        },
    ];
    let mut damaged: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
    for lie in lies {
        let mut value = Vec::new();
        lie.put(false, &mut value);
        value.extend_from_slice(tail);
        damaged.push((list.clone(), Some(value)));
    }
    for at in [0, chunks.len() / 2, chunks.len() - 1] {
        let (key, value) = chunks[at];
        damaged.push((key.clone(), None));
        damaged.push((key.clone(), Some(Vec::new())));
        damaged.push((key.clone(), Some(value[..value.len() - 1].to_vec())));
        damaged.push((key.clone(), Some(value[2..].to_vec())));
    }
    for (key, value) in damaged {
        let mut pair = long(Times::None);
        match &value {
            Some(value) => pair.f.store.put(column, &key, value).unwrap(),
            None => pair.f.store.delete(column, &key).unwrap(),
        }
        let kinds = read_all(&pair);
        // The head alone says how long a list is, and what is replaced or cleared is not looked at.
        assert!(kinds.len() >= 5, "{key:?} {value:?}: {kinds:?}");
        assert!(kinds.iter().all(|kind| *kind == ErrorKind::Corrupt));
    }
}

proptest! {
    #[test]
    fn damage_anywhere_is_never_a_panic(
        times in times(),
        hits in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..4),
    ) {
        let mut pair = long(times);
        let column = pair.state.column();
        for (entry, at, byte, cuts) in hits {
            let stored = pair.f.store.column(column);
            let (key, value) = stored.iter().nth(entry.index(stored.len())).unwrap();
            let (key, mut value) = (key.clone(), value.clone());
            if value.is_empty() {
                continue;
            }
            let at = at.index(value.len());
            if cuts {
                value.truncate(at);
            } else {
                value[at] = byte;
            }
            pair.f.store.put(column, &key, &value).unwrap();
        }
        for kind in read_all(&pair) {
            prop_assert_eq!(kind, ErrorKind::Corrupt);
        }
    }
}
