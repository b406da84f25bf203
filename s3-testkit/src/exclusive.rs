use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};
use tokio::sync::OwnedMutexGuard;

/// Held by the request whose turn it is.
type Turn = Arc<tokio::sync::Mutex<()>>;

/// Uploads on a page of a listing; Amazon's has a thousand, but then nobody would try a second page.
const PAGE: usize = 3;

/// The storage of `s3s-fs`, with creation on condition that is exclusive, and a listing of uploads in parts, as Amazon's has.
pub(super) struct Exclusive {
    inner: s3s_fs::FileSystem,
    /// By bucket and key.
    keys: Mutex<HashMap<(String, String), Turn>>,
    /// Uploads that were begun and neither completed nor aborted, by bucket, key and id.
    uploads: Mutex<BTreeSet<(String, String, String)>>,
}

impl Exclusive {
    pub(super) fn new(inner: s3s_fs::FileSystem) -> Self {
        Self {
            inner,
            keys: Mutex::default(),
            uploads: Mutex::default(),
        }
    }

    fn uploads(&self) -> MutexGuard<'_, BTreeSet<(String, String, String)>> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn of a request among those that write a key.
    async fn turn(&self, bucket: &str, key: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(keys.entry((bucket.to_owned(), key.to_owned())).or_default())
        };
        lock.lock_owned().await
    }

    /// The storage would make the bucket, or take the object alone for missing.
    async fn refuse_missing_bucket(&self, bucket: &str) -> S3Result<()> {
        let input = HeadBucketInput::builder()
            .bucket(bucket.to_owned())
            .build()
            .map_err(|e| s3_error!(InvalidRequest, "{e}"))?;
        self.inner
            .head_bucket(request(input))
            .await
            .map(drop)
            .map_err(|_| s3_error!(NoSuchBucket))
    }

    async fn refuse_existing(&self, bucket: &str, key: &str) -> S3Result<()> {
        let input = HeadObjectInput::builder()
            .bucket(bucket.to_owned())
            .key(key.to_owned())
            .build()
            .map_err(|e| s3_error!(InvalidRequest, "{e}"))?;
        let request = request(input);
        match self.inner.head_object(request).await {
            Ok(_) => Err(s3_error!(
                PreconditionFailed,
                "At least one of the pre-conditions you specified did not hold"
            )),
            Err(_) => Ok(()),
        }
    }
}

fn request<T>(input: T) -> S3Request<T> {
    S3Request {
        input,
        method: hyper::Method::HEAD,
        uri: hyper::Uri::from_static("/"),
        headers: hyper::HeaderMap::new(),
        extensions: hyper::http::Extensions::new(),
        credentials: None,
        region: None,
        service: None,
        trailing_headers: None,
    }
}

fn is_create(condition: Option<&IfNoneMatch>) -> bool {
    condition.is_some_and(|condition| condition.is_any())
}

macro_rules! pass_on {
    ($($name:ident($input:ty) -> $output:ty;)*) => {
        #[async_trait::async_trait]
        impl S3 for Exclusive {
            $(
                async fn $name(&self, request: S3Request<$input>) -> S3Result<S3Response<$output>> {
                    self.inner.$name(request).await
                }
            )*

            async fn get_object(
                &self,
                request: S3Request<GetObjectInput>,
            ) -> S3Result<S3Response<GetObjectOutput>> {
                self.refuse_missing_bucket(&request.input.bucket).await?;
                self.inner.get_object(request).await
            }

            async fn put_object(
                &self,
                request: S3Request<PutObjectInput>,
            ) -> S3Result<S3Response<PutObjectOutput>> {
                let (bucket, key) = (request.input.bucket.clone(), request.input.key.clone());
                self.refuse_missing_bucket(&bucket).await?;
                let _turn = self.turn(&bucket, &key).await;
                if is_create(request.input.if_none_match.as_ref()) {
                    self.refuse_existing(&bucket, &key).await?;
                }
                self.inner.put_object(request).await
            }

            async fn complete_multipart_upload(
                &self,
                request: S3Request<CompleteMultipartUploadInput>,
            ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
                let (bucket, key) = (request.input.bucket.clone(), request.input.key.clone());
                let _turn = self.turn(&bucket, &key).await;
                if is_create(request.input.if_none_match.as_ref()) {
                    self.refuse_existing(&bucket, &key).await?;
                }
                let upload = (bucket, key, request.input.upload_id.clone());
                let done = self.inner.complete_multipart_upload(request).await;
                if done.is_ok() {
                    self.uploads().remove(&upload);
                }
                done
            }

            async fn create_multipart_upload(
                &self,
                request: S3Request<CreateMultipartUploadInput>,
            ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
                let (bucket, key) = (request.input.bucket.clone(), request.input.key.clone());
                let begun = self.inner.create_multipart_upload(request).await?;
                if let Some(id) = &begun.output.upload_id {
                    self.uploads().insert((bucket, key, id.clone()));
                }
                Ok(begun)
            }

            async fn abort_multipart_upload(
                &self,
                request: S3Request<AbortMultipartUploadInput>,
            ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
                let input = &request.input;
                let upload = (input.bucket.clone(), input.key.clone(), input.upload_id.clone());
                if !self.uploads().contains(&upload) {
                    return Err(s3_error!(NoSuchUpload));
                }
                let done = self.inner.abort_multipart_upload(request).await?;
                self.uploads().remove(&upload);
                Ok(done)
            }

            async fn list_multipart_uploads(
                &self,
                request: S3Request<ListMultipartUploadsInput>,
            ) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
                let input = request.input;
                let prefix = input.prefix.clone().unwrap_or_default();
                let after = (
                    input.bucket.clone(),
                    input.key_marker.clone().unwrap_or_default(),
                    input.upload_id_marker.clone().unwrap_or_default(),
                );
                let of_bucket: Vec<_> = self
                    .uploads()
                    .iter()
                    .filter(|upload| upload.0 == input.bucket && upload.1.starts_with(&prefix))
                    .filter(|upload| **upload > after)
                    .take(PAGE + 1)
                    .cloned()
                    .collect();
                let page = of_bucket.get(..PAGE).unwrap_or(&of_bucket);
                let is_truncated = page.len() < of_bucket.len();
                let last = page.last().filter(|_| is_truncated);
                Ok(S3Response::new(ListMultipartUploadsOutput {
                    bucket: Some(input.bucket),
                    is_truncated: Some(is_truncated),
                    next_key_marker: last.map(|upload| upload.1.clone()),
                    next_upload_id_marker: last.map(|upload| upload.2.clone()),
                    prefix: input.prefix,
                    uploads: Some(
                        page.iter()
                            .map(|(_, key, id)| MultipartUpload {
                                key: Some(key.clone()),
                                upload_id: Some(id.clone()),
                                ..MultipartUpload::default()
                            })
                            .collect(),
                    ),
                    ..ListMultipartUploadsOutput::default()
                }))
            }
        }
    };
}

pass_on! {
    create_bucket(CreateBucketInput) -> CreateBucketOutput;
    head_bucket(HeadBucketInput) -> HeadBucketOutput;
    head_object(HeadObjectInput) -> HeadObjectOutput;
    list_objects(ListObjectsInput) -> ListObjectsOutput;
    list_objects_v2(ListObjectsV2Input) -> ListObjectsV2Output;
    delete_object(DeleteObjectInput) -> DeleteObjectOutput;
    delete_objects(DeleteObjectsInput) -> DeleteObjectsOutput;
    upload_part(UploadPartInput) -> UploadPartOutput;
    list_parts(ListPartsInput) -> ListPartsOutput;
}
