//! Drivers of random tests. Each driver decodes arbitrary bytes to operations, applies them to a primitive and to its oracle, compares the two after
//! every operation, and panics if they differ. The tests of a primitive's crate (`tests/it`) call a driver with random bytes, and with the corpora of
//! the fuzz targets. A fuzz target calls it with the bytes of libFuzzer. The module `loaded_server` is not a driver but a simulation, whose results a
//! program plots. The oracles are in the crate `testkit`, which depends on no primitive. This crate has one feature for each primitive on which it
//! depends.

#![allow(clippy::missing_panics_doc, reason = "a driver reports a difference by a panic")]

#[cfg(feature = "limiter")]
pub mod bucket;
#[cfg(feature = "cache")]
pub mod cache;
#[cfg(feature = "controller")]
pub mod controller;
pub mod corpus;
#[cfg(feature = "limiter")]
pub mod limiter;
#[cfg(feature = "queue")]
pub mod queue;
