//! What the tests of this crate share: stores of every kind, faults, and sample metadata.
#![allow(dead_code, reason = "each test file uses a part")]
pub(crate) mod job_folder;

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use checkpoint_storage::{
    CheckpointMetadata, HookState, Lease, LocalStore, MemoryPublish, MemoryStore,
    ObjectCheckpointStorage, ObjectStore, ObjectWriter, OpendalStore, OperatorMetadata, Publish,
    StoreAccess, StoreEntry, StoreOptions, StoreRoot, StreamOptions, SubtaskMetadata, UuidSource,
    digest_of,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use state_api::{
    Attempt, CheckpointId, CheckpointStorage, CodecKind, EntryCount, Error, GroupExtent, HashId,
    IncrementalHandle, JobId, KeyGroup, KeyGroupOffsets, KeyGroupRange, KeyGroupsHandle,
    KeyedHandle, MaxParallelism, NamedHandle, ObjectHandle, OperatorSnapshot, OperatorStateHandle,
    OperatorStateMode, OperatorStatePart, OperatorUid, RelPath, Result, Root, Schema, Scope,
    SnapshotKind, StateHandle, StateKind, StateMeta, StateSummary, TypeMeta,
};
use tokio::runtime::{Handle, Runtime};

/// A runtime whose threads do the blocking work.
pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// Runs a future that needs no runtime.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    future
        .now_or_never()
        .expect("the future is ready at its first poll")
}

pub(crate) fn job() -> JobId {
    JobId::new("flights").unwrap()
}

pub(crate) fn names(seed: u64) -> UuidSource {
    UuidSource::seeded(seed)
}

pub(crate) fn options(threshold: i64, buffer: i64) -> StreamOptions {
    StreamOptions::new(threshold, buffer).unwrap()
}

/// Runs a test on a store of each kind: memory, local disk, two services of opendal, S3 and the others behind HTTP where they
/// are compiled in, and the one that the environment names.
pub(crate) fn on_every_store(test: impl Fn(&str, &Runtime, StoreRoot)) {
    let runtime = runtime();
    let handle = || runtime.handle().clone();
    test(
        "memory",
        &runtime,
        StoreRoot::memory(&MemoryStore::new(), "test"),
    );
    let folder = tempfile::tempdir().unwrap();
    test(
        "local",
        &runtime,
        StoreRoot::local(folder.path(), handle()).unwrap(),
    );
    let operator = opendal::Operator::new(opendal::services::Memory::default()).unwrap();
    let remote = StoreRoot::operator(operator, "memory://opendal", Some(handle())).unwrap();
    test("opendal memory", &runtime, remote);
    let folder = tempfile::tempdir().unwrap();
    let fs = opendal::services::Fs::default().root(folder.path().to_str().unwrap());
    let objects = OpendalStore::new(opendal::Operator::new(fs).unwrap(), Some(handle()));
    let publish = checkpoint_storage::LocalPublish::new(
        LocalStore::new(folder.path(), handle()).unwrap(),
        names(99),
    );
    test(
        "opendal fs",
        &runtime,
        StoreRoot::new(Arc::new(objects), Arc::new(publish), "fs://test"),
    );
    #[cfg(feature = "s3-tests")]
    {
        let server = s3_testkit::S3Server::start().unwrap();
        test("S3", &runtime, s3(&server, &runtime, "test"));
    }
    #[cfg(feature = "blob-tests")]
    for protocol in s3_testkit::BlobProtocol::ALL {
        let server = s3_testkit::BlobServer::start(protocol).unwrap();
        let root = blobs(protocol, &server, &runtime, "test");
        test(&format!("{protocol:?}"), &runtime, root);
    }
    if let Some(root) = named_store(&runtime, "test") {
        test("HOLDFAST_STORE_URL", &runtime, root.clone());
        runtime.block_on(remove_all(&root));
    }
}

