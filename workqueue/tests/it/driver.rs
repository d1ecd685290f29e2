//! Drives a queue and the naive one through the same operations and compares every answer after every step.
//!
//! Shared with the fuzz targets: a case is bytes, and a panic is a difference.

use std::fmt::Debug;
use std::time::Duration;

use flyball_ratelimit::{Clock, Exponential, ManualClock, ManualTimer, Policy};
use flyball_workqueue::{
    Added, Counts, Fifo, KeyState, Lease, Leftovers, Queue, Refused, Timed, TryGetError,
};
use testkit::answers::{Ending, Left, Nothing, Outcome, Seen, Tally, Time};
use testkit::cells::Cells;
use testkit::naive_backoff::NaiveExponential;
use testkit::naive_queue::NaiveQueue;
use testkit::op::{DeadlineOp, QueueOp, SmallKey, operations};
use testkit::wakers::poll_once;

const BASE: Duration = Duration::from_nanos(2);
const CAP: Duration = Duration::from_nanos(20);
const MOST: usize = 200;

/// A queue with delays and honest backoff.
pub(crate) fn limited(bytes: &[u8]) -> Cells {
    let clock = ManualClock::new();
    let limiter = Exponential::new(BASE..=CAP);
    let queue = Queue::builder().timer(clock.timer()).limiter(limiter).seed(1).build();
    let model = NaiveQueue::new(Some(NaiveExponential { base: BASE, cap: CAP }));
    Timely { queue, model, clock, leases: Vec::new(), keys: SmallKey::all().collect() }
        .live(operations(bytes, MOST))
}

/// A queue with delays, where a failure comes back at once.
pub(crate) fn unlimited(bytes: &[u8]) -> Cells {
    let clock = ManualClock::new();
    let queue = Queue::builder().timer(clock.timer()).seed(1).build();
    let model = NaiveQueue::new(None);
    Timely { queue, model, clock, leases: Vec::new(), keys: SmallKey::all().collect() }
        .live(operations(bytes, MOST))
}

/// Many keys, all about time.
pub(crate) fn deadlines(bytes: &[u8]) -> Cells {
    let clock = ManualClock::new();
    let limiter = Exponential::new(BASE..=CAP);
    let queue = Queue::builder().timer(clock.timer()).limiter(limiter).seed(1).build();
    let model = NaiveQueue::new(Some(NaiveExponential { base: BASE, cap: CAP }));
    let lives = operations::<DeadlineOp>(bytes, 4 * MOST).into_iter().map(|op| match op {
        DeadlineOp::AddAfter(key, delay) => QueueOp::AddAfter(SmallKey(key), delay),
        DeadlineOp::Add(key) => QueueOp::Add(SmallKey(key)),
        DeadlineOp::TryGet => QueueOp::TryGet,
        DeadlineOp::RequeueAfter(delay) => QueueOp::RequeueAfter(0, delay),
        DeadlineOp::Retry => QueueOp::Retry(0),
        DeadlineOp::Cancel(key) => QueueOp::Cancel(SmallKey(key)),
        DeadlineOp::Advance(step) => QueueOp::Advance(step),
    });
    Timely { queue, model, clock, leases: Vec::new(), keys: (0..64).map(SmallKey).collect() }
        .live(lives.collect())
}

/// The fuzz target `queue_ops`: the first byte chooses the kind of queue.
pub(crate) fn queue_ops(bytes: &[u8]) -> Cells {
    match bytes.split_first() {
        None => Cells::default(),
        Some((kind, life)) => match kind % 4 {
            0 | 1 => limited(life),
            2 => unlimited(life),
            _ => timeless(life),
        },
    }
}

