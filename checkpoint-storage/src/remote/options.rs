use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use state_api::option_text::{nearest, parse_duration, parse_memory_size};
use state_api::{Error, Result};

use crate::remote::RequestPolicy;
use crate::remote::secrets::Secrets;

/// An option of stores.
#[derive(Debug)]
pub struct StoreOption {
    /// The name it is written with.
    pub key: &'static str,
    /// Other spellings.
    pub other_keys: &'static [&'static str],
    /// The cargo feature of the service that it is for; empty if it is for all.
    pub service: &'static str,
    /// Whether its value is never shown.
    pub secret: bool,
    /// What it means, in one line.
    pub meaning: &'static str,
    /// What opendal calls it; empty if it is ours.
    pub(crate) field: &'static str,
}

macro_rules! store_options {
    ($($key:literal [$($other:literal),*] $service:literal $field:literal $shown:ident, $meaning:literal;)*) => {
        /// All options of stores, in the order of the documentation.
        pub static STORE_OPTIONS: &[StoreOption] = &[$(StoreOption {
            key: $key,
            other_keys: &[$($other),*],
            service: $service,
            secret: store_options!(@ $shown),
            meaning: $meaning,
            field: $field,
        }),*];
    };
    (@ secret) => { true };
    (@ shown) => { false };
}

store_options! {
    "s3.endpoint" ["fs.s3a.endpoint"] "s3" "endpoint" shown,
        "URL of the server, for one that is not Amazon's.";
    "s3.region" ["s3.endpoint.region", "fs.s3a.endpoint.region"] "s3" "region" shown,
        "Region of the bucket; `auto` or any word for servers without regions.";
    "s3.access-key" ["s3.access.key", "fs.s3a.access.key"] "s3" "access_key_id" secret,
        "Id of the key to sign with; without it, environment, profile and machine are asked.";
    "s3.secret-key" ["s3.secret.key", "fs.s3a.secret.key"] "s3" "secret_access_key" secret,
        "Key to sign with.";
    "s3.session-token" ["s3.session.token", "fs.s3a.session.token"] "s3" "session_token" secret,
        "Token of temporary credentials.";
    "s3.path.style.access" ["s3.path-style-access", "fs.s3a.path.style.access"] "s3" "" shown,
        "Whether the bucket stands in the path (true, the default) or in the host's name (false).";
    "s3.role-arn" ["fs.s3a.assumed.role.arn"] "s3" "role_arn" shown,
        "Role to assume.";
    "s3.anonymous" [] "s3" "skip_signature" shown,
        "Whether requests are sent unsigned.";
    "s3.server-side-encryption" ["fs.s3a.encryption.algorithm"] "s3" "server_side_encryption" shown,
        "How the server encrypts: AES256 or aws:kms.";
    "s3.server-side-encryption.key" ["fs.s3a.encryption.key"] "s3" "server_side_encryption_aws_kms_key_id" secret,
        "Id of the server's key for aws:kms.";
    "s3.storage-class" ["fs.s3a.create.storage.class"] "s3" "default_storage_class" shown,
        "Storage class of new objects.";
    "s3.entropy.key" ["fs.s3a.entropy.key"] "s3" "" shown,
        "Marker in a path, in whose place objects of snapshots have digits that differ and metadata has nothing.";
    "s3.entropy.length" ["fs.s3a.entropy.length"] "s3" "" shown,
        "Number of those digits, 1 or 2; 1 unless set.";
    "gs.endpoint" ["gcs.endpoint"] "gcs" "endpoint" shown,
        "URL of the server, for one that is not Google's.";
    "gs.credential" ["gcs.credential"] "gcs" "credential" secret,
        "Service account's key file in base64.";
    "gs.credential-path" ["fs.gs.auth.service.account.json.keyfile"] "gcs" "credential_path" shown,
        "Path of a service account's key file.";
    "gs.token" ["gcs.token"] "gcs" "token" secret,
        "Bearer token.";
    "gs.anonymous" [] "gcs" "skip_signature" shown,
        "Whether requests are sent unsigned.";
    "azure.endpoint" [] "azblob" "endpoint" shown,
        "URL of the blob service; from the URL of the folder if it names the account.";
    "azure.account-name" [] "azblob" "account_name" shown,
        "Name of the storage account; from the URL of the folder if it names it.";
    "azure.account-key" [] "azblob" "account_key" secret,
        "Key of the storage account.";
    "azure.sas-token" [] "azblob" "sas_token" secret,
        "Shared access signature.";
    "fs.oss.endpoint" ["oss.endpoint"] "oss" "endpoint" shown,
        "URL of the server.";
    "fs.oss.accessKeyId" ["oss.access-key"] "oss" "access_key_id" secret,
        "Id of the key to sign with.";
    "fs.oss.accessKeySecret" ["oss.secret-key"] "oss" "access_key_secret" secret,
        "Key to sign with.";
    "fs.oss.securityToken" ["oss.session-token"] "oss" "security_token" secret,
        "Token of temporary credentials.";
    "cos.endpoint" ["fs.cosn.bucket.endpoint_suffix"] "cos" "endpoint" shown,
        "URL of the server.";
    "cos.secret-id" ["fs.cosn.userinfo.secretId"] "cos" "secret_id" secret,
        "Id of the key to sign with.";
    "cos.secret-key" ["fs.cosn.userinfo.secretKey"] "cos" "secret_key" secret,
        "Key to sign with.";
    "cos.session-token" [] "cos" "security_token" secret,
        "Token of temporary credentials.";
    "hdfs.name-node" ["fs.defaultFS"] "hdfs" "name_node" shown,
        "Name node of URLs that name none, such as hdfs:///checkpoints.";
    "fs.requests.attempts" ["s3.attempts.maximum", "fs.s3a.attempts.maximum"] "" "" shown,
        "Number of times that a call to a store is made before its failure is reported.";
    "fs.requests.initial-backoff" [] "" "" shown,
        "Wait before the second attempt; each later one waits twice as long, half of it by chance.";
    "fs.requests.max-backoff" [] "" "" shown,
        "Longest wait between two attempts.";
    "fs.requests.timeout" [] "" "" shown,
        "Time after which a call to a store counts as failed.";
    "fs.requests.max-concurrent" ["s3.connection.maximum", "fs.s3a.connection.maximum"] "" "" shown,
        "Number of requests at a time.";
    "fs.upload.part-size" ["s3.upload.min.part.size", "fs.s3a.multipart.size"] "" "" shown,
        "Length of the parts of a large upload; at least 5 mb.";
    "fs.upload.max-concurrent-parts" ["s3.upload.max.concurrent.uploads"] "" "" shown,
        "Number of parts of one upload at a time; each is held in memory.";
}

