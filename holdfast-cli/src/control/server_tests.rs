use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream as StdStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use super::*;

/// Answers at once, except for `cancel`, which waits for a word of the test.
#[derive(Default)]
struct Job {
    asked: Arc<AtomicU64>,
    done: Arc<AtomicU64>,
    go: Arc<Notify>,
}

impl Controlled for Job {
    fn perform(&self, request: Request) -> BoxFuture<'static, Answer> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let (go, done) = (Arc::clone(&self.go), Arc::clone(&self.done));
        Box::pin(async move {
            match request {
                Request::Checkpoint(_) => Err((Fault::Failed, "the disk is full".into())),
                Request::Cancel => {
                    go.notified().await;
                    done.fetch_add(1, Ordering::SeqCst);
                    Ok(json!("ended"))
                }
                _ => Ok(json!({ "state": "running" })),
            }
        })
    }

    fn progress(&self) -> BoxFuture<'static, Option<String>> {
        Box::pin(async { Some("waiting for a word".into()) })
    }
}

struct Place {
    _folder: tempfile::TempDir,
    socket: PathBuf,
    job: Arc<Job>,
    server: Option<Server>,
    io: Runtime,
}

impl Place {
    fn new() -> Self {
        let io = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("job.sock");
        let listener = StdListener::bind(&socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        let job = Arc::new(Job::default());
        let server = Server::start(io.handle(), listener, Arc::<Job>::clone(&job)).unwrap();
        Self {
            _folder: folder,
            socket,
            job,
            server: Some(server),
            io,
        }
    }

    fn connect(&self) -> StdStream {
        let stream = StdStream::connect(&self.socket).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        stream
    }

    /// Sends bytes and returns the last reply.
    fn ask(&self, bytes: &[u8]) -> Reply {
        let mut stream = self.connect();
        // Whoever sends too much may find the other side gone.
        drop(stream.write_all(bytes));
        last_reply(stream)
    }
}

fn last_reply(stream: StdStream) -> Reply {
    let lines: Vec<String> = BufReader::new(stream)
        .lines()
        .map_while(Result::ok)
        .collect();
    Reply::of_line(lines.last().expect("no reply")).unwrap()
}

fn status() -> Reply {
    Reply::Done {
        result: json!({ "state": "running" }),
    }
}

fn request_fault(reply: &Reply, told: &str) {
    let Reply::Failed {
        fault: Fault::Request,
        message,
    } = reply
    else {
        panic!("{reply:?}");
    };
    assert!(message.contains(told), "{message}");
}

#[test]
fn a_request_is_answered_and_a_failure_is_said() {
    let place = Place::new();
    assert_eq!(place.ask(Request::Status.to_line().as_bytes()), status());
    // Without the end of the line, from a client that closes its side.
    let mut stream = place.connect();
    stream
        .write_all(Request::Status.to_line().trim_end().as_bytes())
        .unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(last_reply(stream), status());
    let failed = place.ask(Request::Checkpoint(Default::default()).to_line().as_bytes());
    assert_eq!(failed, Reply::failed(Fault::Failed, "the disk is full"));
}

#[test]
fn clients_that_send_garbage_too_much_or_nothing_harm_nobody() {
    let place = Place::new();
    request_fault(&place.ask(b"GET / HTTP/1.1\r\n\r\n"), "one line of JSON");
    request_fault(&place.ask(b"\xff\xfe\x00\n"), "UTF-8");
    request_fault(&place.ask(b"\n"), "one line of JSON");
    request_fault(&place.ask(&vec![b'x'; LONGEST_REQUEST + 100]), "at most");
    request_fault(
        &place.ask(b"{\"holdfast\":1,\"request\":\"reboot\"}\n"),
        "known: status",
    );
    request_fault(
        &place.ask(b"{\"holdfast\":7,\"request\":\"status\"}\n"),
        "version 7",
    );
    drop(place.connect());
    let twice = [Request::Status.to_line(), "garbage\n".repeat(1000)].concat();
    assert_eq!(place.ask(twice.as_bytes()), status());
    assert_eq!(
        place.job.asked.load(Ordering::SeqCst),
        1,
        "only what is understood gets to the job"
    );
}

#[test]
fn clients_that_hang_hold_nobody_up_and_too_many_are_turned_away() {
    let place = Place::new();
    let hanging: Vec<StdStream> = (0..CONNECTIONS - 1).map(|_| place.connect()).collect();
    assert_eq!(place.ask(Request::Status.to_line().as_bytes()), status());
    let one_more = place.connect();
    // The last place goes to this one or to the next, as they are accepted in turn.
    let turned_away = (0..1000).any(|_| {
        let reply = place.ask(Request::Status.to_line().as_bytes());
        assert!(
            reply == status()
                || matches!(
                    reply,
                    Reply::Failed {
                        fault: Fault::Busy,
                        ..
                    }
                ),
            "{reply:?}"
        );
        reply != status()
    });
    assert!(turned_away);
    drop((hanging, one_more));
    let free = (0..1000).any(|_| place.ask(Request::Status.to_line().as_bytes()) == status());
    assert!(free);
}

#[test]
fn whoever_waits_is_told_what_for_and_gets_the_answer() {
    let place = Place::new();
    let mut stream = place.connect();
    stream
        .write_all(Request::Cancel.to_line().as_bytes())
        .unwrap();
    let mut lines = BufReader::new(stream).lines();
    let first = Reply::of_line(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(
        first,
        Reply::Progress {
            text: "waiting for a word".into()
        }
    );
    place.job.go.notify_one();
    let last = lines.map_while(Result::ok).last().unwrap();
    assert_eq!(
        Reply::of_line(&last).unwrap(),
        Reply::Done {
            result: json!("ended")
        }
    );
}

#[test]
fn what_was_begun_goes_on_when_the_client_goes() {
    let place = Place::new();
    let mut stream = place.connect();
    stream
        .write_all(Request::Cancel.to_line().as_bytes())
        .unwrap();
    let mut first = [0];
    stream.read_exact(&mut first).unwrap();
    drop(stream);
    place.job.go.notify_one();
    while place.job.done.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
}

#[test]
fn the_end_of_the_server_waits_for_answers_on_their_way_and_for_nobody_who_has_not_asked() {
    let mut place = Place::new();
    let mut stream = place.connect();
    stream
        .write_all(Request::Cancel.to_line().as_bytes())
        .unwrap();
    while place.job.asked.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    place.job.go.notify_one();
    let server = place.server.take().unwrap();
    place.io.block_on(server.finish(Duration::from_secs(30)));
    assert_eq!(
        last_reply(stream),
        Reply::Done {
            result: json!("ended")
        }
    );

    let mut place = Place::new();
    let _hangs = place.connect();
    assert_eq!(place.ask(Request::Status.to_line().as_bytes()), status());
    let server = place.server.take().unwrap();
    place.io.block_on(server.finish(Duration::from_secs(3600)));
}

#[test]
fn only_the_owner_and_root_may_ask() {
    assert!(may_ask(1000, 1000) && may_ask(0, 1000) && may_ask(0, 0));
    assert!(!may_ask(1001, 1000) && !may_ask(1000, 0));
}
