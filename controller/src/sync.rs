//! The only place of this crate that names a lock or an atomic.
//!
//! The controller has no protocol of its own over them: counters, a flag whose order the queue's lock gives, and a turn that one
//! task has at a time, across awaits. What
//! is concurrent in it are the queue and the caches, which are checked in their own crates.

/// Whose turn it is.
pub(crate) use tokio::sync::Mutex as Turn;

/// Of the simulation, which runs on one thread, and of the list of controllers that are scraped. What ships else has no lock.
#[cfg(any(feature = "testing", feature = "prometheus-client"))]
pub(crate) use parking_lot::Mutex;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
