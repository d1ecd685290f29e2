//! SHELL. The watches of a controller and the stage of its run, shared by the run, the handles and the health.
//!
//! | guarded by | |
//! |---|---|
//! | all of the state | the lock of a `watch` channel |
//!
//! Only the run future writes the stage of the run; any thread may change the list of watches. Starting, stopping and dropping a watch calls user
//! code, so these operations first take the watch out of the state, and then call user code outside the lock.
//!
//! # Each change is mapped at most once per watch
//! A watch is registered, starting, or active. The thread that changes a watch from registered to starting also starts it. If the watch is removed or
//! the run ends during the start, this thread drops the watch again. Until that drop, the flag `removed` keeps changes of the watch from becoming
//! keys. The run future maps the existing objects of an active watch, in pieces. Until then, the workers do not start, and the controller is not idle,
//! because these objects are about to become keys.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Weak};

use flyball_informer_cache::InformerState;
use flyball_sync::panics;
use tokio::sync::watch;

use crate::WatchStatus;
use crate::error::AddWatchError;
use crate::run::mapper::RetryMapping;
use crate::run::watched_informer::{ActiveWatch, Observe, WatchedInformer};

#[derive(Clone, Default)]
pub(crate) struct WatchSet(Arc<watch::Sender<State>>);

/// A weak reference to the set that a watch belongs to. It keeps only the allocation alive.
pub(crate) type WeakSet = Weak<watch::Sender<State>>;

#[derive(Default)]
pub(crate) struct State {
    lifecycle: Lifecycle,
    /// Whether changes become keys: `false` before the run and in standby.
    observing: bool,
    /// Whether the run ends when no work is left. If not, the run also ends when a watched informer is stopped.
    stop_when_idle: bool,
    /// Whether workers start only when all caches have synced.
    starts_synced: bool,
    /// The number of watches that were ever added, which is also the index of the next watch.
    added: usize,
    watches: Vec<Entry>,
    /// The cache that ended the run.
    ended: Option<WatchStatus>,
}

struct Entry {
    index: usize,
    informer: Arc<WatchedInformer>,
    stage: Stage,
}

enum Stage {
    Registered(Observe),
    /// A thread is starting the watch.
    Starting,
    Active {
        watch: ActiveWatch,
        /// Whether the existing objects of the watch are mapped to keys.
        mapped: bool,
    },
}

/// The stage of a controller's run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lifecycle {
    #[default]
    NotStarted,
    Syncing,
    /// The start conditions are met; the controller waits for the end of the standby.
    Standby,
    Running,
    ShuttingDown,
    Ended,
}

impl WatchSet {
    /// Changes the state, and notifies its receivers if `change` returns `true`.
    fn change(&self, change: impl FnOnce(&mut State) -> bool) {
        self.0.send_if_modified(change);
    }

    /// Adds a watch, and starts it if the other watches are already started. Returns the index of the watch.
    ///
    /// # Errors
    /// The controller shuts down or has ended, or it runs and the informer has ended.
    pub(crate) fn add(
        &self,
        (informer, observe): (Arc<WatchedInformer>, Observe),
    ) -> Result<usize, AddWatchError> {
        // Read before locking, because the informer may run user code.
        let status = informer.status(0);
        let mut new = Some((informer, Stage::Registered(observe)));
        let mut added = Err(AddWatchError::Ended);
        self.change(|state| {
            if state.lifecycle >= Lifecycle::ShuttingDown {
                return false;
            }
            if state.lifecycle > Lifecycle::NotStarted && has_ended(&status, state.stop_when_idle) {
                added = Err(AddWatchError::InformerEnded);
                return false;
            }
            let index = state.added;
            added = Ok((index, state.observing));
            state.added += 1;
            let entry = new.take().map(|(informer, stage)| Entry { index, informer, stage });
            state.watches.extend(entry);
            true
        });
        match added? {
            (index, observing) if !observing || self.start_watch(index) => Ok(index),
            _ => Err(AddWatchError::Ended),
        }
    }

    /// Removes a watch: no change that its informer publishes from now on becomes a key. Returns whether the set contained the watch.
    pub(crate) fn remove(&self, index: usize) -> bool {
        let mut removed = None;
        self.change(|state| {
            let place = state.watches.iter().position(|entry| entry.index == index);
            removed = place.map(|place| state.watches.remove(place));
            removed.as_ref().inspect(|entry| entry.informer.remove()).is_some()
        });
        let was_there = removed.is_some();
        panics::caught(|| drop(removed));
        was_there
    }

    /// Starts every watch. From now on, each new watch is started when it is added.
    pub(crate) fn start_all(&self) {
        let mut registered = Vec::new();
        self.change(|state| {
            state.observing = true;
            registered.extend(state.watches.iter().map(|entry| entry.index));
            false
        });
        for index in registered {
            self.start_watch(index);
        }
    }

