//! Options of stores, for the commands that look at checkpoints: as `run` takes them.
use std::path::{Path, PathBuf};

use checkpoint_storage::{StoreAccess, StoreOptions};
use clap::Args;
use runtime_core::config::{Configuration, store_access};
use state_api::{Error, Result};
use tokio::runtime::Handle;

/// How a command reaches the store that it reads.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct StoreArgs {
    /// File of options in YAML or TOML, such as that of `run`: what it says of stores holds here
    #[arg(long, value_name = "FILE", help_heading = "Stores behind a network")]
    pub(crate) config: Option<PathBuf>,
    /// Set an option of stores, such as s3.endpoint=http://localhost:9000; repeatable
    #[arg(
        short = 'D',
        value_name = "OPTION=VALUE",
        help_heading = "Stores behind a network"
    )]
    pub(crate) set: Vec<String>,
}

/// How a command reaches the store that it writes to, if not as the one that it reads.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TargetStoreArgs {
    /// File of options for the store that is written to; with this or --target-option, none of --config and -D is for it
    #[arg(long, value_name = "FILE", help_heading = "Stores behind a network")]
    pub(crate) target_config: Option<PathBuf>,
    /// Set an option of the store that is written to; repeatable
    #[arg(
        long,
        value_name = "OPTION=VALUE",
        help_heading = "Stores behind a network"
    )]
    pub(crate) target_option: Vec<String>,
}

impl StoreArgs {
    /// Returns what the stores that are read are opened with.
    ///
    /// # Errors
    /// `Config`, naming the option and where it was set, never its value if that is a secret.
    pub(crate) fn access(&self, io: &Handle) -> Result<StoreAccess> {
        access(self.config.as_deref(), &self.set, "-D", io)
    }
}

impl TargetStoreArgs {
    /// Returns what the store that is written to is opened with: options of its own, or those of the store that is read.
    ///
    /// Nothing is mixed: what is said for the one may be the credentials of the other.
    ///
    /// # Errors
    /// As [`StoreArgs::access`].
    pub(crate) fn access(&self, source: &StoreAccess) -> Result<StoreAccess> {
        if self.target_config.is_none() && self.target_option.is_empty() {
            return Ok(source.clone());
        }
        access(
            self.target_config.as_deref(),
            &self.target_option,
            "--target-option",
            source.runtime(),
        )
    }
}

fn access(file: Option<&Path>, set: &[String], flag: &str, io: &Handle) -> Result<StoreAccess> {
    let mut all = match file {
        Some(file) => Configuration::load(file)?,
        None => Configuration::new(),
    };
    for setting in set {
        let (option, value) = split_setting(setting, flag)?;
        all.set_from(option, value, flag)?;
        if StoreOptions::find(option).is_none() && !is_protection(option) {
            return Err(Error::config(format!(
                "{option} is for jobs: {flag} takes options of stores here, such as s3.endpoint, and of what protects checkpoints"
            ))
            .with("set by", flag));
        }
    }
    for warning in all.warnings() {
        tracing::warn!("{warning}");
    }
    store_access(&all, io)
}

/// Tells whether an option is about how checkpoints are compressed, encrypted and signed.
fn is_protection(option: &str) -> bool {
    let rest = option.strip_prefix("execution.checkpointing.");
    rest.is_some_and(|rest| {
        rest == "snapshot-compression"
            || rest.starts_with("encryption.")
            || rest.starts_with("signing.")
    })
}

/// Takes apart what stands behind `-D` and the like.
///
/// # Errors
/// `Config`; what may be a secret is not repeated.
pub(crate) fn split_setting<'a>(setting: &'a str, flag: &str) -> Result<(&'a str, &'a str)> {
    let Some((option, value)) = setting.split_once('=') else {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let name = setting.trim_start().split(|c| !is_name(c)).next();
        let name = name.unwrap_or_default();
        return Err(Error::config(format!(
            "{flag} {name}: it reads {flag} OPTION=VALUE"
        )));
    };
    Ok((option.trim(), value.trim()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        source: StoreArgs,
        #[command(flatten)]
        target: TargetStoreArgs,
    }

    /// What both stores are opened with, as `Debug` shows it.
    fn shown(arguments: &[&str]) -> Result<(String, String)> {
        let io = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let line = Line::try_parse_from(["x"].iter().chain(arguments)).unwrap();
        let source = line.source.access(io.handle())?;
        let target = line.target.access(&source)?;
        let options = |access: &StoreAccess| format!("{:?}", access.options());
        Ok((options(&source), options(&target)))
    }

    fn file(text: &str) -> tempfile::TempPath {
        let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file.into_temp_path()
    }

    #[test]
    fn the_file_of_a_job_says_how_stores_are_reached_and_the_command_line_goes_before_it() {
        let file = file(
            "execution.checkpointing.dir: s3://b/c\ns3.region: eu-west-1\ns3.endpoint: http://a\n",
        );
        let arguments = [
            "--config",
            file.to_str().unwrap(),
            "-D",
            "s3.endpoint=http://b",
        ];
        let (source, target) = shown(&arguments).unwrap();
        assert_eq!(
            source,
            r#"{"s3.endpoint": "http://b", "s3.region": "eu-west-1"}"#
        );
        assert_eq!(target, source);
    }

    #[test]
    fn a_target_with_options_of_its_own_takes_none_of_the_source() {
        let arguments = [
            "-D",
            "s3.secret-key=wJalrXUtn",
            "-D",
            "s3.region=a",
            "--target-option",
            "s3.region=b",
        ];
        let (source, target) = shown(&arguments).unwrap();
        assert_eq!(source, r#"{"s3.region": "a", "s3.secret-key": "******"}"#);
        assert_eq!(target, r#"{"s3.region": "b"}"#);
    }

    #[test]
    fn a_wrong_option_is_named_with_its_flag_and_no_secret_is_repeated() {
        for (arguments, told) in [
            (["-D", "s3.regoin=x"], "did you mean \"s3.region\"?"),
            (
                ["-D", "state.backend.type=hashmap"],
                "state.backend.type is for jobs: -D takes options of stores",
            ),
            (
                ["-D", "s3.secret-key:wJalrXUtn"],
                "-D s3.secret-key: it reads -D OPTION=VALUE",
            ),
            (["-D", "s3.secret-key="], "s3.secret-key = \"******\""),
            (
                ["--target-option", "fs.requests.timeout=soon"],
                "set by=--target-option",
            ),
            (["--target-config", "nothing.yaml"], "nothing.yaml"),
        ] {
            let error = shown(&arguments).unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(text.contains(told), "{arguments:?}: {text}");
            assert!(!text.contains("wJalr"), "{text}");
        }
    }
}
