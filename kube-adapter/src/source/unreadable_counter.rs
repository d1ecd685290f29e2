//! EDGE. What could not be read, for people and for graphs.

use std::sync::Arc;

use flyball_sync::locks::{AtomicU64, Ordering};

use super::decode::Unreadable;

/// How many objects a source could not read. A handle: clones share it, and it outlives the source.
#[derive(Clone, Debug, Default)]
pub struct UnreadableCounter(Arc<AtomicU64>);

impl UnreadableCounter {
    /// So many, since the source was made: an object that is listed again is counted again.
    #[must_use]
    pub fn get(&self) -> u64 {
        // Ordering: a figure for people; nothing else is read by it.
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, url: &str, object: &Unreadable) {
        // Ordering: as above.
        self.0.fetch_add(1, Ordering::Relaxed);
        let name = object.name.as_deref().unwrap_or("without a name");
        tracing::warn!(url, object = name, error = object.error, "an object cannot be read and is skipped");
    }
}
