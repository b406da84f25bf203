use std::collections::BTreeMap;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{HeaderMap, Method, Response};

use super::objects::Objects;
use super::{azure, google, hosted};

/// Whose protocol a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlobProtocol {
    /// Azure Blob Storage, version 2022-11-02.
    Azure,
    /// Google Cloud Storage, JSON API v1.
    Google,
    /// Alibaba Cloud OSS.
    Aliyun,
    /// Tencent Cloud COS.
    Tencent,
}

impl BlobProtocol {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Azure, Self::Google, Self::Aliyun, Self::Tencent];

    /// Tells whether a request must not overwrite.
    pub(super) fn creates(self, call: &Call) -> bool {
        match self {
            Self::Azure => call.header("if-none-match") == "*",
            Self::Google => call.parameter("ifGenerationMatch") == "0",
            Self::Aliyun => call.header("x-oss-forbid-overwrite") == "true",
            Self::Tencent => call.header("x-cos-forbid-overwrite") == "true",
        }
    }

    /// Does what a request asks for; `base` is the URL of the server.
    pub(super) fn answer(self, call: &Call, objects: &mut Objects, base: &str) -> Answer {
        match self {
            Self::Azure => azure::answer(call, objects),
            Self::Google => google::answer(call, objects, base),
            Self::Aliyun | Self::Tencent => hosted::answer(call, objects),
        }
    }

    /// Says that there is no bucket.
    pub(super) fn no_bucket(self) -> Answer {
        match self {
            Self::Azure => azure::failure(404, "ContainerNotFound", "there is no such container"),
            Self::Google => google::failure(404, "notFound", google::NO_BUCKET),
            Self::Aliyun | Self::Tencent => {
                hosted::failure(404, "NoSuchBucket", "there is no such bucket")
            }
        }
    }

    /// Says that something failed, with a code of the protocol.
    pub(super) fn failure(self, status: u16, text: &str) -> Answer {
        match self {
            Self::Azure => azure::failure(status, azure::code_of(status), text),
            Self::Google => google::failure(status, google::reason_of(status), text),
            Self::Aliyun | Self::Tencent => hosted::failure(status, hosted::code_of(status), text),
        }
    }
}

pub(super) type Answer = Response<Full<Bytes>>;

/// A request, taken apart.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: BTreeMap<String, String>,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Whether it must not overwrite, and that counts.
    pub(super) creates: bool,
}

impl Call {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    pub(super) fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.query.contains_key(name)
    }

    /// Answers with an object, or with the part of it that is asked for.
    pub(super) fn give(&self, bytes: &Bytes, answer: hyper::http::response::Builder) -> Answer {
        let len = bytes.len();
        let asked = self.header("range").strip_prefix("bytes=");
        let Some((first, last)) = asked.and_then(|range| range.split_once('-')) else {
            return done(answer, bytes.clone());
        };
        let first: usize = first.parse().unwrap_or(0);
        let end = last.parse().map_or(len, |last: usize| len.min(last + 1));
        if first >= end {
            return done(answer.status(416), Bytes::new());
        }
        let range = format!("bytes {first}-{}/{len}", end - 1);
        done(
            answer.status(206).header("content-range", range),
            bytes.slice(first..end),
        )
    }
}

pub(super) fn done(answer: hyper::http::response::Builder, body: impl Into<Bytes>) -> Answer {
    answer
        .body(Full::new(body.into()))
        .unwrap_or_else(|_| Response::new(Full::new(Bytes::new())))
}

pub(super) fn status(status: u16) -> hyper::http::response::Builder {
    Response::builder().status(status)
}

/// Undoes the encoding of a URL.
pub(super) fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let code = after
            .split_at_checked(2)
            .filter(|_| byte == b'%')
            .and_then(|(code, after)| {
                let code = std::str::from_utf8(code).ok()?;
                Some((u8::from_str_radix(code, 16).ok()?, after))
            });
        let (byte, after) = code.unwrap_or((byte, after));
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns what stands between each pair of a start and an end.
pub(super) fn between<'a>(
    text: &'a str,
    start: &'a str,
    end: &'a str,
) -> impl Iterator<Item = &'a str> {
    text.split(start)
        .skip(1)
        .filter_map(move |rest| rest.split_once(end).map(|(inside, _)| inside))
}