/// Opens a new folder of the store that `HOLDFAST_STORE_URL` names, if it is set.
pub(crate) fn named_store(runtime: &Runtime, name: &str) -> Option<StoreRoot> {
    let url = std::env::var("HOLDFAST_STORE_URL").ok()?;
    let folder = format!("{name}-{}", UuidSource::machine().next());
    let folder = format!("{}/{folder}", url.trim_end_matches('/'));
    Some(StoreRoot::open(&folder, named_access(runtime)).unwrap())
}

/// What the store that the environment names is reached with.
pub(crate) fn named_access(runtime: &Runtime) -> StoreAccess {
    let mut options = StoreOptions::new();
    for (key, value) in named_options() {
        options.set(&key, value).unwrap();
    }
    StoreAccess::new(runtime.handle().clone()).with_options(options)
}

/// The options in `HOLDFAST_STORE_OPTIONS`: `OPTION=VALUE` in each line.
pub(crate) fn named_options() -> Vec<(String, String)> {
    let lines = std::env::var("HOLDFAST_STORE_OPTIONS").unwrap_or_default();
    lines
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| {
            let (key, value) = line
                .split_once('=')
                .expect("HOLDFAST_STORE_OPTIONS has OPTION=VALUE in each line");
            (key.trim().to_owned(), value.trim().to_owned())
        })
        .collect()
}

/// Deletes every object below a store's folder, and the folder.
pub(crate) async fn remove_all(root: &StoreRoot) {
    remove_below(root, String::new()).await;
}

fn remove_below(root: &StoreRoot, folder: String) -> BoxFuture<'_, ()> {
    async move {
        for entry in root.list(&folder).await.unwrap() {
            let slash = if folder.is_empty() { "" } else { "/" };
            let path = format!("{folder}{slash}{}", entry.name);
            if entry.is_folder {
                remove_below(root, path).await;
            } else {
                root.delete(&path).await.unwrap();
            }
        }
        root.remove_folder(&folder).await.unwrap();
    }
    .boxed()
}

/// Waits that no test notices.
fn hasty(mut options: StoreOptions) -> StoreOptions {
    for (key, value) in [
        ("fs.requests.initial-backoff", "2 ms"),
        ("fs.requests.max-backoff", "20 ms"),
        // Completing an upload counts the failures of its parts too.
        ("fs.requests.attempts", "12"),
        ("fs.requests.timeout", "2 s"),
        ("fs.upload.part-size", "5 mb"),
    ] {
        options.set(key, value).unwrap();
    }
    options
}

/// The options of a test server.
#[cfg(feature = "s3-tests")]
pub(crate) fn s3_options(server: &s3_testkit::S3Server) -> StoreOptions {
    let mut options = hasty(StoreOptions::new());
    for (key, value) in [
        ("s3.endpoint", server.endpoint().as_str()),
        ("s3.region", "eu-west-1"),
        ("s3.access-key", s3_testkit::S3Server::ACCESS_KEY),
        ("s3.secret-key", s3_testkit::S3Server::SECRET_KEY),
    ] {
        options.set(key, value).unwrap();
    }
    options
}

/// What requests to the other test servers are authorised with; base64, as Azure's keys are.
pub(crate) const KEY_ID: &str = "AKIDHOLDFASTTESTS";
pub(crate) const KEY: &str = "aG9sZGZhc3QgdGVzdHMga2V5";

/// The options of a test server of another protocol.
#[cfg(feature = "blob-tests")]
pub(crate) fn blob_options(
    protocol: s3_testkit::BlobProtocol,
    server: &s3_testkit::BlobServer,
) -> StoreOptions {
    use s3_testkit::BlobProtocol::{Aliyun, Azure, Google, Tencent};
    let (endpoint, credentials) = match protocol {
        Azure => (
            "azure.endpoint",
            vec![
                ("azure.account-name", s3_testkit::BlobServer::ACCOUNT),
                ("azure.account-key", KEY),
            ],
        ),
        Google => ("gs.endpoint", vec![("gs.token", KEY)]),
        Aliyun => (
            "fs.oss.endpoint",
            vec![
                ("fs.oss.accessKeyId", KEY_ID),
                ("fs.oss.accessKeySecret", KEY),
            ],
        ),
        Tencent => (
            "cos.endpoint",
            vec![("cos.secret-id", KEY_ID), ("cos.secret-key", KEY)],
        ),
    };
    let mut options = hasty(StoreOptions::new());
    options.set(endpoint, server.endpoint()).unwrap();
    for (key, value) in credentials {
        options.set(key, value).unwrap();
    }
    options
}