/// Options of stores: where a service is, who asks, and how requests are made.
///
/// `Debug` shows no secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StoreOptions {
    values: BTreeMap<&'static str, String>,
    policy: RequestPolicy,
}

impl StoreOptions {
    /// Creates options of which none is set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the option of a name, by any of its spellings.
    #[must_use]
    pub fn find(key: &str) -> Option<&'static StoreOption> {
        STORE_OPTIONS
            .iter()
            .find(|option| option.key == key || option.other_keys.contains(&key))
    }

    /// Sets an option.
    ///
    /// # Errors
    /// `Config` for an unknown name, with the nearest known one, and for a bad value, which is not shown if it is a secret.
    pub fn set(&mut self, key: &str, value: impl fmt::Display) -> Result<&mut Self> {
        let Some(option) = Self::find(key) else {
            let hint = nearest(key, STORE_OPTIONS.iter().map(|option| option.key))
                .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
            return Err(Error::config(format!(
                "stores have no option {key:?}{hint}"
            )));
        };
        let value = value.to_string().trim().to_owned();
        self.check(option, &value).map_err(|why| {
            let shown = if option.secret { "******" } else { &value };
            Error::config(format!("{} = {shown:?} is not valid: {why}", option.key))
                .with("option", option.key)
        })?;
        self.values.insert(option.key, value);
        Ok(self)
    }

    /// Sets an option, for a chain of calls.
    ///
    /// # Errors
    /// As [`StoreOptions::set`].
    pub fn with(mut self, key: &str, value: impl fmt::Display) -> Result<Self> {
        self.set(key, value)?;
        Ok(self)
    }

    /// Returns how requests are made.
    #[must_use]
    pub fn policy(&self) -> RequestPolicy {
        self.policy
    }

    fn check(&mut self, option: &StoreOption, value: &str) -> Result<(), String> {
        if value.is_empty() {
            return Err("it has no value".into());
        }
        let policy = &mut self.policy;
        match option.key {
            "s3.path.style.access" | "s3.anonymous" | "gs.anonymous" => {
                flag(value)?;
            }
            // Read wrongly, it would be passed over for other credentials.
            "gs.credential" if !is_base64(value) => return Err("it must be in base64".into()),
            "azure.account-key" if !is_base64(value) => return Err("it must be in base64".into()),
            "s3.entropy.key" => {
                crate::store::check_marker(value).map_err(|e| e.message().to_owned())?;
            }
            "s3.entropy.length" => {
                number(value, 1, crate::store::EntropyPath::MOST_DIGITS as u64)?;
            }
            "fs.requests.attempts" => policy.attempts = number(value, 1, 100)? as u32,
            "fs.requests.initial-backoff" => policy.initial_backoff = span(value)?,
            "fs.requests.max-backoff" => policy.max_backoff = span(value)?,
            "fs.requests.timeout" => policy.timeout = span(value)?,
            "fs.requests.max-concurrent" => policy.concurrent = number(value, 1, 10_000)? as usize,
            "fs.upload.max-concurrent-parts" => {
                policy.concurrent_parts = number(value, 1, 1000)? as usize;
            }
            "fs.upload.part-size" => {
                let bytes = parse_memory_size(value)?;
                if !(5 << 20..=1 << 30).contains(&bytes) {
                    return Err("it must be 5 mb to 1 gb".into());
                }
                policy.part_len = bytes as usize;
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the marker for entropy in paths and the number of digits in its place, if there is a marker.
    pub(crate) fn entropy(&self) -> Option<(&str, usize)> {
        let marker = self.values.get("s3.entropy.key")?;
        let digits = self.values.get("s3.entropy.length");
        let digits = digits.and_then(|digits| digits.parse().ok());
        Some((marker, digits.unwrap_or(1)))
    }

    #[cfg(feature = "s3")]
    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        self.values.get(key).and_then(|value| flag(value).ok())
    }

    /// Returns what opendal is told about a service.
    pub(crate) fn fields(&self, service: &str) -> BTreeMap<String, String> {
        let of_service = STORE_OPTIONS
            .iter()
            .filter(|option| option.service == service && !option.field.is_empty());
        of_service
            .filter_map(|option| {
                let value = self.values.get(option.key)?;
                Some((option.field.to_owned(), value.clone()))
            })
            .collect()
    }

    pub(crate) fn secrets(&self) -> Secrets {
        let secret = STORE_OPTIONS.iter().filter(|option| option.secret);
        Secrets::new(secret.filter_map(|option| self.values.get(option.key).cloned()))
    }
}

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.values.iter().map(|(key, value)| {
            let secret = Self::find(key).is_none_or(|option| option.secret);
            (key, if secret { "******" } else { value.as_str() })
        });
        f.debug_map().entries(shown).finish()
    }
}

