//! Any bytes as operations on a store with expiry, on a clock of its own, against a list that spells the rules out.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../informer-cache/tests/it/ttl_driver.rs"]
mod ttl_driver;

fuzz_target!(|bytes: &[u8]| ttl_driver::run(bytes, &mut ttl_driver::Tally::default()));
