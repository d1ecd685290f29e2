//! SHELL. What those are told who measure, after unlocking; and what they read.
//!
//! All of it folds away where a queue has no time, as it has no metrics then.

use std::panic::{AssertUnwindSafe, catch_unwind};

use flyball_ratelimit::Policy;
use flyball_sync::Nanos;

use super::{Key, Shared, State};
use crate::error::{AddError, AddErrorKind};
use crate::metrics::{Metrics, Reading, Watched};
use crate::state::order::Order;
use crate::state::{Added, HandedOut, Next};
use crate::time_mode::TimeMode;

impl<K: Key, O: Order<K>, L: Policy<K> + Send + 'static, T: TimeMode> Shared<K, O, L, T> {
    /// Tells every sink, outside every lock. What a sink does to itself is its own affair.
    #[inline]
    pub(crate) fn tell(&self, what: impl Fn(&dyn Metrics)) {
        if T::DELAYS {
            for sink in &self.sinks {
                // A panic that is dropped may panic in turn.
                let told = catch_unwind(AssertUnwindSafe(|| what(&**sink)));
                told.unwrap_or_else(std::mem::forget);
            }
        }
    }

    /// Hands out a key, if there is one.
    #[inline]
    pub(crate) fn next(&self, state: &mut State<K, O::Links>, now: Option<Nanos>) -> Next<K> {
        if T::DELAYS { state.core.get_told(now) } else { state.core.get(now) }
    }

    /// What is to be told of the hand-out that was just made.
    #[inline]
    pub(crate) fn handed_out(&self, state: &State<K, O::Links>) -> Option<HandedOut> {
        if T::DELAYS { state.core.handed_out() } else { None }
    }

    /// The answer of an add: a refused key is handed back; a duplicate dies here.
    #[inline]
    pub(crate) fn answer(
        &self,
        added: Result<Added, AddErrorKind>,
        key: Option<K>,
    ) -> Result<Added, AddError<K>> {
        added.map_err(|reason| {
            self.tell(|sink| sink.refused(reason));
            AddError::new(key.expect("what is refused is not taken"), reason)
        })
    }
}

impl<K: Key, O: Order<K>, L: Policy<K> + Send + 'static, T: TimeMode> Watched for Shared<K, O, L, T> {
    fn read(&self) -> Option<Reading> {
        let now = self.time.now();
        self.lock().core.reading(now)
    }
}
