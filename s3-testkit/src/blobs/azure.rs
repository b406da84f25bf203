//! Azure Blob Storage: block blobs of one container.
use bytes::{Bytes, BytesMut};

use super::objects::Objects;
use super::protocol::{Answer, Call, between, done, status};
use super::server::BlobServer;

const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

pub(super) fn answer(call: &Call, objects: &mut Objects) -> Answer {
    let rest = call.path.trim_start_matches('/');
    let (_account, rest) = rest.split_once('/').unwrap_or((rest, ""));
    let (container, key) = rest.split_once('/').unwrap_or((rest, ""));
    if container != BlobServer::BUCKET {
        return failure(404, "ContainerNotFound", "the container does not exist");
    }
    match (call.method.as_str(), call.parameter("comp")) {
        ("PUT", "block") => {
            let id = call.parameter("blockid").to_owned();
            // Blocks belong to a name, not to who sent them.
            let blocks = objects.upload(key);
            blocks.parts.insert(id, call.body.clone());
            done(status(201), "")
        }
        ("PUT", "blocklist") => {
            // Whoever comes first discards the blocks of the others too, who hear of the condition all the same.
            if call.creates && objects.get(key).is_some() {
                return taken();
            }
            let list = String::from_utf8_lossy(&call.body).into_owned();
            let mut whole = BytesMut::new();
            for id in between(&list, "<Latest>", "</Latest>") {
                match objects.upload(key).parts.get(id) {
                    Some(block) => whole.extend_from_slice(block),
                    None => return failure(400, "InvalidBlockList", "there is no such block"),
                }
            }
            match objects.put(key, whole.freeze(), call.creates) {
                Ok(()) => {
                    objects.abort(key);
                    created()
                }
                Err(_) => taken(),
            }
        }
        ("PUT", _) => match objects.put(key, call.body.clone(), call.creates) {
            Ok(()) => created(),
            Err(_) => taken(),
        },
        ("GET", "list") => list(call, objects),
        ("GET" | "HEAD", _) => match objects.get(key) {
            Some(bytes) => {
                let answer = status(200)
                    .header("etag", "\"0x1\"")
                    .header("last-modified", DATE)
                    .header("x-ms-blob-type", "BlockBlob");
                call.give(bytes, answer)
            }
            None => failure(404, "BlobNotFound", "the blob does not exist"),
        },
        ("DELETE", _) if objects.delete(key) => done(status(202), ""),
        ("DELETE", _) => failure(404, "BlobNotFound", "the blob does not exist"),
        _ => failure(400, "UnsupportedHttpVerb", "the request is unknown"),
    }
}

fn created() -> Answer {
    done(
        status(201)
            .header("etag", "\"0x1\"")
            .header("last-modified", DATE),
        "",
    )
}

fn taken() -> Answer {
    failure(409, "BlobAlreadyExists", "the blob already exists")
}

fn list(call: &Call, objects: &Objects) -> Answer {
    let found = objects.list(call.parameter("prefix"), call.has("delimiter"));
    let mut text =
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults><Blobs>".to_owned();
    for (key, len) in found.objects {
        text += &format!(
            "<Blob><Name>{key}</Name><Properties><Last-Modified>{DATE}</Last-Modified><Etag>0x1</Etag>\
             <Content-Length>{len}</Content-Length></Properties></Blob>"
        );
    }
    for folder in found.folders {
        text += &format!("<BlobPrefix><Name>{folder}</Name></BlobPrefix>");
    }
    text += "</Blobs><NextMarker /></EnumerationResults>";
    done(status(200), text)
}

pub(super) fn code_of(status: u16) -> &'static str {
    match status {
        401 => "InvalidAuthenticationInfo",
        403 => "AuthenticationFailed",
        404 => "BlobNotFound",
        412 => "ConditionNotMet",
        429 | 503 => "ServerBusy",
        _ => "InternalError",
    }
}

pub(super) fn failure(code: u16, name: &str, text: &str) -> Answer {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>{name}</Code><Message>{text}</Message></Error>"
    );
    done(
        status(code).header("x-ms-error-code", name),
        Bytes::from(body),
    )
}
