//! SHELL. How a key comes in, once it is known what the order makes of it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use flyball_ratelimit::{Nanos, Policy};

use super::{AddedMany, Queue};
use crate::core::{Added, Newcomer};
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
        self.shared.answer(added, new.key)
    }

    #[inline]
    pub(crate) fn add_ref_tagged(&self, key: &K, tag: Tag<O::Links>) -> Result<Added, Reason> {
        let mut new = Newcomer { key: None, hash: self.shared.hash(key), tag };
        let now = self.shared.now_if_timed();
        let mut state = self.shared.lock();
        let added = state.core.add_ref(key, &mut new, now);
        self.shared.finish(state, now);
        added.inspect_err(|reason| self.shared.tell(|sink| sink.refused(*reason)))
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
            match self.shared.answer(added, new.key) {
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
        let shared = &self.shared;
        if self.is_shutting_down() {
            return shared.answer(Err(Reason::ShutDown), Some(key));
        }
        let now = shared.now();
        match shared.fail(&key, now) {
            Failed::Until { at, counted } => {
                if counted {
                    shared.tell(|sink| sink.failed());
                }
                self.add_wish(key, tag, Wish::Backoff(at), now)
            }
            Failed::Died { failures } => {
                shared.tell(|sink| sink.failed());
                shared.tell(|sink| sink.gave_up(failures));
                if let Some(dead) = &shared.dead {
                    dead.tell(&key, failures);
                }
                shared.answer(Err(Reason::Exhausted), Some(key))
            }
        }
    }

    fn add_wish(&self, key: K, tag: Tag<O::Links>, wish: Wish, now: Nanos) -> Result<Added, Refused<K>> {
        let mut new = self.shared.newcomer(key, tag);
        let mut state = self.shared.lock();
        let added = state.core.add_delayed(&mut new, wish, now);
        self.shared.finish(state, Some(now));
        self.shared.answer(added, new.key)
    }
}