/// A queue that knows no time: what needs a clock becomes its nearest timeless relative.
pub(crate) fn timeless(bytes: &[u8]) -> Cells {
    let queue: Queue<SmallKey> = Queue::new();
    let mut model = NaiveQueue::new(None);
    let mut leases: Vec<Lease<SmallKey>> = Vec::new();
    for (step, op) in operations::<QueueOp>(bytes, MOST).into_iter().enumerate() {
        let at = format!("step {step}, {op:?}");
        match op {
            QueueOp::Add(key) | QueueOp::AddAfter(key, _) | QueueOp::AddLimited(key) => {
                assert_eq!(added(queue.add(key)), model.add(key, 0), "{at}");
            }
            QueueOp::TryGet => {
                take(queue.try_get(), &mut model, &mut leases, 0, &at);
            }
            QueueOp::PollGet => {
                take(poll_get(std::pin::pin!(queue.get())), &mut model, &mut leases, 0, &at);
            }
            QueueOp::Done(index) => end(&mut leases, index, &mut model, 0, Ending::Done, Lease::done),
            QueueOp::Succeed(index) | QueueOp::RequeueAfter(index, _) => {
                end(&mut leases, index, &mut model, 0, Ending::Succeed, Lease::succeed);
            }
            QueueOp::Retry(index) => end(&mut leases, index, &mut model, 0, Ending::Retry, Lease::retry),
            QueueOp::DropLease(index) => end(&mut leases, index, &mut model, 0, Ending::Dropped, drop),
            QueueOp::Cancel(key) => assert_eq!(queue.cancel(&key), model.cancel(key, 0), "{at}"),
            QueueOp::Forget(key) => {
                queue.forget(&key);
                model.forget(key);
            }
            QueueOp::Advance(_) => {}
            QueueOp::ShutDown => {
                queue.shut_down();
                model.shut_down(0);
            }
            QueueOp::Drain => {
                let left = match poll_once(std::pin::pin!(queue.drain())) {
                    std::task::Poll::Ready(left) => Some(left),
                    std::task::Poll::Pending => None,
                };
                same(left, model.drain(0), &at);
            }
            QueueOp::StopNow => same(Some(queue.stop_now()), Some(model.stop_now(0)), &at),
        }
        queue.check().unwrap_or_else(|broken| panic!("{at}: {broken}"));
        assert_eq!(queue.len(), model.len(0), "{at}");
        assert_eq!(tally(queue.counts()), model.tally(0), "{at}");
        for key in SmallKey::all() {
            assert_eq!(
                seen(queue.state(&key)).timely(false),
                model.seen(key, 0).timely(false),
                "{at}: {key:?}"
            );
        }
    }
    model.cells
}

/// A queue with a clock, its model, and the leases held.
struct Timely<L: Policy<SmallKey> + Send + 'static> {
    queue: Queue<SmallKey, Fifo, L, Timed<ManualTimer>>,
    model: NaiveQueue<SmallKey>,
    clock: ManualClock,
    leases: Vec<Lease<SmallKey, Timed<ManualTimer>>>,
    keys: Vec<SmallKey>,
}

impl<L: Policy<SmallKey> + Send + 'static> Timely<L> {
    fn live(mut self, life: Vec<QueueOp>) -> Cells {
        for (step, op) in life.into_iter().enumerate() {
            let at = format!("step {step}, {op:?}");
            self.step(op, &at);
            self.compare(&at);
        }
        self.end_of_life();
        self.model.cells
    }

    fn step(&mut self, op: QueueOp, at: &str) {
        let now = self.clock.now().get();
        let Self { queue, model, leases, .. } = self;
        match op {
            QueueOp::Add(key) => assert_eq!(added(queue.add(key)), model.add(key, now), "{at}"),
            QueueOp::AddAfter(key, delay) => {
                let answer = model.add_after(key, delay.0, now);
                assert_eq!(added(queue.add_after(key, delay.0)), answer, "{at}");
            }
            QueueOp::AddLimited(key) => {
                assert_eq!(added(queue.add_rate_limited(key)), model.add_rate_limited(key, now), "{at}");
            }
            QueueOp::TryGet => take(queue.try_get(), model, leases, now, at),
            QueueOp::PollGet => take(poll_get(std::pin::pin!(queue.get())), model, leases, now, at),
            QueueOp::Done(index) => end(leases, index, model, now, Ending::Done, Lease::done),
            QueueOp::Succeed(index) => end(leases, index, model, now, Ending::Succeed, Lease::succeed),
            QueueOp::RequeueAfter(index, delay) => {
                let ending = Ending::RequeueAfter(delay.0);
                end(leases, index, model, now, ending, |lease| lease.requeue_after(delay.0));
            }
            QueueOp::Retry(index) => end(leases, index, model, now, Ending::Retry, Lease::retry),
            QueueOp::DropLease(index) => end(leases, index, model, now, Ending::Dropped, drop),
            QueueOp::Cancel(key) => assert_eq!(queue.cancel(&key), model.cancel(key, now), "{at}"),
            QueueOp::Forget(key) => {
                queue.forget(&key);
                model.forget(key);
            }
            QueueOp::Advance(step) => {
                self.clock.advance(step.0);
            }
            QueueOp::ShutDown => {
                queue.shut_down();
                model.shut_down(now);
            }
            QueueOp::Drain => {
                let left = match poll_once(std::pin::pin!(queue.drain())) {
                    std::task::Poll::Ready(left) => Some(left),
                    std::task::Poll::Pending => None,
                };
                same(left, model.drain(now), at);
            }
            QueueOp::StopNow => same(Some(queue.stop_now()), Some(model.stop_now(now)), at),
        }
    }

    fn compare(&mut self, at: &str) {
        let now = self.clock.now().get();
        let Self { queue, model, .. } = self;
        queue.check().unwrap_or_else(|broken| panic!("{at}: {broken}"));
        assert_eq!(queue.len(), model.len(now), "{at}");
        assert_eq!(queue.is_empty(), model.len(now) == 0, "{at}");
        assert_eq!(tally(queue.counts()), model.tally(now), "{at}");
        assert_eq!(queue.is_shutting_down(), model.is_shutting_down(), "{at}");
        let open = !model.is_shutting_down();
        // With many keys a look at all of them costs more than the life: a few at each step, in turn.
        let count = self.keys.len().min(4);
        self.keys.rotate_left(count);
        for &key in &self.keys[..count] {
            assert_eq!(
                seen(queue.state(&key)).timely(open),
                model.seen(key, now).timely(open),
                "{at}: {key:?}"
            );
            assert_eq!(queue.requeues(&key), model.requeues(key), "{at}: {key:?}");
        }
    }

    /// Whatever happened: everything that is left can be named, and in the end nothing is left.
    fn end_of_life(&mut self) {
        let now = self.clock.now().get();
        same(Some(self.queue.stop_now()), Some(self.model.stop_now(now)), "at the end");
        self.leases.clear();
        let left = self.queue.stop_now();
        assert_eq!((left.ready, left.waiting, left.leased), (vec![], vec![], vec![]), "after the end");
        self.queue.check().unwrap_or_else(|broken| panic!("at the end: {broken}"));
    }
}

