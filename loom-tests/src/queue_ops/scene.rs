//! Sets up a queue in the initial state of a case, and shuts it down afterwards.

use std::time::Duration;

use flyball_ratelimit::FastSlow;
use flyball_sync::{ManualClock, ManualTimer};
use flyball_workqueue::{DrainOptions, Fifo, KeyState};

use crate::queue_ops::op::Op;
use crate::queue_ops::task::{Answer, For, Task};

const SECOND: Duration = Duration::from_secs(1);

type Time = ManualTimer;
pub(crate) type Queue = flyball_workqueue::Queue<u32, Fifo, FastSlow<u32>, Time>;
pub(crate) type Lease = flyball_workqueue::Lease<u32>;

/// The initial state of key 1, and the waiters that are added before the operations start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Ready.
    Ready,
    /// Leased. A getter waits, and a task waits for the queue to be idle.
    Leased,
    /// Key 1 is leased, and the queue is full. A waiting adder is added, unless one of the operations waits for room itself.
    Full,
    /// Waiting, with a deadline in one second.
    Soon,
    /// Waiting, with a deadline in one second. A getter waits, and a task waits for an overdue lease.
    Waiting,
    /// Ready in a paused queue. A getter waits.
    Paused,
    /// Leased and dirty in a queue that is shut down. A getter and a drain wait.
    Ending,
}

/// The arguments of an operation.
pub(crate) struct Tools {
    pub(crate) queue: Queue,
    pub(crate) clock: ManualClock,
    pub(crate) lease: Option<Lease>,
    /// A key whose lease was detached, if an operation needs one; otherwise 0.
    pub(crate) detached: u32,
    /// The number of the operation in its case, from 1.
    pub(crate) side: u32,
}

pub(crate) struct Scene {
    clock: ManualClock,
    pub(crate) queue: Queue,
    capacity: usize,
    /// The leases that no operation takes; they are completed at the end.
    leases: Vec<Lease>,
    detached: u32,
    /// The tasks of the initial waiters, followed by those of the operations.
    pub(crate) tasks: Vec<Task>,
    trace: Vec<String>,
}

impl Scene {
    /// Sets up the scene. If `waited` is true, also starts the waiters that belong to `start`.
    pub(crate) fn new(start: Start, ops: &[Op], waited: bool) -> Self {
        let leased = matches!(start, Start::Leased | Start::Full | Start::Ending);
        let detached = ops.iter().any(|op| op.takes_detached());
        let needed = ops.iter().filter(|op| op.takes_lease()).count() + usize::from(detached);
        let more = needed.saturating_sub(usize::from(leased));
        let capacity = if start == Start::Full { more + 1 } else { 16 };

        let clock = ManualClock::new();
        let limiter = FastSlow::new(SECOND, SECOND, 3);
        let builder = flyball_workqueue::Queue::builder().limiter(limiter).timer(clock.timer());
        let queue = builder.capacity(capacity).seed(0).build();
        let mut leases = Vec::new();
        for key in (1..=u32::from(leased)).chain((10..).take(more)) {
            queue.add(key).unwrap();
            leases.push(queue.try_get().unwrap());
        }
        let mut waiters: Vec<For> = Vec::new();
        match start {
            Start::Ready => drop(queue.add(1).unwrap()),
            Start::Leased => waiters.extend([For::Key, For::Idle]),
            // No waiting adder is added here, because an operation waits for room: whenever an adder finds no room, the queue updates its waiters
            // again, which would hide a lost wake-up of the other adder.
            Start::Full if ops.iter().any(|op| op.waits_for() == For::Room) => {}
            Start::Full => waiters.push(For::Room),
            Start::Soon => drop(queue.add_after(1, SECOND).unwrap()),
            Start::Waiting => {
                queue.add_after(1, SECOND).unwrap();
                waiters.extend([For::Key, For::Overdue]);
            }
            Start::Paused => {
                queue.pause();
                queue.add(1).unwrap();
                waiters.push(For::Key);
            }
            Start::Ending => {
                queue.add(1).unwrap();
                queue.shut_down();
                waiters.extend([For::Key, For::Drained]);
            }
        }
        let mut scene =
            Self { clock, queue, capacity, leases, detached: 0, tasks: Vec::new(), trace: Vec::new() };
        if detached {
            // The last lease is detached, because `task` takes leases for operations from the front.
            scene.detached = scene.leases.pop().expect("no lease").detach();
        }
        if waited {
            scene.tasks = waiters.into_iter().map(|what| scene.waiter(what)).collect();
            scene.settle();
            assert!(scene.tasks.iter().all(|task| task.answer.is_none()), "a waiter completed too early");
        }
        scene
    }

    fn waiter(&self, what: For) -> Task {
        let queue = self.queue.clone();
        Task::new(0, what, async move {
            match what {
                For::Key => Answer::leased(queue.get().await),
                For::Room => Answer::value(queue.add_when_room(3).await),
                For::Drained => Answer::value(queue.drain(DrainOptions::unlimited()).await),
                For::Idle => {
                    queue.wait_idle().await;
                    Answer::nothing()
                }
                For::Overdue => {
                    let overdue = queue.next_overdue(5 * SECOND).await;
                    Answer::value(overdue.map(|overdue| overdue.key))
                }
                For::Nothing => Answer::nothing(),
            }
        })
    }

