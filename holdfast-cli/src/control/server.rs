use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use rustix::process::geteuid;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use super::lines::{Line, read_line, write_line};
use super::protocol::{Fault, LONGEST_REQUEST, Reply, Request};

/// Connections at a time.
const CONNECTIONS: u32 = 32;

/// How long a request may take to come in.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);

/// How long a line of an answer may take to be read.
const WRITE_WITHIN: Duration = Duration::from_secs(10);

/// Time between two words on what is waited for: whoever asks knows by them that the job lives.
const PROGRESS: Duration = Duration::from_secs(1);

/// What else a client sent is read for so long, and so much of it, so that it gets the answer.
const DRAIN_WITHIN: Duration = Duration::from_secs(1);
const DRAIN_AT_MOST: u64 = 1 << 20;

/// What a request came to.
pub(crate) type Answer = Result<Value, (Fault, String)>;

/// Something that can be asked over a socket.
///
/// # Contract
/// Implemented by the job that runs and by tests; called on the I/O threads. A future that is dropped, since whoever asked
/// has gone, takes nothing back: what was begun goes on.
pub(crate) trait Controlled: Send + Sync + 'static {
    /// Does what is asked.
    fn perform(&self, request: Request) -> BoxFuture<'static, Answer>;

    /// Says in one line what a request waits for.
    fn progress(&self) -> BoxFuture<'static, Option<String>>;
}

/// Answers requests on a socket.
pub(crate) struct Server {
    accepting: JoinHandle<()>,
    free: Arc<Semaphore>,
    closing: watch::Sender<bool>,
}

impl Server {
    /// Begins to accept connections.
    ///
    /// # Errors
    /// When the socket can't be watched.
    pub(crate) fn start(
        io: &Handle,
        listener: StdListener,
        job: Arc<dyn Controlled>,
    ) -> io::Result<Self> {
        let _entered = io.enter();
        let listener = UnixListener::from_std(listener)?;
        let free = Arc::new(Semaphore::new(CONNECTIONS as usize));
        let (closing, closed) = watch::channel(false);
        let accepting = io.spawn(accept(listener, job, Arc::clone(&free), closed));
        Ok(Self {
            accepting,
            free,
            closing,
        })
    }

    /// Accepts nothing more, and waits for the answers that are on their way; who has asked nothing yet gets none.
    pub(crate) async fn finish(self, within: Duration) {
        self.accepting.abort();
        self.closing.send_replace(true);
        drop(timeout(within, self.free.acquire_many(CONNECTIONS)).await);
    }
}

async fn accept(
    listener: UnixListener,
    job: Arc<dyn Controlled>,
    free: Arc<Semaphore>,
    closed: watch::Receiver<bool>,
) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, as a rule: they come back.
                tracing::warn!(%error, "a connection can't be accepted");
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            }
        };
        match Arc::clone(&free).try_acquire_owned() {
            Ok(permit) => {
                let (job, closed) = (Arc::clone(&job), closed.clone());
                tokio::spawn(async move {
                    attend(stream, job.as_ref(), closed).await;
                    drop(permit);
                });
            }
            Err(_) => {
                let line = Reply::failed(Fault::Busy, "too many connections at a time").to_line();
                // Whether it gets there or not: nobody waits for it.
                drop(stream.try_write(line.as_bytes()));
            }
        }
    }
}

/// Tells whether a user may ask: the one who runs the job, and root, who may anyway.
fn may_ask(peer: u32, own: u32) -> bool {
    peer == own || peer == 0
}

async fn attend(stream: UnixStream, job: &dyn Controlled, mut closed: watch::Receiver<bool>) {
    let peer = stream.peer_cred().map(|peer| peer.uid());
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let answer = match peer {
        Ok(peer) if may_ask(peer, geteuid().as_raw()) => {
            let asked = tokio::select! {
                asked = request(&mut reader) => asked,
                _ = closed.wait_for(|closed| *closed) => return,
            };
            match asked {
                Ok(Some(request)) => {
                    tracing::info!(request = request.name(), "asked over the socket");
                    perform(job, request, &mut writer).await
                }
                Ok(None) => return,
                Err(complaint) => Err((Fault::Request, complaint)),
            }
        }
        Ok(peer) => {
            tracing::warn!(user = peer, "a request of another user was refused");
            Err((
                Fault::Forbidden,
                format!("user {peer} may not control a job of another"),
            ))
        }
        Err(error) => Err((
            Fault::Forbidden,
            format!("it is not known who asks: {error}"),
        )),
    };
    let reply = match answer {
        Ok(result) => Reply::Done { result },
        Err((fault, message)) => Reply::Failed { fault, message },
    };
    if write_line(&mut writer, &reply.to_line(), WRITE_WITHIN)
        .await
        .is_ok()
        && writer.shutdown().await.is_ok()
    {
        // A socket that is closed with bytes unread resets the connection, and the answer may be lost.
        drain(reader).await;
    }
}

/// Reads the request; `None` when the client went without one.
async fn request(
    reader: &mut BufReader<impl AsyncRead + Unpin>,
) -> Result<Option<Request>, String> {
    let line = match timeout(REQUEST_WITHIN, read_line(reader, LONGEST_REQUEST)).await {
        Ok(line) => line,
        Err(_) => {
            return Err(format!(
                "no request came within {} s",
                REQUEST_WITHIN.as_secs()
            ));
        }
    };
    match line {
        Ok(Line::Text { text, .. }) => Request::of_line(&text).map(Some),
        Ok(Line::TooLong) => Err(format!("a request has at most {LONGEST_REQUEST} bytes")),
        Ok(Line::NotText) => Err("a request is text in UTF-8".into()),
        Ok(Line::End) | Err(_) => Ok(None),
    }
}

async fn perform(
    job: &dyn Controlled,
    request: Request,
    writer: &mut (impl tokio::io::AsyncWrite + Unpin),
) -> Answer {
    let mut performed = job.perform(request);
    let mut ticks = interval_at(Instant::now() + PROGRESS, PROGRESS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = true;
    loop {
        tokio::select! {
            answer = &mut performed => return answer,
            _ = ticks.tick(), if heard => {
                let text = timeout(PROGRESS, job.progress()).await.ok().flatten().unwrap_or_default();
                // Whoever has gone misses the answer, but what was begun goes on.
                heard = write_line(writer, &Reply::Progress { text }.to_line(), WRITE_WITHIN).await.is_ok();
            }
        }
    }
}

async fn drain(reader: impl AsyncRead + Unpin) {
    let mut rest = reader.take(DRAIN_AT_MOST);
    drop(
        timeout(
            DRAIN_WITHIN,
            tokio::io::copy(&mut rest, &mut tokio::io::sink()),
        )
        .await,
    );
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
