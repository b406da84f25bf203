use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use crate::failure::Failure;
use crate::run::WorkerEvent;

/// What the demo waits for.
pub(crate) enum Message {
    /// The job's process told something.
    Event(WorkerEvent),
    /// It has ended: everything that it told was told.
    Ended,
    /// Ctrl-C or SIGTERM.
    Interrupted,
}

/// A process that runs the job; it dies with this value.
pub(crate) struct Worker {
    child: Child,
    errors: Option<JoinHandle<String>>,
}

impl Worker {
    /// Starts the job in a process, and passes on what it tells.
    ///
    /// # Errors
    /// When there is no process to be had.
    pub(crate) fn start(
        input: &Path,
        output: &Path,
        backend: &str,
        arguments: &[&str],
        messages: Sender<Message>,
    ) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::failed(format!("the job's process can't be started: {error}"))
        };
        let mut child = Command::new(std::env::current_exe().map_err(failed)?)
            .args(["run", "flights", "--events", "--no-socket"])
            .args(["--backend", backend])
            .arg("--input")
            .arg(input)
            .arg("--output")
            .arg(output)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for the demo, which ends the process itself.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let (Some(told), Some(errors)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(Failure::failed("the job's process has no output"));
        };
        std::thread::spawn(move || {
            let lines = BufReader::new(told).lines().map_while(Result::ok);
            for event in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
                if messages.send(Message::Event(event)).is_err() {
                    return;
                }
            }
            drop(messages.send(Message::Ended));
        });
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            drop(BufReader::new(errors).read_to_string(&mut text));
            text
        });
        Ok(Self {
            child,
            errors: Some(errors),
        })
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends the process with SIGKILL.
    pub(crate) fn kill(&mut self) {
        // It fails only when the process has ended by itself, which its output tells.
        drop(self.child.kill());
    }

    /// Waits for the end of the process; returns what it complained about last.
    pub(crate) fn wait(&mut self) -> String {
        drop(self.child.wait());
        let text = self
            .errors
            .take()
            .and_then(|errors| errors.join().ok())
            .unwrap_or_default();
        let last = text.lines().last().unwrap_or("it gave no reason");
        last.strip_prefix("error: ").unwrap_or(last).to_owned()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
        drop(self.child.wait());
    }
}

/// Sends a message at Ctrl-C or SIGTERM.
///
/// # Errors
/// When the signals can't be listened to.
pub(crate) fn report_interrupts(messages: Sender<Message>) -> Result<(), Failure> {
    let deaf =
        |error: std::io::Error| Failure::failed(format!("signals can't be listened to: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(deaf)?;
    let mut signals = {
        use tokio::signal::unix::{SignalKind, signal};
        let _entered = runtime.enter();
        [
            signal(SignalKind::interrupt()).map_err(deaf)?,
            signal(SignalKind::terminate()).map_err(deaf)?,
        ]
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            let [interrupt, terminate] = &mut signals;
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if messages.send(Message::Interrupted).is_err() {
                    return;
                }
            }
        });
    });
    Ok(())
}
