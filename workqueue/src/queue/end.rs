//! SHELL. How a lease ends: what user code decides about its key, then one step under the lock.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use flyball_ratelimit::Policy;
use flyball_sync::Nanos;

use super::Queue;
use super::dead::DeadLetters;
use super::shared::{Key, Shared};
use crate::error::NotDetached;
use crate::lease::Lease;
use crate::limiter::{Failed, Limiter};
use crate::metrics::Ended;
use crate::state::order::Order;
use crate::state::wait::Wait;
use crate::state::{Handle, Outcome};
use crate::time_mode::TimeMode;

impl<K: Key, O: Order<K>, L: Policy<K> + Send + 'static, T: TimeMode> Queue<K, O, L, T> {
    /// Ends a detached lease, as [`Lease::done`] would; [`attach`](Self::attach) offers the other outcomes.
    ///
    /// # Errors
    /// [`NotDetached`] for any key that no [detached](Lease::detach) lease holds; nothing happens then.
    pub fn done(&self, key: &K) -> Result<(), NotDetached> {
        self.attach(key).map(Lease::done)
    }

    /// Makes a detached lease a guard again.
    ///
    /// # Errors
    /// [`NotDetached`] for any key that no [detached](Lease::detach) lease holds.
    ///
    /// # Panics
    /// When `Hash`, `Eq` or `Clone` of the key does; the lease stays detached then.
    pub fn attach(&self, key: &K) -> Result<Lease<K, T>, NotDetached> {
        let hash = self.shared.hash(key);
        let (handle, key) = self.shared.lock().core.attach(key, hash).ok_or(NotDetached)?;
        Ok(Lease::new(key, handle, self.shared.clone()))
    }

    /// Forgets the failures of a key. What waits, waits on.
    pub fn forget(&self, key: &K) {
        self.shared.limiter.forget(key);
    }

    /// Failures of a key that were counted and not forgotten.
    #[must_use]
    pub fn num_requeues(&self, key: &K) -> u32 {
        self.shared.limiter.requeues(key)
    }
}

