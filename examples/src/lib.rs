//! Programs that answer a question each (`src/bin`), and what is too long for one screen.
#![warn(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod redb_backend;
