//! A backoff for each key, and a limit on the request rate of each client. The program advances the clock itself, so every run prints the same
//! output.

use std::num::NonZeroU32;
use std::time::Duration;

use flyball_ratelimit::{Exponential, KeyedRateLimiter, Limiter, ManualClock, Quota};

fn main() {
    let clock = ManualClock::new(); // by default, limiters use the machine's clock

    // How long does a key wait after each failure?
    let backoff = Exponential::new(Duration::from_millis(100)..=Duration::from_secs(1));
    let limiter = Limiter::with_clock(backoff, clock.clone());
    for _ in 0..5 {
        println!("db-1 failed: try again in {:?}", limiter.record_failure(&"db-1"));
    }
    println!("db-2 failed: try again in {:?}", limiter.record_failure(&"db-2"));
    limiter.forget(&"db-1"); // the key has succeeded
    println!("db-1 failed: try again in {:?}", limiter.record_failure(&"db-1"));

    // May this client send a request now? Each client may send two requests a second, and three at once after a pause.
    let [two, three] = [2, 3].map(|n| NonZeroU32::new(n).unwrap());
    let clients = KeyedRateLimiter::with_clock(Quota::per_second(two).allow_burst(three), clock.clone());
    for request in 1..=4 {
        match clients.try_acquire(&"ann") {
            Ok(()) => println!("ann, request {request}: yes"),
            Err(not_yet) => println!("ann, request {request}: not yet, in {:?}", not_yet.retry_after()),
        }
    }
    clock.advance(Duration::from_millis(500));
    println!("ann, half a second later: {:?}", clients.try_acquire(&"ann"));
    println!("bob: {:?}", clients.try_acquire(&"bob"));
}
