//! What the Kafka source and sink have in common: the address of a cluster, its options, and how its errors read.
//!
//! The client is librdkafka, which is built from source: a C compiler, a C++ compiler and `make` are needed, and nothing else. TLS, SASL
//! and zstd are left out; a program that needs them asks for them in its own `Cargo.toml`, since the features of a crate add
//! up: `rdkafka = { version = "0.39", default-features = false, features = ["ssl", "sasl", "zstd"] }`.
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::client::{Client, ClientContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use state_api::{Error, ErrorKind, Result};

/// Options that the source and the sink set themselves: what they promise rests on them.
const OURS: [&str; 9] = [
    "auto.offset.reset",
    "bootstrap.servers",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.idempotence",
    "enable.partition.eof",
    "group.id",
    "metadata.broker.list",
    "transactional.id",
];

/// A Kafka cluster and how to talk to it.
///
/// ```
/// use std::time::Duration;
/// use runtime_core::kafka::KafkaCluster;
///
/// let cluster = KafkaCluster::new("broker-1:9092,broker-2:9092")
///     .option("client.id", "wordcount")
///     .timeout(Duration::from_secs(30));
/// # let _ = cluster;
/// ```
#[derive(Clone)]
pub struct KafkaCluster {
    brokers: String,
    options: BTreeMap<String, String>,
    timeout: Duration,
}

impl KafkaCluster {
    /// Names a cluster by some of its brokers, `host:port` separated by commas.
    #[must_use]
    pub fn new(brokers: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            options: BTreeMap::new(),
            timeout: Duration::from_secs(10),
        }
    }

    /// Sets an option of librdkafka, such as `security.protocol` or `message.max.bytes`.
    ///
    /// Options that the source and the sink set themselves are refused when the job starts.
    #[must_use]
    pub fn option(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.insert(name.into(), value.into());
        self
    }

    /// Limits how long one request to the cluster may take, such as a commit; 10 s unless set.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns an option as set by the user.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    /// Returns the configuration of a client: `ours` above the user's options above `defaults`.
    pub(crate) fn config(
        &self,
        defaults: &[(&str, &str)],
        ours: &[(&str, &str)],
    ) -> Result<ClientConfig> {
        if let Some(name) = OURS.iter().find(|name| self.options.contains_key(**name)) {
            return Err(Error::config(
                "this option of Kafka is set by the source and the sink themselves",
            )
            .with("option", name));
        }
        let mut config = ClientConfig::new();
        for (name, value) in defaults {
            config.set(*name, *value);
        }
        for (name, value) in &self.options {
            config.set(name, value);
        }
        config.set("bootstrap.servers", &self.brokers);
        for (name, value) in ours {
            config.set(*name, *value);
        }
        Ok(config)
    }

    /// Turns an error of the client into one of ours, whose kind says what to do.
    pub(crate) fn failed(&self, message: &'static str, error: KafkaError) -> Error {
        Error::new(kind(&error), message)
            .with("brokers", &self.brokers)
            .caused_by(error)
    }
}

impl fmt::Debug for KafkaCluster {
    /// Names the options without their values, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaCluster")
            .field("brokers", &self.brokers)
            .field("options", &self.options.keys().collect::<Vec<_>>())
            .field("timeout", &self.timeout)
            .finish()
    }
}

/// Returns the number of partitions of a topic.
///
/// # Errors
/// `Config` when there is no such topic; `Retryable` when the cluster can't be asked.
pub(crate) fn partitions<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
    cluster: &KafkaCluster,
) -> Result<i32> {
    let failed = |e| {
        cluster
            .failed("the partitions of a Kafka topic can't be listed", e)
            .with("topic", topic)
    };
    let metadata = client
        .fetch_metadata(Some(topic), cluster.timeout)
        .map_err(failed)?;
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    if let Some(error) = found.and_then(|found| found.error()) {
        return Err(failed(KafkaError::MetadataFetch(error.into())));
    }
    match found.map_or(0, |found| found.partitions().len()) {
        0 => Err(Error::config("there is no such Kafka topic")
            .with("topic", topic)
            .with("brokers", &cluster.brokers)),
        n => Ok(i32::try_from(n).unwrap_or(i32::MAX)),
    }
}

fn kind(error: &KafkaError) -> ErrorKind {
    if matches!(
        error,
        KafkaError::ClientConfig(..) | KafkaError::ClientCreation(_) | KafkaError::Nul(_)
    ) {
        return ErrorKind::Config;
    }
    match error.rdkafka_error_code() {
        Some(
            Code::Fenced
            | Code::FencedInstanceId
            | Code::ProducerFenced
            | Code::InvalidProducerEpoch
            | Code::TransactionCoordinatorFenced,
        ) => ErrorKind::Fenced,
        Some(
            Code::UnknownTopic
            | Code::UnknownTopicOrPartition
            | Code::UnknownPartition
            | Code::InvalidTopic
            | Code::TopicAuthorizationFailed
            | Code::GroupAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::TransactionalIdAuthorizationFailed
            | Code::SaslAuthenticationFailed
            | Code::Authentication
            | Code::InvalidConfig
            | Code::InvalidArgument,
        ) => ErrorKind::Config,
        Some(Code::MessageSizeTooLarge | Code::InvalidMessageSize) => ErrorKind::LimitExceeded,
        Some(Code::OffsetOutOfRange | Code::AutoOffsetReset) => ErrorKind::Corrupt,
        Some(Code::NotImplemented | Code::UnsupportedVersion | Code::UnsupportedFeature) => {
            ErrorKind::Unsupported
        }
        _ => ErrorKind::Retryable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_the_protocol_rests_on_is_refused_by_name() {
        let cluster = KafkaCluster::new("localhost:1").option("enable.auto.commit", "true");
        let error = cluster.config(&[], &[]).unwrap_err();
        assert_eq!(
            (error.kind(), error.context("option")),
            (ErrorKind::Config, Some("enable.auto.commit"))
        );
    }

    #[test]
    fn the_user_is_above_the_defaults_and_secrets_are_not_shown() {
        let cluster = KafkaCluster::new("localhost:1")
            .option("linger.ms", "3")
            .option("sasl.password", "hunter2");
        let config = cluster
            .config(&[("linger.ms", "9")], &[("group.id", "g")])
            .unwrap();
        assert_eq!(
            (config.get("linger.ms"), config.get("group.id")),
            (Some("3"), Some("g"))
        );
        assert!(!format!("{cluster:?}").contains("hunter2"));
    }
}