impl<K: Key, O: Order<K>, L: Policy<K> + Send + 'static, T: TimeMode> Shared<K, O, L, T> {
    /// Ends a lease. Whatever user code does, the lease ends: if it panics, the key is Ready again.
    #[inline]
    pub(crate) fn end(&self, handle: Handle, key: &K, verdict: Verdict) {
        let done = matches!(verdict, Verdict::Done)
            || matches!(verdict, Verdict::Succeed) && self.limiter.is_empty();
        if done && !self.is_timed() {
            // No user code at all, and nothing to decide.
            let mut state = self.lock();
            let gone = state.core.end(handle, Outcome::Done, None);
            self.finish(state, None);
            drop(gone);
        } else {
            self.end_by(handle, key, verdict);
        }
    }

    fn end_by(&self, handle: Handle, key: &K, verdict: Verdict) {
        let seen = verdict != Verdict::Untouched;
        let decided = catch_unwind(AssertUnwindSafe(|| self.decide(key, verdict)));
        let (ruling, mut panic) = match decided {
            Ok(ruling) => (ruling, None),
            Err(panic) => {
                (Ruling { counted: false, outcome: Outcome::Tail, now: None, died_after: None }, Some(panic))
            }
        };
        let mut state = self.lock();
        let worked = if T::DELAYS { state.core.meter_end(handle, ruling.now, seen) } else { None };
        let gone = state.core.end(handle, ruling.outcome, ruling.now);
        let mut also = |result: std::thread::Result<()>| {
            if let Err(other) = result {
                panic.get_or_insert(other);
            }
        };
        also(catch_unwind(AssertUnwindSafe(|| self.finish(state, ruling.now))));
        also(catch_unwind(AssertUnwindSafe(|| drop(gone))));
        // Whoever's waker panicked: a key that is given up is told of.
        if let (Some(failures), Some(dead)) = (ruling.died_after, &self.dead) {
            also(catch_unwind(AssertUnwindSafe(|| dead.tell(key, failures))));
        }
        if let Some(worked) = worked {
            self.tell_end(verdict, worked, &ruling);
        }
        match panic {
            // A second panic while one unwinds would abort the process.
            Some(panic) if !std::thread::panicking() => resume_unwind(panic),
            _ => {}
        }
    }

    /// All user code of a lease's end: the clock and the policy.
    #[inline]
    fn decide(&self, key: &K, verdict: Verdict) -> Ruling {
        let (outcome, now) = match verdict {
            Verdict::Done => (Outcome::Done, self.now_if_timed()),
            Verdict::Succeed => {
                self.limiter.forget(key);
                (Outcome::Done, self.now_if_timed())
            }
            Verdict::After(delay) => {
                self.limiter.forget(key);
                self.after(delay)
            }
            Verdict::DoneAfter(delay) => self.after(delay),
            Verdict::Counted { failed, least, now } => return Ruling::of(failed, now, least),
            Verdict::Retry | Verdict::Dropped if Limiter::<K, L>::limits() => {
                return self.back_off(key, Duration::ZERO);
            }
            Verdict::RetryNoSooner(least) if Limiter::<K, L>::limits() || !least.is_zero() => {
                return self.back_off(key, least);
            }
            Verdict::Retry | Verdict::RetryNoSooner(_) | Verdict::Dropped => {
                (Outcome::Tail, self.now_if_timed())
            }
            Verdict::Untouched => (Outcome::Unseen, self.now_if_timed()),
        };
        Ruling { outcome, now, died_after: None, counted: false }
    }

    /// A failure, whose wait is `least` or what the limiter says, if there is one.
    fn back_off(&self, key: &K, least: Duration) -> Ruling {
        let now = self.now();
        let failed = if Limiter::<K, L>::limits() {
            self.fail(key, now)
        } else {
            Failed::Until { at: now, counted: false }
        };
        Ruling::of(failed, now, least)
    }

    fn after(&self, delay: Duration) -> (Outcome, Option<Nanos>) {
        let now = self.now();
        (Outcome::At(Wait::fixed(now + delay)), Some(now))
    }

    /// Counts a failure of `key`.
    pub(crate) fn fail(&self, key: &K, now: Nanos) -> Failed {
        self.fail_up_to(key, now, self.dead.as_ref().map(DeadLetters::most))
    }

    fn fail_up_to(&self, key: &K, now: Nanos, most: Option<u32>) -> Failed {
        self.limiter.failed(key, now, most, |other| {
            let hash = self.hash(other);
            self.lock().core.contains(other, hash)
        })
    }

    /// Counts a failure of `key`, and says how its lease is to end: `None` if it was number `most`. The queue's own limit goes first
    /// where it is lower.
    pub(crate) fn fail_at_most(&self, key: &K, most: u32, least: Duration) -> Option<Verdict> {
        let now = self.now();
        let own = self.dead.as_ref().map(DeadLetters::most).filter(|own| *own < most);
        let failed = self.fail_up_to(key, now, Some(own.unwrap_or(most)));
        if own.is_none() && matches!(failed, Failed::Died { .. }) {
            // Its end, whichever it is, will not tell of it.
            self.tell(|sink| sink.failed());
            return None;
        }
        Some(Verdict::Counted { failed, least, now })
    }

    /// Once it has ended, and everybody is woken.
    fn tell_end(&self, verdict: Verdict, worked: Duration, ruling: &Ruling) {
        if let Some(how) = verdict.ended() {
            self.tell(|sink| sink.ended(how, worked));
        }
        if ruling.counted {
            self.tell(|sink| sink.failed());
        }
        if let Some(failures) = ruling.died_after {
            self.tell(|sink| sink.gave_up(failures));
        }
    }
}

/// How a lease ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Done,
    Succeed,
    After(Duration),
    DoneAfter(Duration),
    Retry,
    RetryNoSooner(Duration),
    /// As a failure that was counted already, with that time.
    Counted {
        failed: Failed,
        least: Duration,
        now: Nanos,
    },
    /// As a failure: nobody said how.
    Dropped,
    /// It never began.
    Untouched,
}

/// What a lease's end comes to.
struct Ruling {
    outcome: Outcome,
    now: Option<Nanos>,
    /// So many failures were one too many.
    died_after: Option<u32>,
    /// The limiter counted a failure.
    counted: bool,
}

impl Ruling {
    /// On a failure whose wait is `least` or what the limiter says.
    fn of(failed: Failed, now: Nanos, least: Duration) -> Self {
        let (outcome, died_after, counted) = match failed {
            Failed::Until { at, counted } => (Outcome::At(Wait::backoff(at.max(now + least))), None, counted),
            Failed::Died { failures } => (Outcome::Done, Some(failures), true),
        };
        Self { outcome, now: Some(now), died_after, counted }
    }
}

impl Verdict {
    /// In the words of those who measure; a lease that nobody has seen did not end.
    fn ended(self) -> Option<Ended> {
        Some(match self {
            Self::Done | Self::DoneAfter(_) => Ended::Done,
            Self::Succeed => Ended::Succeeded,
            Self::After(_) => Ended::Requeued,
            Self::Retry | Self::RetryNoSooner(_) | Self::Counted { .. } => Ended::Failed,
            Self::Dropped => Ended::Dropped,
            Self::Untouched => return None,
        })
    }
}
