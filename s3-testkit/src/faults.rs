use std::time::Duration;

/// A request as the server saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Request {
    /// `GET`, `PUT` and so on.
    pub method: String,
    /// Bucket and key, with a slash in front.
    pub path: String,
    /// What stands behind the question mark.
    pub query: String,
    /// Whether it must not overwrite.
    pub creates: bool,
    /// Length of its body in bytes, as announced.
    pub len: u64,
}

impl S3Request {
    /// Tells whether it uploads an object or a part of one.
    #[must_use]
    pub fn is_upload(&self) -> bool {
        self.method == "PUT" && self.len > 0
    }

    /// Tells whether it completes an upload in parts.
    #[must_use]
    pub fn completes_upload(&self) -> bool {
        self.method == "POST" && self.query.contains("uploadId=")
    }

    /// Tells whether it lists a folder.
    #[must_use]
    pub fn is_list(&self) -> bool {
        self.method == "GET" && self.query.contains("list-type=")
    }
}

/// What the server does about a request instead of just answering it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum S3Fault {
    /// Answers with a status and does nothing, such as 503 with the seconds to wait.
    Refuse {
        /// HTTP status.
        status: u16,
        /// Value of `Retry-After`.
        retry_after_s: Option<u64>,
    },
    /// Does the work and then answers with a status as if it had failed.
    FailAfter {
        /// HTTP status.
        status: u16,
    },
    /// Does the work and then closes the connection without an answer.
    Vanish,
    /// Closes the connection without doing anything.
    Hang,
    /// Does the work, waits, and then answers.
    Slow(Duration),
    /// Answers a read with its first bytes only and then closes the connection, before the announced length is reached.
    Cut(u64),
    /// Answers a read with its first bytes only, as if they were all.
    Shorten(u64),
    /// Answers a read with an object that looks whole and has this byte flipped.
    Flip(u64),
    /// Answers as if there were no such object.
    Forget,
}
