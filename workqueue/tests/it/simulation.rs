//! Every operation and every future of a queue together, with a check of liveness, wake-ups and alarms after every step.

use drivers::queue::simulation;
use testkit::random::{cases, thorough};

/// Enough random bytes for about two hundred operations.
const MAX_LEN: usize = 600;

#[test]
fn waiters_are_woken_with_a_cause_and_never_forgotten() {
    let count = if thorough() { 100_000 } else { 10_000 };
    cases("waiters_are_woken_with_a_cause_and_never_forgotten", count, MAX_LEN, simulation::run);
}
