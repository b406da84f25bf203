//! A subtask with two inputs: what becomes of checkpoints whose barriers come one after the other.
use super::*;

/// A subtask behind two channels whose barriers overtake if they may.
struct Fed {
    subtask: Subtask,
    reports: Arc<Reports>,
    later: Arc<Later>,
    log: Log,
    fails: Rc<RefCell<Vec<&'static str>>>,
    writers: Vec<BatchWriter<Timed<()>>>,
    mailbox: Arc<Mailbox>,
    mode: CheckpointMode,
}

impl Fed {
    fn new(mode: CheckpointMode) -> Self {
        let (log, fails) = (Log::default(), Rc::default());
        let (reports, later) = (Arc::new(Reports::default()), Arc::new(Later::default()));
        let signal = Signal::new();
        let mut env = environment(Arc::clone(&signal), Arc::clone(&later) as Arc<dyn Executor>);
        env.uids = Arc::new([OperatorUid::new("end").expect("a name")]);
        env.mode = mode;
        let (mut writers, mut receivers) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let (sender, receiver) = channel(100, Signal::new(), Arc::clone(&signal));
            writers.push(BatchWriter::new(sender, Rc::default()));
            receivers.push(receiver);
        }
        let codec: SharedCodec<()> = Arc::new(RecordCodec::compact());
        let end = Noting {
            name: "end",
            log: Rc::clone(&log),
            fails: Rc::clone(&fails),
            alive: Arc::default(),
        };
        let mut head = PlainHead::new(
            Gate::new(2, &env),
            Port::new(receivers, 0).persisted(0, Some(codec)),
            Box::new(end),
            Rc::default(),
        );
        head.open(&env)
            .now_or_never()
            .expect("nothing is restored")
            .expect("nothing fails");
        let mailbox = Mailbox::new(signal);
        let subtask = Subtask::new(
            TaskId::new(1, 0),
            "chain".into(),
            Box::pin(ready(Ok(Box::new(head) as Box<dyn Head>))),
            Arc::clone(&mailbox),
            Arc::clone(&reports) as Arc<dyn Reporter>,
            env,
        );
        Self {
            subtask,
            reports,
            later,
            log,
            fails,
            writers,
            mailbox,
            mode,
        }
    }

    /// Sends a record on a channel, or the barrier of a checkpoint, which overtakes if it may.
    fn send(&mut self, channel: usize, barrier: Option<u64>) {
        let writer = &mut self.writers[channel];
        match barrier {
            None => writer.push(Timed { value: (), time: 0 }),
            Some(id) => {
                let mode = match self.mode {
                    CheckpointMode::ExactlyOnce => BarrierMode::Unaligned,
                    CheckpointMode::AtLeastOnce => BarrierMode::Aligned,
                };
                let barrier = Barrier::new(CheckpointId(id), 0).with_mode(mode);
                writer.push_barrier(barrier.expect("it may be so"));
            }
        }
        writer.flush();
    }

    fn settle(&mut self) -> Vec<String> {
        while self.subtask.step(16) == Progress::Worked {}
        self.later.run_ready();
        let mut reports = self
            .reports
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *reports)
    }
}

#[test]
fn k_617_a_snapshot_that_fails_while_other_inputs_are_awaited_holds_up_nothing() {
    for comes_late in [true, false] {
        let mut fed = Fed::new(CheckpointMode::ExactlyOnce);
        assert_eq!(fed.settle(), ["running"]);
        for channel in 0..2 {
            fed.send(channel, None);
        }
        fed.fails.borrow_mut().push("snapshot");
        fed.send(0, Some(1));
        fed.send(0, None);
        // The barrier of the other channel is on its way.
        let declined = format!("decline 1 {:?}", FailureReason::SyncPart);
        assert_eq!(fed.settle(), [declined]);
        let log = fed.log.take();
        let expected = [
            "end prepare 1",
            "end barrier 1",
            "end snapshot 1",
            "end cancel 1",
        ];
        assert_eq!(log, expected);
        fed.fails.borrow_mut().clear();
        if comes_late {
            fed.send(1, Some(1));
            assert_eq!(fed.settle(), [""; 0]);
        }
        fed.send(1, None);
        fed.send(0, Some(2));
        assert_eq!(fed.settle(), [""; 0], "what is in flight is not known yet");
        fed.send(1, Some(2));
        assert_eq!(fed.settle(), ["ack 2"]);
        let log = fed.log.take();
        assert_eq!(log, ["end prepare 2", "end barrier 2", "end snapshot 2"]);
    }
}

#[test]
fn k_405_at_least_once_an_abort_leaves_an_older_checkpoint_its_cut() {
    let mut fed = Fed::new(CheckpointMode::AtLeastOnce);
    fed.send(0, Some(4));
    fed.send(0, Some(5));
    assert_eq!(fed.settle(), ["running"]);
    fed.mailbox.send(Command::Aborted(CheckpointId(5)));
    assert_eq!(fed.settle(), [""; 0]);
    assert_eq!(fed.log.take(), ["end aborted 5"]);
    fed.send(1, Some(4));
    fed.send(1, Some(5));
    assert_eq!(fed.settle(), ["ack 4"]);
    let log = fed.log.take();
    assert_eq!(
        log,
        [
            "end prepare 4",
            "end barrier 4",
            "end snapshot 4",
            "end cancel 5"
        ]
    );
}
