//! The typed views of a configuration: defaults, old backend names, contradictions, risky folders.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use checkpoint_storage::Compression;
use runtime_core::config::{
    BackendSettings, CheckpointMode, CheckpointSettings, ClaimMode, Configuration,
    ParallelismSettings, RecoverySettings, StorageLocation, StorageSettings, Support, Syntax,
    ValueKind, local_copies, options, protection, restart_strategy,
};
use runtime_core::coordinator::{CoordinatorConfig, Retention};
use runtime_core::execution::LocalCopyOptions;
use runtime_core::restart::{ExponentialDelay, FailureRate, FixedDelay, RestartStrategy};
use state_api::{
    BackendContext, BackendFactory, BackendRegistry, CheckpointId, Error, ErrorKind, KeyedBackend,
    Result,
};

fn yaml(text: &str) -> Configuration {
    Configuration::parse(text, Syntax::Yaml, "job.yaml").expect("the text is a valid configuration")
}

struct Named(&'static str);

impl BackendFactory for Named {
    fn name(&self) -> &str {
        self.0
    }

    fn create(&self, _: &BackendContext) -> Result<KeyedBackend> {
        Err(Error::unsupported("only its name is asked for"))
    }
}

fn registry(names: &[&'static str]) -> BackendRegistry {
    let mut registry = BackendRegistry::new();
    for name in names {
        registry.register(Named(name)).expect("names differ");
    }
    registry
}

#[test]
fn nothing_set_gives_flinks_defaults() {
    let empty = Configuration::new();
    let settings = CheckpointSettings::from_configuration(&empty).unwrap();
    assert_eq!(settings, CheckpointSettings::default());
    assert_eq!(settings.coordinator(), CoordinatorConfig::default());
    assert!(!settings.incremental);
    assert_eq!(settings.storage.location, StorageLocation::Memory);
    assert_eq!(settings.storage.inline_threshold, 20 * 1024);
    assert_eq!(settings.storage.write_buffer_bytes, 20 * 1024);
    assert_eq!(settings.storage.max_state_bytes, 5 * 1024 * 1024);
    assert_eq!(
        BackendSettings::from_configuration(&empty),
        BackendSettings::default()
    );
    assert_eq!(
        ParallelismSettings::from_configuration(&empty).unwrap(),
        ParallelismSettings::default()
    );
    assert_eq!(
        RecoverySettings::from_configuration(&empty).unwrap(),
        RecoverySettings::default()
    );
    assert_eq!(restart_strategy(&empty).unwrap(), RestartStrategy::None);
}

#[test]
fn every_checkpoint_option_reaches_its_setting() {
    let text = "
execution.checkpointing:
  interval: 1 s
  mode: at-least-once
  timeout: 2 min
  min-pause: 500 ms
  max-concurrent-checkpoints: 3
  tolerable-failed-checkpoints: 4
  externalized-checkpoint-retention: retain-on-cancellation
  num-retained: 5
  dir: file:///data/chk
  savepoint-dir: /data/sp
  storage: FileSystem
  incremental: true
  create-subdir: false
  data-inline-threshold: 0
  write-buffer-size: 64 kb
  cleaner.parallel-mode: false
  checkpoints-after-tasks-finish: true
  memory-storage.max-state-size: 1 mb
execution.state-recovery: {path: /data/sp/1, claim-mode: no_claim, ignore-unclaimed-state: true, restore-only: count; out, rename: tally = count}
web.checkpoints.history: 25
pipeline.max-parallelism: 128
parallelism.default: 4
";
    let configuration = yaml(text);
    let settings = CheckpointSettings::from_configuration(&configuration).unwrap();
    assert_eq!(
        settings,
        CheckpointSettings {
            interval: Some(Duration::from_secs(1)),
            mode: CheckpointMode::AtLeastOnce,
            timeout: Duration::from_secs(120),
            min_pause: Duration::from_millis(500),
            max_concurrent: 3,
            tolerable_failures: 4,
            retained: 5,
            retention: Retention::RetainOnCancellation,
            after_tasks_finish: true,
            incremental: true,
            unaligned: false,
            aligned_timeout: Duration::ZERO,
            without_in_flight: None,
            history: 25,
            storage: StorageSettings {
                location: StorageLocation::Folder("file:///data/chk".to_owned()),
                savepoint_dir: Some("/data/sp".to_owned()),
                max_state_bytes: 1 << 20,
                create_subdir: false,
                inline_threshold: 0,
                write_buffer_bytes: 64 << 10,
                parallel_cleanup: false,
            },
        }
    );
    let coordinator = settings.coordinator();
    assert_eq!(coordinator.interval, Some(Duration::from_secs(1)));
    assert_eq!(coordinator.max_concurrent, 3);
    assert_eq!(coordinator.retention, Retention::RetainOnCancellation);
    assert!(coordinator.after_tasks_finish);
    assert_eq!(
        RecoverySettings::from_configuration(&configuration).unwrap(),
        RecoverySettings {
            path: Some("/data/sp/1".to_owned()),
            claim_mode: ClaimMode::NoClaim,
            ignore_unclaimed_state: true,
            restore_only: vec!["count".to_owned(), "out".to_owned()],
            rename: [("tally".to_owned(), "count".to_owned())].into(),
        }
    );
    assert_eq!(
        ParallelismSettings::from_configuration(&configuration).unwrap(),
        ParallelismSettings {
            parallelism: 4,
            max_parallelism: Some(128)
        }
    );
}

#[test]
fn old_backend_names_stand_for_the_present_ones() {
    for (given, present) in [
        ("jobmanager", "hashmap"),
        ("memory", "hashmap"),
        ("MEMORY", "hashmap"),
        ("filesystem", "fs"),
        ("fs", "fs"),
        ("RocksDB", "rocksdb"),
        ("hashmap", "hashmap"),
        ("my-own", "my-own"),
    ] {
        let settings =
            BackendSettings::from_configuration(&yaml(&format!("state.backend: {given}")));
        assert_eq!(settings.name, present);
    }
}

#[test]
fn the_old_memory_backend_brings_checkpoints_in_memory() {
    let on = "execution.checkpointing.interval: 1 s\n";
    let settings =
        CheckpointSettings::from_configuration(&yaml(&format!("{on}state.backend: jobmanager")))
            .unwrap();
    assert_eq!(settings.storage.location, StorageLocation::Memory);
    // With a folder, the folder holds: the old backend kept only its metadata there.
    let text = format!("{on}state.backend: memory\nstate.checkpoints.dir: /data");
    let settings = CheckpointSettings::from_configuration(&yaml(&text)).unwrap();
    assert_eq!(
        settings.storage.location,
        StorageLocation::Folder("/data".to_owned())
    );
}

#[test]
fn checkpoints_without_a_place_are_an_error_not_a_default() {
    let configuration = yaml("parallelism.default: 1\nexecution.checkpointing.interval: 1 s");
    let error = CheckpointSettings::from_configuration(&configuration).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(
        error.message().contains("set execution.checkpointing.dir"),
        "{error}"
    );
    assert_eq!(error.context("file"), Some("job.yaml:2"));
    let error = CheckpointSettings::from_configuration(&yaml(
        "execution.checkpointing.storage: filesystem",
    ))
    .unwrap_err();
    assert!(error.message().contains("needs a folder"), "{error}");
    let both =
        yaml("execution.checkpointing.storage: jobmanager\nexecution.checkpointing.dir: /data");
    let error = CheckpointSettings::from_configuration(&both).unwrap_err();
    assert!(error.message().contains("leave one of them out"), "{error}");
}

#[test]
fn a_folder_for_temporary_files_is_warned_about_by_option() {
    let warnings = |dir: &str| {
        let configuration = yaml(&format!("execution.checkpointing.dir: {dir}"));
        let settings = CheckpointSettings::from_configuration(&configuration).unwrap();
        settings.storage.warnings(Path::new("/private/temp"))
    };
    for dir in [
        "/tmp/x",
        "/var/tmp",
        "file:///tmp/x",
        "file:/tmp/x",
        "/private/temp/x",
    ] {
        let told = warnings(dir);
        assert_eq!(told.len(), 1, "{dir}");
        assert!(
            told[0].starts_with("execution.checkpointing.dir = "),
            "{}",
            told[0]
        );
        assert!(told[0].contains("temporary files"), "{}", told[0]);
    }
    for dir in ["/data/tmp", "/tmpfs", "s3://tmp/x", "tmp"] {
        assert!(warnings(dir).is_empty(), "{dir}");
    }
}

#[test]
fn a_backend_is_found_by_name_or_refused_with_the_way_out() {
    let find = |text: &str, known: &[&'static str]| {
        let configuration = yaml(text);
        BackendSettings::from_configuration(&configuration)
            .factory(&configuration, &registry(known))
            .map(|factory| factory.name().to_owned())
    };
    assert_eq!(
        find("state.backend: memory", &["hashmap"]).unwrap(),
        "hashmap"
    );
    assert_eq!(
        find("state.backend.type: mine", &["hashmap", "mine"]).unwrap(),
        "mine"
    );
    let error = find(
        "parallelism.default: 1\nstate.backend.type: rocksdb",
        &["hashmap"],
    )
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(
        error.message(),
        "the state backend \"rocksdb\" is not compiled in: build with the feature \"rocksdb\""
    );
    assert_eq!(error.context("file"), Some("job.yaml:2"));
    let error = find("state.backend.type: hasmap", &["hashmap", "mine"]).unwrap_err();
    assert!(
        error.message().contains("did you mean \"hashmap\"?"),
        "{error}"
    );
    assert!(error.message().contains("known: hashmap, mine"), "{error}");
    let error = find("state.backend.type: zzz", &["hashmap", "mine"]).unwrap_err();
    assert!(error.message().contains("known: hashmap, mine"), "{error}");
}

#[test]
fn options_of_a_backend_reach_it_as_text_and_a_wrong_backend_name_is_found() {
    let configuration = yaml(
        "state.backend: {type: mine, mine: {cache.size: 5 mb, deep: {er: x}}, rocksdb.thread.num: 3}",
    );
    let settings = BackendSettings::from_configuration(&configuration);
    assert_eq!(
        settings.options,
        BTreeMap::from([
            ("cache.size".to_owned(), "5 mb".to_owned()),
            ("deep.er".to_owned(), "x".to_owned())
        ])
    );
    assert!(
        settings
            .factory(&configuration, &registry(&["hashmap", "mine"]))
            .is_ok()
    );

    let configuration = yaml("state.backend.rokcsdb.thread.num: 3");
    let error = BackendSettings::from_configuration(&configuration)
        .factory(&configuration, &registry(&["hashmap"]))
        .map(|_| ())
        .unwrap_err();
    assert!(
        error
            .message()
            .contains("did you mean \"state.backend.rocksdb.…\"?"),
        "{error}"
    );
    assert_eq!(error.context("file"), Some("job.yaml:1"));
}

#[test]
fn options_under_an_old_backend_name_reach_the_present_backend() {
    let settings = BackendSettings::from_configuration(&yaml(
        "state.backend.type: filesystem\nstate.backend.filesystem.ratio: 2",
    ));
    assert_eq!(settings.options["ratio"], "2");
}

#[test]
fn k_751_restart_strategies_are_found_by_name() {
    for name in ["none", "off", "disable", "OFF"] {
        let text = format!("restart-strategy.type: {name}\nexecution.checkpointing.interval: 1 s");
        assert_eq!(
            restart_strategy(&yaml(&text)).unwrap(),
            RestartStrategy::None,
            "{name}"
        );
    }
    let checkpointing = yaml("execution.checkpointing.interval: 1 s");
    assert_eq!(
        restart_strategy(&checkpointing).unwrap(),
        RestartStrategy::ExponentialDelay(ExponentialDelay::default())
    );
    assert_eq!(
        restart_strategy(&yaml("restart-strategy: fixed-delay")).unwrap(),
        RestartStrategy::FixedDelay(FixedDelay::default())
    );
    assert_eq!(
        restart_strategy(&yaml("restart-strategy: failure-rate")).unwrap(),
        RestartStrategy::FailureRate(FailureRate::default())
    );
    let error = Configuration::parse(
        "restart-strategy.type: fixed-dely",
        Syntax::Yaml,
        "job.yaml",
    )
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(
        error.message().contains("did you mean \"fixed-delay\"?"),
        "{error}"
    );
}

#[test]
fn every_restart_option_reaches_its_setting() {
    let fixed =
        yaml("restart-strategy: {type: fixed-delay, fixed-delay: {attempts: 7, delay: 0 s}}");
    assert_eq!(
        restart_strategy(&fixed).unwrap(),
        RestartStrategy::FixedDelay(FixedDelay {
            attempts: 7,
            delay: Duration::ZERO
        })
    );
    let rate = yaml(
        "restart-strategy: {type: FAILURE_RATE, failure-rate: {max-failures-per-interval: 2, failure-rate-interval: 5 min, delay: 3 s}}",
    );
    assert_eq!(
        restart_strategy(&rate).unwrap(),
        RestartStrategy::FailureRate(FailureRate {
            max_failures_per_interval: 2,
            interval: Duration::from_secs(300),
            delay: Duration::from_secs(3)
        })
    );
    let grows = yaml(
        "restart-strategy: {type: exponential-delay, exponential-delay: {initial-backoff: 2 s, max-backoff: 9 s, backoff-multiplier: 2, jitter-factor: 0, reset-backoff-threshold: 1 min, attempts-before-reset-backoff: 6}}",
    );
    assert_eq!(
        restart_strategy(&grows).unwrap(),
        RestartStrategy::ExponentialDelay(ExponentialDelay {
            initial_backoff: Duration::from_secs(2),
            max_backoff: Duration::from_secs(9),
            backoff_multiplier: 2.0,
            jitter_factor: 0.0,
            reset_backoff_threshold: Duration::from_secs(60),
            attempts_before_reset: Some(6)
        })
    );
    let crossed = yaml(
        "restart-strategy: {type: exponential-delay, exponential-delay.initial-backoff: 2 min}",
    );
    let error = restart_strategy(&crossed).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(error.context("file"), Some("job.yaml:1"));
}

#[test]
fn an_object_cache_is_there_if_it_has_a_size() {
    let none = BackendSettings::from_configuration(&yaml(""));
    assert!(none.object_cache().is_none());
    let settings = BackendSettings::from_configuration(&yaml("state.object-cache.size: 256 mb"));
    let budget = settings.object_cache().expect("a size is set");
    assert_eq!(budget.capacity(), 256 << 20);
    let error = Configuration::parse("state.object-cache.size: much", Syntax::Yaml, "job.yaml");
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Config);
}

#[test]
fn more_subtasks_than_key_groups_are_refused() {
    for (text, why) in [
        (
            "pipeline.max-parallelism: 4\nparallelism.default: 5",
            "is below parallelism.default = 5",
        ),
        ("pipeline.max-parallelism: 0", "must be -1 or at least 1"),
    ] {
        let error = ParallelismSettings::from_configuration(&yaml(text)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.message().contains(why), "{error}");
        assert_eq!(error.context("file"), Some("job.yaml:1"));
    }
}

#[test]
fn unaligned_checkpoints_are_configured_and_need_exactly_once() {
    let configuration = yaml(
        "
execution.checkpointing:
  unaligned.enabled: true
  aligned-checkpoint-timeout: 30 s
  without-channel-state.checkpoint-id: 7
  dir: /data/chk
",
    );
    let settings = CheckpointSettings::from_configuration(&configuration).unwrap();
    assert_eq!(settings.without_in_flight, Some(CheckpointId(7)));
    let coordinator = settings.coordinator();
    assert!(coordinator.unaligned);
    assert_eq!(coordinator.aligned_timeout, Duration::from_secs(30));
    let counted = yaml(
        "
execution.checkpointing: {unaligned: true, mode: AT_LEAST_ONCE, dir: /data/chk}
",
    );
    let refused = CheckpointSettings::from_configuration(&counted).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Config);
    assert!(refused.to_string().contains("EXACTLY_ONCE"), "{refused}");
}

