//! Threads that wait in a queue, for as long as it takes.
//!
//! Nothing shows from outside whether a thread sleeps already, so these threads are no part of the simulation, whose steps are repeatable. Here, the
//! driver waits for each thread that has to return, before its next operation; a thread that does not return is a lost wake-up. So the result of a run
//! does not depend on the scheduler: whether a thread is signalled in its sleep or sees the change before it sleeps, it returns. What the driver
//! chooses are the operations and their order; that each *interleaving* of a thread's check, its sleep and a signal works is shown by the loom models
//! `workqueue::add_vs_blocking_get`, `pairs_blocking_get`, `pairs_blocking_add`, `pairs_wait_idle`, `pairs_drain` and
//! `resume_vs_getters`, and by the others with a blocking operation in `MODELS.md`.
//!
//! Checked after every operation: `check()`; each thread whose condition holds returns; a key is leased once at a time; no thread returns for another
//! reason than its own.

use flyball_sync::block_on;
use flyball_sync::block_on_timeout;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use flyball_sync::{ManualClock, ManualTimer};
use flyball_workqueue::{DrainOptions, Fifo, Lease, LeaseOutcome, NoLimiter, Queue};
use testkit::queue_setup::SmallKey;

type Timer = ManualTimer;
type TestQueue = Queue<SmallKey, Fifo, NoLimiter, Timer>;
type Held = Lease<SmallKey>;

const THREADS: usize = 3;
const MOST: usize = 60;
/// The time limit of waits that have one. It does not pass, because it counts on the machine's clock.
const LONG: Duration = Duration::from_secs(3600);
/// After this time without an answer, a thread counts as lost.
const LOST: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Get,
    GetLong,
    GetMany(usize),
    Idle,
    IdleLong,
    Empty,
    Add(SmallKey),
    Drain,
}

/// What a thread returns: its leases, and whether the queue refused it or is closed.
struct Answer {
    thread: usize,
    leases: Vec<Held>,
    closed: bool,
}

/// Whether the drain of a thread was ended by a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    No,
    /// Only if the drain had begun already. Its thread may not have come that far, which shows only if the drain is the first shutdown.
    Perhaps,
    Yes,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Wait(Wait),
    Add(SmallKey),
    AddAfterHours(SmallKey, u8),
    Cancel(SmallKey),
    Done(u8),
    DoneAfterHours(u8, u8),
    Retry(u8),
    Pause,
    Resume,
    Hours(u8),
    ShutDown,
}

impl<'a> Arbitrary<'a> for Op {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let wait = |u: &mut Unstructured<'a>| {
            Ok(match u8::arbitrary(u)? % 32 {
                0..=5 | 10..=13 => Wait::Get,
                6..=9 => Wait::GetLong,
                14..=17 => Wait::GetMany(usize::from(u8::arbitrary(u)? % 3) + 1),
                18..=20 => Wait::Idle,
                21..=22 => Wait::IdleLong,
                23..=25 => Wait::Empty,
                26..=30 => Wait::Add(u.arbitrary()?),
                _ => Wait::Drain,
            })
        };
        Ok(match u8::arbitrary(u)? % 64 {
            0..=21 => Self::Wait(wait(u)?),
            22..=31 => Self::Add(u.arbitrary()?),
            32..=37 => Self::AddAfterHours(u.arbitrary()?, u.arbitrary()?),
            38..=39 => Self::Cancel(u.arbitrary()?),
            40..=47 => Self::Done(u.arbitrary()?),
            48..=49 => Self::DoneAfterHours(u.arbitrary()?, u.arbitrary()?),
            50..=52 => Self::Retry(u.arbitrary()?),
            53 => Self::Pause,
            54..=56 => Self::Resume,
            57..=62 => Self::Hours(u.arbitrary()?),
            _ => Self::ShutDown,
        })
    }
}

/// Decodes `bytes` to a capacity and operations, and runs them with three threads.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let Ok(capacity) = u8::arbitrary(&mut input) else { return };
    let clock = ManualClock::new();
    let builder = Queue::builder().timer(clock.timer());
    let queue = match capacity % 4 {
        0 => builder.build(),
        few => builder.capacity(few.into()).build(),
    };
    let mut run = Run::new(queue, clock);
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        let Ok(op) = Op::arbitrary(&mut input) else { break };
        run.step(op);
    }
    run.finish();
}

