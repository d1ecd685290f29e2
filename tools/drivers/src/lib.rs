//! Drivers of random tests: each plays any bytes as operations on a primitive and on its oracle, compares after every step, and panics where
//! they differ.
//!
//! A driver is written once. The crate's own tests (`tests/it`) feed it random bytes and the corpora of the fuzz targets, a fuzz target feeds
//! it what libFuzzer makes of them, and a program may draw what it simulates. The oracles are `testkit`'s, which depends on no primitive; these
//! depend on those they drive, one feature each.

#![allow(clippy::missing_panics_doc, reason = "a panic is how a driver tells of a difference")]

#[cfg(feature = "limiter")]
pub mod bucket;
#[cfg(feature = "cache")]
pub mod cache;
pub mod corpus;
#[cfg(feature = "limiter")]
pub mod limiter;
#[cfg(feature = "queue")]
pub mod queue;
