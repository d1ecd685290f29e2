//! User code that panics, calls the queue, or returns wrong times: the queue stays consistent, and no key is lost.

mod callbacks;
mod operations;
mod payloads;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::task::{Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use drivers::queue::model_answers::{seen, tally};
use flyball_ratelimit::{Exponential, Failure, Policy};
use flyball_sync::{Clock, ManualClock, ManualTimer, Nanos, Timer};
use flyball_workqueue::{DrainOptions, Fifo, KeyState, Lease, LeaseOutcome, NoLimiter, Queue};
use testkit::oracle::backoff::OracleExponential;
use testkit::oracle::queue::{OracleQueue, OracleSetup};
use testkit::panicking::{PanicSwitch, PanickingKey, Point};
use testkit::queue_answers::{Ending, OracleKeyState, Tally};
use testkit::random::Random;
use testkit::wakers::{Counting, Panicking, poll_once, poll_with};

use crate::support::{backoff, ns, timed};

/// A fuse that panics once, in the nth call after it is armed.
#[derive(Clone, Debug, Default)]
struct Fuse(Arc<AtomicI64>);

impl Fuse {
    fn arm(&self, nth: i64) {
        self.0.store(nth, Ordering::SeqCst);
    }

    /// Disarms the fuse. Returns whether it was still armed.
    fn disarm(&self) -> bool {
        self.0.swap(0, Ordering::SeqCst) > 0
    }

    fn burn(&self, what: &str) {
        if self.0.load(Ordering::SeqCst) > 0 && self.0.fetch_sub(1, Ordering::SeqCst) == 1 {
            panic!("a hostile {what} panics");
        }
    }
}

/// A manual timer whose clock and whose alarm may panic.
#[derive(Debug)]
struct HostileTimer {
    timer: ManualTimer,
    clock: Fuse,
    alarm: Fuse,
}

impl Clock for HostileTimer {
    fn now(&self) -> Nanos {
        self.clock.burn("clock");
        self.timer.now()
    }
}

impl Timer for HostileTimer {
    fn wake_at(&self, at: Nanos, waker: &Waker) {
        self.alarm.burn("timer");
        self.timer.wake_at(at, waker);
    }
}

/// An exponential backoff that may panic.
struct HostilePolicy {
    backoff: Exponential<PanickingKey>,
    fuse: Fuse,
}

impl Policy<PanickingKey> for HostilePolicy {
    fn record_failure(
        &mut self,
        key: &PanickingKey,
        now: Nanos,
        random: u64,
        _: &mut dyn FnMut(&PanickingKey) -> bool,
    ) -> Failure {
        self.fuse.burn("policy");
        self.backoff.record_failure(key, now, random, &mut |_| false)
    }

    fn forget(&mut self, key: &PanickingKey) {
        self.fuse.burn("policy");
        self.backoff.forget(key);
    }

    fn num_requeues(&self, key: &PanickingKey) -> u32 {
        self.fuse.burn("policy");
        self.backoff.num_requeues(key)
    }

