//! Uploads in parts on S3 that never ended: two requests that opendal does not make.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use opendal::raw::percent_encode_path;
use opendal::services::S3;
use opendal::{Buffer, HttpTransporter, Operator};
use reqsign_aws_v4::{
    AssumeRoleCredentialProvider, Credential, DefaultCredentialProvider, RequestSigner,
    StaticCredentialProvider,
};
use reqsign_core::{Context, OsEnv, ProvideCredentialChain, Signer};
use reqsign_file_read_tokio::TokioFileRead;
use serde::Deserialize;
use state_api::{Error, ErrorKind, Result};

use crate::remote::http::Calls;
use crate::remote::secrets::ForeignError;
use crate::remote::services::Place;
use crate::store::{OpenUpload, Uploads};

/// Pages of a listing, a thousand uploads each, that are read at most.
const MOST_PAGES: usize = 10_000;

/// Returns what finds the uploads of a bucket; `None` for a directory bucket, whose requests are signed in another way.
pub(super) fn find_uploads(
    fields: &BTreeMap<String, String>,
    place: &Place,
    calls: Calls,
) -> Result<Option<Arc<dyn Uploads>>> {
    if place.authority.ends_with("--x-s3") {
        return Ok(None);
    }
    // Opendal knows what the bucket's URL is; unsigned, it tells without asking anybody.
    let mut naming = fields.clone();
    naming.remove("root");
    naming.insert("skip_signature".into(), "true".into());
    let urls = Operator::from_iter::<S3>(naming).map_err(|e| {
        Error::config("the store can't be opened with these options")
            .caused_by(ForeignError::new(&e, &calls.secrets))
    })?;
    let anonymous = fields
        .get("skip_signature")
        .is_some_and(|flag| flag.eq_ignore_ascii_case("true"));
    Ok(Some(Arc::new(S3Uploads {
        urls,
        root: place.path.trim_matches('/').to_owned(),
        signer: (!anonymous).then(|| signer(fields, &calls.transport)),
        calls,
    })))
}

/// Looks for credentials where opendal does: options, then environment, profile and machine, then a role to assume with them.
fn signer(fields: &BTreeMap<String, String>, transport: &HttpTransporter) -> Signer<Credential> {
    let field = |name: &str| fields.get(name).map(String::as_str);
    let of_environment = || {
        let read = |name: &str| std::env::var(name).ok();
        read("AWS_REGION").or_else(|| read("AWS_DEFAULT_REGION"))
    };
    let region = field("region")
        .map(ToOwned::to_owned)
        .or_else(of_environment)
        .unwrap_or_default();
    let context = Context::new()
        .with_file_read(TokioFileRead)
        .with_env(OsEnv)
        .with_http_send(transport.clone());
    let mut chain =
        ProvideCredentialChain::new().push(DefaultCredentialProvider::builder().build());
    if let (Some(id), Some(key)) = (field("access_key_id"), field("secret_access_key")) {
        let named = StaticCredentialProvider::new(id, key);
        chain = chain.push_front(match field("session_token") {
            Some(token) => named.with_session_token(token),
            None => named,
        });
    }
    if let Some(role) = field("role_arn") {
        let asking = Signer::new(context.clone(), chain, RequestSigner::new("sts", &region));
        let assumed = AssumeRoleCredentialProvider::new(role.to_owned(), asking)
            .with_region(region.clone())
            .with_regional_sts_endpoint();
        chain = ProvideCredentialChain::new().push(assumed);
    }
    Signer::new(context, chain, RequestSigner::new("s3", &region))
}

#[derive(Clone, Debug)]
struct S3Uploads {
    urls: Operator,
    /// Where in the bucket the store's root lies, without slashes around it.
    root: String,
    /// `None` when requests are sent unsigned.
    signer: Option<Signer<Credential>>,
    calls: Calls,
}

/// A page of the answer to `ListMultipartUploads`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Page {
    is_truncated: bool,
    next_key_marker: String,
    next_upload_id_marker: String,
    #[serde(rename = "Upload")]
    uploads: Vec<Listed>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    key: String,
    upload_id: String,
}

/// What S3 says about a failure.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Refusal {
    code: String,
    message: String,
}

impl S3Uploads {
    /// Returns the key of an object, or of what begins with it.
    fn key(&self, path: &str) -> String {
        match (self.root.is_empty(), path.is_empty()) {
            (true, _) => path.to_owned(),
            (_, true) => self.root.clone(),
            _ => format!("{}/{path}", self.root),
        }
    }