fn take<K, L>(
    taken: Result<L, TryGetError>,
    model: &mut NaiveQueue<K>,
    leases: &mut Vec<L>,
    now: Time,
    at: &str,
) where
    K: Copy + Ord + Debug,
    L: std::ops::Deref<Target = K>,
{
    let answer = match &taken {
        Ok(lease) => Ok(**lease),
        Err(TryGetError::Empty) => Err(Nothing::Empty),
        Err(TryGetError::Closed) => Err(Nothing::Closed),
    };
    assert_eq!(answer, model.try_get(now), "{at}");
    leases.extend(taken.ok());
}

fn poll_get<F, L>(get: std::pin::Pin<&mut F>) -> Result<L, TryGetError>
where
    F: Future<Output = Option<L>>,
{
    match poll_once(get) {
        std::task::Poll::Ready(Some(lease)) => Ok(lease),
        std::task::Poll::Ready(None) => Err(TryGetError::Closed),
        std::task::Poll::Pending => Err(TryGetError::Empty),
    }
}

fn end<K, L>(
    leases: &mut Vec<L>,
    index: u8,
    model: &mut NaiveQueue<K>,
    now: Time,
    ending: Ending,
    end: impl FnOnce(L),
) where
    K: Copy + Ord + Debug,
    L: std::ops::Deref<Target = K>,
{
    if leases.is_empty() {
        return;
    }
    let lease = leases.remove(usize::from(index) % leases.len());
    model.end(*lease, ending, now);
    end(lease);
}

pub(crate) fn added<K>(answer: Result<Added, Refused<K>>) -> Result<Outcome, testkit::answers::Refused> {
    match answer {
        Ok(Added::New) => Ok(Outcome::New),
        Ok(Added::Merged) => Ok(Outcome::Merged),
        Ok(Added::Promoted) => Ok(Outcome::Promoted),
        Ok(Added::Marked) => Ok(Outcome::Marked),
        Err(_) => Err(testkit::answers::Refused),
    }
}

pub(crate) fn seen(state: KeyState) -> Seen {
    match state {
        KeyState::Absent => Seen::Absent,
        KeyState::Waiting(until) => Seen::Waiting(until.get()),
        KeyState::Ready => Seen::Ready,
        KeyState::Leased => Seen::Leased,
        KeyState::LeasedDirty => Seen::LeasedDirty,
        KeyState::LeasedWaiting(until) => Seen::LeasedWaiting(until.get()),
        other => panic!("a state the table does not know: {other:?}"),
    }
}

pub(crate) fn tally(counts: Counts) -> Tally {
    Tally { ready: counts.ready, waiting: counts.waiting, leased: counts.leased, dirty: counts.dirty }
}

/// The same leftovers: leased keys and those that came back late are in no promised order.
fn same<K: Copy + Ord + Debug>(left: Option<Leftovers<K>>, model: Option<Left<K>>, at: &str) {
    assert_eq!(left.is_some(), model.is_some(), "{at}");
    let Some((left, model)) = left.zip(model) else { return };
    let (mut leased, mut late) = (left.leased, left.waiting.clone());
    leased.sort_unstable();
    late.retain(|key| !model.waiting.contains(key));
    late.sort_unstable();
    let mut waiting = left.waiting;
    waiting.retain(|key| model.waiting.contains(key));
    assert_eq!(Left { ready: left.ready, waiting, late, leased }, model, "{at}");
}
