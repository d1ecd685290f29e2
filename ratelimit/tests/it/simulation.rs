//! Limiters of all kinds together, with a check of rates, liveness, wake-ups and alarms after every step.

use drivers::limiter::simulation;
use testkit::random::{cases, thorough};

/// Enough random bytes for about two hundred operations.
const MAX_LEN: usize = 600;

#[test]
fn waiters_are_served_in_order_within_the_rate_and_woken_with_a_cause() {
    let count = if thorough() { 100_000 } else { 10_000 };
    cases(
        "waiters_are_served_in_order_within_the_rate_and_woken_with_a_cause",
        count,
        MAX_LEN,
        simulation::run,
    );
}
