//! Second copies of objects on local disk, for a restore that need not ask the store.
//!
//! What the store has is the truth. A copy is of one object, by name, length and digest, and is read through before it is used:
//! whatever is wrong with it, the object is read instead and the copy removed. Nothing here ever fails a snapshot or a restore.
//! What lies on disk is described in `docs/formats/local-copies.md`.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `local_copies` | which copies there are, which checkpoints use them, and when they go |
//! | `folder` | a folder of copies that belongs to one living process |
//! | `copy_file` | files: names, digests, second names |
//! | `second_stream` | a stream that writes a copy beside the object |
//! | `keeping`, `restoring` | storages that write and read copies on the way |
mod copy_file;
mod folder;
mod keeping;
mod local_copies;
mod restoring;
mod second_stream;

pub use local_copies::{LocalCopies, LocalCopyOptions};
pub use restoring::{ReadBytes, RestoringStorage};
