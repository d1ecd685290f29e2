//! SHELL. Limits how many keys that have failed are reconciled at once, so that slow failing keys do not take all workers.
//!
//! | guarded by | |
//! |---|---|
//! | `in_flight`, `last_return` | an atomic each, which publishes no other memory |
//!
//! A failing key beyond the limit is put back to the queue for a short time. It stays visible there, and no key is lost if the run is dropped.
//! Rejected: keeping its lease until another failing key has ended. Its age would then count as the age of a reconcile.
//!
//! The keys that are put back return one after the other, so the number that returns in a time is bounded, however many there are and however fast failing
//! keys end. Only if they are so many that the last one would return after more than the longest wait, they return together with others.

use std::time::Duration;

use flyball_sync::locks::{AtomicU64, AtomicUsize, Ordering};

/// The shortest and the longest time for which a failing key is put back.
const WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// The time between the returns of two keys that were put back.
const APART: Duration = Duration::from_millis(1);

/// The failing keys that are in flight.
#[derive(Debug, Default)]
pub(crate) struct FailingKeys {
    in_flight: AtomicUsize,
    /// The time at which the last of the keys that were put back returns, in nanoseconds.
    last_return: AtomicU64,
}

/// A failing key that is in flight, until this value is dropped.
pub(crate) struct FailingKey<'a>(&'a FailingKeys);

impl FailingKeys {
    /// Counts a failing key as in flight.
    ///
    /// # Errors
    /// If there are already `most` of them, returns for how long the key must be put back.
    pub(crate) fn begin(&self, most: usize, now: Duration) -> Result<FailingKey<'_>, Duration> {
        let more = |in_flight: usize| (in_flight < most).then_some(in_flight + 1);
        // Ordering: Relaxed, because the counter publishes no other memory.
        if self.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok() {
            return Ok(FailingKey(self));
        }
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let [first, last] = WAITS.map(|wait| nanos(now.saturating_add(wait)));
        let next = |before: u64| before.saturating_add(nanos(APART)).clamp(first, last);
        // Ordering: Relaxed, because the time publishes no other memory.
        let before =
            self.last_return.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| Some(next(before)));
        Err(Duration::from_nanos(next(before.unwrap_or_default())).saturating_sub(now))
    }
}

impl Drop for FailingKey<'_> {
    fn drop(&mut self) {
        // Ordering: Relaxed, because the counter publishes no other memory.
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
