//! Alibaba Cloud OSS and Tencent Cloud COS, whose buckets are hosts and whose requests differ in their headers alone.
use bytes::{Bytes, BytesMut};

use super::objects::Objects;
use super::protocol::{Answer, Call, between, done, status};

const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

pub(super) fn answer(call: &Call, objects: &mut Objects) -> Answer {
    let key = call.path.trim_start_matches('/');
    let upload = call.parameter("uploadId").to_owned();
    match call.method.as_str() {
        "POST" if call.has("uploads") => {
            if call.creates && objects.get(key).is_some() {
                return taken();
            }
            let id = objects.begin(key, false);
            xml(format!(
                "<InitiateMultipartUploadResult><Key>{key}</Key><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
            ))
        }
        _ if !upload.is_empty() && !objects.has_upload(&upload) => {
            failure(404, "NoSuchUpload", "the upload does not exist")
        }
        "PUT" if !upload.is_empty() => {
            let number = call.parameter("partNumber").to_owned();
            let etag = format!("\"part-{number}\"");
            let parts = &mut objects.upload(&upload).parts;
            parts.insert(number, call.body.clone());
            done(status(200).header("etag", etag), "")
        }
        "POST" if !upload.is_empty() => {
            let list = String::from_utf8_lossy(&call.body).into_owned();
            let mut whole = BytesMut::new();
            for number in between(&list, "<PartNumber>", "</PartNumber>") {
                match objects.upload(&upload).parts.get(number) {
                    Some(part) => whole.extend_from_slice(part),
                    None => return failure(400, "InvalidPart", "there is no such part"),
                }
            }
            if objects.put(key, whole.freeze(), call.creates).is_err() {
                return taken();
            }
            objects.abort(&upload);
            xml(format!(
                "<CompleteMultipartUploadResult><Key>{key}</Key><ETag>\"whole\"</ETag></CompleteMultipartUploadResult>"
            ))
        }
        "DELETE" if !upload.is_empty() => {
            objects.abort(&upload);
            done(status(204), "")
        }
        "PUT" => match objects.put(key, call.body.clone(), call.creates) {
            Ok(()) => done(status(200).header("etag", "\"whole\""), ""),
            Err(_) => taken(),
        },
        "GET" if key.is_empty() => list(call, objects),
        "GET" | "HEAD" => match objects.get(key) {
            Some(bytes) => {
                let answer = status(200)
                    .header("etag", "\"whole\"")
                    .header("last-modified", DATE);
                call.give(bytes, answer)
            }
            None => failure(404, "NoSuchKey", "the object does not exist"),
        },
        "DELETE" => {
            objects.delete(key);
            done(status(204), "")
        }
        _ => failure(405, "MethodNotAllowed", "the request is unknown"),
    }
}

fn list(call: &Call, objects: &Objects) -> Answer {
    let found = objects.list(call.parameter("prefix"), call.has("delimiter"));
    let mut text = "<ListBucketResult><IsTruncated>false</IsTruncated>".to_owned();
    for (key, len) in found.objects {
        text += &format!(
            "<Contents><Key>{key}</Key><LastModified>2022-08-15T11:33:34.000Z</LastModified>\
             <ETag>\"whole\"</ETag><Size>{len}</Size></Contents>"
        );
    }
    for folder in found.folders {
        text += &format!("<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>");
    }
    xml(text + "</ListBucketResult>")
}

fn xml(text: String) -> Answer {
    done(status(200), text)
}

fn taken() -> Answer {
    failure(409, "FileAlreadyExists", "the object already exists")
}

pub(super) fn code_of(status: u16) -> &'static str {
    match status {
        401 | 403 => "SignatureDoesNotMatch",
        404 => "NoSuchKey",
        412 => "PreconditionFailed",
        429 => "QpsLimitExceeded",
        503 => "SlowDown",
        _ => "InternalError",
    }
}

pub(super) fn failure(code: u16, name: &str, text: &str) -> Answer {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{name}</Code><Message>{text}</Message></Error>"
    );
    done(status(code), Bytes::from(body))
}
