use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use opendal::Operator;
use state_api::{Error, Result};
use tokio::runtime::Handle;

use crate::publish::Publish;
use crate::remote::secrets::Secrets;
use crate::remote::{Pacing, RequestPolicy};
use crate::store::{Failure, on_runtime};

/// Publishes on an object store: one write on condition that the object does not exist.
#[derive(Clone, Debug)]
pub struct ConditionalPublish {
    operator: Operator,
    runtime: Option<Handle>,
    retries: Option<(RequestPolicy, Pacing)>,
    secrets: Secrets,
}

impl ConditionalPublish {
    /// Creates the publisher of a store; calls run on the runtime if there is one.
    ///
    /// # Errors
    /// `Unsupported` when the service has no conditional write, or its conditional write is not atomic.
    pub fn new(operator: Operator, runtime: Option<Handle>) -> Result<Self> {
        let scheme = operator.info().scheme().to_owned();
        if !operator.info().capability().write_with_if_not_exists {
            return Err(Error::unsupported(
                "the store can't create an object on condition that it does not exist, which publishing a checkpoint needs",
            )
            .with("store", scheme));
        }
        if scheme == "fs" {
            return Err(Error::unsupported(
                "this service fills a file after it created it, so a torn file could be seen: open the folder as a local one",
            )
            .with("store", scheme));
        }
        if scheme == "azdls" {
            return Err(Error::unsupported(
                "this service fills a file after it created it, so a torn file could be seen: open the container by az:",
            )
            .with("store", scheme));
        }
        Ok(Self {
            operator,
            runtime,
            retries: None,
            secrets: Secrets::default(),
        })
    }

    /// Tries again after failures that may pass; the operator must not retry by itself.
    ///
    /// After an attempt of uncertain outcome, an object that is there counts as created if its bytes are those of the attempt.
    #[must_use]
    pub fn with_retries(self, policy: RequestPolicy, pacing: Pacing) -> Self {
        Self {
            retries: Some((policy, pacing)),
            ..self
        }
    }

    #[cfg(feature = "http")]
    pub(crate) fn with_secrets(self, secrets: Secrets) -> Self {
        Self { secrets, ..self }
    }
}

async fn create(
    operator: &Operator,
    path: &str,
    bytes: &Bytes,
    retries: Option<&(RequestPolicy, Pacing)>,
) -> opendal::Result<()> {
    use opendal::ErrorKind::{AlreadyExists, ConditionNotMatch};
    let attempts = retries.map_or(1, |(policy, _)| policy.attempts.max(1));
    let mut failures = 0;
    loop {
        let written = operator
            .write_with(path, bytes.clone())
            .if_not_exists(true)
            .await;
        let Err(e) = written else {
            return Ok(());
        };
        if matches!(e.kind(), AlreadyExists | ConditionNotMatch) {
            if failures > 0 && is_ours(operator, path, bytes, retries).await? {
                return Ok(());
            }
            return Err(e);
        }
        failures += 1;
        let Some((policy, pacing)) = retries.filter(|_| e.is_temporary() && failures < attempts)
        else {
            return Err(e);
        };
        let wait = policy.backoff(failures, pacing);
        tracing::debug!(object = path, attempt = failures, ?wait, error = %e.kind(), "publishing is tried again");
        pacing.sleep(wait).await;
    }
}

/// Whoever publishes gives each object bytes that nobody else would write.
async fn is_ours(
    operator: &Operator,
    path: &str,
    bytes: &Bytes,
    retries: Option<&(RequestPolicy, Pacing)>,
) -> opendal::Result<bool> {
    let mut failures = 0;
    loop {
        let e = match operator.read(path).await {
            Ok(found) => return Ok(found.to_bytes() == bytes),
            Err(e) => e,
        };
        failures += 1;
        match retries {
            Some((policy, pacing)) if e.is_temporary() && failures < policy.attempts => {
                pacing.sleep(policy.backoff(failures, pacing)).await;
            }
            // Whose it is stays unknown, which is no reason to say that it is another's.
            _ => return Err(e),
        }
    }
}

impl Publish for ConditionalPublish {
    fn method(&self) -> &'static str {
        "conditional write"
    }

    fn publish(&self, path: &str, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        let path = path.to_owned();
        let Self {
            operator,
            runtime,
            retries,
            secrets,
        } = self.clone();
        on_runtime(runtime, async move {
            let failure = Failure(secrets);
            create(&operator, &path, &bytes, retries.as_ref())
                .await
                .map_err(|e| failure.of("create an object", &path, e))
        })
        .boxed()
    }
}
