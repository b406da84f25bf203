//! Random values of random types are dumped, built anew, and compared.
use std::ops::ControlFlow;
use std::time::Duration;

use checkpoint_tools::{
    Bootstrap, CheckpointSource, CsvRows, FoundState, Item, NewOperator, Row, Selection, StateDiff,
    TableHead,
};
use state_api::{
    CodecKind, JobId, OperatorStateMode, Schema, StateKind, StateMeta, TypeMeta, Value,
};

use crate::Place;
use crate::edited::{operator, state};

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn pick<'a, T: 'a>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }
}

/// Types whose values can be keys.
const KEYS: [&str; 16] = [
    "bool",
    "u8",
    "i32",
    "u64",
    "i128",
    "char",
    "string",
    "bytes",
    "duration",
    "unit",
    "set<u16>",
    "map<string,i8>",
    "struct C(string)",
    "struct K{a:string,\"b c\":option<char>}",
    "enum E{A,true,B(u8),C{x:string}}",
    "option<option<string>>",
];

/// Types whose values have an order.
const SORTED: [&str; 6] = [
    "i16",
    "string",
    "char",
    "tuple(duration,option<u8>)",
    "list<string>",
    "enum E{A,B(u8)}",
];

fn schema(rng: &mut Rng, depth: u32) -> String {
    let leaves = [
        "f64",
        "f64",
        "f32",
        "u128",
        "i64",
        "struct Empty{}",
        "struct Mark",
        "opaque(\"x\",2)",
        "array<u8,3>",
        "array<char,2>",
    ];
    if depth == 0 || rng.below(4) == 0 {
        return match rng.below(2) {
            0 => (*rng.pick(&leaves)).to_owned(),
            _ => (*rng.pick(&KEYS)).to_owned(),
        };
    }
    let inner = schema(rng, depth - 1);
    let other = schema(rng, depth - 1);
    let key = *rng.pick(&["u16", "i32", "string", "char"]);
    match rng.below(9) {
        0 => format!("option<{inner}>"),
        1 => format!("list<{inner}>"),
        2 => format!("map<{key},{inner}>"),
        3 => format!("set<{key}>"),
        4 => format!("tuple({inner},{other})"),
        5 => format!("struct S{{x:{inner},\"y.z\":{other}}}"),
        6 => format!("struct N({inner})"),
        7 => format!("struct P({inner},{other})"),
        _ => format!("enum V{{Some({inner}),None,Two{{Some:{other}}}}}"),
    }
}

fn text(rng: &mut Rng) -> String {
    let whole = [
        "",
        "null",
        "\"x\"",
        "\"",
        " ",
        "{\"Some\":null}",
        "12",
        "true",
        "0xab",
        "a,b",
    ];
    if rng.below(3) == 0 {
        return (*rng.pick(&whole)).to_owned();
    }
    (0..rng.below(6)).map(|_| character(rng)).collect()
}

fn character(rng: &mut Rng) -> char {
    let some = [
        'a', 'é', '"', '\\', '\n', '\r', ' ', ',', '\u{7f}', '\u{0}', '😀', '{', '#',
    ];
    match rng.below(4) {
        0 => char::from_u32(rng.below(0x11_0000) as u32).unwrap_or('x'),
        _ => *rng.pick(&some),
    }
}

