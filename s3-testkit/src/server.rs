use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpResponse};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use super::exclusive::Exclusive;
use super::gauge::Gauge;
use super::{S3Fault, S3Request};

type Judge = dyn FnMut(&S3Request) -> Option<S3Fault> + Send;

/// A running server with one bucket; it ends when it is dropped.
pub struct S3Server {
    // Stops before the folder goes.
    _runtime: Runtime,
    address: SocketAddr,
    folder: tempfile::TempDir,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    seen: Mutex<Vec<S3Request>>,
    judge: Mutex<Option<Box<Judge>>>,
    gauge: Gauge,
}

impl S3Server {
    /// The one bucket.
    pub const BUCKET: &'static str = "state";
    /// Id of the key that requests must be signed with.
    pub const ACCESS_KEY: &'static str = "AKIAHOLDFASTTESTS";
    /// The key that requests must be signed with.
    pub const SECRET_KEY: &'static str = "wJalrXUtnFEMIbPxRfiCYEXAMPLEKEY";

    /// Starts a server on a free port of this machine.
    ///
    /// # Errors
    /// When there is no port, no thread or no room for its files.
    pub fn start() -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join(Self::BUCKET))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("s3")
            .enable_all()
            .build()?;
        let storage = s3s_fs::FileSystem::new(folder.path())
            .map_err(|e| io::Error::other(format!("{e:?}")))?;
        let mut service = S3ServiceBuilder::new(Exclusive::new(storage));
        service.set_auth(SimpleAuth::from_single(Self::ACCESS_KEY, Self::SECRET_KEY));
        let service = service.build();
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0)))?;
        let address = listener.local_addr()?;
        let shared = Arc::<Shared>::default();
        let of_connections = Arc::clone(&shared);
        drop(runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                drop(tokio::spawn(serve(
                    socket,
                    service.clone(),
                    Arc::clone(&of_connections),
                )));
            }
        }));
        Ok(Self {
            _runtime: runtime,
            address,
            folder,
            shared,
        })
    }

    /// Returns the URL of the server.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the local folder that holds the bucket, to look at what is stored, or damage it.
    #[must_use]
    pub fn bucket(&self) -> std::path::PathBuf {
        self.folder.path().join(Self::BUCKET)
    }

    /// Returns the number of files of uploads in parts that were neither completed nor aborted.
    #[must_use]
    pub fn open_upload_files(&self) -> usize {
        fn count(folder: &Path) -> usize {
            let Ok(entries) = std::fs::read_dir(folder) else {
                return 0;
            };
            entries
                .flatten()
                .filter(|entry| entry.file_name().to_string_lossy().starts_with(".upload"))
                .count()
        }
        count(self.folder.path())
    }

    /// Decides about each request from now on; `None` lets it through.
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

impl std::fmt::Debug for S3Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "S3Server({})", self.address)
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(socket: TcpStream, service: S3Service, shared: Arc<Shared>) {
    // Ends the connection when a fault asks for it.
    let (end, mut ended) = tokio::sync::mpsc::channel::<()>(1);
    let answer = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        let (service, shared, end) = (service.clone(), Arc::clone(&shared), end.clone());
        async move { Ok::<_, Infallible>(respond(request, &service, &shared, end).await) }
    });
    let server = Builder::new(TokioExecutor::new());
    let connection = server.serve_connection(TokioIo::new(socket), answer);
    tokio::select! {
        _ = connection => {}
        _ = ended.recv() => {}
    }
}

async fn respond(
    request: hyper::Request<Incoming>,
    service: &S3Service,
    shared: &Shared,
    end: tokio::sync::mpsc::Sender<()>,
) -> HttpResponse {
    let _in_flight = shared.gauge.begin();
    let header = |name: &str| {
        request
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let seen = S3Request {
        method: request.method().to_string(),
        path: request.uri().path().to_owned(),
        query: request.uri().query().unwrap_or_default().to_owned(),
        creates: header("if-none-match") == "*",
        len: header("content-length").parse().unwrap_or(0),
    };
    lock(&shared.seen).push(seen.clone());
    let fault = lock(&shared.judge).as_mut().and_then(|judge| judge(&seen));
    match fault {
        Some(S3Fault::Refuse {
            status,
            retry_after_s,
        }) => return failure(status, retry_after_s),
        Some(S3Fault::Forget) => return failure(404, None),
        Some(S3Fault::Hang) => return never(&end).await,
        _ => {}
    }
    let Ok(response) = hyper::service::Service::call(service, request).await else {
        return failure(500, None);
    };
    match fault {
        Some(S3Fault::FailAfter { status }) => failure(status, None),
        Some(S3Fault::Vanish) => never(&end).await,
        Some(S3Fault::Slow(time)) => {
            tokio::time::sleep(time).await;
            response
        }
        Some(S3Fault::Cut(len)) => {
            let (parts, body) = changed(response, |body| shorten(body, len))
                .await
                .into_parts();
            HttpResponse::from_parts(parts, Body::http_body(Torn(body.bytes())))
        }
        Some(S3Fault::Shorten(len)) => {
            let mut response = changed(response, |body| shorten(body, len)).await;
            for name in ["content-length", "content-range"] {
                response.headers_mut().remove(name);
            }
            response
        }
        Some(S3Fault::Flip(at)) => {
            changed(response, |body| {
                if let Some(byte) = usize::try_from(at).ok().and_then(|at| body.get_mut(at)) {
                    *byte ^= 1;
                }
            })
            .await
        }
        _ => response,
    }
}

/// Ends the connection and never answers.
async fn never(end: &tokio::sync::mpsc::Sender<()>) -> HttpResponse {
    // A second fault finds the connection ending already.
    let _ = end.try_send(());
    std::future::pending::<()>().await;
    failure(500, None)
}

/// Changes the body and keeps what the headers say about it.
async fn changed(response: HttpResponse, change: impl FnOnce(&mut Vec<u8>)) -> HttpResponse {
    let (parts, mut body) = response.into_parts();
    let Ok(bytes) = body.store_all_limited(1 << 30).await else {
        return failure(500, None);
    };
    let mut bytes = bytes.to_vec();
    change(&mut bytes);
    HttpResponse::from_parts(parts, Body::from(bytes))
}

/// A body that ends in an error after its first bytes.
struct Torn(Option<bytes::Bytes>);

impl hyper::body::Body for Torn {
    type Data = bytes::Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<hyper::body::Frame<bytes::Bytes>>>> {
        Poll::Ready(Some(match self.0.take() {
            Some(bytes) => Ok(hyper::body::Frame::data(bytes)),
            None => Err(io::Error::other("torn on demand")),
        }))
    }
}

fn shorten(body: &mut Vec<u8>, len: u64) {
    body.truncate(usize::try_from(len).unwrap_or(usize::MAX));
}

fn failure(status: u16, retry_after_s: Option<u64>) -> HttpResponse {
    let code = match status {
        403 => "AccessDenied",
        404 => "NoSuchKey",
        412 => "PreconditionFailed",
        503 => "SlowDown",
        _ => "InternalError",
    };
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code><Message>on demand</Message></Error>"
    );
    let mut response = HttpResponse::new(Body::from(text));
    *response.status_mut() =
        hyper::StatusCode::from_u16(status).unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(seconds) = retry_after_s {
        response
            .headers_mut()
            .insert("retry-after", hyper::header::HeaderValue::from(seconds));
    }
    response
}
