//! Options from YAML, TOML and the program: names, spellings, overriding, and what bad input says.

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use runtime_core::config::{CheckpointSettings, Configuration, Origin, Syntax};
use state_api::{Error, ErrorKind};

fn yaml(text: &str) -> Result<Configuration, Error> {
    Configuration::parse(text, Syntax::Yaml, "job.yaml")
}

fn toml(text: &str) -> Result<Configuration, Error> {
    Configuration::parse(text, Syntax::Toml, "job.toml")
}

#[track_caller]
fn config_error(result: Result<Configuration, Error>) -> String {
    let error = result.expect_err("the configuration was taken");
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    error.to_string()
}

#[test]
fn nested_and_dotted_keys_of_yaml_and_toml_say_the_same() {
    let nested = "execution:\n  checkpointing:\n    interval: 10 s\n    data-inline-threshold: 4kb\nparallelism.default: 2\n";
    let dotted = "execution.checkpointing.interval: \"10 s\"\nexecution.checkpointing.data-inline-threshold: 4 KB # small\nparallelism.default: 2";
    let tables = "parallelism.default = 2\n[execution.checkpointing]\ninterval = \"10s\"\ndata-inline-threshold = 4096\n";
    let flow = "{execution.checkpointing: {interval: PT10S, data-inline-threshold: 4kb}, parallelism: {default: 2}}";
    for configuration in [yaml(nested), yaml(dotted), toml(tables), yaml(flow)] {
        let configuration = configuration
            .unwrap()
            .with("execution.checkpointing.storage", "jobmanager")
            .unwrap();
        let settings = CheckpointSettings::from_configuration(&configuration).unwrap();
        assert_eq!(settings.interval, Some(Duration::from_secs(10)));
        assert_eq!(settings.storage.inline_threshold, 4096);
        assert_eq!(configuration.text("parallelism.default"), Some("2"));
        assert!(configuration.warnings().is_empty());
    }
}

#[test]
fn an_unknown_option_names_the_nearest_one_with_file_and_line() {
    let text = "parallelism.default: 2\nexecution:\n  checkpointing:\n    intervall: 10 s\n";
    assert_eq!(
        config_error(yaml(text)),
        "configuration error: unknown option \"execution.checkpointing.intervall\"; did you mean \
         \"execution.checkpointing.interval\"? [option=execution.checkpointing.intervall, file=job.yaml:4]"
    );
    let text = "[execution.checkpointing]\nmin-pause = \"1 s\"\n\ntimeuot = \"1 s\"\n";
    let error = config_error(toml(text));
    assert!(
        error.contains("\"execution.checkpointing.timeout\"?"),
        "{error}"
    );
    assert!(error.contains("file=job.toml:4"), "{error}");
    let error = config_error(Configuration::new().with("nothing.like.it", 1));
    assert!(
        error.contains("unknown option \"nothing.like.it\" ["),
        "{error}"
    );
    assert!(error.contains("set by=the program"), "{error}");
}

#[test]
fn a_typo_in_an_old_spelling_suggests_the_present_one() {
    let error = config_error(yaml("state.checkpoints.dirr: /data"));
    assert!(
        error.contains("did you mean \"execution.checkpointing.dir\"?"),
        "{error}"
    );
}

#[test]
fn a_bad_value_says_what_is_valid() {
    for (text, expected) in [
        (
            "execution.checkpointing.interval: 5 fortnights",
            "\"fortnights\" is no unit of time",
        ),
        (
            "execution.checkpointing.interval: 9 ms",
            "a duration of at least 10ms",
        ),
        (
            "execution.checkpointing.timeout: -1 s",
            "a number that is not negative",
        ),
        (
            "execution.checkpointing.min-pause: 366 d",
            "a duration from 0ns to 365 d",
        ),
        (
            "execution.checkpointing.max-concurrent-checkpoints: 0",
            "a whole number from 1 to",
        ),
        (
            "execution.checkpointing.num-retained: 0",
            "a whole number from 1 to",
        ),
        (
            "execution.checkpointing.tolerable-failed-checkpoints: -1",
            "a whole number from 0 to",
        ),
        (
            "execution.checkpointing.mode: exactly-twice",
            "did you mean \"EXACTLY_ONCE\"?",
        ),
        (
            "execution.checkpointing.data-inline-threshold: 2 mb",
            "at most 1048576 bytes",
        ),
        (
            "execution.checkpointing.create-subdir: yes",
            "true or false",
        ),
        ("execution.checkpointing.dir: ''", "it has no value"),
        ("execution.checkpointing.dir:", "it has no value"),
        ("state.backend.rocksdb.localdir:", "has no value"),
        ("parallelism.default: 32769", "from 1 to 32768"),
        (
            "restart-strategy: sometimes",
            "one of none, off, disable, fixed-delay",
        ),
        (
            "restart-strategy.exponential-delay.backoff-multiplier: 1.0",
            "a number above 1",
        ),
        (
            "restart-strategy.exponential-delay.backoff-multiplier: NaN",
            "a number above 1",
        ),
        (
            "restart-strategy.exponential-delay.jitter-factor: 1.01",
            "a number from 0 to 1",
        ),
    ] {
        let error = config_error(yaml(text));
        assert!(error.contains(expected), "{text}: {error}");
        assert!(error.contains("job.yaml:1"), "{text}: {error}");
    }
}