    fn path<'a>(&self, key: &'a str) -> Option<&'a str> {
        match self.root.is_empty() {
            true => Some(key),
            false => key.strip_prefix(&self.root)?.strip_prefix('/'),
        }
    }

    /// Returns the URL of an object, or of the bucket if the key is empty.
    async fn url(&self, key: &str) -> opendal::Result<String> {
        let named = self.urls.presign_stat("x", Duration::from_secs(1)).await?;
        let named = named.uri().to_string();
        let bucket = named.strip_suffix("/x").unwrap_or(&named);
        Ok(match key.is_empty() {
            true => bucket.to_owned(),
            false => format!("{bucket}/{}", percent_encode_path(key)),
        })
    }

    /// Makes a request until it is answered, or its failure lasts; a key in an error tells what it was about.
    async fn call(
        &self,
        method: http::Method,
        key: &str,
        query: &str,
    ) -> Result<(http::StatusCode, Buffer)> {
        let doing = match method {
            http::Method::GET => "list the uploads in parts",
            _ => "give up an upload in parts",
        };
        let failed = |kind: ErrorKind, hint: &str, cause: ForeignError| {
            Error::new(kind, format!("could not {doing}{hint}"))
                .with("object", key)
                .caused_by(cause)
        };
        let secrets = &self.calls.secrets;
        let mut failures = 0;
        loop {
            let (cause, passes) = match self.send(method.clone(), key, query).await {
                Ok((status, body)) if status.is_success() => return Ok((status, body)),
                Ok((http::StatusCode::NOT_FOUND, body)) if method == http::Method::DELETE => {
                    return Ok((http::StatusCode::NOT_FOUND, body));
                }
                Ok((status, body)) => {
                    let told: Refusal =
                        quick_xml::de::from_reader(&*body.to_bytes()).unwrap_or_default();
                    let cause = opendal::Error::new(
                        opendal::ErrorKind::Unexpected,
                        format!("{status} {}: {}", told.code, told.message),
                    );
                    let cause = ForeignError::new(&cause, secrets);
                    match status {
                        http::StatusCode::FORBIDDEN | http::StatusCode::UNAUTHORIZED => {
                            return Err(failed(ErrorKind::Config, ": access is denied", cause));
                        }
                        http::StatusCode::NOT_IMPLEMENTED
                        | http::StatusCode::METHOD_NOT_ALLOWED => {
                            return Err(failed(ErrorKind::Unsupported, "", cause));
                        }
                        _ => (
                            cause,
                            status.is_server_error()
                                || status == http::StatusCode::TOO_MANY_REQUESTS
                                || status == http::StatusCode::REQUEST_TIMEOUT,
                        ),
                    }
                }
                Err(e) => (ForeignError::new(&e, secrets), e.is_temporary()),
            };
            failures += 1;
            if !passes || failures >= self.calls.policy.attempts {
                return Err(failed(ErrorKind::Retryable, "", cause));
            }
            self.calls.requests.count_retry();
            let wait = self.calls.policy.backoff(failures, &self.calls.pacing);
            self.calls.pacing.sleep(wait).await;
        }
    }

    async fn send(
        &self,
        method: http::Method,
        key: &str,
        query: &str,
    ) -> opendal::Result<(http::StatusCode, Buffer)> {
        let unsendable = |e: &dyn std::error::Error| {
            opendal::Error::new(opendal::ErrorKind::Unexpected, e.to_string())
        };
        let url = format!("{}?{query}", self.url(key).await?);
        let request = http::Request::builder().method(method).uri(url).body(());
        let (mut parts, ()) = request.map_err(|e| unsendable(&e))?.into_parts();
        if let Some(signer) = &self.signer {
            signer.sign(&mut parts, None).await.map_err(|e| {
                let passes = e.is_retryable();
                let e = opendal::Error::new(opendal::ErrorKind::Unexpected, e.to_string());
                if passes { e.set_temporary() } else { e }
            })?;
            // The client sets it by the version of the protocol.
            parts.headers.remove(http::header::HOST);
        }
        let request = http::Request::from_parts(parts, Buffer::new());
        let answer = self.calls.transport.send(request).await?;
        Ok((answer.status(), answer.into_body()))
    }

    async fn list(&self, folder: &str) -> Result<Vec<OpenUpload>> {
        let prefix = match self.key(folder) {
            root if root.is_empty() => root,
            key => format!("{key}/"),
        };
        let mut found = Vec::new();
        let mut after = String::new();
        for _ in 0..MOST_PAGES {
            let query = format!("uploads&prefix={}{after}", encoded(&prefix));
            let (_, body) = self.call(http::Method::GET, "", &query).await?;
            let page: Page = quick_xml::de::from_reader(&*body.to_bytes()).map_err(|e| {
                Error::retryable("a listing of uploads in parts can't be read")
                    .with("folder", folder)
                    .caused_by(e.to_string())
            })?;
            found.extend(page.uploads.iter().filter_map(|listed| {
                Some(OpenUpload {
                    path: self.path(&listed.key)?.to_owned(),
                    id: listed.upload_id.clone(),
                })
            }));
            let next = format!(
                "&key-marker={}&upload-id-marker={}",
                encoded(&page.next_key_marker),
                encoded(&page.next_upload_id_marker)
            );
            if !page.is_truncated || next == after {
                found.sort();
                found.dedup();
                return Ok(found);
            }
            after = next;
        }
        Err(Error::retryable("a listing of uploads in parts has no end").with("folder", folder))
    }
}

