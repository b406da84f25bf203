//! Checkpoints that are written out of others: converted, rescaled, edited, compared, and built out of rows.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod edited;
mod round_trip;
mod support;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex};

use backend_testkit::{ByteBackend, NativeStore};
use checkpoint_storage::{METADATA_NAME, StoreRoot, StoredCheckpoint, verify};
use checkpoint_tools::{
    Bootstrap, CheckpointSource, DiffOptions, Difference, DroppedState, Edit, EditReport, Item,
    NewCheckpoint, NewOperator, Progress, Row, Selection, StateDiff, StoreFormat, Toolbox, convert,
    diff, item_json, rescale,
};
use managed_state::keyed::KeyedStates;
use state_api::access::{ListAccess, ValueAccess};
use state_api::{
    Attempt, BackendContext, BackendFactory, ByteStore, ErrorKind, JobId, MaxParallelism,
    OperatorUid, RestoreContext, Result, SnapshotKind, Subtask,
};
use support::{Customer, Shop, Visit, context, customer, register, runtime};
use tokio::runtime::Runtime;

fn native() -> impl BackendFactory + 'static {
    ByteBackend::new("native", |cx: &BackendContext| {
        Ok(Box::new(NativeStore::new(cx, None)) as Box<dyn ByteStore>)
    })
}

struct Place {
    dir: tempfile::TempDir,
    io: Runtime,
}

impl Place {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            io: runtime(),
        }
    }

    fn toolbox(&self) -> Toolbox {
        let scratch = self.dir.path().join("scratch");
        let mut toolbox = Toolbox::new(self.io.handle().clone(), scratch);
        let format = StoreFormat::new("native-reference", native());
        toolbox.formats.register(format).unwrap();
        toolbox
    }

    fn write(&self, name: &str, shop: &Shop) -> CheckpointSource {
        shop.write(&self.dir.path().join(name), &self.io);
        self.open(name)
    }

    fn open(&self, name: &str) -> CheckpointSource {
        let folder = self.dir.path().join(name);
        let found = StoredCheckpoint::find(folder.to_str().unwrap(), self.io.handle());
        CheckpointSource::new(self.io.block_on(found).unwrap(), [], self.toolbox())
    }

    fn begin(&self, name: &str) -> Result<NewCheckpoint> {
        let folder = self.dir.path().join(name);
        let root = StoreRoot::local(folder, self.io.handle().clone()).unwrap();
        self.io.block_on(NewCheckpoint::begin(root, Attempt(3)))
    }

    /// Writes a checkpoint anew with changes.
    fn edit(
        &self,
        source: &CheckpointSource,
        name: &str,
        edit: Edit,
        rows: &[&str],
    ) -> Result<EditReport> {
        let mut editing = edit.begin(source)?;
        for line in rows {
            editing.row(&Row::from_json(line)?)?;
        }
        let done = self.io.block_on(editing.finish(self.begin(name)?));
        done.map(|(_, report)| report)
    }

    /// All entries, as a dump writes them.
    fn dump(&self, source: &CheckpointSource) -> Vec<String> {
        let mut lines = Vec::new();
        let take = &mut |item: Item| {
            lines.push(item_json(&item));
            Ok(ControlFlow::Continue(()))
        };
        let selection = Selection::all();
        self.io.block_on(source.entries(&selection, take)).unwrap();
        lines
    }

    /// All entries, without what depends on how the job was split, sorted.
    fn rows(&self, source: &CheckpointSource) -> Vec<String> {
        let mut rows = Vec::new();
        let take = &mut |item: Item| {
            if let Item::Entry(mut entry) = item {
                entry.key_group = entry.key_group.map(|_| state_api::KeyGroup(0));
                entry.subtask = 0;
                rows.push(item_json(&Item::Entry(entry)));
            }
            Ok(ControlFlow::Continue(()))
        };
        let selection = Selection::all();
        self.io.block_on(source.entries(&selection, take)).unwrap();
        rows.sort();
        rows
    }

    fn diff(
        &self,
        a: &CheckpointSource,
        b: &CheckpointSource,
    ) -> (Vec<StateDiff>, Vec<Difference>) {
        let mut entries = Vec::new();
        let take = &mut |difference| {
            entries.push(difference);
            Ok(())
        };
        let states = self.io.block_on(diff(a, b, DiffOptions::default(), take));
        (states.unwrap(), entries)
    }

    /// Nothing is left but the checkpoint, all of whose objects are whole and in its own folder.
    fn check(&self, source: &CheckpointSource) {
        let report = self.io.block_on(verify(source.checkpoint(), [])).unwrap();
        assert!(report.faults.is_empty());
        assert!(source.metadata().roots.is_empty());
        let folder = source
            .checkpoint()
            .folder
            .url()
            .strip_prefix("file://")
            .unwrap();
        let mut there: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        let objects = source.metadata().objects();
        let mut named: Vec<String> = objects.map(|used| used.object.path.to_string()).collect();
        named.push(METADATA_NAME.into());
        for list in [&mut there, &mut named] {
            list.sort();
            list.dedup();
        }
        assert_eq!(there, named);
        let scratch = self.dir.path().join("scratch");
        let left = std::fs::read_dir(scratch).map_or(0, Iterator::count);
        assert_eq!(left, 0, "temporary files are left");
    }

    /// Restores the orders in another job and reads one state of every customer with the types of the job.
    fn restored(&self, source: &CheckpointSource, parallelism: u32) -> BTreeMap<u32, (f64, usize)> {
        let operator = source.operator("orders").unwrap();
        let max = operator.max_parallelism.get();
        let handles = operator
            .subtasks
            .iter()
            .flat_map(|s| &s.snapshot.managed_keyed);
        let handles: Vec<_> = handles.cloned().collect();
        let mut found = BTreeMap::new();
        for index in 0..parallelism {
            let subtask = Subtask { index, parallelism };
            let (backend, keyed) = context(max, subtask, self.dir.path());
            let range = keyed.range;
            let backend = backend_hashmap::HashMapBackend.create(&backend).unwrap();
            let mut states = KeyedStates::<Customer>::new(backend, keyed).unwrap();
            let cx = RestoreContext {
                storage: Arc::clone(source.storage()),
                executor: Arc::new(checkpoint_storage::TokioExecutor::new(
                    self.io.handle().clone(),
                )),
            };
            self.io.block_on(states.restore(&handles, &cx)).unwrap();
            let tokens = register(&mut states).unwrap();
            for number in 0..40 {
                let key = customer(number);
                if !range.contains(states.hash(&key).group()) {
                    continue;
                }
                let mut at = states.at(&key);
                if let Some(total) = at.value(tokens.totals).get().unwrap() {
                    let visits: Vec<Visit> = at.list(tokens.visits).get().unwrap();
                    found.insert(number, (total.amount, visits.len()));
                }
            }
        }
        found
    }
}

