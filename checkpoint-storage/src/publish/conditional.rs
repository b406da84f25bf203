use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use opendal::Operator;
use state_api::{Error, Result};
use tokio::runtime::Handle;

use crate::publish::Publish;
use crate::store::{map_error, on_runtime};

/// Publishes on an object store: one write on condition that the object does not exist.
#[derive(Clone, Debug)]
pub struct ConditionalPublish {
    operator: Operator,
    runtime: Option<Handle>,
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
        Ok(Self { operator, runtime })
    }
}

impl Publish for ConditionalPublish {
    fn method(&self) -> &'static str {
        "conditional write"
    }

    fn publish(&self, path: &str, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        let path = path.to_owned();
        let operator = self.operator.clone();
        on_runtime(self.runtime.clone(), async move {
            let written = operator.write_with(&path, bytes).if_not_exists(true).await;
            written
                .map(drop)
                .map_err(|e| map_error("create an object", &path, e))
        })
        .boxed()
    }
}
