//! Counts what an operation does with keys, on a queue with many keys.
//!
//! A search through entries compares keys, and a rebuilt table hashes them, so the driver uses keys that count how often they are hashed, compared and
//! cloned. Each operation has a bound that is the same for 1000 keys as for one. A hash table compares a key with the few keys whose hash has the same
//! seven bits, so the comparisons in vain have a bound for each operation and a lower one for their mean. The steps that touch no key, in heaps and lists,
//! are counted by the queue itself ([`steps`], in builds with debug assertions): how many entries it visits while it holds the lock once.

use std::cell::Cell;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::task::Poll;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use flyball_ratelimit::Exponential;
use flyball_sync::{ManualClock, steps};
use flyball_workqueue::{AddOptions, DelayMode, Fair, Fifo, Lease, Order, Priority, Queue, QueueBuilder};
use testkit::wakers::poll_at_once;

/// A key that counts. It has no `Copy`, so that every copy is counted.
#[derive(Debug)]
struct Counted(u16);

thread_local! {
    static COSTS: Cell<Costs> = const { Cell::new(Costs { hashed: 0, compared: 0, cloned: 0 }) };
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Costs {
    hashed: u32,
    compared: u32,
    cloned: u32,
}

fn count(change: impl FnOnce(&mut Costs)) {
    let mut costs = COSTS.get();
    change(&mut costs);
    COSTS.set(costs);
}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        count(|costs| costs.hashed += 1);
        self.0.hash(state);
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        count(|costs| costs.compared += 1);
        self.0 == other.0
    }
}

impl Eq for Counted {}

impl Clone for Counted {
    fn clone(&self) -> Self {
        count(|costs| costs.cloned += 1);
        Self(self.0)
    }
}

const KEYS: u16 = 1000;
const GETTERS: usize = 8;
/// How many keys an operation may compare in vain: those whose hash has the same seven bits as that of its own key, by chance.
const IN_VAIN: u32 = 8;

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Op {
    Add(u16),
    AddAfter(u16, u8),
    Debounce(u16, u8),
    AddLimited(u16),
    AddFailed(u16, u8),
    Postpone(u16, u8),
    Cancel(u16),
    Forget(u16),
    Get,
    GetMany(u8),
    Done(u8),
    Succeed(u8),
    Retry(u8),
    RequeueAfter(u8, u8),
    State(u16),
    Stats,
    Pass(u8),
    Pause,
    Resume,
    Wait,
}

impl Op {
    /// The maximum number of hashes, and of clones for each key that is returned. The limiter hashes a key, too, when it counts or forgets a failure.
    fn bounds(self) -> (u32, u32) {
        match self {
            Self::Get | Self::GetMany(_) | Self::Wait => (0, 1),
            Self::Done(_) | Self::Stats | Self::Pass(_) | Self::Pause | Self::Resume => (0, 0),
            Self::Succeed(_) | Self::RequeueAfter(..) | Self::Forget(_) => (2, 0),
            Self::Retry(_) => (2, 2),
            Self::AddLimited(_) | Self::AddFailed(..) => (3, 2),
            _ => (1, 0),
        }
    }

    /// The maximum number of steps under a lock. For each getter that waits, an operation may look at one node of the heap more, with its children.
    /// Only `stats` counts the keys that are due.
    fn most_steps(self, keys: u64, gathers: bool) -> u64 {
        let gathered = if gathers { GATHERED * STEPS / 2 } else { 0 };
        let due = if let Self::Stats = self { u64::from(KEYS) } else { 0 };
        keys * (STEPS + gathered) + GETTERS as u64 * STEPS + due
    }
}

/// The maximum number of entries that an operation on one key visits under the lock: those of the key, and of its way through a heap.
const STEPS: u64 = 32;
/// Due keys that an operation gathers for each key, in an order that gathers them.
const GATHERED: u64 = 64;

/// Decodes `bytes` to an order and operations, and runs them on a queue of a thousand keys, of which one third each is Ready, waits, or is leased.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    match u8::arbitrary(&mut input).map(|order| order % 3) {
        Ok(0) => run_on(Queue::builder().order(Fifo), false, &mut input),
        Ok(1) => run_on(Queue::builder().order(Priority::new()), false, &mut input),
        Ok(_) => run_on(Queue::builder().order(Fair::by_group(|key: &Counted| key.0 % 5)), true, &mut input),
        Err(_) => {}
    }
}

