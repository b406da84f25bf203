//! Stores behind a network: which URL names which, with which options, and how requests to them are made.
#![cfg_attr(
    not(feature = "http"),
    allow(dead_code, reason = "what uses the options is behind features")
)]
mod access;
#[cfg(feature = "hdfs")]
mod hdfs;
#[cfg(feature = "http")]
mod http;
mod options;
#[cfg(feature = "http")]
mod pace;
mod patience;
mod policy;
mod requests;
#[cfg(feature = "s3")]
mod s3_uploads;
pub(crate) mod secrets;
mod services;

pub use access::{Pacing, StoreAccess};
pub use options::{STORE_OPTIONS, StoreOption, StoreOptions};
pub(crate) use patience::Patience;
pub use policy::RequestPolicy;
pub use requests::{RequestCounts, Requests};
pub(crate) use services::open;
