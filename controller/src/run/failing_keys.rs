//! SHELL. Limits how many keys that have failed are reconciled at once, so that slow failing keys do not take all workers.
//!
//! | guarded by | |
//! |---|---|
//! | `in_flight`, `postponed` | an atomic each, which publishes no other memory |
//!
//! A failing key beyond the limit is put back to the queue for a short time. It stays visible there, and no key is lost if the run is dropped.
//! Rejected: keeping its lease until another failing key has ended. Its age would then count as the age of a reconcile.

use std::time::Duration;

use flyball_sync::locks::{AtomicUsize, Ordering};

/// The shortest and the longest time for which a failing key is put back.
const WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// How much longer each key that is put back waits than the previous one, so that many failing keys are not dequeued all the time.
const LONGER: Duration = Duration::from_millis(1);

/// The failing keys that are in flight.
#[derive(Debug, Default)]
pub(crate) struct FailingKeys {
    in_flight: AtomicUsize,
    /// The number of keys that were put back since a failing key last ended.
    postponed: AtomicUsize,
}

/// A failing key that is in flight, until this value is dropped.
pub(crate) struct FailingKey<'a>(&'a FailingKeys);

impl FailingKeys {
    /// Counts a failing key as in flight.
    ///
    /// # Errors
    /// If there are already `most` of them, returns for how long the key must be put back.
    pub(crate) fn begin(&self, most: usize) -> Result<FailingKey<'_>, Duration> {
        let more = |in_flight: usize| (in_flight < most).then_some(in_flight + 1);
        // Ordering: Relaxed, because the counter publishes no other memory.
        if self.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok() {
            return Ok(FailingKey(self));
        }
        // Ordering: Relaxed, because the counter publishes no other memory.
        let before = self.postponed.fetch_add(1, Ordering::Relaxed);
        let longer = LONGER.saturating_mul(u32::try_from(before).unwrap_or(u32::MAX));
        Err(WAITS[0].saturating_add(longer).min(WAITS[1]))
    }
}

impl Drop for FailingKey<'_> {
    fn drop(&mut self) {
        // Ordering: Relaxed, because the counters publish no other memory.
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
        // Ordering: Relaxed, as above.
        self.0.postponed.store(0, Ordering::Relaxed);
    }
}