fn expected() -> BTreeMap<u32, (f64, usize)> {
    (0..20).map(|n| (n, (f64::from(n) + 0.5, 2))).collect()
}

#[test]
fn a_native_snapshot_is_converted_and_dumps_alike() {
    let place = Place::new();
    let source = place.write(
        "native",
        &Shop {
            factory: Arc::new(native()),
            kind: SnapshotKind::NativeSavepoint,
            ..Shop::default()
        },
    );
    let target = place.begin("canonical").unwrap();
    place.io.block_on(convert(&source, target)).unwrap();
    let converted = place.open("canonical");
    assert_eq!(converted.metadata().kind, SnapshotKind::CanonicalSavepoint);
    assert_eq!(place.rows(&converted), place.rows(&source));
    assert_eq!(place.restored(&converted, 3), expected());
    assert_eq!(converted.metadata().unknown, source.metadata().unknown);
    place.check(&converted);
    let (states, entries) = place.diff(&source, &converted);
    assert!(entries.is_empty() && states.iter().all(StateDiff::is_same));
    assert_eq!(states.len(), 10);
}

#[test]
fn key_groups_are_rewritten_and_the_job_finds_every_entry() {
    let place = Place::new();
    let shop = Shop {
        raw_keyed: false,
        ..Shop::default()
    };
    let source = place.write("before", &shop);
    for (now, parallelism) in [(128, 3), (7, 7), (2, 1), (1 << 15, 2)] {
        let name = format!("after-{now}");
        let max = MaxParallelism::new(now).unwrap();
        let target = place.begin(&name).unwrap();
        let (_, report) = place.io.block_on(rescale(&source, target, max)).unwrap();
        let after = place.open(&name);
        assert_eq!(place.rows(&after), place.rows(&source), "{now}");
        assert_eq!(place.restored(&after, parallelism), expected(), "{now}");
        assert_eq!(after.operator("feed").unwrap().max_parallelism, max);
        let counts: BTreeMap<&str, u64> = report[0]
            .entries
            .iter()
            .map(|(n, c)| (n.as_str(), *c))
            .collect();
        assert_eq!((counts["totals"], counts["basket"]), (20, 40));
        place.check(&after);
        let (states, entries) = place.diff(&source, &after);
        assert!(entries.is_empty() && states.iter().all(StateDiff::is_same));
    }
    let target = place.begin("too-few").unwrap();
    let error = place
        .io
        .block_on(rescale(&source, target, MaxParallelism::new(1).unwrap()));
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(error.context("operator"), Some("orders"));
}

