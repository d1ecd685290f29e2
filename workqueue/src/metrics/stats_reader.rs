//! EDGE. A weak handle that reads the statistics of a queue.

use std::fmt;
use std::sync::Weak;

use crate::state::stats::QueueStats;

/// Reads the statistics of a queue. It is a weak handle, so it does not keep the queue alive.
/// [`QueueMetrics::register`](crate::QueueMetrics::register) receives one.
///
/// # Examples
/// A sink that stores the reader, so that the program can read the depth of the queue at any time:
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

/// The operation of a queue that a reader calls. A reader holds its queue as a trait object of this trait, so [`StatsReader`] has none of the type
/// parameters of the queue.
pub(crate) trait ReadStats: Send + Sync {
    fn read(&self) -> QueueStats;
}

impl StatsReader {
    pub(crate) fn new(queue: Weak<dyn ReadStats>) -> Self {
        Self(queue)
    }

    /// Returns the statistics of the queue; `None` once the last handle and the last lease of the queue have been dropped. Takes constant time, plus
    /// one step for each deadline that has passed, one for each leased key that also waits for a deadline, and, with [`Fair`](crate::Fair), one for
    /// each group. Locks the queue, so do not call it from a clock, or from `Eq` of a key.
    ///
    /// # Panics
    /// Panics if the queue's clock panics.
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
