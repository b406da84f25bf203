use std::fmt;

use futures_util::future::BoxFuture;
use state_api::Result;

/// An upload in parts that was begun, and neither completed nor given up: invisible, but paid for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpenUpload {
    /// Path of the object that it was to become.
    pub path: String,
    /// The store's own name of the upload.
    pub id: String,
}

/// Finds and gives up uploads of a store.
#[cfg_attr(
    not(feature = "s3"),
    allow(dead_code, reason = "stores that can tell are behind features")
)]
pub(crate) trait Uploads: Send + Sync + fmt::Debug {
    /// Returns the open uploads below a folder, at any depth, in the order of their paths.
    fn open_below(&self, folder: &str) -> BoxFuture<'static, Result<Vec<OpenUpload>>>;

    /// Frees the parts of an upload; one that has ended meanwhile is left as it is, and so is the object.
    fn give_up(&self, upload: &OpenUpload) -> BoxFuture<'static, Result<()>>;
}
