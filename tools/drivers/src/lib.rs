//! Drivers of random tests. Each decodes any bytes to operations, applies them to a primitive and to its oracle, compares the two after every step, and
//! panics if they differ.
//!
//! The crate's own tests (`tests/it`) pass random bytes and the corpora of the fuzz targets to a driver; a fuzz target passes the bytes of libFuzzer; a
//! program may plot the results of a simulation. The oracles are in `testkit`, which depends on no primitive. This crate depends on the primitives,
//! with one feature for each.

#![allow(clippy::missing_panics_doc, reason = "a driver reports a difference by a panic")]

#[cfg(feature = "limiter")]
pub mod bucket;
#[cfg(feature = "cache")]
pub mod cache;
pub mod corpus;
#[cfg(feature = "limiter")]
pub mod limiter;
#[cfg(feature = "queue")]
pub mod queue;