#[test]
fn words_are_read_whatever_their_case_and_dashes() {
    for word in ["AT_LEAST_ONCE", "at-least-once", "AtLeastOnce"] {
        assert!(
            yaml(&format!("execution.checkpointing.mode: {word}")).is_ok(),
            "{word}"
        );
    }
}

#[test]
fn an_old_spelling_is_read_as_the_present_option_with_a_warning() {
    for (old, new, value) in [
        ("state.backend", "state.backend.type", "rocksdb"),
        (
            "state.checkpoints.dir",
            "execution.checkpointing.dir",
            "/data",
        ),
        (
            "state.savepoints.dir",
            "execution.checkpointing.savepoint-dir",
            "/data",
        ),
        (
            "savepoints.state.backend.fs.dir",
            "execution.checkpointing.savepoint-dir",
            "/data",
        ),
        (
            "state.checkpoints.num-retained",
            "execution.checkpointing.num-retained",
            "3",
        ),
        (
            "state.backend.incremental",
            "execution.checkpointing.incremental",
            "true",
        ),
        (
            "state.backend.fs.memory-threshold",
            "execution.checkpointing.data-inline-threshold",
            "1kb",
        ),
        (
            "execution.savepoint.path",
            "execution.state-recovery.path",
            "/data/chk-3",
        ),
        ("restart-strategy", "restart-strategy.type", "none"),
    ] {
        let configuration = yaml(&format!("{old}: {value}")).unwrap();
        assert_eq!(configuration.text(new), Some(value), "{old}");
        assert_eq!(configuration.text(old), Some(value), "{old}");
        assert_eq!(
            configuration.warnings(),
            [format!("{old} (job.yaml:1) is an old spelling of {new}")]
        );
    }
}

#[test]
fn the_newer_spelling_holds_and_a_difference_is_told() {
    let old = "state.checkpoints.dir: /old";
    let new = "execution.checkpointing.dir: /new";
    for text in [format!("{old}\n{new}"), format!("{new}\n{old}")] {
        let configuration = yaml(&text).unwrap();
        assert_eq!(
            configuration.text("execution.checkpointing.dir"),
            Some("/new"),
            "{text}"
        );
        let told = configuration
            .warnings()
            .iter()
            .filter(|warning| warning.contains("differ"))
            .count();
        assert_eq!(told, 1, "{:?}", configuration.warnings());
    }
    let same = yaml("execution.checkpointing.data-inline-threshold: 1kb\nstate.storage.fs.memory-threshold: 1024").unwrap();
    assert!(
        same.warnings()
            .iter()
            .all(|warning| !warning.contains("differ")),
        "{:?}",
        same.warnings()
    );
}

#[test]
fn an_option_that_is_set_twice_is_refused_with_both_lines() {
    let error = config_error(yaml(
        "execution.checkpointing.timeout: 1 s\nexecution:\n  checkpointing:\n    timeout: 2 s\n",
    ));
    assert!(error.contains("is set twice"), "{error}");
    assert!(
        error.contains("first=job.yaml:1") && error.contains("file=job.yaml:4"),
        "{error}"
    );
    assert!(
        config_error(toml("parallelism.default = 1\nparallelism.default = 2"))
            .contains("job.toml:2")
    );
}

#[test]
fn the_program_overrides_the_file_under_any_spelling() {
    let mut configuration = yaml("execution.checkpointing.dir: /file").unwrap();
    configuration
        .set_from("state.checkpoints.dir", "/flag", "--checkpoints")
        .unwrap();
    assert_eq!(
        configuration.text("execution.checkpointing.dir"),
        Some("/flag")
    );
    assert_eq!(
        configuration.origin("execution.checkpointing.dir"),
        Some(&Origin::Named("--checkpoints".to_owned()))
    );

    let file = yaml("execution.checkpointing.dir: /file\nparallelism.default: 4").unwrap();
    let job = Configuration::new()
        .with("execution.checkpointing.dir", "/job")
        .unwrap();
    let both = file.overridden_by(job);
    assert_eq!(both.text("execution.checkpointing.dir"), Some("/job"));
    assert_eq!(both.text("parallelism.default"), Some("4"));
}

