//! A limiter without a queue: failed connections are retried with growing waits, so that a host that is down is not overloaded.
//!
//! Run it with `cargo run -p flyball-ratelimit --example limiter`.

use std::num::NonZeroU32;
use std::thread;
use std::time::Duration;

use flyball_ratelimit::{Exponential, Jitter, Limiter, MaxOf, Quota, TokenBucket};

fn main() {
    // Each host backs off on its own, and each failure takes a token of a bucket that all hosts share: 20 tokens per second, with a burst of 5.
    let backoff = Exponential::new(Duration::from_millis(10)..=Duration::from_secs(1)).jitter(Jitter::Equal);
    let budget = TokenBucket::new(Quota::per_second(nz(20)).allow_burst(nz(5)));
    let limiter = Limiter::new(MaxOf::new(backoff, budget));

    // The threads share the limiter by reference; one thread per host is enough here.
    thread::scope(|scope| {
        for host in ["db-1", "db-2", "db-3"] {
            let limiter = &limiter;
            scope.spawn(move || connect(host, limiter));
        }
    });

    assert_eq!(limiter.tracked_keys(), 0, "all hosts are connected, so no key is tracked");
}

fn connect(
    host: &'static str,
    limiter: &Limiter<&'static str, MaxOf<Exponential<&'static str>, TokenBucket>>,
) {
    loop {
        // Pretend that a host answers on the fourth attempt.
        let attempt = limiter.num_requeues(&host) + 1;
        if attempt == 4 {
            println!("{host}: connected at attempt {attempt}");
            limiter.forget(&host);
            return;
        }
        let wait = limiter.record_failure(&host);
        println!("{host}: attempt {attempt} failed, next in {wait:?}");
        pause(wait);
    }
}

#[expect(clippy::disallowed_methods, reason = "an example may sleep; tests move a `ManualClock`")]
fn pause(wait: Duration) {
    thread::sleep(wait);
}

fn nz(value: u32) -> NonZeroU32 {
    NonZeroU32::new(value).expect("a quota value must not be zero")
}
