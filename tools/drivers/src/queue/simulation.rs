//! Runs every operation of a queue together, on a clock that is moved by hand and with an executor that polls by random bytes.
//!
//! Unlike the other drivers, whose futures are polled once and dropped, the futures here stay: they are polled late, polled without a wake-up, dropped,
//! forgotten, and combined in one task. There is no oracle, because no oracle has futures, and because the clock also jumps back, which the oracle does
//! not allow. Instead the simulation checks after every step:
//!
//! 1. **Invariants**: `check()`; a key is leased once at a time; counters never decrease; a queue that was closed stays closed.
//! 2. **Liveness**: if no task is woken, then a new future of the kind of each pending future is pending, too; and no time limit has passed.
//! 3. **No wake-up without cause**: a task is woken at most once until it is polled *and* something changes. A task that waits only for conditions
//!    (idle, empty, drained) and is polled before the next change completes.
//! 4. **Alarms**: an alarm is armed only if a future waits for a time, and it is not later than that time.
//! 5. **Failures**: an add restores the failures of its key, a change of the limiter takes effect, and a failure waits as long as the limiter says.
//! 6. **Steps**: each time that the lock is held, few entries are visited.
//!
//! It follows from 3 that the executor needs a bounded number of polls between two changes.

mod checks;
mod op;
mod operations;
mod waiter;

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::time::Duration;

use arbitrary::Unstructured;
use flyball_ratelimit::{Exponential, Jitter, MaxOf, Quota, TokenBucket};
use flyball_sync::{Clock, ManualClock, Nanos, steps};
use flyball_workqueue::{Lease, Priority, Queue, QueueBuilder};
use testkit::oracle::backoff::OracleExponential;
use testkit::oracle::order::GroupLimits;
use testkit::queue_setup::SmallKey;

use crate::queue::groups::Groups;
use crate::queue::limiters::Changeable;
use crate::queue::metrics_sink::Reports;
use crate::queue::options::{CAPACITY, DEAD_LETTERS, LIMITER, METRICS, ORDER, Row, STRICT, rows};
use crate::queue::orders::Kind;
use op::SimOp;
use waiter::{Answer, Polled, Taken, Task, Timer, Wait};

const BASE: Duration = Duration::from_nanos(2);
const CAP: Duration = Duration::from_nanos(20);
/// The maximum number of operations, and of tasks at a time.
const MOST: usize = 200;
const TASKS: usize = 8;
/// The maximum number of entries that are visited while the lock is held once, with four keys; `costs` has the bounds for many keys.
const MOST_STEPS: u64 = 100;

/// The fuzz target `queue_simulation`. The first three bytes select the options of the queue and of the run.
pub fn run(bytes: &[u8]) {
    let Some(([row, choice, how], ops)) = bytes.split_first_chunk() else { return };
    let rows = rows();
    let row = rows[(usize::from(*row) + 256 * usize::from(how / 128)) % rows.len()];
    match row[ORDER] {
        0 => limited(Queue::builder(), row, *choice, *how, None, ops),
        1 => {
            let share = NonZeroU32::new([1, 2, 4, 64][usize::from(choice / 64)]).expect("not zero");
            limited(Queue::builder().order(Priority::new().share(share)), row, *choice, *how, None, ops);
        }
        2 => limited(Queue::builder().order(Priority::new().strict()), row, *choice, *how, None, ops),
        order => {
            let weights = [[1, 1], [2, 1], [1, 3], [2, if order == 5 { 0 } else { 2 }]];
            let mut limits = weights[usize::from(choice / 64)].map(GroupLimits::weight);
            if order == 4 {
                limits.iter_mut().for_each(|group| group.leases = u32::from(choice / 32 % 2) + 1);
            }
            if order == 5 {
                limits[0].keys = usize::from(choice / 4 % 4) + 1;
                limits[1].leases = u32::from(choice / 32 % 2);
            }
            if order == 6 {
                // Rates together with the other limits: which, is in the bits of `how` that select nothing else of such a queue.
                let leases = [u32::MAX, u32::MAX, 1, 2][usize::from(how / 16 % 4)];
                let keys = [usize::MAX, 2][usize::from(how / 64 % 2)];
                limits.iter_mut().for_each(|group| (group.leases, group.keys) = (leases, keys));
            }
            let groups = match order {
                6 => Groups::rated(limits, choice.rotate_right(2)),
                _ => Groups::new(limits),
            };
            let builder = Queue::builder().order(groups.order());
            limited(builder, row, *choice, *how, Some(groups), ops);
        }
    }
}