#[test]
fn copies_on_local_disk_are_kept_and_used_as_flinks_options_say() {
    let of = |text: &str| local_copies(&yaml(text)).unwrap();
    let options = |keep, restore| LocalCopyOptions {
        keep,
        restore,
        roots: Vec::new(),
    };
    for (text, keep, restore) in [
        ("", false, false),
        ("state.backend.local-recovery: true", true, true),
        ("execution.state-recovery.from-local: true", true, true),
        (
            "execution.checkpointing.local-backup.enabled: true",
            true,
            false,
        ),
        (
            "execution.checkpointing.local-backup.enabled: false\nexecution.state-recovery.from-local: true",
            false,
            true,
        ),
    ] {
        assert_eq!(of(text), options(keep, restore), "{text}");
    }
    let roots = of("taskmanager.state.local.root-dirs: /a; file:///b/c;file:/d").roots;
    assert_eq!(roots, ["/a", "/b/c", "/d"].map(Path::new));
    for (dirs, why) in [("copies", "absolute"), ("/a;s3://bucket/b", "local disk")] {
        let configuration = yaml(&format!(
            "execution.checkpointing.local-backup.dirs: {dirs}"
        ));
        let error = local_copies(&configuration).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.message().contains(why), "{error}");
        assert_eq!(error.context("file"), Some("job.yaml:1"));
    }
}