fn value(rng: &mut Rng, of: &Schema) -> Value {
    let few = rng.below(4);
    match of {
        Schema::Unit => Value::Unit,
        Schema::Bool => Value::Bool(rng.below(2) == 1),
        Schema::Int(int) => {
            let bits = 8 * int.size() as u32;
            let wide = u128::from(rng.next()) << 64 | u128::from(rng.next());
            let shift = 128 - bits + (rng.below(3) as u32 * bits / 3);
            match int.is_signed() {
                true => Value::Int(wide.cast_signed() >> shift),
                false => Value::UInt(wide >> shift),
            }
        }
        Schema::F32 => Value::F32(f32::from_bits(rng.next() as u32)),
        Schema::F64 => Value::F64(match rng.below(4) {
            0 => *rng.pick(&[0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, 5e-324]),
            _ => f64::from_bits(rng.next()),
        }),
        Schema::Char => Value::Char(character(rng)),
        Schema::String => Value::Str(text(rng)),
        Schema::Bytes => Value::Bytes((0..few).map(|_| rng.next() as u8).collect()),
        Schema::Duration => Value::Duration(Duration::new(
            rng.next() >> rng.below(64),
            (rng.next() % 1_000_000_000) as u32,
        )),
        Schema::Option(inner) => Value::Option(match few {
            0 => None,
            _ => Some(Box::new(value(rng, inner))),
        }),
        Schema::List(item) => Value::List((0..few).map(|_| value(rng, item)).collect()),
        Schema::Set(item) => {
            let items: Vec<Value> = (0..few).map(|_| value(rng, item)).collect();
            Value::List(sorted(items, |v| v))
        }
        Schema::Map(key, item) => {
            let entries: Vec<_> = (0..few)
                .map(|_| (value(rng, key), value(rng, item)))
                .collect();
            Value::Map(sorted(entries, |(key, _)| key))
        }
        Schema::Array(item, len) if **item == Schema::Int(state_api::IntType::U8) => {
            Value::Bytes((0..*len).map(|_| rng.next() as u8).collect())
        }
        Schema::Array(item, len) => Value::List((0..*len).map(|_| value(rng, item)).collect()),
        Schema::Tuple(parts) => Value::Tuple(parts.iter().map(|part| value(rng, part)).collect()),
        Schema::Struct(it) => Value::Record {
            name: it.name.clone().into(),
            fields: fields(rng, &it.fields),
        },
        Schema::Enum(it) => {
            let variant = rng.pick(&it.variants);
            Value::Variant {
                name: it.name.clone().into(),
                variant: variant.name.clone().into(),
                fields: fields(rng, &variant.fields),
            }
        }
        Schema::Opaque { codec, version } => Value::Opaque {
            codec: codec.clone().into(),
            version: *version,
            bytes: vec![rng.next() as u8; few as usize],
        },
        other => panic!("{other}"),
    }
}

fn fields(rng: &mut Rng, of: &state_api::Fields) -> Vec<(state_api::Name, Value)> {
    let fields = of.as_slice().iter();
    fields
        .map(|field| (field.name.clone().into(), value(rng, &field.schema)))
        .collect()
}

/// Sorts by a part that is a number or text, and leaves out doubles.
fn sorted<T>(mut items: Vec<T>, part: impl Fn(&T) -> &Value) -> Vec<T> {
    let order = |a: &Value, b: &Value| match (a, b) {
        (Value::UInt(a), Value::UInt(b)) => a.cmp(b),
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Str(a), Value::Str(b)) => a.cmp(b),
        (Value::Char(a), Value::Char(b)) => a.cmp(b),
        other => panic!("{other:?}"),
    };
    items.sort_by(|a, b| order(part(a), part(b)));
    items.dedup_by(|a, b| order(part(a), part(b)).is_eq());
    items
}

fn of_type(rng: &mut Rng, schema: &str) -> TypeMeta {
    TypeMeta {
        codec: *rng.pick(&[CodecKind::Compact, CodecKind::Evolvable]),
        schema: Schema::parse(schema).unwrap(),
    }
}

fn keyed_state(rng: &mut Rng, number: usize, kind: StateKind) -> StateMeta {
    let key = *rng.pick(&KEYS);
    let of = match kind {
        StateKind::Timer => "unit".to_owned(),
        _ => schema(rng, 3),
    };
    let mut meta = state(&format!("s{number}"), kind, key, "unit");
    meta.value = of_type(rng, &of);
    if kind == StateKind::Timer {
        meta.value.codec = CodecKind::Compact;
    }
    if rng.below(2) == 0 {
        meta.namespace.schema = Schema::parse(rng.pick::<&str>(&KEYS)).unwrap();
    }
    meta.map_key = match kind {
        StateKind::Map => Some(*rng.pick(&KEYS)),
        StateKind::SortedMap => Some(*rng.pick(&SORTED)),
        _ => None,
    }
    .map(|schema| TypeMeta {
        codec: CodecKind::Compact,
        schema: Schema::parse(schema).unwrap(),
    });
    if kind != StateKind::Timer && rng.below(3) == 0 {
        meta.ttl_ms = Some(1000);
    }
    meta
}