fn flag(value: &str) -> Result<bool, String> {
    match value.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("it must be true or false".into()),
    }
}

fn is_base64(value: &str) -> bool {
    let digits = value.trim_end_matches('=');
    digits
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}

fn number(value: &str, min: u64, max: u64) -> Result<u64, String> {
    value
        .parse()
        .ok()
        .filter(|n| (min..=max).contains(n))
        .ok_or_else(|| format!("it must be a whole number from {min} to {max}"))
}

fn span(value: &str) -> Result<Duration, String> {
    let span = parse_duration(value)?;
    if span.is_zero() {
        return Err("it must be longer than nothing".into());
    }
    Ok(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_spelling_sets_an_option_and_an_unknown_one_names_the_nearest() {
        let options = StoreOptions::new()
            .with("s3.access.key", "AKIAEXAMPLE")
            .unwrap()
            .with("fs.s3a.connection.maximum", 7)
            .unwrap();
        assert_eq!(options.fields("s3")["access_key_id"], "AKIAEXAMPLE");
        assert_eq!(options.policy().concurrent, 7);
        let error = StoreOptions::new().with("s3.acces-key", "x").unwrap_err();
        assert!(
            error
                .to_string()
                .contains("did you mean \"s3.access-key\"?"),
            "{error}"
        );
    }

    #[test]
    fn no_secret_is_shown() {
        let options = StoreOptions::new()
            .with("s3.secret-key", "wJalrXUtnFEMI")
            .unwrap()
            .with("s3.region", "eu-west-1")
            .unwrap();
        let shown = format!("{options:?}");
        assert!(
            !shown.contains("wJalr") && shown.contains("eu-west-1"),
            "{shown}"
        );
        let error = StoreOptions::new().with("s3.secret-key", " ").unwrap_err();
        assert!(error.to_string().contains("******"), "{error}");
    }

    #[test]
    fn values_out_of_bounds_are_refused() {
        for (key, value) in [
            ("fs.upload.part-size", "4 mb"),
            ("fs.upload.part-size", "2 gb"),
            ("fs.requests.attempts", "0"),
            ("fs.requests.timeout", "0 ms"),
            ("s3.path.style.access", "yes"),
            ("s3.entropy.key", "a/b"),
            ("s3.entropy.length", "4"),
            ("gs.credential", "{\"type\":\"service_account\"}"),
            ("azure.account-key", "not base64"),
        ] {
            assert!(
                StoreOptions::new().with(key, value).is_err(),
                "{key} = {value}"
            );
        }
    }

    #[test]
    fn no_two_options_share_a_spelling() {
        let mut keys: Vec<_> = STORE_OPTIONS
            .iter()
            .flat_map(|option| std::iter::once(option.key).chain(option.other_keys.iter().copied()))
            .collect();
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all);
    }
}