fn limited<O: Kind>(
    builder: QueueBuilder<SmallKey, O>,
    row: Row,
    choice: u8,
    how: u8,
    groups: Option<Groups>,
    ops: &[u8],
) {
    let clock = ManualClock::new();
    let builder = builder.timer(clock.timer()).seed(choice.into());
    let jitter = [Jitter::None, Jitter::Full, Jitter::Equal, Jitter::Decorrelated][usize::from(how / 4 % 4)];
    let backoff = Exponential::new(BASE..=CAP).jitter(jitter);
    // The second limiter never delays a key for longer than its backoff. It has the type of the third, because each type takes seconds to compile.
    let burst = NonZeroU32::new(if row[LIMITER] == 2 { 1 } else { u32::MAX }).expect("not zero");
    let quota =
        Quota::new(NonZeroU32::MIN, Duration::from_nanos(3)).expect("a valid quota").allow_burst(burst);
    let limiter = MaxOf::new(backoff, TokenBucket::new(quota));
    let give_up = NonZeroU32::new(u32::from(choice % 4) + 1).filter(|_| row[DEAD_LETTERS] == 1);
    let backoff = Backoff {
        curve: OracleExponential { base: BASE, cap: CAP },
        is_exact: matches!(jitter, Jitter::None),
        has_bucket: row[LIMITER] == 2,
    };
    let backoff = Some(backoff).filter(|_| row[LIMITER] != 0);
    let spec = Spec { row, choice, how, groups, clock, backoff };
    match (row[LIMITER], give_up) {
        (0, _) => spec.simulate(builder, ops),
        (_, None) => spec.simulate(builder.limiter(limiter), ops),
        (_, Some(most)) => spec.simulate(builder.limiter(limiter).give_up_after(most, |_, _| {}), ops),
    }
}

struct Spec {
    row: Row,
    choice: u8,
    how: u8,
    groups: Option<Groups>,
    clock: ManualClock,
    backoff: Option<Backoff>,
}

/// What is known of the wait after a failure.
#[derive(Clone, Copy, Debug)]
struct Backoff {
    curve: OracleExponential,
    /// Without a jitter, the wait is that of the curve, and not only at most its cap.
    is_exact: bool,
    /// A bucket may make the wait longer.
    has_bucket: bool,
}

impl Spec {
    fn simulate<O: Kind, L: Changeable>(self, mut builder: QueueBuilder<SmallKey, O, L, Timer>, ops: &[u8]) {
        let Self { row, choice, how, groups, clock, backoff } = self;
        if row[CAPACITY] == 1 {
            builder = builder.capacity(usize::from(choice / 4 % 4) + 1);
        }
        if row[STRICT] == 1 {
            builder = builder.strict_backoff();
        }
        if row[METRICS] == 1 {
            builder = builder.metrics(Reports::default());
        }
        let queue = builder.build();
        let mut simulation = Simulation {
            queue,
            clock,
            groups,
            backoff,
            tasks: Vec::new(),
            leaked: Vec::new(),
            leases: Vec::new(),
            taken: Rc::new(RefCell::new(Vec::new())),
            priority: 0,
            changes: 0,
            composite: 0,
            horizon: None,
            closed: false,
            counted: (0, 0),
            jumps_back: how % 2 == 1,
            has_jumped_back: false,
            probes: how / 2 % 2 == 1,
            step: 0,
        };
        let mut ops = Unstructured::new(ops);
        while simulation.step < MOST && !ops.is_empty() {
            let Ok(op) = ops.arbitrary() else { break };
            simulation.step(&op);
        }
        simulation.step(&SimOp::Settle);
    }
}

