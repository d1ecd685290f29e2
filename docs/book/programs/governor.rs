//! A rate limit per client, with `KeyedRateLimiter`.

use std::num::NonZeroU32;
use std::time::Duration;

use flyball_ratelimit::{KeyedRateLimiter, ManualClock, Quota};

fn main() {
    let clock = ManualClock::new(); // by default the machine's clock
    let [two, three] = [2, 3].map(|n| NonZeroU32::new(n).unwrap());
    let clients = KeyedRateLimiter::with_clock(Quota::per_second(two).allow_burst(three), clock.clone());

    for request in 1..=4 {
        match clients.try_acquire(&"ann") {
            Ok(()) => println!("ann, request {request}: yes"),
            Err(not_yet) => println!("ann, request {request}: in {:?}", not_yet.retry_after()),
        }
    }
    clock.advance(Duration::from_millis(500));
    println!("ann, half a second later: {}", clients.try_acquire(&"ann").is_ok());
    println!("a burst of four: {}", clients.try_acquire_many(&"bob", NonZeroU32::new(4).unwrap()).is_ok());
}
