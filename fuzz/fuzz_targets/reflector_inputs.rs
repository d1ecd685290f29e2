//! Any configuration and any row of inputs for a reflector, judged by rules of its own.

#![no_main]

#[path = "../../informer-cache/tests/it/reflector_driver.rs"]
mod reflector_driver;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| reflector_driver::run(bytes, &mut reflector_driver::Cells::new()));
