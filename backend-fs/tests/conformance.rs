//! The contract of a backend, rule by rule and mode by mode; and once more with a base that is written anew all the time.
use backend_fs::{ChangeStreams, FsBackend, FsConfig};
use backend_testkit::LiveBackend;

backend_testkit::conformance!(FsBackend);

backend_testkit::conformance!(mod with_many_bases => LiveBackend::new("fs", |cx| {
    let config = FsConfig {
        change_ratio: 0.01,
        max_streams: 2,
        ..FsConfig::default()
    };
    Ok(Box::new(ChangeStreams::new(config, cx)))
}));
