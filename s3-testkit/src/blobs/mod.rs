//! Servers of object stores other than S3.
mod azure;
mod google;
mod hosted;
mod objects;
mod protocol;
mod server;

pub use protocol::BlobProtocol;
pub use server::BlobServer;