/// The threads are neither scoped nor joined if a check fails: they may be lost, and the failure would wait for them.
struct Run {
    queue: TestQueue,
    clock: ManualClock,
    threads: Vec<(Sender<Wait>, JoinHandle<()>)>,
    /// What each thread waits for.
    waits: [Option<Wait>; THREADS],
    /// Whether no key was leased at some time since the thread began to wait.
    was_free: [bool; THREADS],
    /// Whether the thread has begun a drain for certain, because the drain was what shut the queue down.
    began: [bool; THREADS],
    /// Whether a shutdown has ended the drain of the thread.
    ended: [Ended; THREADS],
    answers: Receiver<Answer>,
    leases: VecDeque<Held>,
}

impl Run {
    fn new(queue: TestQueue, clock: ManualClock) -> Self {
        let (sender, answers) = channel();
        let thread = |thread| {
            let (queue, answers) = (queue.clone(), sender.clone());
            let (commands, received) = channel();
            let work = move || {
                while let Ok(wait) = received.recv() {
                    let (leases, closed) = perform(&queue, wait);
                    if answers.send(Answer { thread, leases, closed }).is_err() {
                        return;
                    }
                }
            };
            (commands, thread::spawn(work))
        };
        let threads = (0..THREADS).map(thread).collect();
        let (waits, was_free, ended) = ([None; THREADS], [false; THREADS], [Ended::No; THREADS]);
        Self {
            queue,
            clock,
            threads,
            waits,
            was_free,
            began: [false; THREADS],
            ended,
            answers,
            leases: VecDeque::new(),
        }
    }

    fn step(&mut self, op: Op) {
        let hours = |hours: u8| Duration::from_secs(3600 * u64::from(hours % 4));
        match op {
            Op::Wait(wait) => self.start(wait),
            Op::Add(key) => _ = self.queue.add(key),
            Op::AddAfterHours(key, after) => _ = self.queue.add_after(key, hours(after)),
            Op::Cancel(key) => _ = self.queue.cancel(&key),
            Op::Done(index) => self.end(index, Lease::done),
            Op::DoneAfterHours(index, after) => {
                self.end(index, |lease| lease.end(LeaseOutcome::DoneAndRequeueAfter(hours(after))));
            }
            Op::Retry(index) => self.end(index, Lease::retry),
            Op::Pause => self.queue.pause(),
            Op::Resume => self.queue.resume(),
            Op::Hours(by) => self.clock.advance(hours(by)),
            Op::ShutDown => {
                self.queue.shut_down();
                for thread in (0..THREADS).filter(|thread| self.waits[*thread] == Some(Wait::Drain)) {
                    self.ended[thread] = if self.began[thread] { Ended::Yes } else { Ended::Perhaps };
                }
            }
        }
        self.settle(&op);
    }

    fn end(&mut self, index: u8, end: impl FnOnce(Held)) {
        if !self.leases.is_empty() {
            let index = usize::from(index) % self.leases.len();
            end(self.leases.remove(index).expect("the index is in range"));
        }
    }

    fn start(&mut self, wait: Wait) {
        let Some(free) = self.waits.iter().position(Option::is_none) else { return };
        self.waits[free] = Some(wait);
        self.was_free[free] = false;
        self.ended[free] = Ended::No;
        self.began[free] = wait == Wait::Drain && !self.queue.is_shutting_down();
        self.threads[free].0.send(wait).expect("the thread runs");
        // A drain begins on its thread. The operations after it find the queue shut down.
        while wait == Wait::Drain && !self.queue.is_shutting_down() {
            thread::yield_now();
        }
    }

    /// Receives answers until no thread has to return.
    fn settle(&mut self, op: &Op) {
        loop {
            if self.leases.is_empty() {
                self.was_free = [true; THREADS];
            }
            let Some(due) = self.due() else { break };
            let answer = self.answers.recv_timeout(LOST).unwrap_or_else(|_| {
                panic!("after {op:?}: liveness: {due:?} does not return, of {:?}", self.waits);
            });
            self.receive(answer);
        }
        self.queue.check().unwrap_or_else(|broken| panic!("after {op:?}: {broken}"));
    }