    fn tracked_keys(&self) -> usize {
        1
    }
}

const BASE: Duration = Duration::from_nanos(10);
const CAP: Duration = Duration::from_secs(1);

type HostileQueue = Queue<PanickingKey, Fifo, HostilePolicy, HostileTimer>;
type HostileLease = Lease<PanickingKey>;

/// A queue with a key in every state, and its model. Key 7 is absent.
struct World {
    switch: Arc<PanicSwitch>,
    manual: ManualClock,
    clock: Fuse,
    alarm: Fuse,
    policy: Fuse,
    queue: HostileQueue,
    leases: Vec<HostileLease>,
    model: OracleQueue<u32>,
}

/// An operation on the queue of a [`World`].
#[derive(Clone, Copy, Debug)]
enum Operation {
    Add(u32),
    AddAfter(u32, u64),
    AddLimited(u32),
    TryGet,
    PollGet,
    Cancel(u32),
    End(u32, Ending),
    ShutDown,
    Drain,
    Stop,
    Look(u32),
    Forget(u32),
}

const KEYS: u32 = 8;

impl World {
    /// Key 0 waits until 10, keys 1 and 2 are Ready, key 3 is leased, key 4 is leased and dirty, key 5 is leased and waits until 10, key 6 is due.
    fn new() -> Self {
        let (switch, manual) = (PanicSwitch::new(), ManualClock::new());
        let (clock, alarm, policy) = (Fuse::default(), Fuse::default(), Fuse::default());
        let timer = HostileTimer { timer: manual.timer(), clock: clock.clone(), alarm: alarm.clone() };
        let limiter = HostilePolicy { backoff: Exponential::new(BASE..=CAP), fuse: policy.clone() };
        let queue = Queue::builder().timer(timer).limiter(limiter).seed(1).build();
        let mut model = OracleQueue::new(OracleSetup {
            limiter: Some(OracleExponential { base: BASE, cap: CAP }),
            ..OracleSetup::default()
        });
        let mut leases: Vec<HostileLease> = Vec::new();
        for leased in [3, 4, 5] {
            queue.add(switch.key(leased)).unwrap();
            leases.push(queue.try_get().unwrap());
            model.add(leased, 0).unwrap();
            model.try_get(0).unwrap();
        }
        for key in [1, 2, 4] {
            queue.add(switch.key(key)).unwrap();
            model.add(key, 0).unwrap();
        }
        for (key, after) in [(6, 1), (0, 10), (5, 10)] {
            queue.add_after(switch.key(key), ns(after)).unwrap();
            model.add_after(key, ns(after), 0).unwrap();
        }
        // One failure, so that there is a failure to forget.
        queue.add_rate_limited(switch.key(1)).unwrap();
        model.add_rate_limited(1, 0).unwrap();
        manual.advance(ns(2));
        Self { switch, manual, clock, alarm, policy, queue, leases, model }
    }

    /// Performs the operation. The key is created before the fuse is armed, and the result is dropped after the fuse is disarmed.
    fn act(&mut self, act: Operation, armed: impl FnOnce(&Self)) -> bool {
        let key = self.switch.key(match act {
            Operation::Add(key)
            | Operation::AddAfter(key, _)
            | Operation::AddLimited(key)
            | Operation::Cancel(key) => key,
            Operation::Look(key) | Operation::Forget(key) => key,
            _ => KEYS,
        });
        let lease = match act {
            Operation::End(key, _) => {
                let index = self.leases.iter().position(|lease| lease.id() == key).expect("leased");
                Some(self.leases.remove(index))
            }
            _ => None,
        };
        armed(self);
        let queue = &self.queue;
        // Every value is moved out of the closure, so that only drops inside the queue can trigger the fuse.
        let done = catch_unwind(AssertUnwindSafe(move || {
            let (mut taken, mut refused, mut left, mut spare) = (None, None, None, Some(key));
            match act {
                Operation::Add(_) => refused = queue.add(spare.take().unwrap()).err(),
                Operation::AddAfter(_, after) => {
                    refused = queue.add_after(spare.take().unwrap(), ns(after)).err()
                }
                Operation::AddLimited(_) => refused = queue.add_rate_limited(spare.take().unwrap()).err(),
                Operation::TryGet => taken = queue.try_get().ok(),
                Operation::PollGet => {
                    if let Poll::Ready(lease) = poll_once(Box::pin(queue.get()).as_mut()) {
                        taken = lease;
                    }
                }
                Operation::Cancel(_) => {
                    queue.cancel(spare.as_ref().unwrap());
                }
                Operation::End(_, ending) => {
                    let lease = lease.expect("leased");
                    match ending {
                        Ending::Done => lease.done(),
                        Ending::Succeed => lease.succeed(),
                        Ending::RequeueAfter(after) => lease.requeue_after(after),
                        Ending::DoneAfter(after) => lease.end(LeaseOutcome::DoneAndRequeueAfter(after)),
                        Ending::Retry => lease.retry(),
                        Ending::RetryNoSooner(least) => lease.end(LeaseOutcome::Failed { at_least: least }),
                        Ending::Dropped => drop(lease),
                    }
                }
                Operation::ShutDown => queue.shut_down(),
                Operation::Drain => {
                    if let Poll::Ready(all) =
                        poll_once(Box::pin(queue.drain(DrainOptions::unlimited())).as_mut())
                    {
                        left = Some(all);
                    }
                }
                Operation::Stop => left = Some(queue.stop_now()),
                Operation::Look(_) => {
                    let key = spare.as_ref().unwrap();
                    std::hint::black_box((
                        queue.state(key),
                        queue.num_requeues(key),
                        queue.ready_len(),
                        queue.stats(),
                    ));
                }
                Operation::Forget(_) => queue.forget(spare.as_ref().unwrap()),
            }
            (taken, refused, left, spare)
        }));
        for fuse in [&self.clock, &self.alarm, &self.policy] {
            fuse.disarm();
        }
        for point in Point::ALL {
            self.switch.disarm(point);
        }
        match done {
            Ok((taken, ..)) => {
                self.leases.extend(taken);
                false
            }
            Err(_) => true,
        }
    }