    /// Starts a watch, unless another thread already does so; returns `false` if the controller shuts down or has ended in the meantime.
    fn start_watch(&self, index: usize) -> bool {
        let mut observe = None;
        self.change(|state| {
            observe = state.find(index).and_then(|entry| {
                match std::mem::replace(&mut entry.stage, Stage::Starting) {
                    Stage::Registered(observe) => Some(observe),
                    other => {
                        entry.stage = other;
                        None
                    }
                }
            });
            false
        });
        let Some(observe) = observe else { return self.lifecycle() < Lifecycle::ShuttingDown };
        // If the drop of an object panics in the store, removes the watch and resumes the panic. If the watch were not removed, the run would wait
        // forever for it to start.
        let mut active = match catch_unwind(AssertUnwindSafe(observe)) {
            Ok(active) => Some(active),
            Err(panic) => {
                self.remove(index);
                resume_unwind(panic);
            }
        };
        let mut open = true;
        self.change(|state| {
            open = state.lifecycle < Lifecycle::ShuttingDown;
            let Some(entry) = state.find(index).filter(|_| open) else { return false };
            active.take().map(|watch| entry.stage = Stage::Active { watch, mapped: false }).is_some()
        });
        // If the watch was removed, `active` is dropped here.
        open
    }

    /// Records that the existing objects of a watch are mapped to keys.
    pub(crate) fn mapped(&self, index: usize) {
        self.change(|state| {
            let Some(Entry { stage: Stage::Active { mapped, .. }, .. }) = state.find(index) else {
                return false;
            };
            *mapped = true;
            true
        });
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<State> {
        self.0.subscribe()
    }

    pub(crate) fn downgrade(&self) -> WeakSet {
        Arc::downgrade(&self.0)
    }

    pub(crate) fn is(&self, other: &WeakSet) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.0), other.as_ptr())
    }

    /// Begins the run.
    pub(crate) fn begin(&self, stop_when_idle: bool, starts_synced: bool) {
        self.change(|state| {
            state.lifecycle = Lifecycle::Syncing;
            (state.stop_when_idle, state.starts_synced) = (stop_when_idle, starts_synced);
            true
        });
    }

    pub(crate) fn enter(&self, lifecycle: Lifecycle) {
        self.change(|state| {
            state.lifecycle = lifecycle;
            true
        });
    }

    /// Begins to run the workers if the number of watches that were ever added is still `added`, and returns whether it is. Otherwise the cache of the
    /// new watch must be awaited first.
    pub(crate) fn enter_running(&self, added: usize) -> bool {
        let mut entered = false;
        self.change(|state| {
            entered = state.added == added;
            if entered {
                state.lifecycle = Lifecycle::Running;
            }
            entered
        });
        entered
    }

    /// Returns the number of watches that were ever added.
    pub(crate) fn added(&self) -> usize {
        self.0.borrow().added
    }

    /// Waits until the number of watches that were ever added exceeds `added`.
    pub(crate) async fn more_than(&self, added: usize) {
        // The wait cannot fail, because `self` holds the sender.
        let _ = self.0.subscribe().wait_for(|state| state.added > added).await;
    }

    /// Waits until all watches are started, and their existing objects are mapped to keys.
    pub(crate) async fn all_started(&self) {
        // The wait cannot fail, because `self` holds the sender.
        let _ = self.0.subscribe().wait_for(|state| !state.is_starting()).await;
    }

    /// Shuts down and returns `true` if the number of watches that were ever added is still `added` and all of them are started. Otherwise returns
    /// `false`.
    pub(crate) fn shut_down_after(&self, added: usize) -> bool {
        let mut shut = false;
        self.change(|state| {
            shut = state.added == added && !state.is_starting();
            if shut {
                state.lifecycle = Lifecycle::ShuttingDown;
            }
            shut
        });
        shut
    }

    /// Shuts down: no watch is added or started from now on. Returns the active watches.
    pub(crate) fn shut_down(&self, ended: Option<WatchStatus>) -> Vec<ActiveWatch> {
        let mut stages = Vec::new();
        self.change(|state| {
            (state.lifecycle, state.ended) = (Lifecycle::ShuttingDown, ended);
            let taken = |entry: &mut Entry| {
                // A watch that is starting must stop mapping changes, too.
                entry.informer.remove();
                std::mem::replace(&mut entry.stage, Stage::Starting)
            };
            stages.extend(state.watches.iter_mut().map(taken));
            true
        });
        let active = |stage| match stage {
            Stage::Active { watch, .. } => Some(watch),
            other => panics::caught(|| drop(other)).and(None),
        };
        stages.into_iter().filter_map(active).collect()
    }

    pub(crate) fn lifecycle(&self) -> Lifecycle {
        self.0.borrow().lifecycle
    }

    /// Returns the number of watches.
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().watches.len()
    }

    pub(crate) fn contains(&self, index: usize) -> bool {
        self.0.borrow().watches.iter().any(|entry| entry.index == index)
    }

    /// Returns the informers with the indices of their watches. Do not call an informer while the state is borrowed, because the run future would
    /// wait for that call.
    pub(crate) fn informers(&self) -> Vec<(usize, Arc<WatchedInformer>)> {
        self.0.borrow().informers()
    }

    /// Returns the status of each watch.
    pub(crate) fn statuses(&self) -> Vec<WatchStatus> {
        self.informers().iter().map(|(index, informer)| informer.status(*index)).collect()
    }

    /// Returns whether the start of the workers still has to wait for a cache.
    pub(crate) fn is_syncing(&self) -> bool {
        let starts_synced = self.0.borrow().starts_synced;
        starts_synced && self.statuses().iter().any(|watch| !watch.synced)
    }

    /// Returns the status of the watch whose cache ended the run, or of the first watch whose cache has ended although the run needs it.
    pub(crate) fn ended_cache(&self) -> Option<WatchStatus> {
        let state = self.0.borrow();
        let (lifecycle, stop_when_idle, ended) = (state.lifecycle, state.stop_when_idle, state.ended.clone());
        drop(state);
        if ended.is_some() || !(Lifecycle::Syncing..=Lifecycle::Running).contains(&lifecycle) {
            return ended;
        }
        let mut caches = self.statuses().into_iter();
        caches.find(|cache| has_ended(cache, stop_when_idle) && self.contains(cache.index))
    }
}

