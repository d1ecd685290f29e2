//! A bucket that is waited for against a list of all who ever asked.

#![no_main]

#[path = "../../ratelimit/tests/it/line_driver.rs"]
mod line_driver;
#[path = "../../ratelimit/tests/it/real_quota.rs"]
mod real_quota;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| line_driver::run(bytes));
