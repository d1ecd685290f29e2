//! A token bucket against the list of all tokens it ever granted.

#![no_main]

#[path = "../../ratelimit/tests/it/bucket_driver.rs"]
mod bucket_driver;
#[path = "../../ratelimit/tests/it/real_quota.rs"]
mod real_quota;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bucket_driver::run(bytes));