    fn view(&self) -> (Vec<OracleKeyState>, Tally, usize) {
        let states = (0..KEYS).map(|key| seen(self.queue.state(&self.switch.key(key))).timely(None));
        (states.collect(), tally(self.queue.stats()), self.queue.ready_len())
    }
}

fn model_view(model: &mut OracleQueue<u32>, now: u64) -> (Vec<OracleKeyState>, Tally, usize) {
    let states = (0..KEYS).map(|key| model.seen(key, now).timely(None)).collect();
    (states, model.tally(now), model.len(now))
}

/// Returns the allowed states of the model after `act` has panicked: the state before or the state after the operation. A lease that was
/// consumed must have ended.
fn allowed(model: &OracleQueue<u32>, act: Operation, now: u64) -> Vec<OracleQueue<u32>> {
    fn after<T>(model: &OracleQueue<u32>, act: impl FnOnce(&mut OracleQueue<u32>) -> T) -> OracleQueue<u32> {
        let mut model = model.clone();
        act(&mut model);
        model
    }
    let before = after(model, |model| model.pass_deadlines(now));
    match act {
        Operation::Add(key) => vec![before, after(model, |model| model.add(key, now))],
        Operation::AddAfter(key, delay) => {
            vec![before, after(model, |model| model.add_after(key, ns(delay), now))]
        }
        Operation::AddLimited(key) => vec![before, after(model, |model| model.add_rate_limited(key, now))],
        // The key must not stay leased without a holder. It may have been handed out, and its lease dropped during unwinding, which counts as a
        // failure.
        Operation::TryGet | Operation::PollGet => vec![
            before,
            after(model, |model| {
                let key = model.try_get(now).expect("something is ready");
                model.end(key, Ending::Dropped, now);
            }),
        ],
        Operation::Cancel(key) => vec![before, after(model, |model| model.cancel(key, now))],
        Operation::End(key, ending) => vec![
            after(model, |model| model.end(key, ending, now)),
            after(model, |model| model.end(key, Ending::Dropped, now)),
            // The delay could not be computed, so the key does not wait.
            after(model, |model| model.end(key, Ending::RequeueAfter(Duration::ZERO), now)),
        ],
        Operation::ShutDown | Operation::Drain => vec![before, after(model, |model| model.shut_down(now))],
        Operation::Stop => {
            vec![
                before,
                after(model, |model| model.shut_down(now)),
                after(model, |model| model.stop_now(now)),
            ]
        }
        Operation::Look(_) | Operation::Forget(_) => vec![before],
    }
}

fn operations() -> Vec<Operation> {
    let mut operations =
        vec![Operation::TryGet, Operation::PollGet, Operation::ShutDown, Operation::Drain, Operation::Stop];
    for key in 0..KEYS {
        operations.extend([
            Operation::Add(key),
            Operation::AddLimited(key),
            Operation::Cancel(key),
            Operation::Look(key),
            Operation::Forget(key),
        ]);
        operations.extend([0, 5, 20].map(|after| Operation::AddAfter(key, after)));
    }
    for key in [3, 4, 5] {
        let endings = [
            Ending::Done,
            Ending::DoneAfter(ns(5)),
            Ending::Succeed,
            Ending::RequeueAfter(ns(5)),
            Ending::Retry,
            Ending::RetryNoSooner(ns(5)),
            Ending::Dropped,
        ];
        operations.extend(endings.map(|ending| Operation::End(key, ending)));
    }
    operations
}

/// For each operation, and for each call of user code that the operation makes: performs the operation on a new queue, and lets that call panic.
/// Returns the number of panics.
fn every_act(what: &str, arm: impl Fn(&World, i64)) -> usize {
    let mut panics = 0;
    for act in operations() {
        for nth in 1.. {
            let mut world = World::new();
            let switch = world.switch.clone();
            let panicked = world.act(act, |world| arm(world, nth));
            if !panicked {
                break;
            }
            panics += 1;
            let at = format!("{what} panics in call {nth} of {act:?}");
            world.queue.check().unwrap_or_else(|broken| panic!("{at}: {broken}"));
            let now = world.manual.now().get();
            let view = world.view();
            let mut models = allowed(&world.model, act, now);
            let views: Vec<_> = models.iter_mut().map(|model| model_view(model, now)).collect();
            let fits = views.iter().position(|possible| *possible == view);
            let fits = fits.unwrap_or_else(|| panic!("{at}: {view:?} is none of {views:?}"));
            // The queue continues as if nothing had happened: the same keys are handed out, in the same order.
            let mut line = models[fits].dequeue_order();
            if matches!(act, Operation::TryGet | Operation::PollGet | Operation::End(..)) {
                // The failure may have been counted or not, so the order of the keys is not determined, only which keys are handed out.
                line.sort_unstable();
            }
            let leases: Vec<_> = std::iter::from_fn(|| world.queue.try_get().ok()).collect();
            let mut out: Vec<_> = leases.iter().map(|lease| lease.id()).collect();
            if matches!(act, Operation::TryGet | Operation::PollGet | Operation::End(..)) {
                out.sort_unstable();
            }
            assert_eq!(out, line, "{at}");
            for lease in leases {
                lease.done();
            }
            world.queue.check().unwrap_or_else(|broken| panic!("{at}, later: {broken}"));
            drop(world);
            assert_eq!(switch.live(), 0, "{at}: keys leaked");
        }
    }
    panics
}

#[test]
fn hash_panics() {
    assert!(every_act("Hash", |world, nth| world.switch.arm(Point::Hash, nth)) >= 64);
}

#[test]
fn eq_panics() {
    assert!(every_act("Eq", |world, nth| world.switch.arm(Point::Eq, nth)) >= 40);
}

#[test]
fn clone_panics() {
    assert!(every_act("Clone", |world, nth| world.switch.arm(Point::Clone, nth)) >= 5);
}

#[test]
fn drop_panics() {
    assert!(every_act("Drop", |world, nth| world.switch.arm(Point::Drop, nth)) >= 20);
}

#[test]
fn policy_panics() {
    assert!(every_act("the policy", |world, nth| world.policy.arm(nth)) >= 30);
}

#[test]
fn clock_panics() {
    assert!(every_act("the clock", |world, nth| world.clock.arm(nth)) >= 60);
}

/// The timer is called when a getter waits for a deadline.
#[test]
fn timer_panics() {
    let alarm = Fuse::default();
    let manual = ManualClock::new();
    let timer = HostileTimer { timer: manual.timer(), clock: Fuse::default(), alarm: alarm.clone() };
    let queue = Queue::builder().timer(timer).build();
    queue.add_after("a", ns(10)).unwrap();
    let (counting, waker) = Counting::waker();
    let mut get = Box::pin(queue.get());
    alarm.arm(1);
    assert!(catch_unwind(AssertUnwindSafe(|| poll_with(get.as_mut(), &waker))).is_err());
    assert!(!alarm.disarm());
    queue.check().unwrap();
    drop(get);
    let mut get = Box::pin(queue.get());
    assert!(poll_with(get.as_mut(), &waker).is_pending());
    assert_eq!(manual.next_alarm(), Some(Nanos::new(10)));
    alarm.arm(1);
    let added = catch_unwind(AssertUnwindSafe(|| queue.add_after("b", ns(5))));
    assert!(added.is_err() && !alarm.disarm());
    queue.check().unwrap();
    assert_eq!(queue.stats().waiting, 2, "added before the alarm was set");
    manual.advance(ns(10));
    // The getter may be woken more than once: if no alarm could be set, a getter is woken to try again.
    assert!(counting.wakes() >= 1);
    let Poll::Ready(Some(lease)) = poll_with(get.as_mut(), &waker) else { panic!("it is due") };
    assert_eq!(*lease, "b");
}

// ---- wakers ----------------------------------------------------------------------------------------------------

fn panics<T>(act: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(act)).is_err()
}

