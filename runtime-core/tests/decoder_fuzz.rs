//! What this crate reads from disk: configurations, the positions of sources and the transactions of sinks. Nothing that
//! stands in them makes it panic, or take more memory than their length allows.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
use backend_testkit::fuzz::{Random, fuzz};
use backend_testkit::meter::{Bound, Metered};
use runtime_core::config::{Configuration, Syntax};
use runtime_core::sinks::FileTransaction;
use runtime_core::sources::{FileSplit, IndexSplit, StdinSplit};
use state_api::{CodecKind, StateType};

#[global_allocator]
static METERED: Metered = Metered;

/// The parsers keep some state for each token, and each option comes with its place; what is quoted in an error may be
/// escaped.
const CONFIGURATION: Bound = Bound {
    fixed: 64 << 10,
    per_byte: 512,
};

const YAML: &str = "\
execution:
  checkpointing:
    interval: 10 s
    dir: 'file:///data/checkpoints'
    mode: EXACTLY_ONCE
state.backend.type: hashmap
parallelism.default: 4
restart-strategy.type: \"exponential-delay\"
";

const TOML: &str = "\
parallelism.default = 4
state.backend.type = 'hashmap'
[execution.checkpointing]
interval = \"10 s\"
dir = \"file:///data/checkpoints\"
externalized-checkpoint-retention = '''RETAIN_ON_CANCELLATION'''
";

fn try_configuration(text: &str) {
    for syntax in [Syntax::Yaml, Syntax::Toml] {
        let read = CONFIGURATION.hold(text.len(), || Configuration::parse(text, syntax, "job"));
        if let Err(error) = read {
            assert_eq!(error.kind(), state_api::ErrorKind::Config, "{error}");
        }
    }
}

#[test]
fn the_samples_are_configurations() {
    Configuration::parse(YAML, Syntax::Yaml, "job.yaml").unwrap();
    Configuration::parse(TOML, Syntax::Toml, "job.toml").unwrap();
}

#[test]
fn damaged_configurations_are_refused_or_read() {
    let samples = [YAML, TOML].map(|text| text.as_bytes().to_vec());
    fuzz(3_000, &samples, |_, bytes| {
        try_configuration(&String::from_utf8_lossy(&bytes));
    });
}

const TOKENS: &[&str] = &[
    "parallelism.default",
    "execution",
    "checkpointing",
    "interval",
    "a",
    ".",
    ":",
    ": ",
    "\n",
    "\n  ",
    "\n    ",
    "- ",
    "{",
    "}",
    "[",
    "]",
    "[[",
    "]]",
    ",",
    " = ",
    "\"",
    "'",
    "'''",
    "\"\"\"",
    "\\",
    "\\u00e9",
    "&a ",
    "*a",
    "<<: ",
    "!!str ",
    "|",
    ">",
    "? ",
    "#",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "~",
    "10 s",
    "1e999",
    "0x",
    "1979-05-27T07:32:00Z",
    "\t",
    "\r",
    "\u{feff}",
];

#[test]
fn tokens_in_any_order_are_refused_or_read() {
    fuzz(3_000, &[], |random, _| {
        let count = random.below(60);
        let text: String = (0..count).map(|_| *random.one_of(TOKENS)).collect();
        try_configuration(&text);
    });
}

/// A file of the largest size that is read, made of one thing over and over.
#[test]
fn the_same_thing_over_and_over_is_refused_or_read() {
    let repeated = [
        "[",
        "{",
        "a: {",
        "a.",
        "- ",
        "[a.",
        "a:\n",
        "? ",
        "&a ",
        "[[a]]\n",
        "x = [",
        "x = {a = ",
        "\"",
        "'",
        "a: 1\n",
        "a = 1\n",
        "!",
        "|\n",
        "\\",
        "# ",
        "[a]\n",
        "a: [",
    ];
    for part in repeated {
        try_configuration(&part.repeat((64 << 10) / part.len()));
    }
}

/// The name of a section stands before each option in it: a long one must not be copied for every option.
#[test]
fn a_long_section_name_is_not_repeated_for_every_option() {
    let name = "n".repeat(32 << 10);
    let options: String = (0..2_000).map(|n| format!("  o{n}: 1\n")).collect();
    try_configuration(&format!("{name}:\n{options}"));
    let options: String = (0..2_000).map(|n| format!("o{n} = 1\n")).collect();
    try_configuration(&format!("[{name}]\n{options}"));
    let nested: String = (0..30)
        .map(|depth| format!("{}{}:\n", " ".repeat(depth), "n".repeat(1_000)))
        .collect();
    let leaves: String = (0..1_000)
        .map(|n| format!("{}o{n}: 1\n", " ".repeat(30)))
        .collect();
    try_configuration(&format!("{nested}{leaves}"));
}

/// A text of a byte takes a string and its bytes.
const STATE: Bound = Bound {
    fixed: 4 << 10,
    per_byte: 64,
};

fn encoded<T: StateType>(value: &T) -> [Vec<u8>; 2] {
    [CodecKind::Compact, CodecKind::Evolvable].map(|codec| {
        let mut bytes = Vec::new();
        codec.encode(value, &mut bytes);
        bytes
    })
}

fn try_state<T: StateType>(bytes: &[u8]) {
    for codec in [CodecKind::Compact, CodecKind::Evolvable] {
        let read = STATE.hold(bytes.len(), || codec.decode_all::<T>(bytes));
        if let Ok(value) = read {
            let mut again = Vec::new();
            codec.encode(&value, &mut again);
            assert!(codec.decode_all::<T>(&again).is_ok());
        }
    }
}

#[test]
fn damaged_positions_and_transactions_are_refused_or_read() {
    let split = FileSplit {
        file: "lines.txt".to_owned(),
        ordinal: 3,
        start: 100,
        end: 9_000,
        position: 4_711,
        length: 10_000,
        head_hash: 0x0123_4567_89ab_cdef,
    };
    let transaction = FileTransaction {
        stem: "part-00000000000000ab-s0-a3-r1-7-00000000000f".to_owned(),
        checkpoint: Some(12),
        visible: "part-00000012-000-a3r1-00000000000f".to_owned(),
        length: 300,
    };
    let samples: Vec<Vec<u8>> = [encoded(&split), encoded(&transaction)]
        .into_iter()
        .flatten()
        .collect();
    fuzz(4_000, &samples, |_: &mut Random, bytes| {
        try_state::<FileSplit>(&bytes);
        try_state::<IndexSplit>(&bytes);
        try_state::<StdinSplit>(&bytes);
        try_state::<FileTransaction>(&bytes);
        try_state::<Vec<(u64, FileTransaction)>>(&bytes);
    });
}
