//! Runs operations and futures of a queue while every callback may panic: those of keys and groups, the functions of the order, the clock, the timer,
//! wakers, the policy, the sink and the give-up hook. Wakers also call the queue, and the timer fires too early. At most one panic unwinds at a time,
//! because a second one aborts the process.
//!
//! 1. After every step, the invariants hold, and the queue has as many leases as the run holds.
//! 2. After some steps, no callback panics, and every woken task is polled. Then no task waits although what it waits for is there.
//! 3. At the end, the clock moves from alarm to alarm, too. Then no key is left that becomes Ready later and for which a getter waits, and no time limit.
//! 4. Tasks are not polled without end.
//! 5. Once the queue is dropped, no key and no name of a group is left, and no alarm.

mod callbacks;

use std::future::Future;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use flyball_ratelimit::{Exponential, Quota};
use flyball_sync::{Clock, ManualClock};
use flyball_workqueue::{
    AddOptions, DrainOptions, Fair, Fifo, KeyState, Lease, LeaseOutcome, NoLimiter, Order, Priority, Queue,
    QueueBuilder, QueueStats,
};
use testkit::random::Random;

use callbacks::{
    CALL, CALLBACKS, Hostile, HostilePolicy, HostileWaker, LIVE, Name, ONE_OF, Sink, calm, may_panic,
};

/// The maximum number of operations, and of polls after them.
const MOST: usize = 60;
const MOST_POLLS: usize = 5_000;

/// The first three bytes select the options of the queue, and which callbacks panic.
pub fn run(bytes: &[u8]) {
    let Some(([choice, seed, other], ops)) = bytes.split_first_chunk() else { return };
    CALLBACKS.set(Random::new(u64::from(*seed) * 256 + u64::from(*other)));
    // After a case that has failed, both are left over.
    ONE_OF.set(0);
    CALL.take();
    LIVE.set(0);
    let clock = ManualClock::new();
    let builder = Queue::builder().timer(Hostile(clock.timer()));
    match choice % 3 {
        0 => built(builder.order(Fifo), *choice, clock, ops, |_, _| ()),
        1 => built(builder.order(Priority::new()), *choice, clock, ops, |queue, n| {
            let _ = queue.set_priority(&Name::new(n % 3), n as i8 % 2);
        }),
        _ => {
            let leases = |group: &Name| {
                may_panic();
                u32::from(group.0)
            };
            let order = Fair::by_group(|key: &Name| {
                may_panic();
                Name::new(key.0 % 2)
            });
            let order = order.max_leased(leases).capacity(move |group| leases(group) as usize + 1);
            let order = order.rate(|group| {
                may_panic();
                let quota = Quota::new(NonZeroU32::MIN, nanos(3)).expect("a valid quota");
                (group.0 == 1).then_some(quota)
            });
            built(builder.order(order), *choice, clock, ops, |queue, _| queue.refresh_groups());
        }
    }
}

type Built<O> = Queue<Name, O, HostilePolicy, Hostile>;

