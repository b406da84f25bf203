//! A running job, controlled from another process: over a Unix socket of its own.
//!
//! | where | what |
//! | --- | --- |
//! | `folder` | where sockets lie, and who may get at them |
//! | `claim` | one owner of a socket, replaced only when it is dead |
//! | `protocol`, `lines` | what is said |
//! | `report` | how a job stands |
//! | `server` | the side of the job: whatever a client does, the job goes on |
//! | `client`, `find` | the side of whoever asks |
mod claim;
mod client;
mod find;
mod folder;
mod lines;
pub(crate) mod protocol;
pub(crate) mod report;
mod server;

pub(crate) use claim::{Claim, Claimed};
pub(crate) use client::{Reachable, ask};
pub(crate) use find::{find, running};
pub(crate) use folder::{SocketFolders, prepare, socket_of};
pub(crate) use server::{Answer, Controlled, Server};
