//! The failures of a key are kept as long as the key is in the queue, however long it waits there.

use crate::support::times;

use std::hash::{Hash, Hasher};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use flyball_ratelimit::{
    Capped, Exponential, FastSlow, Jitter, MaxOf, OncePerBackoff, Quota, RetryBudget, TokenBucket,
    controller_default,
};
use flyball_sync::{ManualClock, ManualTimer};
use flyball_workqueue::{Fifo, Queue, QueueLimiter};

const SECOND: Duration = Duration::from_secs(1);
/// A time after which all policies in these tests have forgotten the failures of a key that has left the queue.
const BACKLOG: Duration = Duration::from_secs(100_000);

type Given = Arc<Mutex<Vec<(u32, u32)>>>;

/// Returns a queue that gives a key up at its third failure, its clock, and the list of the keys that were given up.
fn third_is_last<L: QueueLimiter<u32>>(policy: L) -> (Queue<u32, Fifo, L, ManualTimer>, ManualClock, Given) {
    let (clock, given) = (ManualClock::new(), Given::default());
    let note = given.clone();
    let queue = Queue::builder()
        .timer(clock.timer())
        .limiter(policy)
        .give_up_after(times(3), move |key, failures| note.lock().unwrap().push((*key, failures)))
        .seed(1)
        .build();
    (queue, clock, given)
}

/// Every key fails each time it runs, and is Ready for a very long time before each run.
fn fails_under_a_backlog<L: QueueLimiter<u32>>(policy: L) {
    let (queue, clock, given) = third_is_last(policy);
    for key in 1..=4 {
        queue.add(key).unwrap();
    }
    for run in 1..=3 {
        for _ in 1..=4 {
            let lease = queue.try_get().unwrap();
            assert_eq!(lease.num_requeues(), run - 1, "{lease:?}");
            lease.retry();
        }
        clock.advance(BACKLOG);
    }
    let mut given = given.lock().unwrap().clone();
    given.sort_unstable();
    assert_eq!(given, [(1, 3), (2, 3), (3, 3), (4, 3)]);
    queue.check().unwrap();
}

#[test]
fn gives_up_a_failing_key_under_a_long_backlog() {
    let backoff = || Exponential::new(SECOND..=SECOND * 8);
    let quota = || Quota::per_second(NonZeroU32::new(10).unwrap());
    fails_under_a_backlog(backoff());
    fails_under_a_backlog(backoff().forget_after(Duration::ZERO));
    fails_under_a_backlog(backoff().immediate_first());
    fails_under_a_backlog(backoff().jitter(Jitter::Decorrelated));
    fails_under_a_backlog(FastSlow::new(SECOND, SECOND * 5, 2));
    fails_under_a_backlog(MaxOf::new(FastSlow::new(SECOND, SECOND, 1), backoff()));
    fails_under_a_backlog(MaxOf::new(backoff(), TokenBucket::new(quota())));
    fails_under_a_backlog(Capped::new(backoff(), SECOND));
    fails_under_a_backlog(RetryBudget::new(backoff(), quota()));
    fails_under_a_backlog(OncePerBackoff::new(backoff()));
    fails_under_a_backlog(controller_default());
    fails_under_a_backlog(Capped::new(controller_default(), SECOND * 60));
}

/// `max_keys` limits how many keys that have left the queue keep their failures. Keys in the queue always keep theirs.
#[test]
fn keeps_the_failures_of_more_keys_than_the_limiter_may_hold() {
    let one = NonZeroU32::MIN;
    fails_under_a_backlog(Exponential::new(SECOND..=SECOND).max_keys(one));
    fails_under_a_backlog(FastSlow::new(SECOND, SECOND, 1).max_keys(one));
}

#[test]
fn keeps_the_failures_of_a_key_that_is_leased_for_long() {
    let (queue, clock, given) = third_is_last(Exponential::new(SECOND..=SECOND));
    queue.add(1).unwrap();
    for _ in 1..=3 {
        let lease = queue.try_get().unwrap();
        clock.advance(BACKLOG);
        lease.retry();
        clock.advance(SECOND);
    }
    assert_eq!(*given.lock().unwrap(), [(1, 3)]);
}

/// If a key leaves the queue without a success, its failures expire, as in a policy that is used without a queue.
#[test]
fn forgets_by_itself_the_failures_of_keys_that_have_left() {
    let (queue, clock, given) = third_is_last(Exponential::new(SECOND..=SECOND));
    for key in 0..1_000 {
        queue.add(key).unwrap();
        queue.try_get().unwrap().retry();
        assert!(queue.cancel(&key));
    }
    assert_eq!(queue.num_requeues(&0), 1);
    clock.advance(BACKLOG);
    for key in 1_000..1_500 {
        queue.add(key).unwrap();
        queue.try_get().unwrap().retry();
    }
    let known = (0..1_000).filter(|key| queue.num_requeues(key) > 0).count();
    assert_eq!(known, 0, "expired failures were not evicted");
    // A key that is added again after its failures were evicted starts without failures.
    queue.add(0).unwrap();
    clock.advance(BACKLOG);
    queue.try_get().unwrap().retry();
    assert_eq!((queue.num_requeues(&0), given.lock().unwrap().len()), (1, 0));
}

/// `add_rate_limited` keeps the failures of a key as long as the key is in the queue.
#[test]
fn counts_failures_outside_a_lease_as_long_as_the_key_is_there() {
    let (queue, clock, given) = third_is_last(Exponential::new(SECOND..=SECOND));
    for _ in 1..=2 {
        queue.add_rate_limited(1).unwrap();
        clock.advance(BACKLOG);
    }
    assert_eq!(queue.num_requeues(&1), 2);
    assert!(queue.cancel(&1));
    clock.advance(BACKLOG);
    queue.add_rate_limited(1).unwrap();
    assert_eq!(queue.num_requeues(&1), 1, "the failures of a key that had left were kept");
    assert!(given.lock().unwrap().is_empty());
}

/// To check whether the queue holds a key, the limiter hashes the key. If this ran under the queue's lock, the test would deadlock.
#[test]
fn may_be_called_by_the_hash_of_a_key_that_it_looks_for() {
    type Keys = Queue<CountedKey, Fifo, Exponential<CountedKey>, ManualTimer>;
    static HOME: OnceLock<Keys> = OnceLock::new();

    #[derive(Clone, PartialEq, Eq)]
    struct CountedKey(u32);

    impl Hash for CountedKey {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
            if let Some(queue) = HOME.get() {
                let _ = queue.stats();
            }
        }
    }

    let clock = ManualClock::new();
    let limiter = Exponential::new(SECOND..=SECOND).max_keys(NonZeroU32::MIN);
    let queue = HOME.get_or_init(|| Queue::builder().timer(clock.timer()).limiter(limiter).build());
    for _ in 0..3 {
        _ = queue.add_many((0..10).map(CountedKey));
        while let Ok(lease) = queue.try_get() {
            lease.retry();
        }
        clock.advance(SECOND);
    }
    assert_eq!(queue.num_requeues(&CountedKey(0)), 3, "the failures of a key in the queue were evicted");
}
