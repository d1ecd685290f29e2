//! What the targets run: the drivers of the crates' own random tests, compiled once for all of them.

// The tests use more of some of them than the targets do.
#![allow(dead_code)]

use testkit::naive_feed::MergeCells;

#[path = "../../ratelimit/tests/it/adaptive_driver.rs"]
mod adaptive_driver;
#[path = "../../workqueue/tests/it/at.rs"]
mod at;
#[path = "../../ratelimit/tests/it/bucket_driver.rs"]
mod bucket_driver;
#[path = "../../workqueue/tests/it/driver.rs"]
mod driver;
#[path = "../../ratelimit/tests/it/keyed_driver.rs"]
mod keyed_driver;
#[path = "../../workqueue/tests/it/kind.rs"]
mod kind;
#[path = "../../workqueue/tests/it/life.rs"]
mod life;
#[path = "../../ratelimit/tests/it/limiter_driver.rs"]
mod limiter_driver;
#[path = "../../ratelimit/tests/it/limiter_ops.rs"]
mod limiter_policies;
#[path = "../../ratelimit/tests/it/line_driver.rs"]
mod line_driver;
#[path = "../../workqueue/tests/it/options.rs"]
mod options;
#[path = "../../ratelimit/tests/it/real_quota.rs"]
mod real_quota;
#[path = "../../informer-cache/tests/it/reflector_driver.rs"]
mod reflector_driver;
#[path = "../../informer-cache/tests/it/relist_driver.rs"]
mod relist_driver;
#[path = "../../workqueue/tests/it/said.rs"]
mod said;
#[path = "../../informer-cache/tests/it/selector_driver.rs"]
mod selector_driver;
#[path = "../../informer-cache/tests/it/server.rs"]
mod server;
#[path = "../../informer-cache/tests/it/store_driver.rs"]
mod store_driver;
#[path = "../../workqueue/tests/it/told.rs"]
mod told;
#[path = "../../informer-cache/tests/it/ttl_driver.rs"]
mod ttl_driver;
#[path = "../../informer-cache/tests/it/world.rs"]
mod world;

/// A token bucket against the list of all tokens it ever granted.
pub fn bucket_math(bytes: &[u8]) {
    bucket_driver::run(bytes);
}

/// A bucket that is waited for against a list of all who ever asked.
pub fn bucket_ops(bytes: &[u8]) {
    line_driver::run(bytes);
}

/// Every policy, behind a limiter, buckets by key, and the adaptive limit, against their slow, obvious models.
pub fn limiter_ops(bytes: &[u8]) {
    limiter_policies::run(bytes);
}

/// Random lives of a queue, compared with the naive one after every step.
pub fn queue_ops(bytes: &[u8]) {
    driver::queue_ops(bytes);
}

/// Many keys and their deadlines, compared with the naive queue after every step.
pub fn deadlines(bytes: &[u8]) {
    driver::deadlines(bytes);
}

/// Orders that tell whom they serve next, against ones that look through everything.
pub fn order_ops(bytes: &[u8]) {
    driver::order_ops(bytes);
}

/// Any bytes as label selectors, by text and by methods, against the naive one.
pub fn selector(bytes: &[u8]) {
    selector_driver::run(bytes, &mut selector_driver::Seen::default());
}

/// Any bytes as operations on a store, against the naive one.
pub fn store_ops(bytes: &[u8]) {
    store_driver::run(bytes, &mut MergeCells::default(), &mut store_driver::tally());
}

/// Any bytes as operations on subscriptions that fall behind and catch up, against a feed that keeps everything.
pub fn subscription(bytes: &[u8]) {
    store_driver::run_subscription(bytes, &mut MergeCells::default());
}

/// Any bytes as operations on a store with expiry, on a clock of its own, against a list that spells the rules out.
pub fn ttl_ops(bytes: &[u8]) {
    ttl_driver::run(bytes, &mut ttl_driver::tally());
}

/// Any configuration and any row of inputs for a reflector, judged by rules of its own.
pub fn reflector_inputs(bytes: &[u8]) {
    reflector_driver::run(bytes, &mut reflector_driver::Cells::new());
}

/// Any life of a server with all its faults; an informer and its consumers have to arrive at the server's state.
pub fn relist(bytes: &[u8]) {
    relist_driver::run(bytes, &mut relist_driver::tally());
}
