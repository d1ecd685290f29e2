//! EDGE. Counts objects that could not be decoded.

use std::sync::Arc;

use flyball_sync::locks::{AtomicU64, Ordering};

use super::decode::Unreadable;

/// The number of objects that a source could not decode. Clones share one counter, which outlives the source.
#[derive(Clone, Debug, Default)]
pub struct UnreadableCounter(Arc<AtomicU64>);

impl UnreadableCounter {
    /// Returns the number of unreadable objects since the source was created. An object is counted again each time that it is listed, and at each of
    /// its watch events.
    #[must_use]
    pub fn get(&self) -> u64 {
        // Ordering: Relaxed, because the counter publishes no other memory.
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, url: &str, object: &Unreadable) {
        // Ordering: Relaxed, see `get`.
        self.0.fetch_add(1, Ordering::Relaxed);
        let name = object.name.as_deref().unwrap_or("without a name");
        tracing::warn!(url, object = name, error = object.error, "an object cannot be read and is skipped");
    }
}