/// What the page says of the options of jobs.
fn options_as_table() -> String {
    let mut table = String::from("\n| option | default | what |\n| --- | --- | --- |\n");
    for option in options::ALL {
        let default = option
            .default
            .map_or_else(String::new, |text| format!("`{text}`"));
        let values = match option.kind {
            ValueKind::Choice(words) => format!(" One of `{}`.", words.join("`, `")),
            _ => String::new(),
        };
        let only = match option.support {
            Support::Offered => "",
            Support::DefaultOnly => " Only the default is offered.",
        };
        let old = match option.old_keys {
            [] => String::new(),
            old => format!(" Older: `{}`.", old.join("`, `")),
        };
        table += &format!(
            "| `{}` | {default} | {}{values}{only}{old} |\n",
            option.key, option.meaning
        );
    }
    table
}

#[test]
fn the_page_of_options_is_what_the_code_understands() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let path = root.join("docs/configuration.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let start =
        page.find("--test config_settings -->\n").unwrap() + "--test config_settings -->\n".len();
    let end = page.find("<!-- end of options -->").unwrap();
    let table = options_as_table() + "\n";
    if std::env::var_os("HOLDFAST_UPDATE").is_some() {
        let text = format!("{}{table}{}", &page[..start], &page[end..]);
        std::fs::write(&path, text).unwrap();
    } else {
        assert_eq!(&page[start..end], table, "HOLDFAST_UPDATE=1 writes it anew");
    }
    // Options of backends, as their sources have them; and none that is gone.
    let quoted = |file: &str, line_of: &str| -> Vec<String> {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        let lines = text.lines().filter(|line| line.contains(line_of));
        let names = lines
            .filter_map(|line| line.split('"').nth(1))
            .map(str::to_owned);
        names.collect()
    };
    let fs = quoted("backend-fs/src/config.rs", "const ");
    let rocksdb = quoted("backend-rocksdb/src/config_text.rs", "\" => |");
    assert!(fs.len() == 4 && rocksdb.len() > 40, "{fs:?} {rocksdb:?}");
    let section = |name: &str| {
        let from = page.find(name).unwrap();
        let rest = &page[from + 3..];
        &rest[..rest.find("\n## ").unwrap_or(rest.len())]
    };
    for (name, known) in [
        ("## The backend `fs`", fs),
        ("## The backend `rocksdb`", rocksdb),
    ] {
        let section = section(name);
        for option in &known {
            assert!(
                section.contains(&format!("`{option}`")),
                "{option} is missing"
            );
        }
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
        for row in rows {
            let option = row.split('`').next().unwrap().to_owned();
            assert!(known.contains(&option), "{option} is gone");
        }
    }
}

