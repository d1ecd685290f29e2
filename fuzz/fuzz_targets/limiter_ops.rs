//! Every policy, behind a limiter, against its slow, obvious model.

#![no_main]

#[path = "../../ratelimit/tests/it/limiter_driver.rs"]
mod limiter_driver;
#[path = "../../ratelimit/tests/it/real_quota.rs"]
mod real_quota;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| limiter_driver::run(bytes));