fn built<O: Order<Name>>(
    builder: QueueBuilder<Name, O, NoLimiter, Hostile>,
    choice: u8,
    clock: ManualClock,
    ops: &[u8],
    change: impl Fn(&Built<O>, u8),
) {
    let limiter = HostilePolicy(Exponential::new(nanos(1)..=nanos(6)));
    let give_up = NonZeroU32::new(3).expect("not zero");
    let mut builder = builder.limiter(limiter).give_up_after(give_up, |_, _| may_panic());
    if choice & 8 > 0 {
        builder = builder.metrics(Sink);
    }
    if choice & 16 > 0 {
        builder = builder.capacity(2);
    }
    if choice & 32 > 0 {
        builder = builder.strict_backoff();
    }
    let queue = builder.build();
    let other = queue.clone();
    CALL.set(Some(Box::new(move |n| match n % 4 {
        0 => drop(other.add(Name::new(n as u8 / 4 % 3))),
        1 => drop(other.add_after(Name::new(n as u8 / 4 % 3), nanos(2))),
        2 => _ = other.cancel(&Name::new(n as u8 / 4 % 3)),
        _ => _ = other.stats(),
    })));
    // A group may not hand out its Ready keys, or have no room.
    let (is_grouped, is_limited) = (choice % 3 == 2, choice & 16 > 0);
    let one_of = [6, 12, 30, 60][usize::from(choice / 64)];
    let mut run =
        Run { queue: &queue, clock: &clock, tasks: Vec::new(), leases: Vec::new(), detached: Vec::new() };
    let mut ops = Unstructured::new(ops);
    for _ in 0..MOST {
        let Ok(op) = <(u8, u8, u8)>::arbitrary(&mut ops) else { break };
        if ops.is_empty() {
            break;
        }
        ONE_OF.set(one_of);
        run.step(op, &change);
        ONE_OF.set(0);
        run.check();
        if op.2 % 4 == 0 {
            run.poll_woken();
            run.check_liveness(is_grouped, is_limited, false);
        }
    }
    queue.resume();
    run.poll_woken();
    while let Some(at) = clock.next_alarm() {
        clock.set(at.max(clock.now()));
        run.poll_woken();
    }
    run.check_liveness(is_grouped, is_limited, true);
    run.finish();
    CALL.take();
    drop(queue);
    assert_eq!((LIVE.get(), clock.next_alarm()), (0, None), "keys, names of groups, or an alarm are left");
}

fn nanos(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Get,
    GetMany,
    GetTimeout,
    Add,
    AddTimeout,
    Idle,
    Empty,
    Overdue,
    Drain,
}

const KINDS: [Kind; 9] = [
    Kind::Get,
    Kind::GetMany,
    Kind::GetTimeout,
    Kind::Add,
    Kind::AddTimeout,
    Kind::Idle,
    Kind::Empty,
    Kind::Overdue,
    Kind::Drain,
];

impl Kind {
    fn future<O: Order<Name>>(self, queue: &Built<O>, key: u8, delay: Duration) -> Waiting<'_> {
        let none = Vec::new;
        match self {
            Self::Get => Box::pin(async move { queue.get().await.into_iter().collect() }),
            Self::GetMany => Box::pin(queue.get_many(2)),
            Self::GetTimeout => {
                Box::pin(
                    async move { queue.timeout(delay, queue.get()).await.flatten().into_iter().collect() },
                )
            }
            Self::Add => {
                let adding = calm(|| queue.add_when_room(Name::new(key)));
                Box::pin(async move {
                    let refused = adding.await;
                    calm(|| drop(refused));
                    none()
                })
            }
            Self::AddTimeout => {
                let adding = calm(|| queue.add_when_room(Name::new(key)));
                Box::pin(async move {
                    let refused = queue.timeout(delay, adding).await;
                    calm(|| drop(refused));
                    none()
                })
            }
            Self::Idle => Box::pin(async move {
                queue.wait_idle().await;
                none()
            }),
            Self::Empty => Box::pin(async move {
                queue.wait_empty().await;
                none()
            }),
            Self::Overdue => Box::pin(async move {
                let overdue = queue.next_overdue(delay).await;
                calm(|| drop(overdue));
                none()
            }),
            Self::Drain => Box::pin(async move {
                let left = queue.drain(DrainOptions::serve_waiting(delay * 3)).await;
                calm(|| drop(left));
                none()
            }),
        }
    }

    /// Returns whether a task of this kind must not be pending if it is not woken.
    fn is_forgotten(self, stats: &QueueStats, is_grouped: bool, is_limited: bool) -> bool {
        let is_quiet = stats.ready + stats.leased == 0;
        match self {
            Self::Get | Self::GetMany | Self::GetTimeout => {
                (stats.ready > 0 && !is_grouped && !stats.paused)
                    || (stats.shutting_down && is_quiet && stats.next_deadline.is_none())
            }
            Self::Add | Self::AddTimeout => {
                stats.shutting_down || (!is_grouped && (!is_limited || stats.capacity_left > Some(0)))
            }
            Self::Idle => is_quiet,
            Self::Drain => is_quiet && stats.next_deadline.is_none(),
            Self::Empty => is_quiet && stats.waiting == 0,
            Self::Overdue => false,
        }
    }

    /// Returns whether a task of this kind must not be pending if it is not woken, and no alarm is set.
    fn is_forgotten_later(self, stats: &QueueStats) -> bool {
        match self {
            Self::Get | Self::GetMany => stats.next_deadline.is_some(),
            Self::GetTimeout | Self::AddTimeout => true,
            _ => false,
        }
    }
}

