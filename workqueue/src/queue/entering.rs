//! SHELL. How a key comes in, once it is known what the order makes of it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use flyball_ratelimit::{Nanos, Policy};

use super::{AddedMany, Queue};
use crate::core::Added;
use crate::error::{Reason, Refused};
use crate::limiter::Failed;
use crate::order::Order;
use crate::order::sealed::Tag;
use crate::shared::Key;
use crate::time::{Delays, Time};
use crate::wait::{DelayMode, Wish};

impl<K: Key, O: Order<K>, L: Policy<K> + Send + 'static, T: Time> Queue<K, O, L, T> {
    #[inline]
    pub(crate) fn add_tagged(&self, key: K, tag: Tag<O::Links>) -> Result<Added, Refused<K>> {
        // Declared before the guard, so that what stays of it dies after that.
        let mut new = self.shared.newcomer(key, tag);
        let now = self.shared.now_if_timed();
        let mut state = self.shared.lock();
        let added = state.core.add(&mut new, now);
        self.shared.finish(state, now);
        answer(added, new.key)
    }

    #[inline]
    pub(crate) fn add_ref_tagged(&self, key: &K, mut tag: Tag<O::Links>) -> Result<Added, Reason> {
        let hash = self.shared.hash(key);
        let now = self.shared.now_if_timed();
        let mut state = self.shared.lock();
        let added = state.core.add_ref(key, hash, &mut tag, now);
        self.shared.finish(state, now);
        added
    }

    pub(crate) fn add_many_tagged(
        &self,
        keys: impl IntoIterator<Item = K>,
        tag: impl Fn(&K) -> Tag<O::Links>,
    ) -> AddedMany<K> {
        let newcomer = |key| {
            let tag = tag(&key);
            (self.shared.newcomer(key, tag), Ok(Added::New))
        };
        let mut keys: Vec<_> = keys.into_iter().map(newcomer).collect();
        let now = self.shared.now_if_timed();
        let mut state = self.shared.lock();
        let adding = catch_unwind(AssertUnwindSafe(|| {
            for (new, added) in &mut keys {
                *added = state.core.add(new, now);
            }
        }));
        // Also where `Eq` panicked: keys before that are Ready, and somebody has to be woken for them.
        self.shared.finish(state, now);
        if let Err(panic) = adding {
            resume_unwind(panic);
        }
        let mut many = AddedMany { new: 0, merged: 0, promoted: 0, marked: 0, refused: Vec::new() };
        for (new, added) in keys {
            match answer(added, new.key) {
                Ok(Added::New) => many.new += 1,
                Ok(Added::Merged) => many.merged += 1,
                Ok(Added::Promoted) => many.promoted += 1,
                Ok(Added::Marked) => many.marked += 1,
                Err(refused) => many.refused.push(refused),
            }
        }
        many
    }
}

impl<K: Key, O: Order<K>, L: Policy<K> + Send + 'static, T: Delays> Queue<K, O, L, T> {
    pub(crate) fn add_delayed_tagged(
        &self,
        key: K,
        tag: Tag<O::Links>,
        delay: Duration,
        mode: DelayMode,
    ) -> Result<Added, Refused<K>> {
        let now = self.shared.now();
        let at = now + delay;
        let wish = match mode {
            DelayMode::Earliest => Wish::Earliest(at),
            DelayMode::Latest { longest } => Wish::Latest { at, limit: now + longest },
            DelayMode::Replace => Wish::Replace(at),
        };
        self.add_wish(key, tag, wish, now)
    }

    pub(crate) fn add_rate_limited_tagged(&self, key: K, tag: Tag<O::Links>) -> Result<Added, Refused<K>> {
        if self.is_shutting_down() {
            return Err(Refused::new(key, Reason::ShutDown));
        }
        let now = self.shared.now();
        match self.shared.fail(&key, now) {
            Failed::Until(until) => self.add_wish(key, tag, Wish::Backoff(until), now),
            Failed::Died { failures } => {
                if let Some(dead) = &self.shared.dead {
                    dead.tell(&key, failures);
                }
                Err(Refused::new(key, Reason::Exhausted))
            }
        }
    }

    fn add_wish(&self, key: K, tag: Tag<O::Links>, wish: Wish, now: Nanos) -> Result<Added, Refused<K>> {
        let mut new = self.shared.newcomer(key, tag);
        let mut state = self.shared.lock();
        let added = state.core.add_delayed(&mut new, wish, now);
        self.shared.finish(state, Some(now));
        answer(added, new.key)
    }
}

/// A refused key is handed back; a duplicate dies here.
pub(crate) fn answer<K>(added: Result<Added, Reason>, key: Option<K>) -> Result<Added, Refused<K>> {
    added.map_err(|reason| Refused::new(key.expect("what is refused is not taken"), reason))
}