impl Uploads for S3Uploads {
    fn open_below(&self, folder: &str) -> BoxFuture<'static, Result<Vec<OpenUpload>>> {
        let (this, folder) = (self.clone(), folder.to_owned());
        async move { this.list(&folder).await }.boxed()
    }

    fn give_up(&self, upload: &OpenUpload) -> BoxFuture<'static, Result<()>> {
        let (this, upload) = (self.clone(), upload.clone());
        async move {
            let query = format!("uploadId={}", encoded(&upload.id));
            // Not found: completed or given up meanwhile.
            this.call(http::Method::DELETE, &this.key(&upload.path), &query)
                .await
                .map(drop)
        }
        .boxed()
    }
}

/// Encodes a value for a query, where a slash stands for itself in no signature.
fn encoded(value: &str) -> String {
    percent_encode_path(value)
        .replace('/', "%2F")
        .replace('!', "%21")
        .replace('*', "%2A")
        .replace('\'', "%27")
        .replace('(', "%28")
        .replace(')', "%29")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_and_what_is_unknown_in_it_is_passed_over() {
        let text = r#"<?xml version="1.0" encoding="UTF-8"?>
<ListMultipartUploadsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
  <Bucket>b</Bucket><KeyMarker/><UploadIdMarker/>
  <NextKeyMarker>a/y</NextKeyMarker><NextUploadIdMarker>2</NextUploadIdMarker>
  <MaxUploads>2</MaxUploads><IsTruncated>true</IsTruncated>
  <Upload><Key>a/x&amp;</Key><UploadId>1</UploadId><Initiator><ID>i</ID></Initiator><StorageClass>STANDARD</StorageClass></Upload>
  <Upload><Key>a/y</Key><UploadId>2</UploadId><Initiated>2010-11-10T20:48:33.000Z</Initiated></Upload>
  <CommonPrefixes><Prefix>z/</Prefix></CommonPrefixes>
</ListMultipartUploadsResult>"#;
        let page: Page = quick_xml::de::from_reader(text.as_bytes()).unwrap();
        let uploads: Vec<_> = page
            .uploads
            .iter()
            .map(|listed| (listed.key.as_str(), listed.upload_id.as_str()))
            .collect();
        assert_eq!(uploads, [("a/x&", "1"), ("a/y", "2")]);
        assert!(page.is_truncated);
        assert_eq!(
            (
                page.next_key_marker.as_str(),
                page.next_upload_id_marker.as_str()
            ),
            ("a/y", "2")
        );
        let empty = r#"<ListMultipartUploadsResult><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>"#;
        let page: Page = quick_xml::de::from_reader(empty.as_bytes()).unwrap();
        assert!(page.uploads.is_empty() && !page.is_truncated);
    }

    #[test]
    fn what_stands_in_a_query_is_encoded() {
        assert_eq!(encoded("a/b c+d&e=f"), "a%2Fb%20c%2Bd%26e%3Df");
        assert_eq!(encoded("A-z_0.9~"), "A-z_0.9~");
    }
}
