use std::sync::Arc;

use checkpoint_storage::{Protection, StoreOptions};
use runtime_core::config::{
    BackendSettings, CheckpointSettings, Configuration, ParallelismSettings, RecoverySettings,
    StorageLocation, StorageSettings, local_copies, options, protection, restart_strategy,
};
use runtime_core::restart::RestartStrategy;
use runtime_core::{ExecutionSettings, RestoreFrom};
use state_api::{BackendFactory, BackendRegistry, Error, Result};

use crate::args::{ClaimMode as ClaimFlag, Retain, RunArgs};
use crate::stores::split_setting;

/// What `--checkpoints` and `--config` and the rest come to.
pub(crate) struct Settings {
    /// How the job runs.
    pub(crate) execution: ExecutionSettings,
    /// Makes the keyed backends.
    pub(crate) backend: Arc<dyn BackendFactory>,
    /// Subtasks and key groups.
    pub(crate) parallelism: ParallelismSettings,
    /// Where checkpoints go and how; `None` when there are none.
    pub(crate) storage: Option<StorageSettings>,
    /// Where stores are, who asks, and how requests are made.
    pub(crate) stores: StoreOptions,
    /// How checkpoints are compressed, encrypted and signed.
    pub(crate) protection: Protection,
    /// What a person should know about the configuration.
    pub(crate) warnings: Vec<String>,
}

impl Settings {
    /// Reads the configuration file and lays the command line over it.
    ///
    /// # Errors
    /// `Config` and `InvalidArgument`, naming option and place.
    pub(crate) fn of(args: &RunArgs) -> Result<Self> {
        let configuration = configuration(args)?;
        let registry = backends()?;
        let backend = BackendSettings::from_configuration(&configuration);
        let factory = backend.factory(&configuration, &registry)?;
        let checkpoints = CheckpointSettings::from_configuration(&configuration)?;
        let mut execution =
            ExecutionSettings::new(args.job_id.as_deref().unwrap_or(args.job.as_str()))
                .map_err(|error| error.with("set by", "--job-id"))?;
        execution.mode = checkpoints.mode;
        execution.checkpointing = checkpoints.coordinator().normalised()?;
        execution.without_in_flight = checkpoints.without_in_flight;
        execution.history = checkpoints.history;
        execution.local_copies = local_copies(&configuration)?;
        execution.object_cache = backend.object_cache();
        execution.backend_options = backend.options;
        // A person who watches wants to see why it failed, and can start it again; services name a strategy.
        execution.restart = match configuration.text(options::RESTART.key) {
            Some(_) => restart_strategy(&configuration)?,
            None => RestartStrategy::None,
        };
        let recovery = RecoverySettings::from_configuration(&configuration)?;
        execution.allow_non_restored_state = recovery.ignore_unclaimed_state;
        execution.claim = recovery.claim_mode;
        execution.restore_only = recovery.restore_only;
        execution.rename_operators = recovery.rename;
        execution.restore = match recovery.path.as_deref() {
            None => RestoreFrom::Nothing,
            Some("latest") => RestoreFrom::Latest,
            Some(path) => RestoreFrom::Path(path.to_owned()),
        };
        check_flags_of_restore(args, &execution.restore)?;
        if args.aligned_timeout.is_some() && !checkpoints.unaligned {
            return Err(Error::config(
                "--aligned-timeout says when barriers begin to overtake, which takes --unaligned",
            ));
        }
        let kept = checkpoints.storage.location != StorageLocation::Memory;
        let storage = (kept || checkpoints.interval.is_some()).then_some(checkpoints.storage);
        if storage.is_none() && execution.restore == RestoreFrom::Latest {
            return Err(Error::config(
                "--from latest needs the folder of the checkpoints: --checkpoints DIR",
            ));
        }
        let mut warnings = configuration.warnings().to_vec();
        if args.config.is_some() {
            warnings.extend(
                storage
                    .iter()
                    .flat_map(|storage| storage.warnings(&std::env::temp_dir())),
            );
        }
        Ok(Self {
            execution,
            backend: factory,
            parallelism: ParallelismSettings::from_configuration(&configuration)?,
            storage,
            stores: configuration.store_options()?,
            protection: protection(&configuration)?,
            warnings,
        })
    }
}

