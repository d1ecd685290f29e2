//! SHELL. The results of a controller, and how long its keys were queued.
//!
//! | guarded by | |
//! |---|---|
//! | `stored` | for each key, the result of its last reconcile |
//! | `waits` | for each reconcile that an add has caused, how long the key was queued, in nanoseconds |
//! | `lags` | if measured, the time from a change to the next reconcile of its key, in nanoseconds |

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use flyball_sync::{Clock, Monotonic};
use parking_lot::Mutex;

use crate::faults::Injector;
use crate::objects::Key;

#[derive(Debug)]
pub(crate) struct Ledger<R> {
    stored: Mutex<HashMap<Arc<str>, R>>,
    waits: Mutex<Vec<u64>>,
    lags: Mutex<Vec<u64>>,
}

impl<R> Ledger<R> {
    pub(crate) fn new() -> Self {
        Self { stored: Mutex::default(), waits: Mutex::default(), lags: Mutex::default() }
    }

    /// Must be called at the beginning of a reconcile. Records how long its key was queued. Then panics or returns an error if a fault is injected.
    pub(crate) fn begin(&self, key: &Key, faults: &Injector) -> Result<(), Injected> {
        let now = Monotonic.now();
        for (took, all) in [(key.taken_at(now), &self.waits), (key.seen_at(now), &self.lags)] {
            if let Some(took) = took {
                all.lock().push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            }
        }
        if faults.panics() {
            // `resume_unwind` unwinds like a panic, but does not call the panic hook, which would print a message.
            std::panic::resume_unwind(Box::new("an injected panic"));
        }
        if faults.fails() { Err(Injected) } else { Ok(()) }
    }

    /// Stores the result of a reconcile; `None` if the object was deleted, or is a Service without a selector.
    pub(crate) fn store(&self, key: &Key, result: Option<R>) {
        let mut stored = self.stored.lock();
        let old = match result {
            Some(result) => stored.insert(key.name().clone(), result),
            None => stored.remove(key.name()),
        };
        drop(stored);
        drop(old);
    }

    /// The stored results.
    #[cfg(feature = "kube")]
    pub(crate) fn stored(&self) -> HashMap<Arc<str>, R>
    where
        R: Clone,
    {
        self.stored.lock().clone()
    }

    /// Removes and returns the durations in `waits`, which were recorded since the last call.
    #[cfg(feature = "kube")]
    pub(crate) fn take_waits(&self) -> Vec<u64> {
        std::mem::take(&mut self.waits.lock())
    }

    /// Removes and returns `stored`, `waits` and `lags`.
    pub(crate) fn close(&self) -> (HashMap<Arc<str>, R>, [Vec<u64>; 2]) {
        let times = [&self.waits, &self.lags].map(|all| std::mem::take(&mut *all.lock()));
        (std::mem::take(&mut self.stored.lock()), times)
    }
}

/// The failure that `--fail` injects.
#[derive(Debug)]
pub(crate) struct Injected;

impl std::fmt::Display for Injected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an injected failure")
    }
}

impl std::error::Error for Injected {}

/// Returns the names that are in at least one of the maps, each once.
pub(crate) fn names_of_both<'a, A, B>(
    one: &'a HashMap<Arc<str>, A>,
    other: &'a HashMap<Arc<str>, B>,
) -> HashSet<&'a Arc<str>> {
    one.keys().chain(other.keys()).collect()
}