/// A queue, its tasks and its leases.
struct Simulation<O: Kind, L: Changeable> {
    queue: Queue<SmallKey, O, L, Timer>,
    clock: ManualClock,
    groups: Option<Groups>,
    /// `None` if the queue has no limiter.
    backoff: Option<Backoff>,
    tasks: Vec<Task>,
    /// Kept until the run is over, because a leak checker would report a leak.
    leaked: Vec<Task>,
    leases: Vec<Lease<SmallKey>>,
    /// The leases that futures have returned in this step.
    taken: Taken,
    priority: i8,
    /// Counts everything that may be the cause of a wake-up: operations, moves of the clock, completed futures.
    changes: u64,
    /// The number of the last change that consists of several, so that a condition may have held only in between.
    composite: u64,
    /// The end of a drain that serves delayed keys.
    horizon: Option<Nanos>,
    /// Whether a getter has found the queue closed.
    closed: bool,
    /// The counters of the queue after the last step.
    counted: (u64, u64),
    jumps_back: bool,
    /// Whether the clock has jumped back.
    has_jumped_back: bool,
    /// Whether liveness is checked after every step, and not only once no task is woken. A new future is an operation, too, so it may hide a defect.
    probes: bool,
    step: usize,
}

impl<O: Kind, L: Changeable> Simulation<O, L> {
    fn step(&mut self, op: &SimOp) {
        self.step += 1;
        if *TRACE {
            eprintln!("step {}, at {}: {op:?}", self.step, self.clock.now().get());
        }
        steps::take();
        match op {
            SimOp::Queue(op) => self.operate(op),
            SimOp::Start(waits, poll) => self.start(waits, *poll),
            SimOp::Poll(index) => {
                if let Some(index) = self.index(*index) {
                    self.poll(index);
                }
            }
            SimOp::Drop(index, future) => {
                if let Some(index) = self.index(*index) {
                    self.changes += 1;
                    if self.tasks[index].drop_one(usize::from(*future)) {
                        self.tasks.swap_remove(index);
                    } else {
                        // A future with a limit leaves the queue in two steps. Between them, an alarm may wake the task for the part that is left.
                        self.composite = self.changes;
                    }
                }
            }
            SimOp::Abort(index) => {
                if let Some(index) = self.index(*index) {
                    self.changes += 1;
                    self.tasks.swap_remove(index);
                }
            }
            SimOp::Leak(index) => {
                if let Some(index) = self.index(*index) {
                    self.changes += 1;
                    let mut task = self.tasks.swap_remove(index);
                    task.leaked = true;
                    self.leaked.push(task);
                }
            }
            SimOp::Settle => self.settle(),
            SimOp::NextAlarm => {
                if let Some(at) = self.clock.next_alarm().filter(|at| *at < FAR) {
                    self.changes += 1;
                    self.clock.set(at.max(self.clock.now()));
                }
            }
            SimOp::Back(step) => {
                if self.jumps_back {
                    self.changes += 1;
                    self.has_jumped_back = true;
                    let now = self.clock.now().get();
                    self.clock.set(Nanos::new(now.saturating_sub(Nanos::from_duration(step.0).get())));
                }
            }
            SimOp::Block(kind) => self.block(*kind),
        }
        let visits = steps::take();
        assert!(visits <= MOST_STEPS, "step {}: {visits} entries were visited under one lock", self.step);
        self.note_wakes();
        self.collect();
        self.check(op);
    }

    fn index(&self, index: u8) -> Option<usize> {
        (!self.tasks.is_empty()).then(|| usize::from(index) % self.tasks.len())
    }

    /// The limit of the first drain that serves delayed keys counts.
    fn note_horizon(&mut self, limit: Option<Duration>) {
        if !self.queue.is_shutting_down() {
            self.horizon = limit.map(|limit| self.clock.now() + limit);
        }
    }

    /// Checks that no task was woken that had been polled since the last change, and notes when the others were woken.
    fn note_wakes(&mut self) {
        let (changes, step) = (self.changes, self.step);
        for task in self.tasks.iter_mut().filter(|task| task.was_polled()) {
            if !task.is_woken() {
                task.woken_at = 0;
            } else if task.woken_at == 0 {
                assert!(
                    task.polled_at < changes || task.has_yielded,
                    "step {step}: cause: {:?} was polled and then woken, and nothing has changed in between",
                    waits(task)
                );
                task.woken_at = changes;
            }
        }
    }

    /// Takes the leases that futures have returned.
    fn collect(&mut self) {
        let taken = std::mem::take(&mut *self.taken.borrow_mut());
        for lease in taken {
            self.hold(lease);
        }
    }