    /// Builds the task of one operation.
    pub(crate) fn task(&mut self, op: Op, side: u32, stepwise: bool) -> Task {
        let lease = op.takes_lease().then(|| self.leases.remove(0));
        let tools = Tools {
            queue: self.queue.clone(),
            clock: self.clock.clone(),
            lease,
            detached: self.detached,
            side,
        };
        Task::new(side, op.waits_for(), op.run(tools, stepwise))
    }

    /// Polls all woken tasks until no task is woken.
    pub(crate) fn settle(&mut self) {
        let mut rounds = 0;
        while self.tasks.iter_mut().map(Task::poll).filter(|polled| *polled).count() > 0 {
            rounds += 1;
            assert!(rounds < 50, "tasks wake themselves forever: {:?}", self.trace);
        }
    }

    /// Polls until no task is woken. Then asserts that no task waits for a condition that holds, and records the states of the keys and the results
    /// of the tasks.
    fn note(&mut self, when: &str) {
        self.settle();
        self.queue.check().unwrap();
        for task in self.tasks.iter().filter(|task| task.answer.is_none()) {
            assert!(
                !self.has_come(task.waits_for),
                "{when}: {:?} was forgotten: {:?}",
                task.waits_for,
                self.queue.keys()
            );
        }
        let keys = self.queue.keys();
        let keys: Vec<_> = keys.iter().map(|info| (info.key, info.state)).collect();
        let values: Vec<_> = self
            .tasks
            .iter()
            .map(|task| task.answer.as_ref().map_or("waits", |answer| &answer.value))
            .collect();
        self.trace.push(format!("{when}: {keys:?} {values:?}"));
    }

    /// Returns true if a wait for `what` could end now, according to the public state of the queue.
    pub(crate) fn has_come(&self, what: For) -> bool {
        let (keys, stats) = (self.queue.keys(), self.queue.stats());
        let (paused, shut_down) = (stats.paused, stats.shutting_down);
        let any = |holds: fn(&KeyState) -> bool| keys.iter().any(|record| holds(&record.state));
        let ready = any(|state| *state == KeyState::Ready);
        let leased = any(is_leased);
        let waiting = any(|state| matches!(state, KeyState::Waiting(_)));
        match what {
            For::Nothing | For::Overdue => false,
            For::Key => ready && !paused || shut_down && !ready && !leased && !waiting,
            For::Room => shut_down || keys.len() < self.capacity,
            // A drain continues while the queue still serves waiting keys.
            For::Drained => shut_down && !ready && !leased && !waiting,
            For::Idle => !ready && !leased,
        }
    }

    /// Completes all leases of the scene and of `tasks`.
    pub(crate) fn end_leases(&mut self) {
        let held = self.tasks.iter_mut().filter_map(|task| task.answer.as_mut());
        let held = held.flat_map(|answer| answer.leases.drain(..));
        let leases: Vec<Lease> = self.leases.drain(..).chain(held).collect();
        leases.into_iter().for_each(Lease::done);
        if self.detached != 0 {
            // `done` returns an error if an operation has completed the lease already.
            let _ = self.queue.done(&self.detached);
        }
    }

    /// Takes over the leases of `task`, so that `end_leases` completes them.
    pub(crate) fn adopt(&mut self, task: &mut Task) {
        self.leases.extend(task.answer.iter_mut().flat_map(|answer| answer.leases.drain(..)));
    }

    /// Asserts that no key has two leases.
    fn each_key_once(&self) {
        let held = self.tasks.iter().filter_map(|task| task.answer.as_ref());
        let held = held.flat_map(|answer| &answer.leases).chain(&self.leases);
        let mut keys: Vec<u32> = held.map(|lease| **lease).collect();
        keys.sort_unstable();
        assert!(keys.windows(2).all(|pair| pair[0] != pair[1]), "a key in two leases: {keys:?}");
    }

    /// Ends all leases and stops the queue, all on one thread, and returns the recorded trace.
    pub(crate) fn end(mut self) -> String {
        self.note("operations");
        self.each_key_once();
        // Advances the clock before any call that updates the queue's alarm, so that a missing alarm is detected.
        self.clock.advance(9 * SECOND);
        self.note("later");
        self.queue.resume();
        self.note("resumed");
        self.end_leases();
        self.note("leases ended");
        while let Ok(lease) = self.queue.try_get() {
            self.trace.push(format!("{}", *lease));
            lease.done();
        }
        self.note("served");
        self.stop_now();
        self.stopped()
    }

    pub(crate) fn stop_now(&mut self) {
        let left = self.queue.stop_now();
        self.trace.push(format!("{left:?}"));
    }

    /// Asserts that after the stop all waits return and the queue is empty.
    pub(crate) fn stopped(mut self) -> String {
        self.tasks.sort_by_key(|task| task.side);
        self.settle();
        self.each_key_once();
        self.end_leases();
        self.note("stopped");
        assert!(self.queue.keys().is_empty(), "{:?}", self.queue.keys());
        assert!(
            self.tasks.iter().all(|task| task.answer.is_some()),
            "a task waits forever: {:?}",
            self.trace
        );
        self.trace.join("\n")
    }
}

fn is_leased(state: &KeyState) -> bool {
    matches!(state, KeyState::Leased | KeyState::LeasedDirty | KeyState::LeasedWaiting(_))
}
