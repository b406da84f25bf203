use std::path::PathBuf;

use checkpoint_storage::LocalCopyOptions;
use state_api::{Error, Result};

use super::{ConfigOption, Configuration, options};

/// Reads whether copies are kept on local disk, whether they are used, and where.
///
/// # Errors
/// `Config` for a folder that is not given by an absolute local path.
pub fn local_copies(configuration: &Configuration) -> Result<LocalCopyOptions> {
    let restore = configuration.bool(&options::FROM_LOCAL);
    let keep = match configuration.text(options::LOCAL_BACKUP.key) {
        Some(_) => configuration.bool(&options::LOCAL_BACKUP),
        None => restore,
    };
    let option = &options::LOCAL_BACKUP_DIRS;
    let given = configuration.list(option);
    let roots = given.iter().map(|text| local_folder(text, option));
    let roots = roots.collect::<Result<_>>();
    Ok(LocalCopyOptions {
        keep,
        restore,
        roots: roots.map_err(|error| configuration.located(error, option))?,
    })
}

fn local_folder(text: &str, option: &ConfigOption) -> Result<PathBuf> {
    let path = text
        .strip_prefix("file:")
        .map_or(text, |rest| rest.strip_prefix("//").unwrap_or(rest));
    let refused = |why: &str| {
        let text = format!("{} = {text:?} is not valid: {why}", option.key);
        Err(Error::config(text).with("option", option.key))
    };
    if path.contains("://") {
        return refused("copies are kept on local disk");
    }
    let path = PathBuf::from(path);
    if !path.is_absolute() {
        return refused("a folder for copies needs an absolute path");
    }
    Ok(path)
}
