//! SHELL. What a controller stored, and how long its keys were queued.
//!
//! | guarded by | |
//! |---|---|
//! | `stored` | by key, what the last reconcile of it stored |
//! | `waits` | one entry for each reconcile of a key that was added; nanoseconds |
//! | `lags` | if measured, one for each reconcile that followed a change, from its happening; nanoseconds |

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

    /// Begins a reconcile: notes how long its key was queued, then panics or fails if a fault strikes.
    pub(crate) fn begin(&self, key: &Key, faults: &Injector) -> Result<(), Injected> {
        let now = Monotonic.now();
        for (took, all) in [(key.taken_at(now), &self.waits), (key.seen_at(now), &self.lags)] {
            if let Some(took) = took {
                all.lock().push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            }
        }
        if faults.panics() {
            // As a panic, without the message that the hook would print for each.
            std::panic::resume_unwind(Box::new("an injected panic"));
        }
        if faults.fails() { Err(Injected) } else { Ok(()) }
    }

    /// Stores what a reconcile found; `None`: the object is gone.
    pub(crate) fn store(&self, key: &Key, result: Option<R>) {
        let mut stored = self.stored.lock();
        let old = match result {
            Some(result) => stored.insert(key.name().clone(), result),
            None => stored.remove(key.name()),
        };
        drop(stored);
        drop(old);
    }

    /// What is stored now.
    #[cfg(feature = "kube")]
    pub(crate) fn stored(&self) -> HashMap<Arc<str>, R>
    where
        R: Clone,
    {
        self.stored.lock().clone()
    }

    /// The waits since this was asked last.
    #[cfg(feature = "kube")]
    pub(crate) fn take_waits(&self) -> Vec<u64> {
        std::mem::take(&mut self.waits.lock())
    }

    /// What was stored, the waits and the lags.
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

/// The names in both maps, each once.
pub(crate) fn names_of_both<'a, A, B>(
    one: &'a HashMap<Arc<str>, A>,
    other: &'a HashMap<Arc<str>, B>,
) -> HashSet<&'a Arc<str>> {
    one.keys().chain(other.keys()).collect()
}
