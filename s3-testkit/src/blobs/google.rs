//! Google Cloud Storage: the JSON API with uploads in one request and resumable ones.
use bytes::{Bytes, BytesMut};

use super::objects::Objects;
use super::protocol::{Answer, Call, done, status};
use super::server::BlobServer;

/// The name under which a session keeps what it was sent so far.
const SENT: &str = "sent";

pub(super) const NO_BUCKET: &str = "The specified bucket does not exist.";

pub(super) fn answer(call: &Call, objects: &mut Objects, base: &str) -> Answer {
    let method = call.method.as_str();
    if let Some(session) = call.path.strip_prefix("/session/") {
        return in_session(call, objects, session);
    }
    let (upload, path) = match call.path.strip_prefix("/upload") {
        Some(path) => (true, path),
        None => (false, call.path.as_str()),
    };
    let of_bucket = path.strip_prefix("/storage/v1/b/").unwrap_or_default();
    let (bucket, rest) = of_bucket.split_once("/o").unwrap_or((of_bucket, ""));
    if bucket != BlobServer::BUCKET {
        return failure(404, "notFound", NO_BUCKET);
    }
    let key = rest.strip_prefix('/').unwrap_or(rest);
    match method {
        "POST" if upload && call.parameter("uploadType") == "resumable" => {
            let name = call.parameter("name");
            if call.creates && objects.get(name).is_some() {
                return condition();
            }
            let session = objects.begin(name, call.creates);
            done(
                status(200).header("location", format!("{base}/session/{session}")),
                "",
            )
        }
        "POST" if upload => {
            let name = call.parameter("name");
            match objects.put(name, call.body.clone(), call.creates) {
                Ok(()) => resource(name, call.body.len()),
                Err(_) => condition(),
            }
        }
        "GET" if key.is_empty() => list(call, objects),
        "GET" => match objects.get(key) {
            Some(bytes) if call.parameter("alt") == "media" => call.give(bytes, status(200)),
            Some(bytes) => resource(key, bytes.len()),
            None => failure(404, "notFound", &format!("No such object: {bucket}/{key}")),
        },
        "DELETE" if objects.delete(key) => done(status(204), ""),
        "DELETE" => failure(404, "notFound", &format!("No such object: {bucket}/{key}")),
        _ => failure(400, "invalid", "the request is unknown"),
    }
}

/// Takes a piece of a resumable upload; the condition counts when the last one comes.
fn in_session(call: &Call, objects: &mut Objects, session: &str) -> Answer {
    if !objects.has_upload(session) {
        return failure(404, "notFound", "there is no such upload");
    }
    if call.method == "DELETE" {
        objects.abort(session);
        return done(status(499), "");
    }
    let range = call.header("content-range");
    let (piece, total) = range
        .strip_prefix("bytes ")
        .and_then(|range| range.split_once('/'))
        .unwrap_or_default();
    let upload = objects.upload(session);
    let (key, creates) = (upload.key.clone(), upload.creates);
    let sent = upload.parts.entry(SENT.to_owned()).or_default();
    if let Some(first) = piece
        .split_once('-')
        .and_then(|(first, _)| first.parse::<usize>().ok())
    {
        let mut so_far = BytesMut::from(&sent[..sent.len().min(first)]);
        so_far.extend_from_slice(&call.body);
        *sent = so_far.freeze();
    }
    if total != sent.len().to_string() {
        let answer = match sent.len() {
            0 => status(308),
            len => status(308).header("range", format!("bytes=0-{}", len - 1)),
        };
        return done(answer, "");
    }
    let bytes = sent.clone();
    objects.abort(session);
    match objects.put(&key, bytes.clone(), creates) {
        Ok(()) => resource(&key, bytes.len()),
        Err(_) => condition(),
    }
}

fn list(call: &Call, objects: &Objects) -> Answer {
    let found = objects.list(call.parameter("prefix"), call.has("delimiter"));
    let items: Vec<_> = found
        .objects
        .iter()
        .map(|(key, len)| described(key, *len))
        .collect();
    let folders: Vec<_> = found.folders.iter().map(|f| format!("\"{f}\"")).collect();
    let text = format!(
        "{{\"items\":[{}],\"prefixes\":[{}]}}",
        items.join(","),
        folders.join(",")
    );
    done(status(200), text)
}

fn described(key: &str, len: usize) -> String {
    format!(
        "{{\"name\":\"{key}\",\"size\":\"{len}\",\"etag\":\"E\",\"generation\":\"1\",\"updated\":\"2022-08-15T11:33:34.866Z\"}}"
    )
}

fn resource(key: &str, len: usize) -> Answer {
    done(status(200), described(key, len))
}

fn condition() -> Answer {
    failure(
        412,
        "conditionNotMet",
        "At least one of the pre-conditions you specified did not hold.",
    )
}

pub(super) fn reason_of(status: u16) -> &'static str {
    match status {
        401 => "authError",
        403 => "forbidden",
        404 => "notFound",
        412 => "conditionNotMet",
        429 => "rateLimitExceeded",
        _ => "backendError",
    }
}

pub(super) fn failure(code: u16, reason: &str, text: &str) -> Answer {
    let body = format!(
        "{{\"error\":{{\"code\":{code},\"message\":\"{text}\",\"errors\":[{{\"message\":\"{text}\",\"domain\":\"global\",\"reason\":\"{reason}\"}}]}}}}"
    );
    done(status(code), Bytes::from(body))
}
