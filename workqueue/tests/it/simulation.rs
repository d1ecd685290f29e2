//! Every operation and every future of a queue together, with a check of liveness, wake-ups and alarms after every step; and what operations cost.

use drivers::queue::{costs, hostile, simulation, threads};
use testkit::random::{cases, thorough};

/// Enough random bytes for about two hundred operations.
const MAX_LEN: usize = 600;

#[test]
fn waiters_are_woken_with_a_cause_and_never_forgotten() {
    let count = if thorough() { 100_000 } else { 10_000 };
    cases("waiters_are_woken_with_a_cause_and_never_forgotten", count, MAX_LEN, simulation::run);
}

#[test]
fn a_thread_returns_as_soon_as_what_it_waits_for_holds() {
    let count = if thorough() { 10_000 } else { 1_000 };
    cases("a_thread_returns_as_soon_as_what_it_waits_for_holds", count, 200, threads::run);
}

#[test]
fn an_operation_on_one_of_many_keys_hashes_compares_and_clones_few() {
    let count = if thorough() { 10_000 } else { 1_000 };
    cases("an_operation_on_one_of_many_keys_hashes_compares_and_clones_few", count, MAX_LEN, costs::run);
}

#[test]
fn callbacks_that_panic_lose_no_key_no_lease_and_no_wake_up() {
    let count = if thorough() { 100_000 } else { 10_000 };
    cases("callbacks_that_panic_lose_no_key_no_lease_and_no_wake_up", count, 200, hostile::run);
}