#[test]
fn stores_options_are_on_their_page() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/storage.md");
    let page = std::fs::read_to_string(path).unwrap();
    for option in checkpoint_storage::STORE_OPTIONS {
        assert!(
            page.contains(&format!("`{}`", option.key)),
            "{}",
            option.key
        );
    }
}

fn key_file(text: &str) -> tempfile::TempPath {
    let file = tempfile::NamedTempFile::new().expect("there is room for a file");
    std::fs::write(file.path(), text).expect("the file can be written");
    file.into_temp_path()
}

#[test]
fn checkpoints_are_packed_encrypted_and_signed_by_configuration() {
    let none = protection(&yaml("{}")).unwrap();
    assert!(none.sealing.is_plain() && none.signer.is_none());
    for (word, compression) in [
        ("true", Compression::Lz4),
        ("LZ4", Compression::Lz4),
        ("false", Compression::None),
    ] {
        let text = format!("execution.checkpointing.snapshot-compression: {word}");
        let sealing = protection(&yaml(&text)).unwrap().sealing;
        assert_eq!(
            (sealing.compression, sealing.cipher.is_some()),
            (compression, false)
        );
    }
    let file = key_file(&format!(
        "# of May\nnew {}\nold {}\n",
        "a1".repeat(32),
        "b2".repeat(32)
    ));
    let all = yaml(&format!(
        "execution.checkpointing:\n  encryption.keys-file: {0}\n  signing.keys-file: {0}\n",
        file.display()
    ));
    let all = protection(&all).unwrap();
    assert_eq!(all.sealing.cipher.unwrap().key_id(), "new");
    let signer = all.signer.unwrap();
    assert!(signer.key_id() == "new" && signer.requires_signature());
    assert_eq!(
        signer.tag("old", b"x").unwrap(),
        signer.tag("old", b"x").unwrap()
    );
    let lenient = yaml(&format!(
        "execution.checkpointing:\n  signing.keys-file: {}\n  signing.required: false\n",
        file.display()
    ));
    assert!(
        !protection(&lenient)
            .unwrap()
            .signer
            .unwrap()
            .requires_signature()
    );
}

