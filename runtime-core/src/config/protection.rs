use std::io::Read;

use checkpoint_storage::{Blake3Signer, Compression, KeyRing, Protection, Sealing, StoreAccess};
use state_api::{Error, Result};
use tokio::runtime::Handle;

use super::{ConfigOption, Configuration, options, secrets};

/// Largest file of keys, in bytes.
const LARGEST: u64 = 64 << 10;

/// Reads how checkpoints are compressed, encrypted and signed; keys come from a file or an environment variable, which the
/// configuration names.
///
/// # Errors
/// `Config`, naming the option: for keys that can't be read, and for what is not compiled in. No key is ever repeated.
pub fn protection(configuration: &Configuration) -> Result<Protection> {
    let located = |option: &'static ConfigOption| {
        move |error: Error| configuration.located(error.with("option", option.key), option)
    };
    let word = configuration.choice(&options::SNAPSHOT_COMPRESSION);
    let compression = Compression::parse(word.unwrap_or("false"))
        .map_err(located(&options::SNAPSHOT_COMPRESSION))?;
    let encryption = keys(
        configuration,
        &options::ENCRYPTION_KEYS_FILE,
        &options::ENCRYPTION_KEYS_ENV,
    )?;
    let cipher = match encryption {
        None => None,
        Some((keys, option)) => Some(cipher_of(keys).map_err(located(option))?),
    };
    let signing = keys(
        configuration,
        &options::SIGNING_KEYS_FILE,
        &options::SIGNING_KEYS_ENV,
    )?;
    let signer = signing.map(|(keys, _)| {
        let signer = Blake3Signer::with_keys(keys);
        match configuration.bool(&options::SIGNING_REQUIRED) {
            true => signer,
            false => signer.accepting_unsigned(),
        }
    });
    Ok(Protection {
        sealing: Sealing {
            compression,
            cipher,
        },
        signer: signer.map(|signer| std::sync::Arc::new(signer) as _),
    })
}

/// Returns what the stores of a configuration are opened with: its options of stores, and its [`protection`].
///
/// # Errors
/// As [`protection`].
pub fn store_access(configuration: &Configuration, runtime: &Handle) -> Result<StoreAccess> {
    Ok(StoreAccess::new(runtime.clone())
        .with_options(configuration.store_options()?)
        .with_protection(protection(configuration)?))
}

#[cfg(feature = "encryption")]
fn cipher_of(keys: KeyRing) -> Result<std::sync::Arc<dyn checkpoint_storage::BlockCipher>> {
    let nonces = checkpoint_storage::UuidSource::machine();
    let cipher = checkpoint_storage::XChaChaCipher::new(keys, nonces);
    Ok(std::sync::Arc::new(cipher))
}

#[cfg(not(feature = "encryption"))]
fn cipher_of(_: KeyRing) -> Result<std::sync::Arc<dyn checkpoint_storage::BlockCipher>> {
    Err(Error::config(
        "encryption is not compiled in: build with --features encryption",
    ))
}

/// Reads keys, if one of two options says where they are; returns which.
fn keys(
    configuration: &Configuration,
    file: &'static ConfigOption,
    variable: &'static ConfigOption,
) -> Result<Option<(KeyRing, &'static ConfigOption)>> {
    let (option, text) = match (configuration.string(file), configuration.string(variable)) {
        (None, None) => return Ok(None),
        (Some(path), None) => (file, read_file(&path)),
        (None, Some(name)) => (variable, read_variable(&name)),
        (Some(_), Some(_)) => {
            let error = Error::config(format!(
                "{} and {} both say where the keys are: leave one of them out",
                file.key, variable.key
            ));
            return Err(configuration.located(error.with("option", file.key), file));
        }
    };
    let keys = text.and_then(|text| KeyRing::parse(&text));
    let keys = keys.map_err(|e| configuration.located(e.with("option", option.key), option))?;
    Ok(Some((keys, option)))
}

fn read_file(path: &str) -> Result<String> {
    check_no_key(path, "a file")?;
    let fail = |why: &str| Error::config(why.to_owned()).with("keys", path);
    let file = std::fs::File::open(path)
        .map_err(|e| fail("the file of keys can't be opened").caused_by(e))?;
    let mut text = String::new();
    // What is no text is not repeated by the error either.
    file.take(LARGEST + 1)
        .read_to_string(&mut text)
        .map_err(|e| fail("the file of keys can't be read as text").caused_by(e))?;
    match text.len() as u64 > LARGEST {
        true => Err(fail("the file of keys is larger than 64 KiB")),
        false => Ok(text),
    }
}

fn read_variable(name: &str) -> Result<String> {
    check_no_key(name, "an environment variable")?;
    std::env::var(name).map_err(|e| {
        let why = match e {
            std::env::VarError::NotPresent => "the environment variable of the keys is not set",
            std::env::VarError::NotUnicode(_) => "the environment variable of the keys is no text",
        };
        Error::config(why).with("variable", name)
    })
}

/// Refuses a key where the place of keys is asked for: what is configured is shown to people.
fn check_no_key(text: &str, place: &str) -> Result<()> {
    match secrets::holds_key(text) {
        true => Err(Error::config(format!(
            "this is a key, where the name of {place} with keys is asked for: take a new key, since this one may have been seen"
        ))),
        false => Ok(()),
    }
}
