//! What rows of an edit do, and what a bootstrap refuses.
use std::sync::Arc;

use checkpoint_tools::{
    Bootstrap, CheckpointSource, DiffOptions, Edit, KeyQuery, NewOperator, Row, diff,
};
use state_api::{
    CodecKind, ErrorKind, HashId, JobId, MaxParallelism, OperatorStateMode, OperatorUid, Result,
    Schema, StateKind, StateMeta, TypeMeta,
};

use crate::Place;
use crate::support::Shop;

fn compact(schema: &str) -> TypeMeta {
    TypeMeta {
        codec: CodecKind::Compact,
        schema: Schema::parse(schema).unwrap(),
    }
}

/// A state whose keys are of one type, its values of another.
pub(crate) fn state(name: &str, kind: StateKind, key: &str, value: &str) -> StateMeta {
    StateMeta {
        name: Arc::from(name),
        kind,
        key: compact(key),
        namespace: compact("unit"),
        map_key: None,
        value: compact(value),
        ttl_ms: None,
    }
}

pub(crate) fn operator(
    keyed: Vec<StateMeta>,
    operator: Vec<(StateMeta, OperatorStateMode)>,
) -> NewOperator {
    NewOperator {
        uid: OperatorUid::new("op").unwrap(),
        parallelism: 2,
        max_parallelism: MaxParallelism::new(16).unwrap(),
        hash: HashId::default(),
        keyed,
        operator,
    }
}

impl Place {
    pub(crate) fn build(
        &self,
        name: &str,
        of: NewOperator,
        rows: &[&str],
    ) -> Result<CheckpointSource> {
        let job = JobId::new("job").unwrap();
        let mut build = Bootstrap::new(&self.toolbox(), job, vec![of])?;
        for line in rows {
            build.row(&Row::from_json(line)?)?;
        }
        self.io.block_on(build.finish(self.begin(name)?))?;
        Ok(self.open(name))
    }

    /// The value of each entry, by the text of what names it.
    fn short(&self, source: &CheckpointSource) -> Vec<String> {
        let short = |line: String| {
            let fields: serde_json::Value = serde_json::from_str(&line).unwrap();
            let part = |name: &str| match fields.get(name) {
                Some(part) => format!("{part} "),
                None => String::new(),
            };
            let names = ["key", "namespace", "map_key", "index", "time_ms", "value"];
            names.map(part).concat().trim().to_owned()
        };
        let mut lines: Vec<String> = self.dump(source).into_iter().map(short).collect();
        lines.sort();
        lines
    }
}

