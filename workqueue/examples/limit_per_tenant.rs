//! A rate for each tenant: 4 keys in flight, and 10 a second with a burst of 20. One tenant has a thousand objects; another has one, and does not wait.
//!
//! `cargo run -p flyball-workqueue --example limit_per_tenant`. The clock is moved by hand, so the example does not wait.

use std::num::NonZeroU32;
use std::time::Duration;

use flyball_ratelimit::Quota;
use flyball_workqueue::{Clock, DrainOptions, Fair, ManualClock, Nanos, Queue, TryGetError};

/// A tenant and the number of one of its objects.
type Key = (&'static str, u32);

const RATE: NonZeroU32 = NonZeroU32::new(10).unwrap();
const BURST: NonZeroU32 = NonZeroU32::new(20).unwrap();

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = ManualClock::new();
    let order = Fair::by_group(|key: &Key| key.0)
        .max_leased(|_| 4)
        .rate(|_| Some(Quota::per_second(RATE).allow_burst(BURST)));
    let queue = Queue::builder().order(order).timer(clock.timer()).build();
    let added = queue.add_many((0..1_000).map(|object| ("acme", object)));
    assert_eq!(added.new, 1_000);
    queue.add(("zenith", 0))?;

    // The tenant is slow at first: it keeps four leases for a minute, and then fails.
    let stuck: Vec<_> = std::iter::from_fn(|| queue.try_get().ok()).collect();
    assert_eq!(stuck.len(), 5, "four keys of acme, and that of zenith");
    clock.advance(Duration::from_secs(60));
    stuck.into_iter().for_each(|lease| if lease.0 == "acme" { lease.retry() } else { lease.succeed() });

    let mut runs = Vec::new();
    while runs.len() < 1_000 {
        match queue.try_get() {
            Ok(lease) => {
                runs.push(clock.now());
                lease.succeed();
            }
            Err(TryGetError::Empty) => clock.advance(Duration::from_millis(1)),
            Err(TryGetError::Closed) => unreachable!("the queue is open"),
        }
    }
    println!("{} runs in {} s", runs.len(), clock.now().since(runs[0]).as_secs());
    assert_eq!(
        clock.now(),
        Nanos::ZERO + Duration::from_secs(60 + 98),
        "a burst of 20, and then 10 a second"
    );
    for (earlier, first) in runs.iter().enumerate() {
        for (count, last) in (1..).zip(&runs[earlier..]) {
            let arrived = last.since(*first).as_nanos() * u128::from(RATE.get()) / 1_000_000_000;
            assert!(count <= u128::from(BURST.get()) + arrived, "{count} runs from {first:?} to {last:?}");
        }
    }
    assert!(queue.blocking_drain(DrainOptions::unlimited()).is_empty());
    Ok(())
}
