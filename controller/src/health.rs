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

/// Whether a controller is ready and alive: for the probes of whoever runs the process. See
/// [`Controller::health`](crate::Controller::health). A clone costs a reference count.
#[derive(Clone)]
pub struct Health {
    life: Arc<watch::Sender<Life>>,
    /// For how long the oldest lease has been held.
    oldest: Arc<dyn Fn() -> Option<Duration> + Send + Sync>,
}

/// How one cache fares, its types out of sight.
pub(crate) type Probe = Arc<dyn Fn() -> InformerState + Send + Sync>;

#[derive(Default)]
struct Life {
    phase: Phase,
    /// Those that must not end while it works.
    caches: Vec<Probe>,
}

/// Where a controller is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Syncing,
    Working,
    Stopping,
    Over,
}

impl Health {
    pub(crate) fn new(oldest: impl Fn() -> Option<Duration> + Send + Sync + 'static) -> Self {
        Self { life: Arc::default(), oldest: Arc::new(oldest) }
    }

    /// Whether it does its work: all caches have synced, the workers run, and nobody has told it to stop.
    ///
    /// # Errors
    /// Why not.
    pub fn ready(&self) -> Result<(), NotReady> {
        match self.life.borrow().phase {
            Phase::Idle => Err(NotReady::Idle),
            Phase::Syncing => Err(NotReady::Syncing),
            Phase::Working => Ok(()),
            Phase::Stopping => Err(NotReady::Stopping),
            Phase::Over => Err(NotReady::Over),
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
        let life = self.life.borrow();
        let (phase, caches) = (life.phase, life.caches.clone());
        // A probe is not called while this is borrowed: the run future would wait for it.
        drop(life);
        match phase {
            Phase::Over => return Err(NotLive::Over),
            Phase::Working if caches.iter().any(|state| state().is_final()) => {
                return Err(NotLive::CacheEnded);
            }
            _ => {}
        }
        match (self.oldest)() {
            Some(held) if held > longest => Err(NotLive::Stuck(held)),
            _ => Ok(()),
        }
    }

    pub(crate) fn moved(&self, phase: Phase) {
        self.life.send_modify(|life| life.phase = phase);
    }

    pub(crate) fn listens(&self, caches: Vec<Probe>) {
        self.life.send_modify(|life| life.caches = caches);
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").field("phase", &self.life.borrow().phase).finish_non_exhaustive()
    }
}

/// The controller is over when this is dropped, wherever that is.
pub(crate) struct Alive(pub(crate) Health);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.moved(Phase::Over);
        // They hold the caches' handles.
        self.0.listens(Vec::new());
    }
}

/// Why a controller is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotReady {
    /// It does not run yet.
    Idle,
    /// A cache has not synced, or something else that workers come [after](crate::Controller::after) is not there.
    Syncing,
    /// It shuts down.
    Stopping,
    /// It has ended, or was dropped.
    Over,
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "the controller does not run yet",
            Self::Syncing => "the controller waits for its caches",
            Self::Stopping => "the controller shuts down",
            Self::Over => "the controller has ended",
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
    /// A cache it listens to has ended, so its changes do not come any more. Not told of a controller that ends
    /// [by itself](crate::Controller::until_settled) then.
    CacheEnded,
    /// It has ended, or was dropped.
    Over,
}

impl fmt::Display for NotLive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stuck(held) => write!(f, "a key has been worked on for {held:?}"),
            Self::CacheEnded => f.write_str("a cache of the controller has ended"),
            Self::Over => f.write_str("the controller has ended"),
        }
    }
}

impl Error for NotLive {}
