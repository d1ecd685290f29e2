//! SHELL. Whether a controller is ready, and whether it is alive, for who asks from outside.
//!
//! | guarded by | |
//! |---|---|
//! | where it is in its life, and whose caches it listens to | a `watch` channel: written by the run future alone, read by anybody |
//!
//! Everything else is asked of the queue and the caches at the moment of the question: there is no second truth.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use flyball_informer_cache::InformerState;
use tokio::sync::watch;

use crate::CacheStatus;
use crate::cache_status::Probe;

/// Whether a controller is ready and alive: for the probes of whoever runs the process. See
/// [`Controller::health`](crate::Controller::health). A clone costs a reference count.
#[derive(Clone)]
pub struct Health {
    life: Arc<watch::Sender<HealthState>>,
    /// For how long the oldest lease has been held.
    oldest: Arc<dyn Fn() -> Option<Duration> + Send + Sync>,
}

#[derive(Default)]
struct HealthState {
    phase: Lifecycle,
    /// Its own.
    caches: Vec<Probe>,
    /// Whether they may be stopped while it works.
    stop_when_idle: bool,
    /// The cache that ended the run.
    ended: Option<CacheStatus>,
}

/// Where a controller is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lifecycle {
    #[default]
    NotStarted,
    Syncing,
    /// All caches have synced; it waits for its turn to work.
    Standby,
    Running,
    ShuttingDown,
    Ended,
}

impl Health {
    pub(crate) fn new(oldest: impl Fn() -> Option<Duration> + Send + Sync + 'static) -> Self {
        Self { life: Arc::default(), oldest: Arc::new(oldest) }
    }

    /// Whether the controller runs, or [stands by](crate::Controller::standby_until): all required caches have synced, none has
    /// ended, and the controller is not shutting down.
    ///
    /// # Errors
    /// Why not.
    pub fn ready(&self) -> Result<(), NotReady> {
        if let Some(CacheStatus { index, object_type, .. }) = self.ended_cache() {
            return Err(NotReady::CacheEnded { index, object_type });
        }
        match self.life.borrow().phase {
            Lifecycle::NotStarted => Err(NotReady::NotStarted),
            Lifecycle::Syncing => Err(NotReady::Syncing),
            Lifecycle::Standby | Lifecycle::Running => Ok(()),
            Lifecycle::ShuttingDown => Err(NotReady::ShuttingDown),
            Lifecycle::Ended => Err(NotReady::Ended),
        }
    }

    /// Whether there is hope: no key has been held for longer than `longest`, none of the caches it listens to has ended,
    /// and the run is not over. A controller that has not begun, or waits for its caches, is alive.
    ///
    /// Choose `longest` well above the [`reconcile_timeout`](crate::Controller::reconcile_timeout), which drops only what
    /// awaits something: this finds what blocks its thread, too.
    ///
    /// # Errors
    /// Why not.
    pub fn live(&self, longest: Duration) -> Result<(), NotLive> {
        if self.ended_cache().is_some() {
            return Err(NotLive::CacheEnded);
        }
        if self.life.borrow().phase == Lifecycle::Ended {
            return Err(NotLive::Ended);
        }
        match (self.oldest)() {
            Some(held) if held > longest => Err(NotLive::Stuck(held)),
            _ => Ok(()),
        }
    }

    /// How the caches fare that the controller listens to, in their order. None before it runs, and after that.
    #[must_use]
    pub fn caches(&self) -> Vec<CacheStatus> {
        // A probe is not called while this is borrowed: the run future would wait for it.
        let caches = self.life.borrow().caches.clone();
        caches.iter().map(|probe| probe()).collect()
    }

    /// The first cache that has ended while the controller needs it.
    fn ended_cache(&self) -> Option<CacheStatus> {
        let life = self.life.borrow();
        let (phase, stop_when_idle, ended) = (life.phase, life.stop_when_idle, life.ended.clone());
        drop(life);
        if ended.is_some() || !matches!(phase, Lifecycle::Syncing | Lifecycle::Standby | Lifecycle::Running) {
            return ended;
        }
        self.caches().into_iter().find(|cache| has_ended(cache, stop_when_idle))
    }

    /// The run ends because of this one.
    pub(crate) fn failed(&self, cache: CacheStatus) {
        self.life.send_modify(|life| life.ended = Some(cache));
    }

    pub(crate) fn moved(&self, phase: Lifecycle) {
        self.life.send_modify(|life| life.phase = phase);
    }

    pub(crate) fn listens(&self, caches: Vec<Probe>, stop_when_idle: bool) {
        self.life.send_modify(|life| (life.caches, life.stop_when_idle) = (caches, stop_when_idle));
    }
}

/// Whether a cache will never change again, though the controller needs it. One that stop_when_idle needs none that was stopped.
pub(crate) fn has_ended(cache: &CacheStatus, stop_when_idle: bool) -> bool {
    cache.state.is_final() && !(stop_when_idle && cache.state == InformerState::Stopped)
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").field("phase", &self.life.borrow().phase).finish_non_exhaustive()
    }
}

/// The controller is over when this is dropped, wherever that is.
pub(crate) struct RunGuard(pub(crate) Health);

impl Drop for RunGuard {
    fn drop(&mut self) {
        self.0.moved(Lifecycle::Ended);
        // They hold the caches' handles.
        self.0.listens(Vec::new(), false);
    }
}

/// Why a controller is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotReady {
    /// It does not run yet.
    NotStarted,
    /// A cache has not synced, or something else that workers come [after](crate::Controller::wait_for_cache) is not there.
    Syncing,
    /// A cache has ended, so its changes do not come any more: the run ends as
    /// [`RunError::CacheEnded`](crate::RunError::CacheEnded), which says why.
    CacheEnded {
        /// Which one, in the order in which they were given to the controller, from 0.
        index: usize,
        /// The type of its objects, for people: how it is written is not promised.
        object_type: &'static str,
    },
    /// It shuts down.
    ShuttingDown,
    /// It has ended, or was dropped.
    Ended,
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CacheEnded { index, object_type } => {
                return write!(f, "the cache of `{object_type}`, number {index}, has ended");
            }
            Self::NotStarted => "the controller does not run yet",
            Self::Syncing => "the controller waits for its caches",
            Self::ShuttingDown => "the controller shuts down",
            Self::Ended => "the controller has ended",
        })
    }
}

impl Error for NotReady {}

/// Why there is no hope for a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotLive {
    /// A key has been held for this long.
    Stuck(Duration),
    /// A cache of the controller has ended and delivers no more changes. A cache that was stopped in order is not reported if the
    /// controller ends [once it has settled](crate::Controller::stop_when_idle).
    CacheEnded,
    /// It has ended, or was dropped.
    Ended,
}

impl fmt::Display for NotLive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stuck(held) => write!(f, "a key has been worked on for {held:?}"),
            Self::CacheEnded => f.write_str("a cache of the controller has ended"),
            Self::Ended => f.write_str("the controller has ended"),
        }
    }
}

impl Error for NotLive {}