/// If a waker panics during an add, the key has still been added. If the task of that waker is dropped, the next getter is woken.
#[test]
fn a_waker_panics_in_an_add() {
    let queue = Queue::new();
    let hostile = Waker::from(Arc::new(Panicking));
    let (counting, waker) = Counting::waker();
    let (mut first, mut second) = (Box::pin(queue.get()), Box::pin(queue.get()));
    assert!(poll_with(first.as_mut(), &hostile).is_pending());
    assert!(poll_with(second.as_mut(), &waker).is_pending());
    // The wake-up may go to the hostile getter or to the other one.
    let panicked = panics(|| queue.add("a"));
    queue.check().unwrap();
    assert_eq!(queue.state(&"a"), KeyState::Ready);
    assert_eq!(usize::from(panicked) + counting.wakes(), 1);
    drop(first);
    assert_eq!(counting.wakes(), 1);
    let Poll::Ready(Some(lease)) = poll_with(second.as_mut(), &waker) else { panic!("it is ready") };
    lease.done();
}

/// A waker that panics does not prevent a shutdown from waking the other getters.
#[test]
fn a_waker_panics_in_a_shut_down() {
    for stop in [false, true] {
        for hostile_at in 0..4 {
            let queue: Queue<u32> = Queue::new();
            let mut getters = Vec::new();
            for index in 0..4 {
                let mut get = Box::pin(queue.get());
                let (counting, mut waker) = Counting::waker();
                if index == hostile_at {
                    waker = Waker::from(Arc::new(Panicking));
                }
                assert!(poll_with(get.as_mut(), &waker).is_pending());
                getters.push((get, counting));
            }
            // `stop_now` does not panic, because the keys that it removes must reach the caller.
            let panicked = panics(|| if stop { drop(queue.stop_now()) } else { queue.shut_down() });
            assert_eq!(panicked, !stop);
            queue.check().unwrap();
            assert!(queue.is_shutting_down());
            for (index, (get, counting)) in getters.iter_mut().enumerate() {
                assert_eq!(
                    counting.wakes(),
                    usize::from(index != hostile_at),
                    "getter {index} of {hostile_at}"
                );
                assert!(matches!(poll_once(get.as_mut()), Poll::Ready(None)));
            }
        }
    }
}

