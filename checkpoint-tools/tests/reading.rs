//! Entries of a checkpoint of types that are known by their schemas alone.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use backend_testkit::{ByteBackend, NativeStore, ReferenceBackend};
use checkpoint_storage::StoredCheckpoint;
use checkpoint_tools::{
    ChangesFormat, CheckpointSource, CsvRows, Entry, FoundState, Item, KeyQuery, Progress,
    Selection, StoreFormat, Toolbox, entry_json, item_json,
};
use state_api::{BackendContext, BackendFactory, ByteStore, ErrorKind, Result, SnapshotKind};
use support::{Shop, runtime};
use tokio::runtime::Runtime;

fn native() -> impl BackendFactory + 'static {
    ByteBackend::new("native", |cx: &BackendContext| {
        Ok(Box::new(NativeStore::new(cx, None)) as Box<dyn ByteStore>)
    })
}

fn source(folder: &Path, io: &Runtime) -> CheckpointSource {
    let found = StoredCheckpoint::find(folder.to_str().unwrap(), io.handle());
    let mut toolbox = Toolbox::new(io.handle().clone(), folder.parent().unwrap());
    let format = StoreFormat::new("native-reference", native());
    toolbox.formats.register(format).unwrap();
    let format = ChangesFormat::new("changes");
    toolbox.formats.register(format).unwrap();
    CheckpointSource::new(io.block_on(found).unwrap(), [], toolbox)
}

/// Reads entries, each of which `take` is handed.
fn read(
    source: &CheckpointSource,
    selection: &Selection,
    io: &Runtime,
    mut take: impl FnMut(Item) -> Result<ControlFlow<()>>,
) -> Result<()> {
    io.block_on(source.entries(selection, &mut take))
}

fn read_all(source: &CheckpointSource, io: &Runtime) -> Result<()> {
    read(source, &Selection::all(), io, |_| {
        Ok(ControlFlow::Continue(()))
    })
}

