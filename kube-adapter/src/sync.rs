//! The only place of this crate that names a lock or an atomic.
//!
//! No model checker looks at this crate: it has no protocol of its own over them. Locks are held for a few statements, and never while
//! user code runs; what is concurrent in it are the queue, the caches and the bucket, which are checked in their own crates.

pub(crate) use parking_lot::Mutex;
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

/// Whose turn it is, across awaits.
pub(crate) use tokio::sync::Mutex as Turn;
