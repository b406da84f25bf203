//! A server that speaks the protocol of S3, over a temporary folder, in the process of the tests.
//!
//! Protocol, signatures and storage are those of the crates `s3s` and `s3s-fs`. The storage looks whether an object exists and
//! then writes it, so of two writers that must not overwrite both can win; a front of our own makes creation on condition
//! correct: one such request at a time for each key. `S3Fault` makes the server fail on demand.
//!
//! `BlobServer` speaks as much of four other protocols as checkpoints need, each by its provider's documentation: objects in
//! memory, no signatures checked. It is exact in what matters here, which request may not overwrite and what it is answered.
#[cfg(feature = "blobs")]
mod blobs;
#[cfg(feature = "server")]
mod exclusive;
#[cfg(any(feature = "blobs", feature = "server"))]
mod faults;
#[cfg(any(feature = "blobs", feature = "server"))]
mod gauge;
#[cfg(feature = "server")]
mod server;

#[cfg(feature = "blobs")]
pub use blobs::{BlobProtocol, BlobServer};
#[cfg(any(feature = "blobs", feature = "server"))]
pub use faults::{S3Fault, S3Request};
#[cfg(feature = "server")]
pub use server::S3Server;