/// If the waker of one drain panics, the lease has still ended, and the other drain is woken.
#[test]
fn a_waker_panics_when_a_drain_ends() {
    for hostile_first in [true, false] {
        let queue = Queue::new();
        queue.add("a").unwrap();
        let lease = queue.try_get().unwrap();
        let hostile = Waker::from(Arc::new(Panicking));
        let (counting, waker) = Counting::waker();
        let (mut first, mut second) = (
            Box::pin(queue.drain(DrainOptions::unlimited())),
            Box::pin(queue.drain(DrainOptions::unlimited())),
        );
        let wakers = if hostile_first { [&hostile, &waker] } else { [&waker, &hostile] };
        assert!(poll_with(first.as_mut(), wakers[0]).is_pending());
        assert!(poll_with(second.as_mut(), wakers[1]).is_pending());
        assert!(panics(|| lease.done()));
        queue.check().unwrap();
        assert_eq!(queue.state(&"a"), KeyState::Absent);
        assert_eq!(counting.wakes(), 1);
        assert!(poll_once(first.as_mut()).is_ready() && poll_once(second.as_mut()).is_ready());
    }
}

#[test]
fn a_waker_panics_when_the_timer_fires() {
    let (queue, clock) = timed();
    queue.add_after("a", ns(5)).unwrap();
    let hostile = Waker::from(Arc::new(Panicking));
    let mut get = Box::pin(queue.get());
    assert!(poll_with(get.as_mut(), &hostile).is_pending());
    // The alarm catches the panic: it fires wherever the timer does.
    clock.advance(ns(5));
    queue.check().unwrap();
    drop(get);
    assert_eq!(*queue.try_get().unwrap(), "a");
}