/// The URL of a folder of a test server's bucket.
#[cfg(feature = "blob-tests")]
pub(crate) fn blob_url(protocol: s3_testkit::BlobProtocol, folder: &str) -> String {
    use s3_testkit::BlobProtocol::{Aliyun, Azure, Google, Tencent};
    let (scheme, bucket) = match protocol {
        Azure => ("az", s3_testkit::BlobServer::BUCKET),
        Google => ("gs", s3_testkit::BlobServer::BUCKET),
        Aliyun => ("oss", s3_testkit::BlobServer::BUCKET_IN_HOST),
        Tencent => ("cos", s3_testkit::BlobServer::BUCKET_IN_HOST),
    };
    format!("{scheme}://{bucket}/{folder}")
}

/// A folder of a test server's bucket.
#[cfg(feature = "blob-tests")]
pub(crate) fn blobs(
    protocol: s3_testkit::BlobProtocol,
    server: &s3_testkit::BlobServer,
    runtime: &Runtime,
    folder: &str,
) -> StoreRoot {
    let access =
        StoreAccess::new(runtime.handle().clone()).with_options(blob_options(protocol, server));
    StoreRoot::open(&blob_url(protocol, folder), access).unwrap()
}

/// A folder of a test server's bucket.
#[cfg(feature = "s3-tests")]
pub(crate) fn s3(server: &s3_testkit::S3Server, runtime: &Runtime, folder: &str) -> StoreRoot {
    let access = StoreAccess::new(runtime.handle().clone()).with_options(s3_options(server));
    StoreRoot::open(
        &format!("s3://{}/{folder}", s3_testkit::S3Server::BUCKET),
        access,
    )
    .unwrap()
}

/// Bytes that no compressor and no pattern makes smaller or alike.
pub(crate) fn noise(len: usize, seed: u64) -> Bytes {
    let mut state = seed | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(len).collect::<Vec<_>>().into()
}

/// Writes an object as a checkpoint does, in pieces of a length.
pub(crate) async fn write_noise(
    root: &StoreRoot,
    body: Bytes,
    piece: usize,
) -> Result<StateHandle> {
    let storage = ObjectCheckpointStorage::new(
        root.clone(),
        Attempt(7),
        UuidSource::machine(),
        options(0, 1 << 20),
    );
    let mut stream = storage.create(CheckpointId(1), Scope::Exclusive);
    for at in (0..body.len()).step_by(piece) {
        stream
            .write(body.slice(at..(at + piece).min(body.len())))
            .await?;
    }
    Ok(stream.finish().await?.unwrap())
}

/// Returns every object below a folder, in order.
pub(crate) fn all_objects<'a>(root: &'a StoreRoot, folder: &'a str) -> BoxFuture<'a, Vec<String>> {
    async move {
        let mut found = Vec::new();
        for entry in root.list(folder).await.unwrap() {
            let path = if folder.is_empty() {
                entry.name
            } else {
                format!("{folder}/{}", entry.name)
            };
            if entry.is_folder {
                found.extend(all_objects(root, &path).await);
            } else {
                found.push(path);
            }
        }
        found
    }
    .boxed()
}

/// What a faulty store does to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// Fails without doing anything.
    Fail,
    /// Does it, then fails.
    FailAfter,
    /// Does nothing and reports success.
    Lie,
    /// Does nothing, as credentials are refused.
    Deny,
}

type Plan = dyn Fn(&str, &str, usize) -> Fault + Send + Sync;

/// A store in memory with faults by plan: given call, path and number of the call, counted from 0.
#[derive(Clone)]
pub(crate) struct FaultyStore {
    pub(crate) inner: MemoryStore,
    plan: Arc<Plan>,
    calls: Arc<AtomicUsize>,
    log: Arc<Mutex<Vec<String>>>,
    /// How often each call is pending before and again after it did its work.
    pub(crate) yields: usize,
}