/// Writes the rows of a state; returns each value's encoding beside its row.
fn rows_of(rng: &mut Rng, meta: &StateMeta, count: u64) -> Vec<String> {
    let mut rows = Vec::new();
    let mut known = Vec::new();
    for number in 0..count {
        let mut names = String::new();
        let is_keyed = !matches!(meta.kind, StateKind::OperatorList | StateKind::Broadcast);
        if is_keyed {
            for (name, of) in [("key", &meta.key), ("namespace", &meta.namespace)] {
                let json = value(rng, &of.schema).to_json_string();
                names.push_str(&format!(",\"{name}\":{json}"));
            }
        }
        if let Some(map_key) = &meta.map_key {
            let json = value(rng, &map_key.schema).to_json_string();
            names.push_str(&format!(",\"map_key\":{json}"));
        }
        if meta.kind == StateKind::Timer {
            let time = rng.next().cast_signed();
            names.push_str(&format!(",\"time_ms\":{time}"));
        }
        if meta.kind == StateKind::OperatorList {
            names.push_str(&format!(",\"subtask\":0,\"index\":{number}"));
        }
        if known.contains(&names) {
            continue;
        }
        known.push(names.clone());
        let renewed = match meta.ttl_ms {
            Some(_) => format!(",\"renewed_ms\":{}", rng.below(1 << 40)),
            None => String::new(),
        };
        let elements = match meta.kind {
            StateKind::List => rng.below(3) + 1,
            _ => 1,
        };
        for index in 0..elements {
            let mut row = format!("{{\"state\":\"{}\"{names}{renewed}", meta.name);
            if meta.kind == StateKind::List {
                row.push_str(&format!(",\"index\":{index}"));
            }
            if meta.kind != StateKind::Timer {
                let json = value(rng, &meta.value.schema).to_json_string();
                row.push_str(&format!(",\"value\":{json}"));
            }
            row.push('}');
            rows.push(row);
        }
    }
    rows
}

impl Place {
    fn builder(&self, like: &NewOperator) -> Bootstrap {
        let job = JobId::new("job").unwrap();
        Bootstrap::new(&self.toolbox(), job, vec![like.clone()]).unwrap()
    }

    /// Builds a checkpoint out of tables of another, one for each state or one for all.
    fn through_tables(
        &self,
        source: &CheckpointSource,
        like: &NewOperator,
        one_each: bool,
        name: &str,
    ) -> CheckpointSource {
        let all = source.states();
        let mut build = Vec::new();
        let tables: Vec<&[FoundState<'_>]> = match one_each {
            true => all.chunks(1).collect(),
            false => vec![&all],
        };
        for states in tables {
            let mut table = Vec::new();
            let mut rows = CsvRows::new(states, &mut table).unwrap();
            let mut selection = Selection::all();
            if let [one] = states {
                selection = selection.state(&one.path());
            }
            let take = &mut |item| {
                if let Item::Entry(entry) = item {
                    rows.entry(&entry)?;
                }
                Ok(ControlFlow::Continue(()))
            };
            self.io.block_on(source.entries(&selection, take)).unwrap();
            rows.finish().unwrap();
            let state = (states.len() == 1).then(|| states[0].meta.name.to_string());
            build.push((state, table));
        }
        let mut builder = self.builder(like);
        for (state, table) in build {
            builder = builder.rows_are_of(None, state);
            let mut input = csv::Reader::from_reader(table.as_slice());
            let head = TableHead::new(input.headers().unwrap()).unwrap();
            for record in input.records() {
                let record = record.unwrap();
                let row = head.row(record.iter()).unwrap();
                if let Err(error) = builder.row(&row) {
                    panic!("{error}: {head:?} {record:?}");
                }
            }
        }
        let target = self.begin(name).unwrap();
        self.io.block_on(builder.finish(target)).unwrap();
        self.open(name)
    }