#[test]
fn an_element_is_set_and_deleted_by_its_index_in_the_old_list() {
    let place = Place::new();
    let list = || operator(vec![state("s", StateKind::List, "string", "u64")], vec![]);
    let rows = [
        r#"{"key":"a","value":[30,10,11]}"#,
        r#"{"key":"b","value":[5]}"#,
    ];
    let source = place.build("before", list(), &rows).unwrap();
    for (rows, (set, removed), now) in [
        (
            vec![r#"{"state":"s","key":"a","index":1,"delete":true}"#],
            (0, 1),
            vec!["\"a\" 0 30", "\"a\" 1 11"],
        ),
        (
            vec![r#"{"state":"s","key":"a","index":1,"value":77}"#],
            (1, 1),
            vec!["\"a\" 0 30", "\"a\" 1 77", "\"a\" 2 11"],
        ),
        (
            vec![
                r#"{"state":"s","key":"a","index":4,"value":5}"#,
                r#"{"state":"s","key":"a","index":0,"delete":true}"#,
                r#"{"state":"s","key":"a","index":3,"value":4}"#,
            ],
            (2, 1),
            vec!["\"a\" 0 10", "\"a\" 1 11", "\"a\" 2 4", "\"a\" 3 5"],
        ),
        (
            vec![r#"{"state":"s","key":"a","value":[1]}"#],
            (1, 1),
            vec!["\"a\" 0 1"],
        ),
        (
            vec![
                r#"{"state":"s","key":"a","delete":true}"#,
                r#"{"state":"s","key":"a","index":0,"value":9}"#,
            ],
            (1, 1),
            vec!["\"a\" 0 9"],
        ),
        (
            vec![
                r#"{"state":"s","key":"a","value":[1]}"#,
                r#"{"state":"s","key":"aa","index":5,"delete":true}"#,
                r#"{"state":"s","key":"aa","index":0,"value":9}"#,
            ],
            (2, 1),
            vec!["\"a\" 0 1", "\"aa\" 0 9"],
        ),
    ] {
        let report = place.edit(&source, "after", Edit::new(), &rows).unwrap();
        assert_eq!((report.set, report.removed), (set, removed), "{rows:?}");
        let mut expected = now;
        expected.push("\"b\" 0 5");
        let after = place.open("after");
        assert_eq!(place.short(&after), expected, "{rows:?}");
        place.check(&after);
        std::fs::remove_dir_all(place.dir.path().join("after")).unwrap();
    }
    for rows in [
        vec![r#"{"state":"s","key":"a","index":4,"value":1}"#],
        vec![r#"{"state":"s","key":"new","index":1,"value":1}"#],
        vec![
            r#"{"state":"s","key":"a","index":0,"value":1}"#,
            r#"{"state":"s","key":"a","index":0,"value":2}"#,
        ],
        vec![r#"{"state":"s","key":"a","index":-1,"value":1}"#],
    ] {
        let error = place
            .edit(&source, "after", Edit::new(), &rows)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{rows:?}");
    }
}

#[test]
fn rows_take_effect_in_their_order_and_no_entry_is_set_twice() {
    let place = Place::new();
    let values = || operator(vec![state("s", StateKind::Value, "u8", "u64")], vec![]);
    let source = place
        .build("before", values(), &[r#"{"key":1,"value":10}"#])
        .unwrap();
    let rows = [
        r#"{"state":"s","key":1,"delete":true}"#,
        r#"{"state":"s","key":1,"value":11}"#,
        r#"{"state":"s","key":2,"value":20}"#,
        r#"{"state":"s","key":2,"delete":true}"#,
    ];
    place.edit(&source, "after", Edit::new(), &rows).unwrap();
    assert_eq!(place.short(&place.open("after")), ["1 11"]);
    let twice = [
        r#"{"state":"s","key":1,"value":11}"#,
        r#"{"state":"s","key":1,"value":12}"#,
    ];
    let error = place
        .edit(&source, "twice", Edit::new(), &twice)
        .unwrap_err();
    assert!(error.to_string().contains("set twice"), "{error}");
    assert_eq!(error.context("key"), Some("1"));
    for delete in ["1", "\"True\"", "null", "\"yes\""] {
        let line = format!(r#"{{"state":"s","key":1,"value":5,"delete":{delete}}}"#);
        let error = Row::from_json(&line).unwrap_err();
        assert!(error.to_string().contains("true or false"), "{error}");
    }
    // A state without entries is still there, and can be filled.
    let emptied = [r#"{"state":"s","key":1,"delete":true}"#];
    place.edit(&source, "empty", Edit::new(), &emptied).unwrap();
    let empty = place.open("empty");
    assert_eq!(place.short(&empty), Vec::<String>::new());
    place.check(&empty);
    let filled = [r#"{"state":"s","key":7,"value":70}"#];
    place.edit(&empty, "filled", Edit::new(), &filled).unwrap();
    assert_eq!(place.short(&place.open("filled")), ["7 70"]);
    let none = place.build("none", values(), &[]).unwrap();
    assert!(none.state("s").is_ok());
}

#[test]
fn a_timer_is_deleted_by_its_time_under_every_namespace() {
    let place = Place::new();
    let timers = || {
        let mut meta = state("t", StateKind::Timer, "string", "unit");
        meta.namespace = compact("string");
        operator(vec![meta], vec![])
    };
    let rows = [
        r#"{"key":"a","namespace":"x","time_ms":5}"#,
        r#"{"key":"a","namespace":"y","time_ms":5}"#,
        r#"{"key":"a","namespace":"x","time_ms":6}"#,
        r#"{"key":"b","namespace":"x","time_ms":5}"#,
    ];
    let source = place.build("before", timers(), &rows).unwrap();
    for (name, row, removed, left) in [
        (
            "time",
            r#"{"state":"t","key":"a","time_ms":5,"delete":true}"#,
            2,
            2,
        ),
        (
            "one",
            r#"{"state":"t","key":"a","namespace":"y","time_ms":5,"delete":true}"#,
            1,
            3,
        ),
        (
            "namespace",
            r#"{"state":"t","key":"a","namespace":"x","delete":true}"#,
            2,
            2,
        ),
        ("key", r#"{"state":"t","key":"a","delete":true}"#, 3, 1),
    ] {
        let report = place.edit(&source, name, Edit::new(), &[row]).unwrap();
        assert_eq!(report.removed, removed, "{name}");
        assert_eq!(place.short(&place.open(name)).len(), left, "{name}");
    }
}

#[test]
fn what_is_dropped_is_not_copied_and_may_be_damaged() {
    let place = Place::new();
    let source = place.write("before", &Shop::default());
    let report = place.edit(
        &source,
        "without",
        Edit::new().drop_state("rates").drop_state("feed/seen"),
        &[],
    );
    let dropped = report.unwrap().dropped;
    let entries: Vec<_> = dropped
        .iter()
        .map(|it| (it.state.as_str(), it.entries))
        .collect();
    // Every subtask has the same map, which is counted once.
    assert_eq!(entries, [("rates", Some(2)), ("seen", Some(2))]);
    let without = place.open("without");
    place.check(&without);
    let folder = place.dir.path().join("without");
    for file in std::fs::read_dir(folder).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(3).any(|part| part == b"EUR"));
    }
    let row = r#"{"state":"rates","map_key":"EUR","value":3}"#;
    place.edit(&source, "changed", Edit::new(), &[row]).unwrap();
    place.check(&place.open("changed"));

    let one = || operator(vec![state("s", StateKind::Value, "u8", "string")], vec![]);
    let long = format!(r#"{{"key":1,"value":"{}"}}"#, "x".repeat(100_000));
    let damaged = place.build("damaged", one(), &[&long]).unwrap();
    let objects: Vec<String> = damaged
        .metadata()
        .objects()
        .map(|used| used.object.path.to_string())
        .collect();
    for object in &objects {
        std::fs::remove_file(place.dir.path().join("damaged").join(object)).unwrap();
    }
    assert!(!objects.is_empty());
    let report = place.edit(&damaged, "mended", Edit::new().drop_state("s"), &[]);
    assert_eq!(report.unwrap().dropped[0].entries, Some(1));
    place.check(&place.open("mended"));
}

#[test]
fn a_bootstrap_refuses_what_would_be_lost_or_could_not_be_read() {
    let place = Place::new();
    let list = || operator(vec![state("s", StateKind::List, "string", "u64")], vec![]);
    let value =
        |key: &str, value: &str| operator(vec![state("s", StateKind::Value, key, value)], vec![]);
    for (of, rows, told) in [
        (
            value("string", "u64"),
            vec![r#"{"key":"b","delete":true}"#],
            "deletes an entry",
        ),
        (
            list(),
            vec![
                r#"{"key":"a","index":2,"value":1}"#,
                r#"{"key":"a","index":0,"value":1}"#,
            ],
            "index 2 without index 1",
        ),
        (
            list(),
            vec![
                r#"{"key":"a","index":0,"value":1}"#,
                r#"{"key":"a","index":0,"value":1}"#,
            ],
            "index 0 twice",
        ),
        (
            list(),
            vec![r#"{"key":"a","index":5,"value":1}"#],
            "index 5 without",
        ),
        (
            list(),
            vec![
                r#"{"key":"a","index":0,"value":1}"#,
                r#"{"key":"a","value":[1]}"#,
            ],
            "some elements",
        ),
        (
            value("u8", "set<u8>"),
            vec![r#"{"key":1,"value":[3,1,3]}"#],
            "3 is twice",
        ),
        (
            value("u8", "map<u8,u8>"),
            vec![r#"{"key":1,"value":[[9,1],[9,2]]}"#],
            "9 is twice",
        ),
        (
            value("u8", "map<string,u8>"),
            vec![r#"{"key":1,"value":{"a":1,"a":2}}"#],
            "\"a\" twice",
        ),
        (
            value("u8", "f64"),
            vec![r#"{"key":1,"value":1e400}"#],
            "1e400 is no f64",
        ),
        (
            value("u8", "f32"),
            vec![r#"{"key":1,"value":1e40}"#],
            "1e40 is no f32",
        ),
        (
            value("u8", "u8"),
            vec![r#"{"key":1,"map_key":2,"value":1}"#],
            "has no map_key",
        ),
        (
            value("u8", "u8"),
            vec![r#"{"raw":"raw keyed","bytes":10}"#],
            "the length alone",
        ),
    ] {
        let error = place.build("built", of, &rows).unwrap_err();
        assert!(error.to_string().contains(told), "{told}: {error}");
    }
    let rows = [
        r#"{"key":"a","index":2,"value":11}"#,
        r#"{"key":"a","index":0,"value":30}"#,
        r#"{"key":"a","index":1,"value":10}"#,
        r#"{"key":"none","value":[]}"#,
    ];
    let built = place.build("built", list(), &rows).unwrap();
    assert_eq!(
        place.short(&built),
        ["\"a\" 0 30", "\"a\" 1 10", "\"a\" 2 11"]
    );
}

#[test]
fn sets_and_maps_in_any_order_are_one_key_and_no_difference() {
    let place = Place::new();
    let of = || {
        operator(
            vec![
                state("k", StateKind::Value, "set<u8>", "u8"),
                state("v", StateKind::Value, "u8", "map<u16,set<string>>"),
            ],
            vec![],
        )
    };
    let rows = [
        r#"{"state":"k","key":[1,3],"value":1}"#,
        r#"{"state":"v","key":1,"value":[[256,["a","b"]],[1,[]]]}"#,
    ];
    let one = place.build("one", of(), &rows).unwrap();
    let rows = [
        r#"{"state":"k","key":[3,1],"value":1}"#,
        r#"{"state":"v","key":1,"value":[[1,[]],[256,["b","a"]]]}"#,
    ];
    let other = place.build("other", of(), &rows).unwrap();
    assert_eq!(place.dump(&one), place.dump(&other));
    let nothing = &mut |_| Ok(());
    let options = DiffOptions::default();
    let states = place.io.block_on(diff(&one, &other, options, nothing));
    assert!(
        states
            .unwrap()
            .iter()
            .all(checkpoint_tools::StateDiff::is_same)
    );
    let twice = [rows[0], r#"{"state":"k","key":[1,3],"value":2}"#];
    let error = place.build("twice", of(), &twice).unwrap_err();
    assert!(error.to_string().contains("an entry twice"), "{error}");
}

#[test]
fn a_key_whose_hash_was_written_by_hand_is_not_told_to_be_absent() {
    let place = Place::new();
    let values = operator(vec![state("s", StateKind::Value, "string", "u64")], vec![]);
    let rows = [r#"{"key":"a","value":1}"#, r#"{"key":"b","value":2}"#];
    let source = place.build("before", values, &rows).unwrap();
    let lookup = |source: &CheckpointSource, key: &str| {
        let found = source.state("s").unwrap();
        let query = KeyQuery::parse(&found, key).unwrap();
        let mut count = 0;
        let take = &mut |_| {
            count += 1;
            Ok(())
        };
        let looked = place.io.block_on(source.lookup(&found, &query, take));
        looked.map(|()| count)
    };
    assert_eq!(lookup(&source, "a").unwrap(), 1);
    assert_eq!(lookup(&source, "missing").unwrap(), 0);
    let mut metadata = source.metadata().clone();
    metadata.operators[0].hash = HashId::Flink;
    let path = place.dir.path().join("before/_metadata");
    std::fs::write(path, metadata.encode().unwrap()).unwrap();
    let other = place.open("before");
    let missed: Vec<_> = ["a", "b", "missing"]
        .map(|key| lookup(&other, key))
        .into_iter()
        .filter_map(|looked| looked.err())
        .collect();
    assert!(!missed.is_empty());
    for error in missed {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}
