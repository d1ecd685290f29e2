//! The keys of every run.

use std::sync::Arc;

pub(crate) type Key = Arc<str>;

/// Distinct keys of thirty bytes.
pub(crate) fn keys(count: usize) -> Vec<Key> {
    (0..count).map(|index| format!("namespace-{:04}/name-{index:010}", index % 97).into()).collect()
}
