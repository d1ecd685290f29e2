//! A rate limit per tenant, checked before the work. Each key that the bucket of its tenant denies is requeued for a different time.
//!
//! `cargo run -p flyball-workqueue --example limit_per_tenant`. The clock is moved by hand, so the example does not wait.
//!
//! With `try_acquire`, all keys that one bucket denies get the same `NotYet::retry_after`. They all become Ready at that time, one of them gets the
//! token, and the others are denied again. So n keys need about n²/2 leases. A reservation takes the token ahead of time, so a key is handed out at
//! most twice: to reserve, and to run.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use flyball_ratelimit::{KeyedRateLimiter, Quota, Reservation};
use flyball_workqueue::{Clock, Fifo, Lease, ManualClock, Nanos, NoLimiter, Queue, WithClock};

/// A tenant, and one of its objects.
type Key = (&'static str, u32);
type Time = WithClock<ManualClock>;

const RATE: NonZeroU32 = NonZeroU32::new(10).unwrap();
const BURST: NonZeroU32 = NonZeroU32::new(20).unwrap();

struct Worker {
    clock: ManualClock,
    tenants: KeyedRateLimiter<&'static str, ManualClock>,
    /// The reservations of the keys that wait.
    reservations: HashMap<Key, Reservation>,
    runs: Vec<Nanos>,
}

impl Worker {
    fn work(&mut self, lease: Lease<Key, Time>) {
        let key = *lease;
        let reservation = self.reservations.remove(&key).unwrap_or_else(|| self.tenants.reserve(&key.0));
        // The delay is also positive if a key with a reservation was added again in the meantime, and is therefore handed out too early.
        let delay = reservation.delay(self.clock.now());
        if delay.is_zero() {
            self.runs.push(self.clock.now());
            lease.succeed();
        } else {
            self.reservations.insert(key, reservation);
            lease.done_and_requeue_after(delay);
        }
    }

    /// Cancels the run of a deleted object. The reserved token goes to the next key, unless another key has reserved a later token.
    fn withdraw(&mut self, queue: &Queue<Key, Fifo, NoLimiter, Time>, key: Key) -> bool {
        queue.cancel(&key);
        let reservation = self.reservations.remove(&key);
        reservation.is_some_and(|reservation| self.tenants.cancel(&key.0, reservation))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = ManualClock::new();
    let queue = Queue::<Key>::builder().clock(clock.clone()).build();
    let quota = Quota::per_second(RATE).allow_burst(BURST);
    let tenants = KeyedRateLimiter::with_clock(quota, clock.clone());
    let mut worker = Worker { clock: clock.clone(), tenants, reservations: HashMap::new(), runs: Vec::new() };

    // A thousand objects of one tenant, one more that is withdrawn, and one object of another tenant.
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