#[test]
fn keys_that_are_no_good_are_refused_by_name_and_never_shown() {
    let key = "c0ffee11".repeat(8);
    let bad = key_file(&format!("name {key}x\n"));
    let bad = bad.display();
    for (text, told) in [
        (format!("encryption.keys-file: {bad}"), "line=1"),
        (format!("signing.keys-file: {bad}"), "signing.keys-file"),
        ("signing.keys-file: /no/such/file".into(), "/no/such/file"),
        (
            "signing.keys-env: HOLDFAST_NO_SUCH_VARIABLE".into(),
            "HOLDFAST_NO_SUCH_VARIABLE",
        ),
        (format!("signing.keys-env: {key}"), "this is a key"),
        (format!("encryption.keys-file: a:{key}"), "this is a key"),
        (
            format!("signing.keys-env: A\n  signing.keys-file: {bad}"),
            "leave one of them out",
        ),
    ] {
        let configuration = yaml(&format!("execution.checkpointing:\n  {text}\n"));
        let error = protection(&configuration).unwrap_err();
        let shown = format!("{error} {error:?} {configuration} {configuration:?}");
        assert_eq!(error.kind(), ErrorKind::Config, "{shown}");
        assert!(shown.contains(told), "{told}: {shown}");
        assert!(!shown.contains("c0ffee"), "{shown}");
    }
}
