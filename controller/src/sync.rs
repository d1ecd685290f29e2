//! The only place of this crate that names a lock or an atomic.
//!
//! The controller has no protocol of its own over them: counters, and a flag whose order the queue's lock gives. What
//! is concurrent in it are the queue and the caches, which are checked in their own crates.

/// Of the simulation, which runs on one thread. What ships has no lock.
#[cfg(feature = "testing")]
pub(crate) use parking_lot::Mutex;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
