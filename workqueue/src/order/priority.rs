//! PURE. How keys of different priorities share the workers.

use std::num::NonZeroU32;

use crate::order::levels::Levels;
use crate::order::{Order, sealed};

/// Higher priorities first, and no key starves.
///
/// A priority is a number from −128 to 127, by default 0, and higher is more urgent. [`Queue::at`](crate::Queue::at) adds
/// with another. Adds of one key merge to the highest; [`set_priority`](crate::Queue::set_priority) sets it, lower, too. A
/// key that waits keeps its priority; one that comes back from a lease has that of its lease, or of what it was added
/// with meanwhile, if that is higher. Keys of one priority are first in, first out.
///
/// # Ageing
/// A key that is Ready is overtaken by keys that became Ready after it at most 64 times for each higher priority in use
/// meanwhile, unless [`ageing`](Self::ageing) says otherwise. So it is handed out at most so many hand-outs later than it would be first
/// in, first out. A key is in the line of its priority from when it becomes Ready, or is raised to it. One that is raised
/// goes to the end of its new line, unless it has waited for so long that it comes earlier where it is.
///
/// Time is counted in keys that become Ready, not on a clock. With `p` priorities that were ever in use, at most 256,
/// a hand-out is O(p).
///
/// # Examples
/// ```
/// use flyball_workqueue::{Priority, Queue};
///
/// let queue = Queue::builder().order(Priority::new()).build();
/// queue.at(-100).add("resync")?;
/// queue.add("event")?;
/// queue.at(10).add("user")?;
/// for expected in ["user", "event", "resync"] {
///     let lease = queue.try_get()?;
///     assert_eq!(*lease, expected);
///     lease.done();
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Priority {
    ageing: Option<NonZeroU32>,
}

/// A production queue was starved for half an hour by three keys (home-operations/miroir#122); who wants that asks.
const DEFAULT_AGEING: NonZeroU32 = NonZeroU32::new(64).unwrap();

impl Priority {
    /// Higher priorities first; 64 keys overtake one at most, for each priority above it.
    #[must_use]
    pub const fn new() -> Self {
        Self { ageing: Some(DEFAULT_AGEING) }
    }

    /// For each priority above it, so many younger keys overtake one at most. With 1, priorities hardly matter.
    #[must_use]
    pub const fn ageing(self, overtakings: NonZeroU32) -> Self {
        Self { ageing: Some(overtakings) }
    }

    /// No ageing: a key is handed out only while none of a higher priority is Ready, and may wait for ever.
    #[must_use]
    pub const fn strict(self) -> Self {
        Self { ageing: None }
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> Order<K> for Priority {}

impl<K> sealed::Order<K> for Priority {
    type Links = Levels;

    fn links(&self) -> Levels {
        Levels::new(self.ageing)
    }

    #[inline]
    fn tag(&self, _: &K) -> i8 {
        0
    }
}
