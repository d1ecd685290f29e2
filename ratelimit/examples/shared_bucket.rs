//! Threads share a rate limiter without an async runtime: single tokens, a request for a whole burst, a timeout, and a change of the quota.
//!
//! Run it with `cargo run -p flyball-ratelimit --example shared_bucket`.

use std::num::NonZeroU32;
use std::thread;
use std::time::Duration;

use flyball_ratelimit::{Clock, Monotonic, Quota, RateLimiter};
use flyball_sync::block_on;

fn main() {
    let nz = |n| NonZeroU32::new(n).expect("not zero");
    let bucket = RateLimiter::new(Quota::per_second(nz(50)).allow_burst(nz(10)));
    let start = Monotonic.now();
    let report = |who: &str| println!("{:>4} ms  {who}", Monotonic.now().since(start).as_millis());

    thread::scope(|scope| {
        for name in ["first", "second", "third"] {
            let (bucket, report) = (&bucket, &report);
            scope.spawn(move || {
                for _ in 0..10 {
                    block_on(bucket.acquire());
                    report(name);
                }
            });
        }
        scope.spawn(|| match block_on(bucket.acquire_many(nz(10))) {
            Ok(()) => report("ten together, before later small requests"),
            Err(error) => report(&error.to_string()),
        });
        // This call waits for at most 20 ms.
        if block_on(bucket.acquire_timeout(Duration::from_millis(20))).is_err() {
            report("gave up");
        }
    });

    bucket.set_quota(Quota::per_second(nz(1_000)).allow_burst(nz(5)));
    report(&block_on(bucket.acquire_many(nz(10))).expect_err("more than the burst").to_string());
}
