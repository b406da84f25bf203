use checkpoint_storage::StoreOptions;

/// What is shown in place of a secret.
const MASK: &str = "******";

/// Words that mark an option as a secret, wherever they stand in its name.
const ANYWHERE: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "credential",
    "apikey",
];

/// Tells whether the value of an option must not be shown.
///
/// `key` counts only as a word of its own (`access-key`, `account_key`), so that `keyed-state-enabled` stays legible.
pub(super) fn is_secret(key: &str) -> bool {
    if StoreOptions::find(key).is_some_and(|option| option.secret) {
        return true;
    }
    let lower = key.to_lowercase();
    ANYWHERE.iter().any(|word| lower.contains(word))
        || lower
            .split(['.', '-', '_'])
            .any(|word| word == "key" || word.ends_with("accesskey"))
}

/// Returns a value as it may be shown: masked for a secret option, and without the password of a URL.
pub(super) fn masked(key: &str, value: &str) -> String {
    if is_secret(key) {
        return MASK.to_owned();
    }
    without_userinfo(value)
}

/// Hides what stands between `://` and `@` in the authority of a URL.
fn without_userinfo(value: &str) -> String {
    let Some((scheme, rest)) = value.split_once("://") else {
        return value.to_owned();
    };
    let authority = rest.split(['/', '?', '#', ';']).next().unwrap_or(rest);
    match authority.rfind('@') {
        Some(at) => format!("{scheme}://{MASK}{}", &rest[at..]),
        None => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_known_by_the_words_in_the_name() {
        for key in [
            "s3.secret-key",
            "s3.access.key",
            "gcs.Token",
            "db.PASSWORD",
            "x.apiKey",
            "az.account_key",
            "s3.accessKey",
            "fs.oss.accessKeyId",
            "cos.secret-id",
        ] {
            assert!(is_secret(key), "{key}");
        }
        for key in [
            "state.latency-track.keyed-state-enabled",
            "state.backend.type",
            "monkey.business",
        ] {
            assert!(!is_secret(key), "{key}");
        }
    }

    #[test]
    fn the_password_in_a_url_is_hidden() {
        assert_eq!(
            masked("execution.checkpointing.dir", "s3://me:pw@host/a@b"),
            "s3://******@host/a@b"
        );
        assert_eq!(
            masked("execution.checkpointing.dir", "s3://host/a@b"),
            "s3://host/a@b"
        );
        assert_eq!(masked("execution.checkpointing.dir", "/a@b"), "/a@b");
    }
}