impl std::fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FaultyStore")
    }
}

impl FaultyStore {
    pub(crate) fn new(plan: impl Fn(&str, &str, usize) -> Fault + Send + Sync + 'static) -> Self {
        Self::over(MemoryStore::new(), plan)
    }

    pub(crate) fn over(
        inner: MemoryStore,
        plan: impl Fn(&str, &str, usize) -> Fault + Send + Sync + 'static,
    ) -> Self {
        Self {
            inner,
            plan: Arc::new(plan),
            calls: Arc::default(),
            log: Arc::default(),
            yields: 0,
        }
    }

    pub(crate) fn root(&self) -> StoreRoot {
        StoreRoot::new(
            Arc::new(self.clone()),
            Arc::new(self.clone()),
            "faulty://test",
        )
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    async fn call<T>(
        &self,
        call: &str,
        path: &str,
        lie: T,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let n = self.calls.fetch_add(1, Ordering::SeqCst);
        self.log.lock().unwrap().push(format!("{call} {path}"));
        let fault = (self.plan)(call, path, n);
        let failed =
            || Err(Error::retryable(format!("{call} was made to fail")).with("object", path));
        pending(self.yields).await;
        let outcome = match fault {
            Fault::Fail => failed(),
            Fault::Deny => Err(Error::config("access is denied").with("object", path)),
            Fault::Lie => Ok(lie),
            Fault::None => work.await,
            Fault::FailAfter => work.await.and_then(|_| failed()),
        };
        pending(self.yields).await;
        outcome
    }
}

/// Is pending that many times.
pub(crate) async fn pending(times: usize) {
    for _ in 0..times {
        let mut first = true;
        std::future::poll_fn(|cx| {
            cx.waker().wake_by_ref();
            if std::mem::take(&mut first) {
                std::task::Poll::Pending
            } else {
                std::task::Poll::Ready(())
            }
        })
        .await;
    }
}

struct FaultyWriter {
    store: FaultyStore,
    path: String,
    inner: Box<dyn ObjectWriter>,
}

impl ObjectStore for FaultyStore {
    fn create(&self, path: &str, lease: Lease) -> BoxFuture<'_, Result<Box<dyn ObjectWriter>>> {
        let path = path.to_owned();
        async move {
            let made = self.call("create", &path, None, async {
                Ok(Some(self.inner.create(&path, lease).await?))
            });
            let inner = made.await?.expect("lying about a writer makes no sense");
            Ok(Box::new(FaultyWriter {
                store: self.clone(),
                path,
                inner,
            }) as Box<dyn ObjectWriter>)
        }
        .boxed()
    }

    fn read(&self, path: &str, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        let path = path.to_owned();
        async move {
            self.call("read", &path, Bytes::new(), self.inner.read(&path, range))
                .await
        }
        .boxed()
    }

    fn len(&self, path: &str) -> BoxFuture<'_, Result<Option<u64>>> {
        let path = path.to_owned();
        async move { self.call("len", &path, None, self.inner.len(&path)).await }.boxed()
    }

    fn list(&self, folder: &str) -> BoxFuture<'_, Result<Vec<StoreEntry>>> {
        let path = folder.to_owned();
        async move {
            self.call("list", &path, Vec::new(), self.inner.list(&path))
                .await
        }
        .boxed()
    }

    fn delete(&self, path: &str) -> BoxFuture<'_, Result<()>> {
        let path = path.to_owned();
        async move {
            self.call("delete", &path, (), self.inner.delete(&path))
                .await
        }
        .boxed()
    }

    fn remove_folder(&self, folder: &str) -> BoxFuture<'_, Result<bool>> {
        let path = folder.to_owned();
        async move {
            self.call(
                "remove_folder",
                &path,
                true,
                self.inner.remove_folder(&path),
            )
            .await
        }
        .boxed()
    }

    fn sync_folder(&self, folder: &str) -> BoxFuture<'_, Result<()>> {
        let path = folder.to_owned();
        async move {
            self.call("sync_folder", &path, (), self.inner.sync_folder(&path))
                .await
        }
        .boxed()
    }
}