fn lines(source: &CheckpointSource, selection: &Selection, io: &Runtime) -> Vec<String> {
    let mut lines = Vec::new();
    read(source, selection, io, |item| {
        lines.push(item_json(&item));
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    lines
}

/// The lines without what depends on how the job was split, sorted.
fn rows(source: &CheckpointSource, io: &Runtime) -> Vec<String> {
    let mut rows = lines(
        source,
        &Selection::all().operator("orders").without_raw(),
        io,
    );
    rows.sort();
    rows
}

fn written(shop: &Shop) -> (tempfile::TempDir, Runtime, CheckpointSource) {
    let (dir, io) = (tempfile::tempdir().unwrap(), runtime());
    let folder = dir.path().join("savepoint");
    shop.write(&folder, &io);
    let source = source(&folder, &io);
    (dir, io, source)
}

#[test]
fn every_kind_of_state_is_dumped_by_its_schema() {
    let (_dir, io, source) = written(&Shop {
        customers: 1,
        ..Shop::default()
    });
    let all = lines(&source, &Selection::all(), &io).join("\n");
    for line in [
        r#"{"operator":"feed","state":"offsets","kind":"operator-list","subtask":1,"index":0,"value":10}"#,
        r#"{"operator":"feed","state":"seen","kind":"union-list","subtask":0,"index":0,"value":"by 0"}"#,
        r#"{"operator":"feed","state":"rates","kind":"broadcast","subtask":0,"map_key":"EUR","value":1.0}"#,
        r#""state":"totals","kind":"value","key_group":7,"key":{"shop":"north","number":0},"value":{"amount":0.5,"last":null}}"#,
        r#""index":1,"value":{"Shop":{"city":"city \"0\""}},"renewed_ms":1700000000000,"expires_ms":1700003600000}"#,
        r#""namespace":{"start":0,"end":86400000},"map_key":"apples","value":0}"#,
        r#""state":"history","kind":"sorted-map","key_group":7,"key":{"shop":"north","number":0},"map_key":0,"value":[1,"a\u0000b"]}"#,
        r#""state":"count","kind":"reducing""#,
        r#""value":{"opaque":"sketch","version":3,"bytes":"0xab01"}}"#,
        r#""kind":"timer","key_group":7,"key":{"shop":"north","number":0},"namespace":"daily","time_ms":1000}"#,
        r#"{"operator":"orders","raw":"raw keyed","subtask":0,"key_group":1,"bytes":10}"#,
    ] {
        assert!(all.contains(line), "{line} is missing in\n{all}");
    }
    // The broadcast state stands once, though every subtask has it.
    assert_eq!(all.matches("\"USD\"").count(), 1);
}

#[test]
fn k_675_dumps_are_the_same_whatever_backend_and_format_wrote_the_snapshot() {
    let (_dir, io, hashmap) = written(&Shop::default());
    let expected = rows(&hashmap, &io);
    // 20 customers: totals, two visits, two baskets, history, count, sketch, reminder.
    assert_eq!(expected.len(), 20 * 9);
    let reference: Arc<dyn BackendFactory> = Arc::new(ReferenceBackend);
    let native: Arc<dyn BackendFactory> = Arc::new(native());
    let fs: Arc<dyn BackendFactory> = Arc::new(backend_fs::FsBackend);
    for (factory, kind) in [
        (&fs, SnapshotKind::NativeSavepoint),
        (&fs, SnapshotKind::CanonicalSavepoint),
        (&reference, SnapshotKind::CanonicalSavepoint),
        (&native, SnapshotKind::CanonicalSavepoint),
        (&native, SnapshotKind::NativeSavepoint),
    ] {
        let (_dir, io, other) = written(&Shop {
            factory: Arc::clone(factory),
            kind,
            parallelism: 3,
            inline_threshold: 1 << 20,
            ..Shop::default()
        });
        assert_eq!(rows(&other, &io), expected, "{} {kind:?}", factory.name());
    }
}

/// Every backend by name, that over RocksDB if it is built.
fn backends() -> Vec<Arc<dyn BackendFactory>> {
    vec![
        Arc::new(backend_hashmap::HashMapBackend),
        Arc::new(backend_fs::FsBackend),
        Arc::new(ReferenceBackend),
        #[cfg(feature = "rocksdb")]
        Arc::new(backend_rocksdb::RocksDbBackend::new()),
    ]
}

#[test]
fn a_job_moves_between_any_two_backends_by_a_canonical_savepoint_and_dumps_alike() {
    let (dir, io) = (tempfile::tempdir().unwrap(), runtime());
    let place = |name: &str| dir.path().join(name);
    let all = |source: &CheckpointSource| {
        let mut all = lines(source, &Selection::all(), &io);
        all.sort();
        all
    };
    for from in backends() {
        let shop = Shop {
            factory: Arc::clone(&from),
            raw_keyed: false,
            ..Shop::default()
        };
        shop.write(&place(from.name()), &io);
        let written = source(&place(from.name()), &io);
        let expected = all(&written);
        assert_eq!(expected.len(), 20 * 9 + 2 * 2 + 2 + 2, "{}", from.name());
        for to in backends() {
            let name = format!("{}-{}", from.name(), to.name());
            let moved = Shop {
                factory: to,
                parallelism: 3,
                feeds: Some(2),
                raw_keyed: false,
                ..Shop::default()
            };
            moved.restore_and_write(&written, &place(&name), &io);
            let moved = source(&place(&name), &io);
            assert_eq!(all(&moved), expected, "{name}");
        }
    }
}

#[test]
fn an_unknown_format_is_named_with_those_that_are_read() {
    let (dir, io, _) = written(&Shop {
        factory: Arc::new(native()),
        kind: SnapshotKind::NativeSavepoint,
        ..Shop::default()
    });
    let folder = dir.path().join("savepoint");
    let found = StoredCheckpoint::find(folder.to_str().unwrap(), io.handle());
    let mut toolbox = Toolbox::new(io.handle().clone(), dir.path());
    let open = |toolbox| CheckpointSource::new(io.block_on(found).unwrap(), [], toolbox);
    toolbox.formats.declare_absent("native-reference", "native");
    let source = open(toolbox);
    let error = read_all(&source, &io).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("feature \"native\""), "{error}");
    assert_eq!(error.context("operator"), Some("orders"));
}

#[test]
fn a_key_is_looked_up_in_its_group_alone() {
    let (_dir, io, source) = written(&Shop::default());
    let find =
        |state: &str, key: &str, narrow: &dyn Fn(&FoundState<'_>, KeyQuery) -> Result<KeyQuery>| {
            let state = source.state(state).unwrap();
            let query = narrow(&state, KeyQuery::parse(&state, key).unwrap()).unwrap();
            let mut found = Vec::new();
            let take = &mut |entry: Entry| {
                found.push(entry_json(&entry));
                Ok(())
            };
            io.block_on(source.lookup(&state, &query, take)).unwrap();
            found
        };
    let key = r#"{"shop":"south","number":7}"#;
    let all = &|_: &FoundState<'_>, query| Ok(query);
    let totals = find("orders/totals", key, all);
    assert_eq!(totals.len(), 1);
    assert!(totals[0].ends_with(r#""value":{"amount":7.5,"last":"item-7"}}"#));
    assert_eq!(find("visits", key, all).len(), 2);
    assert_eq!(find("basket", key, all).len(), 2);
    let of_day = find("basket", key, &|state, query| {
        query.namespace(state, r#"{"start":86400000,"end":172800000}"#)
    });
    assert_eq!(of_day.len(), 1);
    assert!(of_day[0].contains("pears"));
    let apples = find("basket", key, &|state, query| {
        query.map_key(state, "apples")
    });
    assert_eq!(apples.len(), 1);
    assert!(find("totals", r#"{"shop":"south","number":8}"#, all).is_empty());
    assert_eq!(find("rates", "EUR", all).len(), 1);
    assert_eq!(find("reminders", key, all).len(), 1);
}

/// Counts the bytes that are read.
#[derive(Default)]
struct Counted(AtomicU64);

impl Progress for Counted {
    fn advance(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[test]
fn a_key_of_a_native_snapshot_is_looked_up_without_reading_the_other_groups() {
    let shop = Shop {
        factory: Arc::new(backend_fs::FsBackend),
        kind: SnapshotKind::NativeSavepoint,
        parallelism: 1,
        customers: 20_000,
        inline_threshold: 0,
        ..Shop::default()
    };
    let (dir, io, _) = written(&shop);
    let counted = Arc::new(Counted::default());
    let folder = dir.path().join("savepoint");
    let plain = source(&folder, &io);
    let mut toolbox = Toolbox::new(io.handle().clone(), dir.path());
    let format = ChangesFormat::new("changes");
    toolbox.formats.register(format).unwrap();
    toolbox.progress = Arc::<Counted>::clone(&counted);
    let source = CheckpointSource::new(plain.checkpoint().clone(), [], toolbox);
    let state = source.state("totals").unwrap();
    let query = KeyQuery::parse(&state, r#"{"shop":"south","number":7}"#).unwrap();
    let mut found = Vec::new();
    let take = &mut |entry: Entry| {
        found.push(entry_json(&entry));
        Ok(())
    };
    io.block_on(source.lookup(&state, &query, take)).unwrap();
    assert_eq!(found.len(), 1);
    let (read, total) = (
        counted.0.load(Ordering::Relaxed),
        source.metadata().total_bytes(),
    );
    assert!(read > 0 && read * 10 < total, "{read} of {total}");
}

#[test]
fn names_that_are_not_there_are_told_with_the_nearest() {
    let (_dir, _io, source) = written(&Shop::default());
    for (name, near) in [
        ("totalz", "\"totals\""),
        ("orders/vists", "\"visits\""),
        ("order/visits", "\"orders\""),
    ] {
        let error = source.state(name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.message().contains(near), "{error}");
    }
    let error = Selection::all().operator("fed").check(&source).unwrap_err();
    assert!(error.message().contains("\"feed\""), "{error}");
    let error = Selection::all().state("totalz").check(&source).unwrap_err();
    assert!(error.message().contains("\"totals\""), "{error}");
    let state = source.state("totals").unwrap();
    let error = KeyQuery::parse(&state, r#"{"shop":"south"}"#).unwrap_err();
    assert!(error.message().contains("field \"number\""), "{error}");
}

#[test]
fn a_reader_that_has_enough_ends_the_reading() {
    let (_dir, io, source) = written(&Shop::default());
    let mut count = 0;
    read(&source, &Selection::all(), &io, |item| {
        assert!(matches!(item, Item::Entry(_)));
        count += 1;
        Ok(if count == 12 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        })
    })
    .unwrap();
    assert_eq!(count, 12);
}

#[test]
fn a_table_of_one_state_has_a_column_for_each_field() {
    let (_dir, io, source) = written(&Shop {
        customers: 4,
        parallelism: 1,
        ..Shop::default()
    });
    let table = |names: &[&str]| {
        let selection = names
            .iter()
            .fold(Selection::all(), |all, name| all.state(name));
        let states: Vec<FoundState<'_>> = names
            .iter()
            .map(|name| source.state(name).unwrap())
            .collect();
        let mut out = Vec::new();
        let mut rows = CsvRows::new(&states, &mut out).unwrap();
        read(&source, &selection, &io, |item| {
            if let Item::Entry(entry) = item {
                rows.entry(&entry)?;
            }
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        rows.finish().unwrap();
        let text = String::from_utf8(out).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines[1..].sort();
        lines
    };
    let totals = table(&["totals"]);
    assert_eq!(totals[0], "key.shop,key.number,value.amount,value.last");
    assert!(totals.contains(&"north,0,0.5,".to_owned()), "{totals:?}");
    assert!(totals.contains(&"south,1,1.5,item-1".to_owned()));
    let basket = table(&["basket"]);
    assert_eq!(
        basket[0],
        "key.shop,key.number,namespace.start,namespace.end,map_key,value"
    );
    assert!(basket.contains(&"north,3,0,86400000,apples,3".to_owned()));
    let visits = table(&["visits"]);
    assert_eq!(
        visits[0],
        "key.shop,key.number,index,value,renewed_ms,expires_ms"
    );
    let both = table(&["totals", "rates"]);
    assert!(both[0].starts_with("operator,state,kind,subtask,key_group,key,"));
    assert_eq!(both.len(), 1 + 4 + 2);
}

#[test]
fn damage_names_object_operator_and_subtask() {
    let (_dir, io, source) = written(&Shop::default());
    let objects = source.metadata().objects();
    for used in objects.map(|used| used.object.path.to_string()) {
        let path = source
            .checkpoint()
            .folder
            .url()
            .strip_prefix("file://")
            .unwrap()
            .to_owned();
        let path = Path::new(&path).join(&used);
        let whole = std::fs::read(&path).unwrap();
        for damage in ["flipped", "missing"] {
            let mut bytes = whole.clone();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            match damage {
                "missing" => std::fs::remove_file(&path).unwrap(),
                _ => std::fs::write(&path, &bytes).unwrap(),
            }
            let error = read_all(&source, &io).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{damage}: {error}");
            assert_eq!(error.context("object"), Some(&*used), "{damage}: {error}");
            assert!(error.context("operator").is_some() && error.context("subtask").is_some());
        }
        std::fs::write(&path, &whole).unwrap();
    }
}

#[cfg(feature = "parquet")]
mod parquet_files {
    use bytes::Bytes;
    use checkpoint_tools::ParquetRows;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    use super::*;

    /// Dumps the chosen states into a file; the reader of it.
    fn dumped(
        source: &CheckpointSource,
        io: &Runtime,
        is_chosen: impl Fn(&FoundState<'_>) -> bool,
    ) -> SerializedFileReader<Bytes> {
        let states: Vec<_> = source.states().into_iter().filter(is_chosen).collect();
        let mut selection = Selection::all().without_raw();
        for state in &states {
            selection = selection.state(&state.path());
        }
        let mut file = Vec::new();
        let mut rows = ParquetRows::new(&states, &mut file).unwrap();
        read(source, &selection, io, |item| {
            if let Item::Entry(entry) = item {
                rows.entry(&entry)?;
            }
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        rows.finish().unwrap();
        SerializedFileReader::new(Bytes::from(file)).unwrap()
    }

    #[test]
    fn one_state_has_typed_columns_and_nested_values_are_json() {
        let (_dir, io, source) = written(&Shop::default());
        let file = dumped(&source, &io, |state| &*state.meta.name == "totals");
        let mut lines = Vec::new();
        for row in file.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            let last = (!row.is_null(3).unwrap()).then(|| row.get_string(3).unwrap().clone());
            let (shop, number) = (row.get_string(0).unwrap(), row.get_uint(1).unwrap());
            lines.push((shop.clone(), number, row.get_double(2).unwrap(), last));
        }
        assert_eq!(lines.len(), 20);
        lines.sort_by_key(|line| line.1);
        assert_eq!(lines[0], ("north".into(), 0, 0.5, None));
        assert_eq!(lines[7], ("south".into(), 7, 7.5, Some("item-7".into())));
        let schema = file.metadata().file_metadata().schema_descr();
        let names: Vec<_> = schema
            .columns()
            .iter()
            .map(|c| c.name().to_owned())
            .collect();
        assert_eq!(
            names,
            ["key.shop", "key.number", "value.amount", "value.last"]
        );

        let visits = dumped(&source, &io, |state| &*state.meta.name == "visits");
        let mut second = visits.get_row_iter(None).unwrap().map(Result::unwrap);
        let second = second.find(|row| row.get_long(2).unwrap() == 1).unwrap();
        assert!(
            second
                .get_string(3)
                .unwrap()
                .starts_with("{\"Shop\":{\"city\":")
        );
        assert_eq!(second.get_timestamp_millis(4).unwrap(), support::NOW_MS);
    }

    #[test]
    fn several_states_share_a_table_and_large_values_begin_row_groups() {
        let (_dir, io, source) = written(&Shop {
            customers: 70_000 / 9,
            ..Shop::default()
        });
        let file = dumped(&source, &io, |_| true);
        assert_eq!(file.metadata().num_row_groups(), 2);
        let rows = file.metadata().file_metadata().num_rows();
        assert_eq!(rows, 70_000 / 9 * 9 + 8);
        let mut kinds = std::collections::BTreeSet::new();
        for row in file.get_row_iter(None).unwrap() {
            kinds.insert(row.unwrap().get_string(2).unwrap().clone());
        }
        assert_eq!(kinds.len(), 9, "{kinds:?}");
    }
}
