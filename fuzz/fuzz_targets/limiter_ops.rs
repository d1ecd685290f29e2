//! Every policy, behind a limiter, and the adaptive limit, against their slow, obvious models.

#![no_main]

#[path = "../../ratelimit/tests/it/adaptive_driver.rs"]
mod adaptive_driver;
#[path = "../../ratelimit/tests/it/limiter_driver.rs"]
mod limiter_driver;
#[path = "../../ratelimit/tests/it/limiter_ops.rs"]
mod limiter_ops;
#[path = "../../ratelimit/tests/it/real_quota.rs"]
mod real_quota;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| limiter_ops::run(bytes));
