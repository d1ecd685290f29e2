//! The functions that the fuzz targets run. The crates' randomised tests run the same drivers.

use drivers::bucket::{token_bucket, wait_queue};
use drivers::cache::{reflector, relist, selector, store, ttl};
use drivers::limiter::limiter_ops;
use drivers::queue::driver;
use testkit::oracle::subscription::MergeCells;

/// A token bucket against the list of all tokens it ever granted.
pub fn bucket_math(bytes: &[u8]) {
    token_bucket::run(bytes);
}

/// A bucket with a wait queue, against a list of all requests it ever received.
pub fn bucket_ops(bytes: &[u8]) {
    wait_queue::run(bytes);
}

/// Every policy behind a limiter, keyed buckets, and the adaptive limit, against their reference implementations.
pub fn limiter_ops(bytes: &[u8]) {
    limiter_ops::run(bytes);
}

/// Random operations on a queue, compared with the oracle after every step.
pub fn queue_ops(bytes: &[u8]) {
    driver::queue_ops(bytes);
}

/// Many keys and their deadlines, compared with the oracle queue after every step.
pub fn deadlines(bytes: &[u8]) {
    driver::deadlines(bytes);
}

/// Queue orders, against oracles that search all keys for the next one.
pub fn order_ops(bytes: &[u8]) {
    driver::order_ops(bytes);
}

/// Any bytes as label selectors, by text and by methods, against the oracle.
pub fn selector(bytes: &[u8]) {
    selector::run(bytes, &mut selector::Seen::default());
}

/// Any bytes as operations on a store, against the oracle.
pub fn store_ops(bytes: &[u8]) {
    store::run(bytes, &mut MergeCells::default(), &mut store::tally());
}

/// Any bytes as operations on subscriptions that fall behind and catch up, against a reference that keeps every step.
pub fn subscription(bytes: &[u8]) {
    store::run_subscription(bytes, &mut MergeCells::default());
}

/// Any bytes as operations on a TTL store with a manual clock, against a list of the live objects.
pub fn ttl_ops(bytes: &[u8]) {
    ttl::run(bytes, &mut ttl::tally());
}

/// Any configuration and any sequence of inputs for a reflector, checked against independent rules.
pub fn reflector_inputs(bytes: &[u8]) {
    reflector::run(bytes, &mut reflector::Cells::new());
}

/// Any history of a server with all its faults; an informer and its subscribers must reach the state of the server.
pub fn relist(bytes: &[u8]) {
    relist::run(bytes, &mut relist::tally());
}
