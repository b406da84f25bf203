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
    if let Some(option) = StoreOptions::find(key) {
        return option.secret;
    }
    let lower = key.to_lowercase();
    ANYWHERE.iter().any(|word| lower.contains(word))
        || lower
            .split(['.', '-', '_'])
            .any(|word| word == "key" || word.ends_with("accesskey"))
}

/// Returns a value as it may be shown: masked for a secret option, and without the password of a URL.
pub(super) fn masked(key: &str, value: &str) -> String {
    if is_secret(key) || holds_key(value) {
        return MASK.to_owned();
    }
    without_userinfo(value)
}

/// Tells whether a text holds what looks like a key of 32 bytes: 64 hexadecimal digits.
pub(super) fn holds_key(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_hexdigit())
        .any(|digits| digits.len() == 64)
}

/// Hides what stands between `://` and `@` in the authority of a URL.
fn without_userinfo(value: &str) -> String {
    let Some((scheme, rest)) = value.split_once("://") else {
        return value.to_owned();
    };
    let authority = rest.split(['/', '?', '#', ';']).next().unwrap_or(rest);
    // A password may hold a slash; what is behind the colon is a port else.
    let cut_short = |(_, word): (&str, &str)| !word.bytes().all(|byte| byte.is_ascii_digit());
    let at = match authority.rfind('@') {
        None if authority.rsplit_once(':').is_some_and(cut_short) => rest.rfind('@'),
        at => at,
    };
    match at {
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
            masked("execution.checkpointing.dir", "s3://me:p/w@host/a"),
            "s3://******@host/a"
        );
        assert_eq!(
            masked("execution.checkpointing.dir", "hdfs://host:9000/a@b"),
            "hdfs://host:9000/a@b"
        );
        assert_eq!(
            masked("execution.checkpointing.dir", &"0a".repeat(32)),
            MASK
        );
        assert_eq!(
            masked("execution.checkpointing.dir", "s3://host/a@b"),
            "s3://host/a@b"
        );
        assert_eq!(masked("execution.checkpointing.dir", "/a@b"), "/a@b");
    }
}