/// If `gathers` is true, the order gathers due keys.
fn run_on<O: Order<Counted>>(builder: QueueBuilder<Counted, O>, gathers: bool, input: &mut Unstructured<'_>) {
    let clock = ManualClock::new();
    let nanos = |nanos: u8| Duration::from_nanos(nanos.into());
    let backoff = Exponential::new(nanos(2)..=nanos(200));
    let queue = builder.timer(clock.timer()).limiter(backoff).build();
    let mut leases = VecDeque::new();
    for key in 0..KEYS {
        match key % 3 {
            0 => _ = queue.add_after(Counted(key), Duration::from_nanos(u64::from(key))),
            _ => _ = queue.add(Counted(key)),
        }
    }
    leases.extend(queue.try_get_many(usize::from(KEYS / 3)).expect("keys are Ready"));
    let (mut done, mut in_vain) = (0, 0);
    let mut getters = Vec::new();
    while let Ok(op) = Op::arbitrary(input) {
        let key = |key: u16| Counted(key % KEYS);
        let mut lease = |index: u8| {
            let index = usize::from(index) % leases.len().max(1);
            leases.swap_remove_back(index)
        };
        COSTS.set(Costs::default());
        steps::take();
        let mut keys = 1;
        match op {
            Op::Add(index) => _ = queue.add(key(index)),
            Op::AddAfter(index, after) => _ = queue.add_after(key(index), nanos(after)),
            Op::Debounce(index, after) => {
                let mode = DelayMode::Debounce { max_wait: nanos(250) };
                _ = queue
                    .add_with(key(index), AddOptions { delay: nanos(after), mode, ..AddOptions::default() });
            }
            Op::AddLimited(index) => _ = queue.add_rate_limited(key(index)),
            Op::AddFailed(index, failures) => {
                let options = AddOptions { failures: failures.into(), ..AddOptions::default() };
                _ = queue.add_with(key(index), options);
            }
            Op::Postpone(index, after) => _ = queue.postpone(&key(index), nanos(after)),
            Op::Cancel(index) => _ = queue.cancel(&key(index)),
            Op::Forget(index) => queue.forget(&key(index)),
            Op::Get => leases.extend(queue.try_get()),
            Op::GetMany(most) => {
                let got = queue.try_get_many(most.into()).unwrap_or_default();
                keys = (got.len() as u32).max(1);
                leases.extend(got);
            }
            Op::Done(index) => lease(index).into_iter().for_each(Lease::done),
            Op::Succeed(index) => lease(index).into_iter().for_each(Lease::succeed),
            Op::Retry(index) => lease(index).into_iter().for_each(Lease::retry),
            Op::RequeueAfter(index, after) => {
                let ended = lease(index).into_iter();
                ended.for_each(|lease| lease.requeue_after(nanos(after)));
            }
            Op::State(index) => _ = queue.state(&key(index)),
            Op::Stats => _ = queue.stats(),
            Op::Pass(by) => clock.advance(nanos(by)),
            Op::Pause => queue.pause(),
            Op::Resume => queue.resume(),
            Op::Wait if getters.len() == GETTERS => getters.clear(),
            Op::Wait => {
                let mut getter = Box::pin(queue.get());
                match poll_at_once(getter.as_mut()) {
                    Poll::Ready(lease) => leases.extend(lease),
                    Poll::Pending => getters.push(getter),
                }
            }
        }
        let (costs, visits) = (COSTS.get(), steps::take());
        let (hashed, cloned) = op.bounds();
        assert!(
            costs.hashed <= hashed
                && costs.compared <= costs.hashed + IN_VAIN
                && costs.cloned <= cloned * keys,
            "{op:?}: {costs:?} for {keys} keys"
        );
        let most = op.most_steps(keys.into(), gathers);
        assert!(visits <= most, "{op:?}: {visits} steps under a lock, at most {most} for {keys} keys");
        done += 1;
        in_vain += costs.compared.saturating_sub(costs.hashed);
        assert!(in_vain <= done / 4 + IN_VAIN, "{in_vain} comparisons in vain in {done} operations");
        if input.is_empty() {
            break;
        }
    }
    queue.check().unwrap_or_else(|broken| panic!("{broken}"));
}