#[test]
fn a_failed_set_changes_nothing() {
    let mut configuration = Configuration::new().with("parallelism.default", 3).unwrap();
    assert!(configuration.set("parallelism.default", 0).is_err());
    assert_eq!(configuration.text("parallelism.default"), Some("3"));
}

#[test]
fn options_of_a_cluster_say_that_they_have_no_meaning_here() {
    for key in [
        "taskmanager.memory.process.size",
        "jobmanager.rpc.address",
        "state.changelog.enabled",
        "state.backend.async",
    ] {
        let error = config_error(yaml(&format!("{key}: x")));
        assert!(error.contains("is not an option here"), "{error}");
    }
}

#[test]
fn an_option_that_is_not_offered_is_refused_unless_it_says_the_default() {
    for (key, default, other) in [
        ("file-merging.enabled", "false", "true"),
        ("checkpoints-after-tasks-finish", "true", "false"),
        ("checkpoints-after-tasks-finish.enabled", "true", "false"),
    ] {
        let key = format!("execution.checkpointing.{key}");
        assert!(yaml(&format!("{key}: {default}")).is_ok());
        let error = config_error(yaml(&format!("{key}: {other}")));
        let refused = format!("this version does not offer it: leave it at {default}");
        assert!(error.contains(&refused), "{error}");
    }
}

#[test]
fn what_is_no_configuration_is_refused_with_its_line() {
    for text in [
        "- a\n- b",
        "just text",
        "a: [1, [2]]",
        "a: {b: *x}",
        "a: &x 1\nb: *x",
        "parallelism.default: 1\n---\nparallelism.default: 2",
        "a: \"unclosed",
        "? {complex: key}\n: 1",
        "a:\n\t- tab",
    ] {
        let error = config_error(yaml(text));
        assert!(error.contains("job.yaml"), "{text:?}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    for text in ["a = ", "[a", "a = [[1]]", "a = 1\na.b = 2", "= 1"] {
        let error = config_error(toml(text));
        assert!(error.contains("job.toml"), "{text:?}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let deep = "a: {".repeat(200);
    assert!(config_error(yaml(&deep)).contains("too deep"));
    for empty in ["", "# nothing\n", "---\n", "~", "{}"] {
        assert_eq!(yaml(empty).unwrap(), Configuration::new(), "{empty:?}");
    }
}

#[test]
fn lists_become_texts_between_semicolons() {
    let configuration = yaml("state.backend.rocksdb.localdir:\n  - /a\n  - /b\n").unwrap();
    assert_eq!(
        configuration.backend_options("rocksdb")["localdir"],
        "/a;/b"
    );
    let configuration = toml("state.backend.rocksdb.localdir = [\"/a\", \"/b\"]").unwrap();
    assert_eq!(
        configuration.backend_options("rocksdb")["localdir"],
        "/a;/b"
    );
}

#[test]
fn secrets_are_never_printed() {
    let text = "state.backend.mine.secret-key: hunter2\nstate.backend.mine.password: hunter2\nstate.backend.mine.size: 5\nexecution.checkpointing.dir: s3://me:hunter2@host/x\n";
    let configuration = yaml(text).unwrap();
    for shown in [configuration.to_string(), format!("{configuration:?}")] {
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("******"), "{shown}");
    }
    assert!(
        configuration
            .to_string()
            .contains("state.backend.mine.size: 5  # job.yaml:3")
    );
    assert_eq!(configuration.backend_options("mine")["password"], "hunter2");
}

#[test]
fn files_are_read_by_the_ending_of_their_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("a.yaml"), "\u{feff}parallelism.default: 2").unwrap();
    std::fs::write(path("b.TOML"), "parallelism.default = 2").unwrap();
    std::fs::write(path("c.json"), "{}").unwrap();
    std::fs::write(path("d.yml"), [0xff, 0xfe]).unwrap();
    std::fs::write(path("e.yml"), " ".repeat((1 << 20) + 1)).unwrap();
    std::fs::create_dir(path("f.yml")).unwrap();
    for name in ["a.yaml", "b.TOML"] {
        assert_eq!(
            Configuration::load(&path(name))
                .unwrap()
                .text("parallelism.default"),
            Some("2")
        );
    }
    for (name, why) in [
        ("c.json", "ends in .yaml"),
        ("d.yml", "not UTF-8"),
        ("e.yml", "larger than 1 MiB"),
        ("f.yml", "not a regular file"),
        ("missing.yaml", "can't be opened"),
    ] {
        let error = config_error(Configuration::load(&path(name)));
        assert!(error.contains(why) && error.contains(name), "{error}");
    }
    assert!(Configuration::load(Path::new("")).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_is_read_or_refused_and_never_panics(text in "[ \\-a-c:{}\\[\\],\"'|>&*!%#\n\t.=0-9~?]{0,80}") {
        let _ = yaml(&text);
        let _ = toml(&text);
    }
}
