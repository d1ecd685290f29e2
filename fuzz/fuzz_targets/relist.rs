//! Any life of a server with all its faults; an informer and its consumers have to arrive at the server's state.

#![no_main]

#[path = "../../informer-cache/tests/it/relist_driver.rs"]
mod relist_driver;
#[path = "../../informer-cache/tests/it/server.rs"]
mod server;
#[path = "../../informer-cache/tests/it/world.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod world;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| relist_driver::run(bytes));
