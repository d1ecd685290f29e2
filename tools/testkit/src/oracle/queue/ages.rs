//! The ages of Ready keys and of leases: how long keys have been Ready or leased.

use std::fmt::Debug;
use std::time::Duration;

use super::{OracleQueue, State};
use crate::queue_answers::{OldestAges, Overdue, Report, Time, later};

impl<K: Copy + Ord + Debug> OracleQueue<K> {
    /// Starts to track the ages of Ready keys and leases.
    pub fn track_ages(&mut self, now: Time) {
        self.aged_since.get_or_insert(now);
    }

    /// The age of the oldest lease, and the age of the oldest Ready key among the first keys of all levels or groups. Returns `None` if ages are not
    /// tracked.
    pub fn ages(&mut self, now: Time) -> Option<OldestAges> {
        self.pass_deadlines(now);
        let kept = self.aged_since?;
        let ready = self.lines.heads().into_iter().filter_map(|key| match self.state(key) {
            Some(State::Ready { since, .. }) => Some(now - kept.max(since)),
            _ => None,
        });
        let leased = self.leased_since.iter().map(|(_, since)| now - kept.max(*since));
        Some(OldestAges { ready: ready.max(), leased: leased.max() })
    }

    /// How long this key has been leased; `None` if it is not leased or ages are not tracked.
    #[must_use]
    pub fn lease_age(&self, key: K, now: Time) -> Option<Time> {
        let kept = self.aged_since?;
        let (_, since) = self.leased_since.iter().find(|(of, _)| *of == key)?;
        Some(now - kept.max(*since))
    }

    /// Returns the oldest lease that has not been reported as overdue, if its age has reached `bound`. If the queue is drained or stopped, returns
    /// `Never`.
    pub fn next_overdue(&mut self, bound: Duration, now: Time) -> Overdue<K> {
        self.pass_deadlines(now);
        self.track_ages(now);
        if self.is_drained(now) {
            return Overdue::Never;
        }
        let oldest = self.leased_since.iter().find(|(key, _)| !self.overdue.contains(key)).copied();
        let Some((key, since)) = oldest else { return Overdue::NotYet };
        let since = self.aged_since.unwrap_or(now).max(since);
        if later(since, bound) > now {
            return Overdue::NotYet;
        }
        self.overdue.push(key);
        self.meter.report(Report::Overdue(now - since));
        Overdue::Lease(key, now - since)
    }
}
