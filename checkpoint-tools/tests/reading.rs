//! Entries of a checkpoint of types that are known by their schemas alone.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use backend_testkit::{ByteBackend, NativeStore, ReferenceBackend};
use checkpoint_storage::StoredCheckpoint;
use checkpoint_tools::{
    ChangesFormat, CheckpointSource, CsvRows, Entry, FoundState, Item, KeyQuery, Selection,
    StoreFormat, Toolbox, entry_json, item_json,
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