impl Publish for FaultyStore {
    fn method(&self) -> &'static str {
        "map in memory, with faults"
    }

    fn publish(&self, path: &str, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        let path = path.to_owned();
        async move {
            let publish = MemoryPublish::new(self.inner.clone());
            self.call("publish", &path, (), publish.publish(&path, bytes))
                .await
        }
        .boxed()
    }
}

impl ObjectWriter for FaultyWriter {
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        async move {
            self.store
                .call("write", &self.path, (), self.inner.write(bytes))
                .await
        }
        .boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            self.store
                .call("finish", &self.path, (), self.inner.finish())
                .await
        }
        .boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            self.store
                .call("abort", &self.path, (), self.inner.abort())
                .await
        }
        .boxed()
    }
}

pub(crate) fn storage(root: &StoreRoot, options: StreamOptions) -> ObjectCheckpointStorage {
    ObjectCheckpointStorage::new(root.clone(), Attempt(7), names(1), options)
}

pub(crate) fn local(folder: &std::path::Path, handle: &Handle) -> StoreRoot {
    StoreRoot::local(folder, handle.clone()).unwrap()
}

fn type_meta(schema: &str) -> TypeMeta {
    TypeMeta {
        codec: CodecKind::Compact,
        schema: Schema::parse(schema).unwrap(),
    }
}

pub(crate) fn state_meta(name: &str, kind: StateKind, value: &str) -> StateMeta {
    let map = matches!(
        kind,
        StateKind::Map | StateKind::SortedMap | StateKind::Broadcast
    );
    StateMeta {
        name: name.into(),
        kind,
        key: type_meta("string"),
        namespace: type_meta("struct Window{start:i64,end:i64}"),
        map_key: map.then(|| type_meta("u32")),
        value: type_meta(value),
        ttl_ms: (kind == StateKind::Value).then_some(86_400_000),
    }
}

pub(crate) fn object(root: Root, path: &str, body: &[u8]) -> StateHandle {
    StateHandle::Object(ObjectHandle {
        root,
        path: RelPath::new(path).unwrap(),
        len: body.len() as u64,
        digest: digest_of(body),
    })
}

pub(crate) fn file(name: &str, bytes: StateHandle) -> NamedHandle {
    NamedHandle {
        name: name.into(),
        bytes,
    }
}

pub(crate) fn key_groups(bytes: StateHandle) -> KeyGroupsHandle {
    let range = KeyGroupRange::new(KeyGroup(0), KeyGroup(3));
    let extents =
        [(0, 5), (5, 7), (0, 0), (40, 2)].map(|(offset, len)| GroupExtent { offset, len });
    KeyGroupsHandle {
        format: "canonical".into(),
        offsets: KeyGroupOffsets::from_extents(range, extents.to_vec()).unwrap(),
        bytes,
        states: vec![
            StateSummary {
                meta: state_meta("counts", StateKind::Value, "u64"),
                entries: EntryCount::Exact(3),
            },
            StateSummary {
                meta: state_meta(
                    "seen",
                    StateKind::Map,
                    "struct Flight{carrier:string,delay:f64}",
                ),
                entries: EntryCount::Estimate(u64::MAX),
            },
        ],
    }
}

pub(crate) fn incremental(
    checkpoint: u64,
    private: Vec<NamedHandle>,
    shared: Vec<NamedHandle>,
) -> KeyedHandle {
    KeyedHandle::Incremental(IncrementalHandle {
        format: "sst".into(),
        backend_id: "b-1".into(),
        checkpoint: CheckpointId(checkpoint),
        range: KeyGroupRange::new(KeyGroup(0), KeyGroup(127)),
        private,
        shared,
        new_bytes: 10,
        states: Vec::new(),
    })
}

