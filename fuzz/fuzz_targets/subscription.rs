//! Any bytes as operations on subscriptions that fall behind and catch up, against a feed that keeps everything.
#![no_main]

use libfuzzer_sys::fuzz_target;
use testkit::naive_feed::MergeCells;

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../informer-cache/tests/it/selector_driver.rs"]
mod selector_driver;
#[allow(dead_code, reason = "it plays the operations of another target, too")]
#[path = "../../informer-cache/tests/it/store_driver.rs"]
mod store_driver;

fuzz_target!(|bytes: &[u8]| store_driver::run_subscription(bytes, &mut MergeCells::default()));