    #[track_caller]
    fn alike(&self, what: &str, seed: u64, a: &CheckpointSource, b: &CheckpointSource) {
        let (states, entries) = self.diff(a, b);
        assert!(
            entries.is_empty() && states.iter().all(StateDiff::is_same),
            "seed {seed}, {what}: {entries:#?}"
        );
        assert_eq!(self.rows(a), self.rows(b), "seed {seed}, {what}");
    }
}

#[test]
fn random_values_of_all_types_come_back_from_json() {
    for seed in 0..3000 {
        let mut rng = Rng(seed);
        let schema = Schema::parse(&schema(&mut rng, 3)).unwrap();
        let value = value(&mut rng, &schema);
        let json = value.to_json_string();
        let read = checkpoint_tools::value_from_text(&schema, &json)
            .unwrap_or_else(|e| panic!("seed {seed}: {schema} {json}: {e}"));
        let (mut before, mut after) = (Vec::new(), Vec::new());
        schema.encode_compact(&value, &mut before).unwrap();
        schema.encode_compact(&read, &mut after).unwrap();
        assert_eq!(before, after, "seed {seed}: {schema} {json} {read}");
    }
}

#[test]
fn random_states_are_dumped_built_anew_and_do_not_differ() {
    let place = Place::new();
    let kinds = [
        StateKind::Value,
        StateKind::List,
        StateKind::Map,
        StateKind::SortedMap,
        StateKind::Reducing,
        StateKind::Aggregating,
        StateKind::Timer,
    ];
    for seed in 0..12 {
        let mut rng = Rng(seed);
        let keyed = kinds.iter().enumerate();
        let keyed: Vec<StateMeta> = keyed
            .map(|(n, kind)| keyed_state(&mut rng, n, *kind))
            .collect();
        let of_list = schema(&mut rng, 3);
        let mut list = state("list", StateKind::OperatorList, "unit", "unit");
        list.value = of_type(&mut rng, &of_list);
        let of_map = schema(&mut rng, 3);
        let mut map = state("map", StateKind::Broadcast, "unit", "unit");
        map.value = of_type(&mut rng, &of_map);
        map.map_key = Some(TypeMeta {
            codec: map.value.codec,
            schema: Schema::parse(rng.pick::<&str>(&KEYS)).unwrap(),
        });
        let own = vec![
            (list, OperatorStateMode::Split),
            (map, OperatorStateMode::Broadcast),
        ];
        let like = operator(keyed, own);
        let states = like
            .keyed
            .iter()
            .chain(like.operator.iter().map(|(m, _)| m));
        let states: Vec<StateMeta> = states.cloned().collect();
        let rows: Vec<String> = states
            .iter()
            .flat_map(|m| rows_of(&mut rng, m, 6))
            .collect();
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        let name = |what: &str| format!("{what}-{seed}");
        let built = place.build(&name("built"), like.clone(), &rows);
        let built = built.unwrap_or_else(|e| panic!("seed {seed}: {e} {rows:#?}"));

        let mut again = place.builder(&like);
        for line in place.dump(&built).iter().rev() {
            again.row(&Row::from_json(line).unwrap()).unwrap();
        }
        let target = place.begin(&name("again")).unwrap();
        place.io.block_on(again.finish(target)).unwrap();
        place.alike("JSON", seed, &built, &place.open(&name("again")));
        for (one_each, what) in [(true, "tables"), (false, "table")] {
            let other = place.through_tables(&built, &like, one_each, &name(what));
            place.alike(what, seed, &built, &other);
        }
    }
}
