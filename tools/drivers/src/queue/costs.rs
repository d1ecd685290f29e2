//! Counts what an operation does with keys, on a queue with many keys.
//!
//! The queue counts no steps, and a counter on its hot paths would cost more than it shows. But a search through entries under the lock compares keys,
//! and a rebuilt table hashes them, so the driver uses keys that count how often they are hashed, compared and cloned. Each operation has a bound that
//! is the same for 1000 keys as for one. A hash table compares a key with the few keys whose hash has the same seven bits, so the comparisons in vain
//! have a bound for each operation and a lower one for their mean. What is not counted: steps that touch no key, such as those of a heap (O(log n)).

use std::cell::Cell;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use flyball_ratelimit::Exponential;
use flyball_sync::ManualClock;
use flyball_workqueue::{AddOptions, DelayMode, Fifo, Lease, Order, Priority, Queue, QueueBuilder};

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
/// How many keys an operation may compare in vain: those whose hash has the same seven bits as that of its own key, by chance.
const IN_VAIN: u32 = 8;

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Op {
    Add(u16),
    AddAfter(u16, u8),
    Debounce(u16, u8),
    AddLimited(u16),
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
}

impl Op {
    /// The maximum number of hashes, and of clones for each key that is returned. The limiter hashes a key, too, when it counts or forgets a failure.
    fn bounds(self) -> (u32, u32) {
        match self {
            Self::Get | Self::GetMany(_) => (0, 1),
            Self::Done(_) | Self::Stats | Self::Pass(_) => (0, 0),
            Self::Succeed(_) | Self::RequeueAfter(..) | Self::Forget(_) => (2, 0),
            Self::Retry(_) => (2, 2),
            Self::AddLimited(_) => (3, 2),
            _ => (1, 0),
        }
    }
}

/// Decodes `bytes` to an order and operations, and runs them on a queue of a thousand keys, of which one third each is Ready, waits, or is leased.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    match bool::arbitrary(&mut input) {
        Ok(true) => run_on(Queue::builder().order(Priority::new()), &mut input),
        Ok(false) => run_on(Queue::builder().order(Fifo), &mut input),
        Err(_) => {}
    }
}

fn run_on<O: Order<Counted>>(builder: QueueBuilder<Counted, O>, input: &mut Unstructured<'_>) {
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
    let (mut steps, mut in_vain) = (0, 0);
    while let Ok(op) = Op::arbitrary(input) {
        let key = |key: u16| Counted(key % KEYS);
        let mut lease = |index: u8| {
            let index = usize::from(index) % leases.len().max(1);
            leases.swap_remove_back(index)
        };
        COSTS.set(Costs::default());
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
        }
        let costs = COSTS.get();
        let (hashed, cloned) = op.bounds();
        assert!(
            costs.hashed <= hashed
                && costs.compared <= costs.hashed + IN_VAIN
                && costs.cloned <= cloned * keys,
            "{op:?}: {costs:?} for {keys} keys"
        );
        steps += 1;
        in_vain += costs.compared.saturating_sub(costs.hashed);
        assert!(in_vain <= steps / 4 + IN_VAIN, "{in_vain} comparisons in vain in {steps} steps");
        if input.is_empty() {
            break;
        }
    }
    queue.check().unwrap_or_else(|broken| panic!("{broken}"));
}
