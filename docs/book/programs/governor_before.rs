//! A rate limit per client, with governor.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock, FakeRelativeClock};
use governor::{Quota, RateLimiter};

fn main() {
    let clock = FakeRelativeClock::default(); // by default the machine's clock
    let [two, three] = [2, 3].map(|n| NonZeroU32::new(n).unwrap());
    let clients = RateLimiter::hashmap_with_clock(Quota::per_second(two).allow_burst(three), clock.clone());

    for request in 1..=4 {
        match clients.check_key(&"ann") {
            Ok(()) => println!("ann, request {request}: yes"),
            Err(not_until) => {
                println!("ann, request {request}: in {:?}", not_until.wait_time_from(clock.now()));
            }
        }
    }
    clock.advance(Duration::from_millis(500));
    println!("ann, half a second later: {}", clients.check_key(&"ann").is_ok());
    println!("a burst of four: {}", clients.check_key_n(&"bob", NonZeroU32::new(4).unwrap()).is_ok());
}