    fn hold(&mut self, lease: Lease<SmallKey>) {
        let step = self.step;
        assert!(self.leases.iter().all(|held| **held != *lease), "step {step}: {:?} is leased twice", *lease);
        assert!(!self.closed, "step {step}: a closed queue has handed out {:?}", *lease);
        self.leases.push(lease);
    }

    fn start(&mut self, waits: &[Wait], poll: bool) {
        if self.tasks.len() >= TASKS {
            return;
        }
        let mut futures = Vec::new();
        for wait in waits {
            let Self { queue, leases, taken, .. } = self;
            let lease = |index| {
                let count = leases.len();
                (count > 0).then(|| leases.remove(usize::from(index) % count))
            };
            futures.push((*wait, wait.future(queue, lease, taken)));
        }
        self.tasks.push(Task::new(futures));
        if poll {
            self.poll(self.tasks.len() - 1);
        }
    }

    /// Polls a task. A poll in which every future stays pending changes nothing, unless it is the first poll of a future that does.
    fn poll(&mut self, index: usize) {
        let now = self.clock.now();
        let (changes, step) = (self.changes, self.step);
        let task = &mut self.tasks[index];
        let starts = !task.was_polled()
            && task.live().any(|wait| wait.is_drain() || matches!(wait, Wait::EndThenGet(..)));
        if starts {
            self.changes += 1;
            let drain_all = |wait| match wait {
                Wait::DrainAllTimeout(limit) => Some(limit),
                _ => None,
            };
            let limit = self.tasks[index].live().find_map(drain_all);
            self.note_horizon(limit);
        }
        let task = &mut self.tasks[index];
        let (woken_at, was_woken) = (task.woken_at, task.was_polled() && task.is_woken());
        let waited: Vec<_> = task.pending().map(|waiter| waiter.wait).collect();
        if task.polled_at < changes {
            task.has_yielded = false;
        }
        let Polled { answers, woke_itself, was_first } = task.poll(now);
        task.polled_at = self.changes;
        task.woken_at = 0;
        let is_composite = task.waiters.len() > 1;
        let taken = !self.taken.borrow().is_empty();
        // Before the answers: a later future of the task may have found the queue closed.
        self.collect();
        let task = &mut self.tasks[index];
        if woke_itself && answers.is_empty() && !taken && !starts {
            let may_yield = waited.iter().any(|wait| wait.is_getter() || wait.is_adder()) || was_first;
            assert!(
                may_yield && !task.has_yielded,
                "step {step}: cause: {:?} has woken its own task while it was polled",
                waits(task)
            );
            task.has_yielded = true;
        } else if answers.is_empty()
            && !taken
            && was_woken
            && woken_at == changes
            && woken_at > self.composite
        {
            let only_conditions = waited.iter().all(|wait| wait.is_condition());
            assert!(
                !only_conditions,
                "step {step}: cause: {waited:?} was woken although its condition does not hold"
            );
        }
        // A future that ends a lease or begins a drain may wake a future that was polled before it.
        if !answers.is_empty() || taken || starts {
            self.changes += 1;
            if is_composite {
                self.composite = self.changes;
            }
        }
        for (wait, until, answer) in answers {
            match answer {
                Answer::TimedOut => {
                    assert!(until.is_some_and(|until| until <= now), "step {step}: {wait:?} timed out early");
                }
                Answer::Closed if wait.is_getter() => {
                    let nothing = matches!(wait, Wait::GetMany(0) | Wait::GetManyTimeout(0, _));
                    self.closed |= !nothing;
                }
                _ => {}
            }
        }
        if self.tasks[index].is_over() {
            self.tasks.swap_remove(index);
        }
        self.collect();
        self.note_wakes();
    }

    /// Polls the woken tasks until none is woken. This ends, because a task is not woken again before something has changed, and a change completes a
    /// future or takes a key.
    fn settle(&mut self) {
        while let Some(index) = self.tasks.iter().position(Task::is_woken) {
            self.poll(index);
        }
    }
}

fn waits(task: &Task) -> Vec<Wait> {
    task.waiters.iter().map(|waiter| waiter.wait).collect()
}

/// The clock does not reach its maximum, so that keys that never become Ready stay so.
const FAR: Nanos = Nanos::new(1 << 62);

static TRACE: std::sync::LazyLock<bool> =
    std::sync::LazyLock::new(|| std::env::var_os("FLYBALL_TRACE").is_some());