/// The alarm fires in tokio's timer driver, where a panic would take the wake-ups of other tasks along.
#[test]
fn a_panicking_waker_does_not_reach_tokio() {
    use flyball_sync::TokioTimer;
    use tokio::runtime::Builder;

    let second = Duration::from_secs(1);
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let queue = Queue::builder().timer(TokioTimer::current()).build();
        let (woken, waker) = Counting::waker();
        let hostile = Waker::from(Arc::new(Panicking));
        for number in 0..10 {
            queue.add_after(number, second).unwrap();
        }
        let mut gets: Vec<_> = (0..10).map(|_| Box::pin(queue.get())).collect();
        for (number, get) in gets.iter_mut().enumerate() {
            assert!(poll_with(get.as_mut(), if number % 2 == 0 { &hostile } else { &waker }).is_pending());
        }
        tokio::spawn(tokio::time::sleep(second * 3)).await.unwrap();
        assert_eq!(woken.wakes(), 5);
        assert!(gets.iter_mut().all(|get| poll_with(get.as_mut(), &waker).is_ready()));
        queue.check().unwrap();
    });
}

/// A lease ends while a getter waits, and the waker of the getter panics.
#[test]
fn a_waker_panics_when_a_lease_ends() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    queue.add("a").unwrap();
    let mut get = Box::pin(queue.get());
    assert!(poll_with(get.as_mut(), &Waker::from(Arc::new(Panicking))).is_pending());
    assert!(panics(|| lease.done()));
    queue.check().unwrap();
    assert_eq!(queue.state(&"a"), KeyState::Ready);
}

/// A waker that panics when its last handle is dropped.
#[test]
fn a_waker_panics_in_its_drop() {
    struct Bomb;
    impl Wake for Bomb {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(thread::panicking(), "a hostile waker panics in its drop");
        }
    }
    let queue = Queue::new();
    let mut get = Box::pin(queue.get());
    assert!(poll_with(get.as_mut(), &Waker::from(Arc::new(Bomb))).is_pending());
    assert!(panics(|| drop(get)), "the queue held the last handle");
    queue.check().unwrap();
    let mut get = Box::pin(queue.get());
    assert!(poll_with(get.as_mut(), &Waker::from(Arc::new(Bomb))).is_pending());
    let (counting, waker) = Counting::waker();
    assert!(panics(|| poll_with(get.as_mut(), &waker)), "replaced by another");
    queue.check().unwrap();
    let _ = panics(|| queue.add("a"));
    queue.check().unwrap();
    assert_eq!(queue.state(&"a"), KeyState::Ready);
    let _ = counting;
}

// ---- calling back ----------------------------------------------------------------------------------------------

/// A waker that calls its queue when it is woken.
#[test]
fn a_waker_calls_back() {
    struct Eager(Queue<u32>, AtomicUsize);
    impl Wake for Eager {
        fn wake(self: Arc<Self>) {
            self.1.fetch_add(1, Ordering::SeqCst);
            let _ = self.0.add(7);
            assert!(self.0.has_ready());
            if let Ok(lease) = self.0.try_get() {
                lease.done();
            }
            self.0.check().unwrap();
        }
    }
    let queue = Queue::new();
    let eager = Arc::new(Eager(queue.clone(), AtomicUsize::new(0)));
    let waker = Waker::from(eager.clone());
    let mut get = Box::pin(queue.get());
    assert!(poll_with(get.as_mut(), &waker).is_pending());
    queue.add(1).unwrap();
    assert!(eager.1.load(Ordering::SeqCst) >= 1);
    queue.check().unwrap();
    drop(queue.stop_now());
}

