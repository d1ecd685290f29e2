//! EDGE. Reading a queue from afar.

use std::fmt;
use std::sync::Weak;

use crate::state::QueueStats;

/// A queue to read, without keeping it: what [`QueueMetrics::register`](crate::QueueMetrics::register) is given.
///
/// # Examples
/// A sink that keeps the reader, to show the depth when it is asked for it:
/// ```
/// use flyball_workqueue::{Queue, QueueMetrics, StatsReader};
/// use std::sync::{Arc, OnceLock};
///
/// #[derive(Default)]
/// struct Depth(OnceLock<StatsReader>);
///
/// impl QueueMetrics for Depth {
///     fn register(&self, queue: StatsReader) {
///         self.0.set(queue).expect("one sink for one queue");
///     }
/// }
///
/// let depth = Arc::new(Depth::default());
/// let queue = Queue::builder().metrics(depth.clone()).build();
/// queue.add("a")?;
/// let reader = depth.0.get().unwrap();
/// assert_eq!(reader.read().map(|stats| stats.depth()), Some(1));
/// drop(queue);
/// assert_eq!(reader.read(), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct StatsReader(Weak<dyn ReadStats>);

/// What a reader needs of a queue, with its types out of sight.
pub(crate) trait ReadStats: Send + Sync {
    fn read(&self) -> QueueStats;
}

impl StatsReader {
    pub(crate) fn new(queue: Weak<dyn ReadStats>) -> Self {
        Self(queue)
    }

    /// Reads the queue; `None` once it is gone, with its last handle and lease. O(1), plus the waits that are over and
    /// the leased keys that wait, and with [`Fair`](crate::Fair) the groups. Takes the queue's lock: not
    /// for the inside of a clock, or of a key's `Eq`.
    ///
    /// # Panics
    /// When the queue's clock does.
    #[must_use]
    pub fn read(&self) -> Option<QueueStats> {
        Some(self.0.upgrade()?.read())
    }
}

impl fmt::Debug for StatsReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatsReader").field("alive", &(self.0.strong_count() > 0)).finish()
    }
}