/// What was said of a step.
#[derive(Default)]
struct Told(Mutex<Vec<u64>>);

impl Progress for Told {
    fn begin(&self, _: &str, bytes: u64) {
        *self.0.lock().unwrap() = vec![bytes];
    }

    fn advance(&self, bytes: u64) {
        self.0.lock().unwrap().push(bytes);
    }
}

#[test]
fn long_work_tells_of_the_bytes_that_it_has_read_within_a_subtask_too() {
    let place = Place::new();
    let shop = Shop {
        raw_keyed: false,
        parallelism: 1,
        customers: 50_000,
        inline_threshold: 0,
        ..Shop::default()
    };
    shop.write(&place.dir.path().join("before"), &place.io);
    let told = Arc::new(Told::default());
    let mut toolbox = place.toolbox();
    toolbox.progress = Arc::<Told>::clone(&told);
    let source = CheckpointSource::new(place.open("before").checkpoint().clone(), [], toolbox);
    let look = |work: &str| {
        let told = std::mem::take(&mut *told.0.lock().unwrap());
        let (total, parts) = told.split_first().unwrap();
        let (read, most) = (parts.iter().sum::<u64>(), parts.iter().max().unwrap());
        assert!(
            read * 10 >= total * 9 && read <= total + total / 10,
            "{work}: {read} of {total}"
        );
        assert!(most * 2 < *total, "{work}: {most} at once of {total}");
    };
    let max = MaxParallelism::new(64).unwrap();
    let target = place.begin("rescaled").unwrap();
    place.io.block_on(rescale(&source, target, max)).unwrap();
    look("rescale");
    let edit = Edit::default();
    place.edit(&source, "edited", edit, &[]).unwrap();
    look("edit");
    place.dump(&source);
    look("dump");
    let target = place.begin("converted").unwrap();
    place.io.block_on(convert(&source, target)).unwrap();
    look("convert");
    place.diff(&source, &source);
    look("diff");
}

#[test]
fn raw_keyed_state_is_named_and_not_rescaled() {
    let place = Place::new();
    let source = place.write("before", &Shop::default());
    let target = place.begin("after").unwrap();
    let error = place
        .io
        .block_on(rescale(&source, target, MaxParallelism::new(64).unwrap()));
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(error.context("operator"), Some("orders"));
    let found = place.dir.path().join("after").join(METADATA_NAME);
    assert!(!found.exists());
}

fn row(json: &str) -> Row {
    Row::from_json(json).unwrap()
}

