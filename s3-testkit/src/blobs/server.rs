use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use super::BlobProtocol;
use super::objects::Objects;
use super::protocol::{Answer, Call, decoded};
use crate::gauge::Gauge;
use crate::{S3Fault, S3Request};

type Judge = dyn FnMut(&S3Request) -> Option<S3Fault> + Send;

/// A running server of one protocol with one bucket in memory; it ends when it is dropped.
///
/// It asks for no signature. Its answer to a request that is refused repeats what the request was authorised with, which is
/// what the most talkative of the real ones do.
pub struct BlobServer {
    _runtime: Runtime,
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    protocol: BlobProtocol,
    base: String,
    objects: Mutex<Objects>,
    seen: Mutex<Vec<S3Request>>,
    judge: Mutex<Option<Box<Judge>>>,
    overwrites: AtomicBool,
    has_bucket: AtomicBool,
    gauge: Gauge,
}

impl BlobServer {
    /// The one bucket, or container, where its name is part of the path.
    pub const BUCKET: &'static str = "state";
    /// The one bucket where its name is part of the host, as with OSS and COS: it makes an address of this machine out of
    /// [`BlobServer::endpoint`], so that no name has to be looked up.
    pub const BUCKET_IN_HOST: &'static str = "127";
    /// The one account of Azure.
    pub const ACCOUNT: &'static str = "holdfast";

    /// Starts a server on a free port of this machine.
    ///
    /// # Errors
    /// When there is no port or no thread.
    pub fn start(protocol: BlobProtocol) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("blobs")
            .enable_all()
            .build()?;
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0)))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            protocol,
            base: format!("http://{address}"),
            objects: Mutex::default(),
            seen: Mutex::default(),
            judge: Mutex::default(),
            overwrites: AtomicBool::new(false),
            has_bucket: AtomicBool::new(true),
            gauge: Gauge::default(),
        });
        let of_connections = Arc::clone(&shared);
        drop(runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                drop(tokio::spawn(serve(socket, Arc::clone(&of_connections))));
            }
        }));
        Ok(Self {
            _runtime: runtime,
            address,
            shared,
        })
    }

    /// Returns the URL of the server, as the option of its protocol wants it.
    #[must_use]
    pub fn endpoint(&self) -> String {
        match self.shared.protocol {
            BlobProtocol::Azure => format!("{}/{}", self.shared.base, Self::ACCOUNT),
            BlobProtocol::Google => self.shared.base.clone(),
            // The name of the bucket is put in front.
            BlobProtocol::Aliyun | BlobProtocol::Tencent => {
                format!("http://0.0.1:{}", self.address.port())
            }
        }
    }

    /// Returns the number of objects.
    #[must_use]
    pub fn objects(&self) -> usize {
        lock(&self.shared.objects).list("", false).objects.len()
    }

    /// Returns the number of uploads that were neither completed nor aborted.
    #[must_use]
    pub fn open_uploads(&self) -> usize {
        lock(&self.shared.objects).open_uploads()
    }

    /// From now on overwrites whatever a request's condition says, as OSS and COS do in a bucket that keeps versions.
    pub fn overwrite(&self) {
        self.shared.overwrites.store(true, Ordering::Relaxed);
    }

    /// From now on has no bucket.
    pub fn remove_bucket(&self) {
        self.shared.has_bucket.store(false, Ordering::Relaxed);
    }

    /// Decides about each request from now on; `None` lets it through. Of the faults, `Refuse`, `FailAfter`, `Vanish` and
    /// `Slow` work.
    pub fn judge(&self, judge: impl FnMut(&S3Request) -> Option<S3Fault> + Send + 'static) {
        *lock(&self.shared.judge) = Some(Box::new(judge));
    }

    /// Lets all requests through from now on.
    pub fn pardon(&self) {
        *lock(&self.shared.judge) = None;
    }

    /// Returns the requests since the last call, in the order in which they came.
    #[must_use]
    pub fn take_requests(&self) -> Vec<S3Request> {
        std::mem::take(&mut *lock(&self.shared.seen))
    }

    /// Returns the most requests that were being answered at once since the last call.
    #[must_use]
    pub fn take_most_at_once(&self) -> usize {
        self.shared.gauge.take_most()
    }
}

impl std::fmt::Debug for BlobServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "BlobServer({:?}, {})",
            self.shared.protocol, self.address
        )
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(socket: TcpStream, shared: Arc<Shared>) {
    let answer = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        let shared = Arc::clone(&shared);
        async move { respond(request, &shared).await }
    });
    let server = Builder::new(TokioExecutor::new());
    drop(server.serve_connection(TokioIo::new(socket), answer).await);
}

/// Answers a request; an error closes the connection.
async fn respond(request: hyper::Request<Incoming>, shared: &Shared) -> io::Result<Answer> {
    let _in_flight = shared.gauge.begin();
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let raw_query = parts.uri.query().unwrap_or_default().to_owned();
    let query = raw_query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        })
        .collect();
    let mut call = Call {
        method: parts.method,
        path: decoded(parts.uri.path()),
        query,
        headers: parts.headers,
        body,
        creates: false,
    };
    let asked = shared.protocol.creates(&call);
    call.creates = asked && !shared.overwrites.load(Ordering::Relaxed);
    let seen = S3Request {
        method: call.method.to_string(),
        path: call.path.clone(),
        query: raw_query,
        creates: asked,
        len: call.body.len() as u64,
    };
    lock(&shared.seen).push(seen.clone());
    let fault = lock(&shared.judge).as_mut().and_then(|judge| judge(&seen));
    if let Some(S3Fault::Refuse {
        status,
        retry_after_s,
    }) = fault
    {
        let text = call.header("authorization").replace(['"', '&'], " ");
        let mut answer = shared.protocol.failure(status, &text);
        if let Some(seconds) = retry_after_s {
            answer.headers_mut().insert("retry-after", seconds.into());
        }
        return Ok(answer);
    }
    if !shared.has_bucket.load(Ordering::Relaxed) {
        return Ok(shared.protocol.no_bucket());
    }
    let answer = shared
        .protocol
        .answer(&call, &mut lock(&shared.objects), &shared.base);
    match fault {
        Some(S3Fault::FailAfter { status }) => Ok(shared.protocol.failure(status, "on demand")),
        Some(S3Fault::Vanish) => Err(io::Error::other("the connection ends on demand")),
        Some(S3Fault::Slow(time)) => {
            tokio::time::sleep(time).await;
            Ok(answer)
        }
        _ => Ok(answer),
    }
}