/// A flag that has nothing to work on is a mistake somewhere else on the line.
fn check_flags_of_restore(args: &RunArgs, restore: &RestoreFrom) -> Result<()> {
    let flags = [
        (args.claim_mode.is_some(), "--claim-mode"),
        (args.allow_non_restored_state, "--allow-non-restored-state"),
        (!args.rename.is_empty(), "--rename"),
        (!args.only.is_empty(), "--only"),
        (!args.reset.is_empty(), "--reset"),
        (args.plan, "--plan"),
    ];
    for (_, flag) in flags.iter().filter(|(given, _)| *given) {
        if *restore == RestoreFrom::Nothing {
            return Err(Error::config(format!(
                "{flag} is about the checkpoint that the job starts from: name it with --from"
            )));
        }
    }
    let by_path = [
        (args.claim_mode.is_some(), "--claim-mode"),
        (!args.only.is_empty(), "--only"),
        (!args.reset.is_empty(), "--reset"),
    ];
    for (_, flag) in by_path.iter().filter(|(given, _)| *given) {
        if *restore == RestoreFrom::Latest {
            return Err(Error::config(format!(
                "--from latest is a checkpoint of the job's own: {flag} is for one that is named by its path"
            )));
        }
    }
    Ok(())
}

fn configuration(args: &RunArgs) -> Result<Configuration> {
    let mut all = match &args.config {
        Some(file) => Configuration::load(file)?,
        None => Configuration::new(),
    };
    for setting in &args.set {
        let (option, value) = split_setting(setting, "-D")?;
        all.set_from(option, value, "-D")?;
    }
    let mut set = |option: &str, value: Option<String>, flag: &str| match value {
        Some(value) => all.set_from(option, value, flag).map(drop),
        None => Ok(()),
    };
    set(options::BACKEND.key, args.backend.clone(), "--backend")?;
    set(
        options::PARALLELISM.key,
        args.parallelism.map(|n| n.to_string()),
        "--parallelism",
    )?;
    set(
        options::MAX_PARALLELISM.key,
        args.max_parallelism.map(|n| n.to_string()),
        "--max-parallelism",
    )?;
    set(options::DIR.key, args.checkpoints.clone(), "--checkpoints")?;
    set(options::INTERVAL.key, args.interval.clone(), "--interval")?;
    set(options::RECOVERY_PATH.key, args.from.clone(), "--from")?;
    let claim = args.claim_mode.map(|mode| match mode {
        ClaimFlag::NoClaim => "NO_CLAIM",
        ClaimFlag::Claim => "CLAIM",
    });
    set(
        options::CLAIM_MODE.key,
        claim.map(str::to_owned),
        "--claim-mode",
    )?;
    let list = |texts: &[String]| (!texts.is_empty()).then(|| texts.join(";"));
    set(options::RENAME.key, list(&args.rename), "--rename")?;
    set(options::RESTORE_ONLY.key, list(&args.only), "--only")?;
    let yes = |flag: bool| flag.then(|| "true".to_owned());
    set(
        options::IGNORE_UNCLAIMED.key,
        yes(args.allow_non_restored_state),
        "--allow-non-restored-state",
    )?;
    set(options::UNALIGNED.key, yes(args.unaligned), "--unaligned")?;
    set(
        options::ALIGNED_TIMEOUT.key,
        args.aligned_timeout.clone(),
        "--aligned-timeout",
    )?;
    let retention = args.retain.map(|retain| match retain {
        Retain::Always => "ALWAYS",
        Retain::OnCancel => "RETAIN_ON_CANCELLATION",
        Retain::OnFailure => "DELETE_ON_CANCELLATION",
        Retain::Never => "NO_EXTERNALIZED_CHECKPOINTS",
    });
    set(
        options::RETENTION.key,
        retention.map(str::to_owned),
        "--retain",
    )?;
    if args.checkpoints.is_some() {
        for (option, value) in [(&options::INTERVAL, "1 s"), (&options::RETENTION, "ALWAYS")] {
            if all.text(option.key).is_none() {
                all.set_from(option.key, value, "--checkpoints")?;
            }
        }
    }
    Ok(all)
}

