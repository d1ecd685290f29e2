//! PURE. How many deadlines have passed, kept up to date while deadlines are set and removed.

use flyball_sync::Nanos;

/// The result of the last count.
///
/// # Invariants
/// 1. At least `count` deadlines are at or before `by`. If all were counted, exactly `count` are, and `next` is the first deadline after `by`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Passed {
    by: Nanos,
    count: usize,
    next: Option<Nanos>,
    /// Whether all deadlines up to `by` were counted, and `next` is known.
    all: bool,
}

impl Passed {
    pub(super) fn counted(by: Nanos, (count, next): (usize, Option<Nanos>), all: bool) -> Self {
        Self { by, count, next, all }
    }

    /// Returns how many deadlines are at or before `now`, and the first one after it, unless they must be counted again. If there are more than `most`,
    /// the first one may be missing.
    #[inline]
    pub(super) fn at(&mut self, now: Nanos, most: usize) -> Option<(usize, Option<Nanos>)> {
        if now < self.by {
            return None; // the clock jumped back
        }
        if self.all && self.next.is_none_or(|next| next > now) {
            self.by = now;
            return Some((self.count, self.next));
        }
        (self.count > most).then_some((self.count, None))
    }

    #[cfg(test)]
    pub(super) fn by(&self) -> Nanos {
        self.by
    }

    #[inline]
    pub(super) fn added(&mut self, at: Nanos) {
        if at <= self.by {
            self.count += 1;
        } else if self.all {
            self.next = self.next.into_iter().chain([at]).min();
        }
    }

    #[inline]
    pub(super) fn removed(&mut self, at: Nanos) {
        if at <= self.by {
            // Not all may have been counted.
            self.count = self.count.saturating_sub(1);
        } else if self.next == Some(at) {
            self.all = false;
        }
    }

    pub(super) fn check(&self, deadlines: impl Iterator<Item = Nanos>) -> Result<(), String> {
        let (passed, later): (Vec<_>, Vec<_>) = deadlines.partition(|at| *at <= self.by);
        let next = later.into_iter().min();
        if passed.len() < self.count || (self.all && (passed.len(), next) != (self.count, self.next)) {
            return Err(format!("passed 1: {} deadlines and then {next:?}, but {self:?}", passed.len()));
        }
        Ok(())
    }
}
