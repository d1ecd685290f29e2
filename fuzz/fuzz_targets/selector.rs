//! Any bytes as label selectors, by text and by methods, against the naive one.
#![no_main]

#[path = "../../informer-cache/tests/it/selector_driver.rs"]
mod selector_driver;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| selector_driver::run(
    bytes,
    &mut selector_driver::Seen::default()
));