/// A key that calls the queue in its drop: no drop runs under the lock.
#[test]
fn a_key_calls_back_in_its_drop() {
    #[derive(Clone)]
    struct CallingKey(u32, Arc<OnceLock<Queue<CallingKey>>>);
    impl std::hash::Hash for CallingKey {
        fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }
    impl PartialEq for CallingKey {
        fn eq(&self, other: &Self) -> bool {
            self.0 == other.0
        }
    }
    impl Eq for CallingKey {}
    impl Drop for CallingKey {
        fn drop(&mut self) {
            if let Some(queue) = self.1.get() {
                assert!(queue.ready_len() < 100);
            }
        }
    }
    let home = Arc::new(OnceLock::new());
    let queue = Queue::new();
    home.set(queue.clone()).ok().unwrap();
    let key = |id| CallingKey(id, home.clone());
    queue.add(key(1)).unwrap();
    queue.add(key(1)).unwrap();
    assert!(queue.cancel(&key(1)));
    for id in 0..4 {
        queue.add(key(id)).unwrap();
    }
    queue.try_get().unwrap().done();
    queue.try_get().unwrap().retry();
    let lease = queue.try_get().unwrap();
    drop(lease);
    let left = queue.stop_now();
    assert_eq!(left.ready.len(), 3);
    assert!(queue.add(key(9)).is_err());
    drop(left);
    queue.check().unwrap();
}

// ---- leases ----------------------------------------------------------------------------------------------------

/// If a worker panics, its lease ends as a failure, and the key is not lost.
#[test]
fn a_panicking_worker_is_a_retry() {
    let (queue, clock) = backoff();
    queue.add("a").unwrap();
    let worker = queue.clone();
    assert!(
        thread::spawn(move || {
            let _lease = worker.blocking_get().unwrap();
            panic!("the worker panics");
        })
        .join()
        .is_err()
    );
    assert_eq!((queue.state(&"a"), queue.num_requeues(&"a")), (KeyState::Waiting(Nanos::new(10)), 1));
    clock.advance(ns(10));
    assert_eq!(*queue.try_get().unwrap(), "a");
    let plain = Queue::new();
    plain.add("b").unwrap();
    plain.add("c").unwrap();
    let lease = plain.try_get().unwrap();
    assert!(panics(move || {
        let _lease = lease;
        panic!("the worker panics");
    }));
    assert_eq!(*plain.try_get().unwrap(), "c", "at the tail");
}

/// A lease outlives every handle to its queue.
#[test]
fn a_lease_outlives_its_queue() {
    let switch = PanicSwitch::new();
    let queue = Queue::new();
    for id in 0..3 {
        queue.add(switch.key(id)).unwrap();
    }
    let leases: Vec<_> = (0..3).map(|_| queue.try_get().unwrap()).collect();
    drop(queue);
    for (lease, how) in leases.into_iter().zip(0..) {
        match how {
            0 => lease.done(),
            1 => lease.retry(),
            _ => drop(lease),
        }
    }
    assert_eq!(switch.live(), 0);
}

/// If a thread is woken and then panics in `blocking_get`, it passes its wake-up on to the next thread.
#[test]
fn a_blocked_thread_that_panics_passes_its_wake_up_on() {
    /// Only a failing test waits this long.
    const PATIENCE: Duration = Duration::from_secs(20);
    const GETTERS: usize = 3;
    for round in 0..40 {
        let switch = PanicSwitch::new();
        let clock = Fuse::default();
        let manual = ManualClock::new();
        let timer = HostileTimer { timer: manual.timer(), clock: clock.clone(), alarm: Fuse::default() };
        let queue = Queue::builder().timer(timer).build();
        // The getters read the clock only while a key waits.
        queue.add_after(switch.key(9), Duration::MAX).unwrap();
        let (report, reports) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..GETTERS {
                let (queue, report) = (&queue, report.clone());
                scope.spawn(move || {
                    // A dropped lease requeues the key, so one key serves all getters.
                    let got = catch_unwind(AssertUnwindSafe(|| queue.blocking_get().is_some()));
                    report.send(got.is_ok()).unwrap();
                });
            }
            // Most getters sleep by now. The test is about rounds in which they sleep, but its assertions hold in every round.
            (0..200).for_each(|_| thread::yield_now());
            let key = switch.key(1);
            if round % 2 == 0 {
                switch.arm(Point::Clone, 1);
                queue.add(key).unwrap();
            } else {
                // The first read of the clock is in the add. The second read, which panics, is in the getter that the add has woken.
                clock.arm(2);
                let added = catch_unwind(AssertUnwindSafe(|| queue.add(key)));
                if added.is_err() {
                    queue.add(switch.key(1)).unwrap();
                }
            }
            let told = (0..GETTERS).map_while(|_| reports.recv_timeout(PATIENCE).ok());
            let told: Vec<_> = told.collect();
            queue.shut_down();
            assert_eq!(
                told.len(),
                GETTERS,
                "round {round}: a key is Ready and a sleeping thread was not signalled"
            );
            assert!(told.iter().filter(|got| !**got).count() <= 1);
        });
        queue.check().unwrap();
    }
}

