//! Random lives of a queue, compared with the naive one after every step.
#![no_main]

#[path = "../../workqueue/tests/it/at.rs"]
mod at;
#[path = "../../workqueue/tests/it/driver.rs"]
#[allow(dead_code, reason = "shared with the tests and the other target")]
mod driver;
#[path = "../../workqueue/tests/it/kind.rs"]
#[allow(dead_code, reason = "shared with the tests and the other targets")]
mod kind;
#[path = "../../workqueue/tests/it/life.rs"]
mod life;
#[path = "../../workqueue/tests/it/said.rs"]
mod said;
#[path = "../../workqueue/tests/it/told.rs"]
mod told;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    driver::order_ops(bytes);
});