#[test]
fn states_are_dropped_operators_renamed_and_keys_set_and_deleted() {
    let place = Place::new();
    let source = place.write("before", &Shop::default());
    let changes = Edit::new()
        .drop_state("sketch")
        .drop_state("feed/seen")
        .rename("orders", "baskets");
    let rows = [
        r#"{"state":"totals","key":{"shop":"south","number":1},"value":{"amount":9.25}}"#,
        r#"{"state":"totals","key":{"shop":"north","number":30},"value":{"amount":1,"last":"x"}}"#,
        r#"{"state":"totals","key":{"shop":"","number":2},"delete":true}"#,
        r#"{"state":"basket","key":{"shop":"","number":5},"delete":true}"#,
        r#"{"state":"visits","key":{"shop":"","number":8},"value":["Online"]}"#,
        r#"{"state":"history","key":{"shop":"","number":8},"map_key":7,"value":[2,"y"]}"#,
        r#"{"state":"reminders","key":{"shop":"","number":8},"namespace":"daily","time_ms":-5}"#,
        r#"{"state":"rates","map_key":"EUR","value":1.5}"#,
        r#"{"state":"rates","map_key":"USD","delete":true}"#,
    ];
    let report = place.edit(&source, "after", changes, &rows).unwrap();
    assert_eq!((report.set, report.removed), (6, 7));
    let dropped = |operator: &str, state: &str, entries| DroppedState {
        operator: OperatorUid::new(operator).unwrap(),
        state: state.into(),
        entries: Some(entries),
    };
    // Of a list of the operator the elements of both subtasks.
    let expected = [dropped("feed", "seen", 2), dropped("orders", "sketch", 20)];
    assert_eq!(report.dropped, expected);
    let after = place.open("after");
    place.check(&after);
    assert!(after.metadata().operator("orders").is_none());
    let baskets = after.operator("baskets").unwrap();
    assert_eq!(baskets.unknown, source.operator("orders").unwrap().unknown);
    assert_eq!(baskets.name, source.operator("orders").unwrap().name);
    let renamed: Vec<String> = place
        .rows(&source)
        .iter()
        .map(|row| row.replace(r#""operator":"orders""#, r#""operator":"baskets""#))
        .collect();
    let now = place.rows(&after);
    let gone: Vec<&String> = renamed.iter().filter(|row| !now.contains(row)).collect();
    let new: Vec<&String> = now.iter().filter(|row| !renamed.contains(row)).collect();
    // 20 sketches, 2 of a union list, a total set, one deleted, a basket of 2, a visit of 2 became 1, 2 rates.
    assert_eq!(
        (gone.len(), new.len()),
        (20 + 2 + 2 + 2 + 2 + 2, 2 + 1 + 1 + 1 + 1),
        "{gone:#?} {new:#?}"
    );
    assert!(
        new.iter()
            .any(|row| row.contains(r#""amount":9.25,"last":null"#))
    );
    assert!(
        new.iter()
            .any(|row| row.contains(r#""map_key":"EUR","value":1.5"#))
    );
    assert!(
        !now.iter()
            .any(|row| row.contains("USD") || row.contains("sketch"))
    );
}

#[test]
fn an_edit_that_can_t_be_made_leaves_no_checkpoint_and_names_what_is_wrong() {
    let place = Place::new();
    let source = place.write("before", &Shop::default());
    let nothing: &[&str] = &[];
    let to = |uid: &str| Edit::new().rename("orders", uid);
    for (changes, rows, kind, told) in [
        (
            Edit::new().drop_state("sketches"),
            nothing,
            ErrorKind::NotFound,
            "\"sketch\"",
        ),
        (
            Edit::new().rename("order", "x"),
            nothing,
            ErrorKind::NotFound,
            "\"orders\"",
        ),
        (to("feed"), nothing, ErrorKind::InvalidArgument, "\"feed\""),
        (
            to("orders"),
            nothing,
            ErrorKind::InvalidArgument,
            "named so already",
        ),
        (
            to("x").rename("orders", "y"),
            nothing,
            ErrorKind::InvalidArgument,
            "renamed twice",
        ),
        (
            Edit::new(),
            &[r#"{"state":"totals","key":{"shop":1,"number":1},"value":null}"#],
            ErrorKind::InvalidArgument,
            "1 is no string at shop",
        ),
        (
            Edit::new(),
            &[r#"{"state":"offsets","index":0,"value":3}"#],
            ErrorKind::Unsupported,
            "one by one",
        ),
        (
            Edit::new().drop_state("rates"),
            &[r#"{"state":"rates","map_key":"EUR","value":1}"#],
            ErrorKind::InvalidArgument,
            "dropped and changed",
        ),
        (
            Edit::new().drop_state("totals"),
            &[r#"{"state":"totals","key":{"shop":"","number":1},"delete":true}"#],
            ErrorKind::InvalidArgument,
            "dropped and changed",
        ),
        (
            Edit::new().must_remove(),
            &[r#"{"state":"totals","key":{"shop":"","number":999},"delete":true}"#],
            ErrorKind::NotFound,
            "nothing is there",
        ),
    ] {
        let error = place.edit(&source, "after", changes, rows).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(told), "{error}");
        assert!(!place.dir.path().join("after").join(METADATA_NAME).exists());
    }
    // What the failures left is no obstacle.
    place.edit(&source, "after", Edit::new(), &[]).unwrap();
    place.check(&place.open("after"));
}

#[test]
fn a_dump_builds_the_checkpoint_that_it_came_from() {
    let place = Place::new();
    let source = place.write(
        "before",
        &Shop {
            raw_keyed: false,
            ..Shop::default()
        },
    );
    let mut operators = NewOperator::like(&source).unwrap();
    for operator in &mut operators {
        operator.parallelism = 3;
        operator.max_parallelism = MaxParallelism::new(64).unwrap();
    }
    let job = JobId::new("shop").unwrap();
    let mut build = Bootstrap::new(&place.toolbox(), job, operators).unwrap();
    let mut dumped = place.dump(&source);
    // In any order: elements of a list have their index.
    dumped.sort_by_key(|line| (line.len(), line.contains("\"index\":0")));
    for line in &dumped {
        build.row(&row(line)).unwrap();
    }
    let target = place.begin("after").unwrap();
    place.io.block_on(build.finish(target)).unwrap();
    let after = place.open("after");
    place.check(&after);
    let keyed = |rows: Vec<String>| -> Vec<String> {
        rows.into_iter()
            .filter(|row| !row.contains("-list\""))
            .collect()
    };
    assert_eq!(keyed(place.rows(&after)), keyed(place.rows(&source)));
    assert_eq!(place.restored(&after, 2), expected());
}

#[test]
fn a_row_twice_is_named_with_its_key() {
    let place = Place::new();
    let source = place.write("before", &Shop::default());
    let operators = NewOperator::like(&source).unwrap();
    let job = JobId::new("shop").unwrap();
    let mut build = Bootstrap::new(&place.toolbox(), job, operators).unwrap();
    for _ in 0..2 {
        let json =
            r#"{"operator":"orders","state":"count","key":{"shop":"x","number":1},"value":2}"#;
        build.row(&row(json)).unwrap();
    }
    let error = build
        .row(&row(r#"{"operator":"orders","state":"cuont","key":1}"#))
        .unwrap_err();
    assert!(
        error.to_string().contains("did you mean \"count\""),
        "{error}"
    );
    let error = place
        .io
        .block_on(build.finish(place.begin("after").unwrap()))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(error.context("state"), Some("count"));
    assert_eq!(error.context("key"), Some(r#"{"shop":"x","number":1}"#));
}

#[test]
fn differences_are_told_entry_by_entry_with_both_values() {
    let place = Place::new();
    let few = place.write(
        "few",
        &Shop {
            customers: 3,
            ..Shop::default()
        },
    );
    let rows = [
        r#"{"state":"totals","key":{"shop":"south","number":1},"value":{"amount":7}}"#,
        r#"{"state":"rates","map_key":"EUR","value":2}"#,
    ];
    let changes = Edit::new().drop_state("count");
    place.edit(&few, "edited", changes, &rows).unwrap();
    let edited = place.open("edited");
    let (states, entries) = place.diff(&few, &edited);
    let of = |name: &str| states.iter().find(|s| s.state == name).unwrap();
    assert_eq!((of("totals").changed, of("totals").same), (1, 2));
    assert_eq!((of("count").removed, of("count").is_in), (3, (true, false)));
    assert_eq!((of("rates").changed, of("rates").same), (1, 1));
    assert!(of("visits").is_same());
    assert_eq!(entries.len(), 5);
    let total = entries.iter().find(|e| e.state == "totals").unwrap();
    let json = |value: &Option<state_api::Value>| value.as_ref().unwrap().to_json_string();
    assert_eq!(json(&total.before), r#"{"amount":1.5,"last":"item-1"}"#);
    assert_eq!(json(&total.after), r#"{"amount":7.0,"last":null}"#);
}

#[test]
fn a_folder_in_use_is_refused_and_what_an_interrupted_run_left_is_removed() {
    let place = Place::new();
    let source = place.write("before", &Shop::default());
    assert_eq!(
        place.begin("before").unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    let other = place.dir.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("notes"), "mine").unwrap();
    assert_eq!(
        place.begin("other").unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    assert!(other.join("notes").exists());
    // A job names the folders of its checkpoints so.
    let error = place.begin("chk-7").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);

    // A first run that is overtaken by a second one doesn't publish.
    let first = place.begin("after").unwrap();
    let leftover = Path::new("3-67e55044-10b1-426f-9247-bb680e5fe0c8");
    std::fs::write(place.dir.path().join("after").join(leftover), "half").unwrap();
    let second = place.begin("after").unwrap();
    assert!(!place.dir.path().join("after").join(leftover).exists());
    let error = place.io.block_on(convert(&source, first)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    place.io.block_on(convert(&source, second)).unwrap();
    assert_eq!(place.rows(&place.open("after")), place.rows(&source));
}