// ---- time ------------------------------------------------------------------------------------------------------

/// The clock jumps in both directions: each key is handed out only after the clock has reached the key's deadline at some time, and no key is lost.
#[test]
fn the_clock_jumps() {
    let mut random = Random::new(11);
    for _ in 0..2_000 {
        let clock = ManualClock::new();
        let queue: Queue<u64, Fifo, NoLimiter, _> = Queue::builder().timer(clock.timer()).build();
        clock.set(Nanos::new(random.below(50)));
        let (mut latest, mut added, mut out) = (clock.now(), Vec::new(), BTreeSet::new());
        for key in 0..random.below(40) {
            match random.below(5) {
                0 | 1 => {
                    let after = random.below(60);
                    queue.add_after(key, ns(after)).unwrap();
                    added.push((key, clock.now() + ns(after)));
                }
                2 => clock.set(Nanos::new(random.below(100))),
                3 => clock.advance(ns(random.below(20))),
                _ => {
                    if let Ok(lease) = queue.try_get() {
                        let (_, deadline) = added.iter().find(|(added, _)| added == &*lease).unwrap();
                        assert!(*deadline <= latest, "{} comes at {latest:?}, due at {deadline:?}", *lease);
                        assert!(out.insert(*lease), "a key was handed out twice");
                        lease.done();
                    }
                }
            }
            latest = latest.max(clock.now());
            queue.check().unwrap();
            let counts = queue.stats();
            assert_eq!(counts.ready + counts.waiting, added.len() - out.len());
        }
        clock.set(Nanos::new(1_000));
        while let Ok(lease) = queue.try_get() {
            assert!(out.insert(*lease), "a key was handed out twice");
            lease.done();
        }
        assert_eq!(out.len(), added.len(), "a key was lost");
    }
}

/// The clock is at its maximum, and delays exceed it.
#[test]
fn the_end_of_time() {
    let (queue, clock) = timed();
    queue.add_after("never", Duration::MAX).unwrap();
    clock.set(Nanos::new(u64::MAX - 1));
    queue.add_after("late", Duration::MAX).unwrap();
    queue.add_after("last", ns(1)).unwrap();
    queue.add("now").unwrap();
    assert_eq!(*queue.try_get().unwrap(), "now");
    queue.check().unwrap();
    let lease = queue.try_get().unwrap();
    assert_eq!(*lease, "now");
    lease.requeue_after(Duration::MAX);
    assert!(queue.try_get().is_err());
    assert_eq!(queue.stats().waiting, 4);
    queue.shut_down();
    assert_eq!(queue.stop_now().waiting.len(), 4);
    queue.check().unwrap();
}

// ---- size ------------------------------------------------------------------------------------------------------

/// A million keys are handed out in order, and none is left.
#[test]
fn a_million_keys() {
    const COUNT: u32 = 1_000_000;
    let queue = Queue::new();
    for key in 0..COUNT {
        queue.add(key).unwrap();
    }
    assert_eq!(queue.ready_len(), COUNT as usize);
    queue.check().unwrap();
    for key in (0..COUNT).step_by(3) {
        assert!(queue.cancel(&key));
    }
    let mut expected = (0..COUNT).filter(|key| key % 3 != 0);
    while let Ok(lease) = queue.try_get() {
        assert_eq!(Some(*lease), expected.next());
        lease.succeed();
    }
    assert_eq!(expected.next(), None);
    assert!(crate::support::holds_nothing(&queue.stats()));
    queue.check().unwrap();
}

/// Keys are dropped with the queue, in whatever state they are.
#[test]
fn no_key_leaks() {
    let world = World::new();
    let switch = world.switch.clone();
    assert!(switch.live() >= 7);
    drop(world);
    assert_eq!(switch.live(), 0);
}