pub(crate) fn operator_state(bytes: StateHandle) -> OperatorStateHandle {
    let part = |name: &str, mode, elements| OperatorStatePart {
        meta: state_meta(
            name,
            if mode == OperatorStateMode::Broadcast {
                StateKind::Broadcast
            } else {
                StateKind::OperatorList
            },
            "u64",
        ),
        mode,
        elements,
    };
    OperatorStateHandle {
        states: vec![
            part("offsets", OperatorStateMode::Split, vec![(0, 8), (8, 8)]),
            part("all", OperatorStateMode::Union, vec![]),
            part("names", OperatorStateMode::Broadcast, vec![(100, 20)]),
        ],
        bytes,
    }
}

pub(crate) fn operator(uid: &str, parallelism: u32) -> OperatorMetadata {
    OperatorMetadata::new(
        OperatorUid::new(uid).unwrap(),
        parallelism,
        MaxParallelism::new(128).unwrap(),
        HashId::Holdfast1,
    )
}

pub(crate) fn metadata(checkpoint: u64, attempt: u64) -> CheckpointMetadata {
    let kind = SnapshotKind::Checkpoint;
    CheckpointMetadata::new(
        CheckpointId(checkpoint),
        job(),
        Attempt(attempt),
        kind,
        1_700_000_000_000,
    )
}

/// Metadata with everything that the format knows.
pub(crate) fn sample() -> CheckpointMetadata {
    let mut all = metadata(42, 7);
    all.writer = "holdfast 0.1.0".into();
    all.properties.insert("trigger".into(), "periodic".into());
    all.properties.insert("alignment_ms".into(), "12".into());
    all.hooks.push(HookState {
        name: "clock".into(),
        version: 3,
        bytes: Bytes::from_static(b"tick"),
    });
    let mut count = operator("count", 4);
    count.name = Some("count per carrier".into());
    count.coordinator = Some(StateHandle::Inline(Bytes::from_static(b"coordinator")));
    let other = Root::Url("file:///archive/flights".into());
    let snapshot = OperatorSnapshot {
        managed_keyed: vec![
            KeyedHandle::KeyGroups(key_groups(object(Root::Own, "chk-42/7-a", b"keyed"))),
            incremental(
                42,
                vec![file(
                    "MANIFEST",
                    StateHandle::Inline(Bytes::from_static(b"manifest")),
                )],
                vec![
                    file("000001.sst", object(other, "shared/3-b", b"sst one")),
                    file("000002.sst", object(Root::Own, "shared/7-c", b"sst two")),
                ],
            ),
        ],
        raw_keyed: vec![key_groups(StateHandle::Inline(Bytes::from_static(b"raw")))],
        managed_operator: vec![operator_state(object(Root::Own, "chk-42/7-d", b"operator"))],
        raw_operator: vec![OperatorStateHandle {
            states: Vec::new(),
            bytes: StateHandle::Inline(Bytes::from_static(b"raw operator")),
        }],
        ..OperatorSnapshot::default()
    };
    count.subtasks = vec![
        SubtaskMetadata::new(0, snapshot),
        SubtaskMetadata::finished(3),
    ];
    let mut source = operator("source", 1);
    source.subtasks = vec![SubtaskMetadata::finished(0)];
    all.operators = vec![count, source];
    all.collect_roots();
    all
}

/// Wraps sections of metadata in a header and a digest that fit.
pub(crate) fn seal(version: u16, writer: &str, sections: &[u8]) -> Vec<u8> {
    let mut out = b"\x89HFCP\r\n\x1a".to_vec();
    out.extend_from_slice(&version.to_le_bytes());
    out.extend_from_slice(&((19 + writer.len() + sections.len() + 32) as u64).to_le_bytes());
    out.push(writer.len() as u8);
    out.extend_from_slice(writer.as_bytes());
    out.extend_from_slice(sections);
    let digest = digest_of(&out);
    out.extend_from_slice(&digest.0);
    out
}

/// The sections of metadata, without header and digest.
pub(crate) fn sections_of(file: &[u8]) -> &[u8] {
    &file[19 + usize::from(file[18])..file.len() - 32]
}
