#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flyball_fuzz::limiter_simulation(bytes));