impl State {
    fn find(&mut self, index: usize) -> Option<&mut Entry> {
        self.watches.iter_mut().find(|entry| entry.index == index)
    }

    /// Returns whether a watch is not started, or its existing objects are not mapped. A thread that adds a watch may be between its registration and
    /// its start.
    fn is_starting(&self) -> bool {
        self.watches.iter().any(|entry| !matches!(entry.stage, Stage::Active { mapped: true, .. }))
    }

    /// Returns the number of watches that were added so far.
    pub(crate) fn added(&self) -> usize {
        self.added
    }

    pub(crate) fn informers(&self) -> Vec<(usize, Arc<WatchedInformer>)> {
        self.watches.iter().map(|entry| (entry.index, entry.informer.clone())).collect()
    }

    /// Returns the mappers of the active watches.
    pub(crate) fn mappers(&self) -> Vec<(usize, Arc<dyn RetryMapping>)> {
        let active = |entry: &Entry| match &entry.stage {
            Stage::Active { watch, .. } => Some((entry.index, watch.mapper.clone())),
            Stage::Registered(_) | Stage::Starting => None,
        };
        self.watches.iter().filter_map(active).collect()
    }
}

/// Returns whether a cache will never change again although the controller needs it. With `stop_when_idle`, a cache that was stopped normally does
/// not count.
pub(crate) fn has_ended(cache: &WatchStatus, stop_when_idle: bool) -> bool {
    cache.state.is_final() && !(stop_when_idle && cache.state == InformerState::Stopped)
}

/// A guard of the run: when the guard is dropped, the controller is marked as ended.
pub(crate) struct RunGuard(pub(crate) WatchSet);

impl Drop for RunGuard {
    fn drop(&mut self) {
        let mut watches = Vec::new();
        self.0.change(|state| {
            state.lifecycle = Lifecycle::Ended;
            watches = std::mem::take(&mut state.watches);
            watches.iter().for_each(|entry| entry.informer.remove());
            true
        });
        // Dropping an entry drops the handles of its cache and the user's functions.
        watches.into_iter().for_each(|entry| _ = panics::caught(|| drop(entry)));
    }
}

#[cfg(test)]
mod tests {
    use flyball_informer_cache::testing::TestServer;
    use flyball_informer_cache::{Informer, Schema, Version};
    use flyball_sync::ManualClock;
    use futures_util::FutureExt;

    use super::*;
    use crate::WatchOptions;
    use crate::run::watched_informer::watched;

    /// Adds a watch.
    fn add(watches: &WatchSet) -> Result<usize, AddWatchError> {
        let schema = Schema::new(|number: &u32| *number, |_| Version::ZERO);
        let builder = Informer::builder(schema, TestServer::new(schema, |_, _, _| {}));
        let built = builder.timer(ManualClock::new().timer()).build();
        let (informer, _run) = built.expect("the configuration is the default");
        let sink = Arc::<std::sync::OnceLock<_>>::default();
        let options = WatchOptions::<u32, u32, u32, flyball_workqueue::Fifo>::new();
        watches.add(watched(&informer, |change| *change.key(), options, &sink))
    }

    /// A thread may add a watch after the last check of the caches. Its cache must be awaited, too.
    #[test]
    fn a_watch_that_was_added_after_the_last_check_delays_the_start() {
        let watches = WatchSet::default();
        watches.begin(false, true);
        let checked = watches.added();
        add(&watches).expect("the run has begun");
        assert!(!watches.enter_running(checked));
        assert_eq!(watches.lifecycle(), Lifecycle::Syncing);
        assert!(watches.enter_running(watches.added()));
        assert_eq!(watches.lifecycle(), Lifecycle::Running);
    }

    /// The thread that adds a watch first registers it, and then starts it. In between, the workers must not start, and the run must not end.
    #[test]
    fn a_watch_that_is_registered_and_not_started_is_awaited() {
        let watches = WatchSet::default();
        watches.begin(true, true);
        assert!(watches.all_started().now_or_never().is_some());
        add(&watches).expect("the run has begun");
        assert!(watches.all_started().now_or_never().is_none());
        assert!(!watches.shut_down_after(watches.added()));
    }
}
