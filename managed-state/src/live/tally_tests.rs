//! Whether the running total of a table is what adding up gives.

use crate::live::test_support::{Rng, hasher};
use crate::live::{Change, FrozenTable, HeapSize, LiveTable, SweepCursor};

type Table = LiveTable<u32, u16, String>;

fn table(groups: usize, captures: bool) -> Table {
    let table = Table::new(0, groups, hasher())
        .with_heap_size(HeapSize {
            of_key: |_, _| 0,
            of_value: String::capacity,
        })
        .with_running_total();
    match captures {
        true => table.with_change_capture().with_whole_groups(),
        false => table,
    }
}

#[test]
fn the_running_total_is_what_adding_up_gives_whatever_is_done_to_a_table() {
    for seed in 0..32_u64 {
        let groups = [1, 5, 128, 300][seed as usize % 4];
        let mut table = table(groups, seed % 8 < 4);
        let mut rng = Rng::new(seed);
        let (mut open, mut id): (Vec<FrozenTable<u32, u16, String>>, u64) = (Vec::new(), 0);
        let mut sweep = SweepCursor::default();
        for step in 0..6000 {
            let (key, n) = ((rng.next() % 2500) as u32, rng.next());
            let group = key as usize % groups;
            let hash = hasher().hash(&key, &1_u16);
            let text = "x".repeat(n as usize % 400);
            table.expect_change(group);
            match rng.next() % 1000 {
                0..350 => drop(table.insert(group, hash, &key, &1, text)),
                350..550 => table.modify(group, hash, &key, &1, |value| match value {
                    Some(value) => {
                        value.push_str(&text);
                        (Change::Keep, ())
                    }
                    None => (Change::Put(text), ()),
                }),
                550..750 => drop(table.take(group, hash, &key, &1)),
                750..850 => drop(table.remove(group, hash, &key, &1)),
                850..900 => drop(table.get_mut(group, hash, &key, &1).is_some()),
                900..930 => {
                    let expired = |key: &u32, _: &u16, _: &String| key.is_multiple_of(5);
                    table.sweep(&mut sweep, n as usize % 20, expired);
                }
                930..960 => drop(table.maintain(n as usize % 200)),
                960..970 => {
                    id += 1;
                    open.extend(table.freeze(id).ok());
                }
                970..985 if !open.is_empty() => drop(open.remove(n as usize % open.len())),
                985..989 => table.confirm(n % (id + 1)),
                989..993 => table.discard(n % (id + 1)),
                993 => table.clear_group(group),
                994 if n % 4 == 0 => table.clear(),
                995 => table.restored_from(0, id),
                996 => table.reserve(group, n as usize % 50),
                _ => drop(table.add(group, hash, key, 1, text)),
            }
            assert_eq!(
                table.bytes(),
                table.count_bytes(),
                "seed {seed}, step {step}"
            );
            if n % 3 == 0 {
                assert_eq!(
                    table.settle(),
                    table.count_bytes(),
                    "seed {seed}, step {step}"
                );
            }
        }
    }
}