    /// Something that a thread waits for, and that holds now. While a thread has to return, what the others wait for may change.
    fn due(&self) -> Option<Wait> {
        let find = |is: &dyn Fn(Wait) -> bool| self.waits.iter().flatten().copied().find(|wait| is(*wait));
        let stats = self.queue.stats();
        let getter = |wait| matches!(wait, Wait::Get | Wait::GetLong | Wait::GetMany(_));
        let ended =
            (0..THREADS).find(|thread| self.waits[*thread].is_some() && self.ended[*thread] == Ended::Yes);
        if let Some(thread) = ended {
            return self.waits[thread];
        }
        // A thread whose answer was not received yet holds these leases.
        let is_underway = stats.leased > self.leases.len();
        let is_closed = stats.shutting_down && stats.ready + stats.dirty == 0;
        if is_underway || is_closed || stats.ready > 0 && !stats.paused {
            if let Some(getter) = find(&getter) {
                return Some(getter);
            }
        }
        if stats.shutting_down || stats.capacity_left.is_none_or(|left| left > 0) {
            if let Some(adder) = find(&|wait| matches!(wait, Wait::Add(_))) {
                return Some(adder);
            }
        }
        if stats.leased + stats.ready == 0 {
            if let Some(idler) = find(&|wait| matches!(wait, Wait::Idle | Wait::IdleLong)) {
                return Some(idler);
            }
            let is_empty = stats.waiting == 0;
            if let Some(emptier) = find(&|wait| wait == Wait::Empty && is_empty) {
                return Some(emptier);
            }
            return find(&|wait| wait == Wait::Drain);
        }
        None
    }

    fn receive(&mut self, answer: Answer) {
        let Answer { thread, leases, closed } = answer;
        let wait = self.waits[thread].take().expect("the thread has waited");
        assert!(!closed || self.queue.is_shutting_down(), "{wait:?} found an open queue closed");
        match wait {
            Wait::Idle | Wait::IdleLong | Wait::Empty | Wait::Drain => {
                let ended = self.ended[thread] != Ended::No;
                assert!(ended || self.was_free[thread], "{wait:?} returned, and a key was leased throughout");
            }
            Wait::GetMany(most) => assert!(leases.len() <= most && (closed || !leases.is_empty())),
            Wait::Get | Wait::GetLong => assert_eq!(leases.len(), usize::from(!closed)),
            Wait::Add(_) => {}
        }
        for lease in leases {
            assert!(self.leases.iter().all(|held| **held != *lease), "{:?} is leased twice", *lease);
            self.leases.push_back(lease);
        }
    }

    /// Ends everything; every thread returns.
    fn finish(mut self) {
        // A queue that is shut down keeps its waiting keys, so it would not become empty.
        SmallKey::all().for_each(|key| self.step(Op::Cancel(key)));
        self.step(Op::ShutDown);
        self.step(Op::Resume);
        loop {
            while !self.leases.is_empty() {
                self.step(Op::Done(0));
            }
            match self.queue.try_get() {
                Ok(lease) => self.leases.push_back(lease),
                Err(_) => break,
            }
        }
        self.settle(&Op::ShutDown);
        assert_eq!(self.waits, [None; THREADS], "liveness: {:?}", self.queue.stats());
        for (commands, thread) in self.threads {
            drop(commands);
            thread.join().expect("the thread has not panicked");
        }
    }
}

fn perform(queue: &TestQueue, wait: Wait) -> (Vec<Held>, bool) {
    let one = |lease: Option<Held>| {
        let closed = lease.is_none();
        (Vec::from_iter(lease), closed)
    };
    match wait {
        Wait::Get => one(queue.blocking_get()),
        Wait::GetLong => one(queue.blocking_get_timeout(LONG).ok()),
        Wait::GetMany(most) => {
            let leases = block_on(queue.get_many(most));
            let closed = leases.is_empty();
            (leases, closed)
        }
        Wait::Idle => {
            block_on(queue.wait_idle());
            (Vec::new(), false)
        }
        Wait::IdleLong => (Vec::new(), block_on_timeout(queue.wait_idle(), LONG).is_none()),
        Wait::Empty => {
            block_on(queue.wait_empty());
            (Vec::new(), false)
        }
        Wait::Add(key) => (Vec::new(), block_on(queue.add_when_room(key)).is_err()),
        Wait::Drain => {
            _ = queue.blocking_drain(DrainOptions::unlimited());
            (Vec::new(), false)
        }
    }
}
