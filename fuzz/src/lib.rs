//! The functions that the fuzz targets run. The crates' randomised tests run the same drivers.

use drivers::bucket::{token_bucket, wait_queue};
use drivers::cache::{reflector, relist, selector, simulation as whole_cache, store, ttl};
use drivers::controller::simulation as whole_controller;
use drivers::limiter::{limiter_ops, simulation as all_limiters};
use drivers::queue::{driver, simulation};
use testkit::oracle::subscription::MergeCells;

/// Compares a token bucket with a list of all tokens that it ever granted.
pub fn bucket_math(bytes: &[u8]) {
    token_bucket::run(bytes);
}

/// Compares a rate limiter, which is a bucket with a wait queue, with a list of all requests that it ever received.
pub fn bucket_ops(bytes: &[u8]) {
    wait_queue::run(bytes);
}

/// Runs controllers with any combination of their features in a simulation, and checks its rules after every operation.
pub fn controller_ops(bytes: &[u8]) {
    whole_controller::run(bytes);
}

/// Compares every policy in a limiter, keyed buckets, and the adaptive limit with their reference implementations.
pub fn limiter_ops(bytes: &[u8]) {
    limiter_ops::run(bytes);
}

/// Runs limiters of all kinds together, and checks after every step that waiters are served in order, within the rate, and woken with a cause.
pub fn limiter_simulation(bytes: &[u8]) {
    all_limiters::run(bytes);
}

/// Runs random operations on a queue, and compares it with the oracle after every step.
pub fn queue_ops(bytes: &[u8]) {
    driver::queue_ops(bytes);
}

/// Runs every operation and every future of a queue together, and checks after every step that waiters are woken with a cause and never forgotten.
pub fn queue_simulation(bytes: &[u8]) {
    simulation::run(bytes);
}

/// Runs operations on many keys with deadlines, and compares the queue with the oracle after every step.
pub fn deadlines(bytes: &[u8]) {
    driver::deadlines(bytes);
}

/// Compares queue orders with oracles that search all keys for the next one.
pub fn order_ops(bytes: &[u8]) {
    driver::order_ops(bytes);
}

/// Reads label selectors from the bytes, builds each from its text and with methods, and compares the results with the oracle.
pub fn selector(bytes: &[u8]) {
    selector::run(bytes, &mut selector::Seen::default());
}

/// Reads operations from the bytes, runs them on a store, and compares the store with the oracle.
pub fn store_ops(bytes: &[u8]) {
    store::run(bytes, &mut MergeCells::default(), &mut store::tally());
}

/// Reads operations from the bytes, runs them on subscriptions that fall behind and catch up, and compares these with a reference implementation that
/// keeps every change.
pub fn subscription(bytes: &[u8]) {
    store::run_subscription(bytes, &mut MergeCells::default());
}

/// Reads operations from the bytes, runs them on a writer whose objects expire, with a manual clock, and compares the store with a list.
pub fn ttl_ops(bytes: &[u8]) {
    ttl::run(bytes, &mut ttl::tally());
}

/// Reads a configuration and a sequence of inputs from the bytes, runs a reflector with them, and checks rules that do not depend on the
/// implementation.
pub fn reflector_inputs(bytes: &[u8]) {
    reflector::run(bytes, &mut reflector::Cells::new());
}

/// Reads the history of a server and its faults from the bytes, and plays that history. An informer and its subscribers must reach the state of the
/// server.
pub fn relist(bytes: &[u8]) {
    relist::run(bytes, &mut relist::tally());
}

/// Reads settings and operations from the bytes, and simulates an informer with everything that reads it. After every step, all parts must agree, and
/// every waiter must have been woken if, and only if, there is something for it.
pub fn cache_simulation(bytes: &[u8]) {
    whole_cache::run(bytes, &mut whole_cache::tally());
}
