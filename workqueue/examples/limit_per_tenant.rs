//! A rate limit per tenant, checked before the work. If the bucket of its tenant denies a key, the key is requeued for the time of its reserved
//! token, which differs from key to key.
//!
//! `cargo run -p flyball-workqueue --example limit_per_tenant`. The clock is moved by hand, so the example does not wait.
//!
//! `try_acquire` would return the same `NotYet::retry_after` for all keys that one bucket denies. They would all become Ready at that time, one of
//! them would get the token, and the others would be denied again, so n keys would need about n²/2 leases. A reservation takes a token in advance, so
//! a key that is added once is handed out at most twice: once to reserve a token, and once to run.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use flyball_ratelimit::{KeyedRateLimiter, Quota, Reservation};
use flyball_workqueue::{
    Clock, Fifo, Lease, LeaseOutcome, ManualClock, ManualTimer, Nanos, NoLimiter, Queue,
};

/// A tenant and the number of one of its objects.
type Key = (&'static str, u32);
type Time = ManualTimer;

const RATE: NonZeroU32 = NonZeroU32::new(10).unwrap();
const BURST: NonZeroU32 = NonZeroU32::new(20).unwrap();

struct Worker {
    clock: ManualClock,
    tenants: KeyedRateLimiter<&'static str, ManualClock>,
    /// The reservation of each key that waits for its token.
    reservations: HashMap<Key, Reservation>,
    runs: Vec<Nanos>,
}

impl Worker {
    fn work(&mut self, lease: Lease<Key>) {
        let key = *lease;
        let reservation = self.reservations.remove(&key).unwrap_or_else(|| self.tenants.reserve(&key.0));
        // The delay can be positive even for a key that already had a reservation: an add in the meantime makes the key Ready before its token is
        // available.
        let delay = reservation.delay(self.clock.now());
        if delay.is_zero() {
            self.runs.push(self.clock.now());
            lease.succeed();
        } else {
            self.reservations.insert(key, reservation);
            lease.end(LeaseOutcome::DoneAndRequeueAfter(delay));
        }
    }

    /// Cancels the run of a deleted object. The reserved token is returned to the bucket, unless another key has reserved a later token.
    fn withdraw(&mut self, queue: &Queue<Key, Fifo, NoLimiter, Time>, key: Key) -> bool {
        queue.cancel(&key);
        let reservation = self.reservations.remove(&key);
        reservation.is_some_and(|reservation| self.tenants.cancel(&key.0, reservation))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = ManualClock::new();
    let queue = Queue::<Key>::builder().timer(clock.timer()).build();
    let quota = Quota::per_second(RATE).allow_burst(BURST);
    let tenants = KeyedRateLimiter::with_clock(quota, clock.clone());
    let mut worker = Worker { clock: clock.clone(), tenants, reservations: HashMap::new(), runs: Vec::new() };

    // One tenant has a thousand objects and one more that is withdrawn. Another tenant (below) has one object.
    let added = queue.add_many((0..1_001).map(|object| ("acme", object)));
    assert_eq!(added.new, 1_001);
    let mut leases = 0;
    while let Ok(lease) = queue.try_get() {
        leases += 1;
        worker.work(lease);
    }
    assert_eq!(worker.runs.len(), 20, "the runs at the start are not the burst of 20");
    assert!(worker.withdraw(&queue, ("acme", 1_000)), "the token of the last reservation was lost");
    queue.add(("zenith", 0))?;
    worker.work(queue.try_get()?);
    assert_eq!(worker.runs.pop(), Some(Nanos::ZERO), "the bucket of one tenant limited another tenant");

    while worker.runs.len() < 1_000 {
        clock.advance(Duration::from_millis(1));
        while let Ok(lease) = queue.try_get() {
            leases += 1;
            worker.work(lease);
        }
    }
    println!("{} runs in {} s, {leases} leases", worker.runs.len(), clock.now().get() / 1_000_000_000);
    assert!(leases <= 2_000, "{leases} leases for 1000 runs");
    assert!(!queue.has_ready() && worker.reservations.is_empty());
    assert_eq!(
        clock.now(),
        Nanos::ZERO + Duration::from_secs(98),
        "the time is not that of a burst of 20, then 10 a second: a token was lost"
    );
    for (earlier, first) in worker.runs.iter().enumerate() {
        for (runs, last) in (1..).zip(&worker.runs[earlier..]) {
            let arrived = last.since(*first).as_nanos() * u128::from(RATE.get()) / 1_000_000_000;
            assert!(runs <= u128::from(BURST.get()) + arrived, "{runs} runs from {first:?} to {last:?}");
        }
    }
    Ok(())
}
