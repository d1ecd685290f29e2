//! SHELL. The watches of a controller, and how far its run is: shared by the run, its handles and its health.
//!
//! | guarded by | |
//! |---|---|
//! | everything | the lock of a `watch` channel: how far the run is, is written by the run future alone, the list by anybody. What begins, ends or drops a watch is user code, and runs outside: it is taken out first |
//!
//! # A change is mapped by one watch, or by none
//! A watch is registered, starting, or active; who takes it out of "registered" starts it. One that was removed meanwhile, or whose run
//! has ended, is dropped there. Until then its flag keeps changes from becoming keys. A run that ends when it is idle is not while one is
//! starting: the objects there are may be about to become keys.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Weak};

use flyball_informer_cache::InformerState;
use flyball_sync::panics;
use tokio::sync::watch;

use crate::CacheStatus;
use crate::run::mapper_retry::RetryMapping;
use crate::run::watched_informer::{ActiveWatch, Observe, WatchedInformer};

#[derive(Clone, Default)]
pub(crate) struct WatchSet(Arc<watch::Sender<State>>);

/// The set that a number belongs to. It keeps nothing of it alive but its address.
pub(crate) type WeakSet = Weak<watch::Sender<State>>;

#[derive(Default)]
pub(crate) struct State {
    lifecycle: Lifecycle,
    /// Whether changes become keys: not before the run, nor in standby.
    observing: bool,
    /// Whether informers may be stopped while it runs.
    stop_when_idle: bool,
    /// How many there were so far: the number of the next.
    added: usize,
    watches: Vec<Entry>,
    /// The cache that ended the run.
    ended: Option<CacheStatus>,
}

struct Entry {
    index: usize,
    informer: Arc<WatchedInformer>,
    stage: Stage,
}

enum Stage {
    Registered(Observe),
    /// Its first objects are becoming keys, on whatever thread adds it.
    Starting,
    Active(ActiveWatch),
}

/// How far a controller is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lifecycle {
    #[default]
    NotStarted,
    Syncing,
    /// All caches have synced; it waits to lead.
    Standby,
    Running,
    ShuttingDown,
    Ended,
}

impl WatchSet {
    /// Changes the state, and wakes those who follow it if `change` returns `true`.
    fn change(&self, change: impl FnOnce(&mut State) -> bool) {
        self.0.send_if_modified(change);
    }

    /// Adds a watch, and starts it if changes become keys already; its number, or nothing once the controller shuts down.
    pub(crate) fn add(&self, (informer, observe): (Arc<WatchedInformer>, Observe)) -> Option<usize> {
        let (mut new, mut index, mut observing) = (Some((informer, Stage::Registered(observe))), 0, false);
        self.change(|state| {
            if state.lifecycle >= Lifecycle::ShuttingDown {
                return false;
            }
            (index, observing) = (state.added, state.observing);
            state.added += 1;
            let entry = new.take().map(|(informer, stage)| Entry { index, informer, stage });
            state.watches.extend(entry);
            true
        });
        if new.is_some() || (observing && !self.start_watch(index)) { None } else { Some(index) }
    }

    /// No change that is published from now on becomes a key of this watch; whether there was one.
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

    /// Starts every watch, and from now on those that are added.
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

    /// Starts a watch, unless another one does; `false` if the run has ended meanwhile.
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
        // What the user's `Clone` of a key panics with is raised once the watch is out: a run would wait for its start for ever.
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
            active.take().map(|active| entry.stage = Stage::Active(active)).is_some()
        });
        // Dropped here, if it was removed.
        open
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

    /// The run begins.
    pub(crate) fn begin(&self, stop_when_idle: bool) {
        self.change(|state| {
            (state.lifecycle, state.stop_when_idle) = (Lifecycle::Syncing, stop_when_idle);
            true
        });
    }

    pub(crate) fn enter(&self, lifecycle: Lifecycle) {
        self.change(|state| {
            state.lifecycle = lifecycle;
            true
        });
    }

    /// Waits until there were more than so many watches.
    pub(crate) async fn more_than(&self, added: usize) {
        // It cannot fail: the sender is ours.
        let _ = self.0.subscribe().wait_for(|state| state.added > added).await;
    }

    /// Waits until no watch is starting.
    pub(crate) async fn all_started(&self) {
        // It cannot fail: the sender is ours.
        let _ = self.0.subscribe().wait_for(|state| !state.is_starting()).await;
    }

    /// Shuts down, unless watches were added since there were so many, or one is starting.
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

    /// Shuts down: no watch is added or started from now on. Returns those that were active.
    pub(crate) fn shut_down(&self, ended: Option<CacheStatus>) -> Vec<ActiveWatch> {
        let mut stages = Vec::new();
        self.change(|state| {
            (state.lifecycle, state.ended) = (Lifecycle::ShuttingDown, ended);
            let taken = |entry: &mut Entry| {
                // One that is being added maps no more changes either.
                entry.informer.remove();
                std::mem::replace(&mut entry.stage, Stage::Starting)
            };
            stages.extend(state.watches.iter_mut().map(taken));
            true
        });
        let active = |stage| match stage {
            Stage::Active(active) => Some(active),
            other => panics::caught(|| drop(other)).and(None),
        };
        stages.into_iter().filter_map(active).collect()
    }

    pub(crate) fn lifecycle(&self) -> Lifecycle {
        self.0.borrow().lifecycle
    }

    /// How many watches there are.
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().watches.len()
    }

    pub(crate) fn contains(&self, index: usize) -> bool {
        self.0.borrow().watches.iter().any(|entry| entry.index == index)
    }

    /// The informers, by number. None of them is called while this is borrowed: the run future would wait for it.
    pub(crate) fn informers(&self) -> Vec<(usize, Arc<WatchedInformer>)> {
        self.0.borrow().informers()
    }

    /// How the caches fare.
    pub(crate) fn statuses(&self) -> Vec<CacheStatus> {
        self.informers().iter().map(|(index, informer)| informer.status(*index)).collect()
    }

    /// The first cache that has ended while the controller needs it.
    pub(crate) fn ended_cache(&self) -> Option<CacheStatus> {
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

    fn is_starting(&self) -> bool {
        self.watches.iter().any(|entry| matches!(entry.stage, Stage::Starting))
    }

    /// How many there were so far.
    pub(crate) fn added(&self) -> usize {
        self.added
    }

    pub(crate) fn informers(&self) -> Vec<(usize, Arc<WatchedInformer>)> {
        self.watches.iter().map(|entry| (entry.index, entry.informer.clone())).collect()
    }

    /// The mappers of those that are active.
    pub(crate) fn mappers(&self) -> Vec<(usize, Arc<dyn RetryMapping>)> {
        let active = |entry: &Entry| match &entry.stage {
            Stage::Active(active) => Some((entry.index, active.mapper.clone())),
            Stage::Registered(_) | Stage::Starting => None,
        };
        self.watches.iter().filter_map(active).collect()
    }
}

/// Whether a cache will never change again, though the controller needs it. One that stops when idle needs none that was stopped.
pub(crate) fn has_ended(cache: &CacheStatus, stop_when_idle: bool) -> bool {
    cache.state.is_final() && !(stop_when_idle && cache.state == InformerState::Stopped)
}

/// The controller has ended when this is dropped, wherever that is.
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
        // They hold the caches' handles, and the user's functions.
        watches.into_iter().for_each(|entry| _ = panics::caught(|| drop(entry)));
    }
}