/// The backends that this program offers.
///
/// # Errors
/// None: the names differ.
pub(crate) fn backends() -> Result<BackendRegistry> {
    let mut registry = BackendRegistry::new();
    backend_hashmap::register(&mut registry)?;
    registry.register(backend_testkit::ReferenceBackend)?;
    runtime_core::register_backends(&mut registry)?;
    Ok(registry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;
    use runtime_core::config::ClaimMode;
    use runtime_core::coordinator::Retention;
    use std::time::Duration;

    fn settings(arguments: &[&str]) -> Result<Settings> {
        let line = ["holdfast", "run", "flights"].iter().chain(arguments);
        match Cli::try_parse_from(line).unwrap().command {
            Command::Run(args) => Settings::of(&args),
            other => panic!("{other:?}"),
        }
    }

    fn config(text: &str) -> tempfile::TempPath {
        let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file.into_temp_path()
    }

    #[test]
    fn a_checkpoint_folder_turns_checkpoints_on_every_second_and_keeps_the_last() {
        let off = settings(&[]).unwrap();
        assert_eq!(
            (off.storage, off.execution.checkpointing.interval),
            (None, None)
        );
        assert_eq!(off.execution.restore, RestoreFrom::Nothing);
        let on = settings(&["--checkpoints", "dir"]).unwrap();
        assert_eq!(
            on.storage.unwrap().location,
            StorageLocation::Folder("dir".into())
        );
        assert_eq!(
            on.execution.checkpointing.interval,
            Some(Duration::from_secs(1))
        );
        assert_eq!(on.execution.checkpointing.retention, Retention::Always);
        assert_eq!(on.execution.job_id.as_str(), "flights");
    }

    #[test]
    fn the_command_line_goes_before_the_file_and_the_file_before_defaults() {
        let file = config(
            "execution.checkpointing.interval: 10 s\nexecution.checkpointing.dir: a\nparallelism.default: 3\nweb.checkpoints.history: 25\n",
        );
        let file = file.to_str().unwrap();
        let from_file = settings(&["--config", file]).unwrap();
        assert_eq!(
            from_file.execution.checkpointing.interval,
            Some(Duration::from_secs(10))
        );
        assert_eq!(
            from_file.execution.checkpointing.retention,
            Retention::Never
        );
        assert_eq!(from_file.parallelism.parallelism, 3);
        assert_eq!(from_file.execution.history, 25);
        let both =
            settings(&["--config", file, "--checkpoints", "b", "--parallelism", "2"]).unwrap();
        assert_eq!(
            both.storage.unwrap().location,
            StorageLocation::Folder("b".into())
        );
        assert_eq!(
            both.execution.checkpointing.interval,
            Some(Duration::from_secs(10))
        );
        assert_eq!(both.parallelism.parallelism, 2);
        let set = settings(&[
            "--config",
            file,
            "-D",
            "execution.checkpointing.interval=3s",
        ])
        .unwrap();
        assert_eq!(
            set.execution.checkpointing.interval,
            Some(Duration::from_secs(3))
        );
    }

    #[test]
    fn barriers_overtake_if_the_command_line_says_so() {
        let aligned = settings(&["--checkpoints", "d"]).unwrap();
        assert!(!aligned.execution.checkpointing.unaligned);
        let unaligned = settings(&[
            "--checkpoints",
            "d",
            "--unaligned",
            "--aligned-timeout",
            "3s",
        ])
        .unwrap();
        let checkpointing = unaligned.execution.checkpointing;
        assert!(checkpointing.unaligned);
        assert_eq!(checkpointing.aligned_timeout, Duration::from_secs(3));
    }

    #[test]
    fn whose_the_checkpoint_is_and_what_of_it_may_be_left_behind_is_said_on_the_command_line() {
        let from = settings(&["--from", "x"]).unwrap().execution;
        assert_eq!(from.claim, ClaimMode::NoClaim);
        assert!(!from.allow_non_restored_state);
        let from = settings(&[
            "--from",
            "x",
            "--claim-mode",
            "claim",
            "--allow-non-restored-state",
        ]);
        let from = from.unwrap().execution;
        assert_eq!(from.claim, ClaimMode::Claim);
        assert!(from.allow_non_restored_state);
    }

    #[test]
    fn a_wrong_setting_names_where_it_was_set() {
        for (arguments, told) in [
            (
                vec!["--backend", "hashmop"],
                "did you mean \"hashmap\"? known: filesystem, fs, hashmap, reference",
            ),
            #[cfg(not(feature = "rocksdb"))]
            (vec!["--backend", "rocksdb"], "not compiled in"),
            (
                vec!["--checkpoints", "d", "--interval", "soon"],
                "set by=--interval",
            ),
            (vec!["--job-id", "a/b"], "set by=--job-id"),
            (vec!["--parallelism", "0"], "set by=--parallelism"),
            (
                vec!["--parallelism", "4", "--max-parallelism", "2"],
                "below",
            ),
            (vec!["-D", "nonsense"], "-D OPTION=VALUE"),
            (
                vec!["-D", "execution.checkpointing.intervall=1s"],
                "execution.checkpointing.interval",
            ),
            (vec!["--from", "latest"], "--checkpoints DIR"),
            (vec!["--claim-mode", "no-claim"], "name it with --from"),
            (vec!["--allow-non-restored-state"], "name it with --from"),
            (
                vec![
                    "--from",
                    "latest",
                    "--checkpoints",
                    "d",
                    "--claim-mode",
                    "no-claim",
                ],
                "of the job's own",
            ),
            (vec!["--aligned-timeout", "1s"], "takes --unaligned"),
            (vec!["--config", "nothing.yaml"], "nothing.yaml"),
        ] {
            let error = settings(&arguments).err().unwrap().to_string();
            assert!(error.contains(told), "{arguments:?}: {error}");
        }
    }
}