type Waiting<'a> = Pin<Box<dyn Future<Output = Vec<Lease<Name>>> + 'a>>;

struct Task<'a> {
    kind: Kind,
    woken: Arc<AtomicBool>,
    future: Waiting<'a>,
}

struct Run<'a, O: Order<Name>> {
    queue: &'a Built<O>,
    clock: &'a ManualClock,
    tasks: Vec<Task<'a>>,
    leases: Vec<Lease<Name>>,
    detached: Vec<u8>,
}

/// Runs an operation that may panic. The keys that it returns are dropped when no callback panics.
fn operation<R>(operation: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(operation)).ok()
}

impl<O: Order<Name>> Run<'_, O> {
    fn step(&mut self, (op, key, n): (u8, u8, u8), change: &impl Fn(&Built<O>, u8)) {
        let (queue, id, delay) = (self.queue, key % 3, nanos(u64::from(n % 6)));
        let key = || Name::new(id);
        match op % 32 {
            0..=3 => calm_drop(operation(|| queue.add(key()))),
            4 => calm_drop(by_ref(id, |key| queue.add_ref(key))),
            5 | 6 => calm_drop(operation(|| queue.add_after(key(), delay))),
            7 => {
                let options =
                    AddOptions { priority: n as i8 % 3, delay, failures: 1, ..AddOptions::default() };
                calm_drop(operation(|| queue.add_with(key(), options)));
            }
            8 => calm_drop(operation(|| queue.add_rate_limited(key()))),
            9 => {
                let keys = [key(), Name::new(n % 3)];
                calm_drop(operation(|| queue.add_many(keys)));
            }
            10 => calm_drop(by_ref(id, |key| queue.cancel(key))),
            11 => calm_drop(by_ref(id, |key| queue.postpone(key, delay))),
            12 | 13 => self.leases.extend(operation(|| queue.try_get()).into_iter().flatten()),
            14 => self.leases.extend(operation(|| queue.try_get_many(2)).into_iter().flatten().flatten()),
            15..=18 => {
                if let Some(lease) = self.leases.pop() {
                    let outcomes = [
                        LeaseOutcome::Done,
                        LeaseOutcome::Succeeded,
                        LeaseOutcome::Failed { at_least: delay },
                        LeaseOutcome::SucceededAndRequeueAfter(delay),
                        LeaseOutcome::Requeued,
                    ];
                    match outcomes.get(usize::from(n) / 6 % 6) {
                        Some(outcome) => calm_drop(operation(|| lease.end(*outcome))),
                        None => calm_drop(operation(|| drop(lease))),
                    }
                }
            }
            19 => {
                if let Some(lease) = self.leases.pop() {
                    let returned = operation(|| lease.retry_up_to(NonZeroU32::MIN, delay));
                    self.leases.extend(returned.and_then(Result::err));
                }
            }
            20 => {
                if let Some(lease) = self.leases.pop() {
                    let key = operation(|| lease.detach());
                    self.detached.extend(key.as_ref().map(|key| key.0));
                    calm(|| drop(key));
                }
            }
            21 => {
                let _ = by_ref(id, |key| queue.done(key));
                // A call that panics may have ended the lease.
                let is_leased = |id: &u8| {
                    let state = calm(|| queue.state(&Name::new(*id)));
                    matches!(state, KeyState::Leased | KeyState::LeasedDirty | KeyState::LeasedWaiting(_))
                };
                self.detached.retain(is_leased);
            }
            22..=26 => {
                let kind = KINDS[usize::from(n) / 6 % KINDS.len()];
                let future = kind.future(queue, id, delay);
                self.tasks.push(Task { kind, woken: Arc::default(), future });
                self.poll(self.tasks.len() - 1);
            }
            27 if !self.tasks.is_empty() => self.poll(usize::from(n) % self.tasks.len()),
            28 if !self.tasks.is_empty() => {
                let task = self.tasks.swap_remove(usize::from(n) % self.tasks.len());
                calm_drop(operation(|| drop(task)));
            }
            29 | 30 => calm_drop(operation(|| self.clock.advance(delay))),
            _ => match n % 16 {
                0 => calm_drop(operation(|| queue.shut_down())),
                1 => calm_drop(operation(|| queue.stop_now())),
                2 => calm_drop(operation(|| queue.pause())),
                3 | 4 => calm_drop(operation(|| queue.resume())),
                _ => calm_drop(operation(|| change(queue, n))),
            },
        }
    }

    fn poll(&mut self, index: usize) {
        let task = &mut self.tasks[index];
        task.woken.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::new(HostileWaker(task.woken.clone())));
        let polled = operation(|| task.future.as_mut().poll(&mut Context::from_waker(&waker)));
        calm(|| drop(waker));
        assert!(ONE_OF.get() > 0 || polled.is_some(), "a poll of {:?} panics by itself", task.kind);
        match polled {
            Some(Poll::Pending) => return,
            Some(Poll::Ready(leases)) => self.leases.extend(leases),
            None => {}
        }
        let task = self.tasks.swap_remove(index);
        calm_drop(operation(|| drop(task)));
    }

    fn check(&self) {
        self.queue.check().unwrap();
        let leased = self.leases.len() + self.detached.len();
        assert_eq!(self.queue.stats().leased, leased, "a lease is lost, or a key is leased twice");
    }

    /// Polls every task that is woken, until none is.
    fn poll_woken(&mut self) {
        for _ in 0..MOST_POLLS {
            let woken = self.tasks.iter().position(|task| task.woken.load(Ordering::Relaxed));
            let Some(index) = woken else { return };
            self.poll(index);
            self.check();
        }
        panic!("tasks are polled without end");
    }

    fn check_liveness(&self, is_grouped: bool, is_limited: bool, is_last: bool) {
        let stats = self.queue.stats();
        for task in &self.tasks {
            let forgotten = task.kind.is_forgotten(&stats, is_grouped, is_limited)
                || (is_last && task.kind.is_forgotten_later(&stats));
            assert!(!forgotten, "{:?} waits although {stats:?}", task.kind);
        }
    }

    /// Drops the tasks, ends the leases and hands out all keys that can be handed out.
    fn finish(self) {
        drop(self.tasks);
        self.leases.into_iter().for_each(Lease::done);
        for id in self.detached {
            self.queue.done(&Name::new(id)).unwrap();
        }
        self.clock.advance(Duration::from_secs(1));
        while let Ok(lease) = self.queue.try_get() {
            lease.done();
            self.clock.advance(Duration::from_secs(1));
        }
        self.queue.check().unwrap();
    }
}

/// Runs an operation that may panic, and takes a key by reference.
fn by_ref<R>(id: u8, call: impl FnOnce(&Name) -> R) -> Option<R> {
    let key = Name::new(id);
    let result = operation(|| call(&key));
    calm(|| drop(key));
    result
}

/// Drops a result while no callback panics: two keys in it that panic would abort the process.
fn calm_drop<R>(result: R) {
    calm(|| drop(result));
}
