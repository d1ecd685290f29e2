//! SHELL. How an informer fares, for health checks and people.
//!
//! | guarded by `status` | |
//! |---|---|
//! | the whole [`InformerStatus`] | written by the run future when it changes its mind and once per batch, never per event |
//!
//! A text is made before locking and dropped after unlocking.

use std::sync::Arc;

use flyball_sync::Nanos;
use flyball_sync::locks::Mutex;

use crate::{BackoffCause, ReflectorPhase, Version};

/// How an informer fares. A copy: it does not change.
///
/// # Examples
/// A source that fails once:
/// ```
/// use flyball_informer_cache::testing::TestServer;
/// use flyball_informer_cache::{
///     ErrorRecord, Informer, InformerState, InformerStatus, ManualClock, Nanos, Schema, SourceErrorKind, Version,
/// };
/// use std::{pin::pin, task::{Context, Waker}, time::Duration};
///
/// const NUMBERS: Schema<u32, u32> = Schema::new(|number| *number, |_| Version::ZERO);
/// let server = TestServer::new(NUMBERS, |_, _, _| {});
/// server.fail_list(SourceErrorKind::ConnectionRefused);
///
/// let clock = ManualClock::new();
/// let (numbers, run) = Informer::builder(NUMBERS, server).timer(clock.timer()).build()?;
/// let mut run = pin!(run);
/// let mut turn = || assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
/// turn();
/// let InformerStatus { state, last_error, .. } = numbers.status();
/// assert!(matches!(state, InformerState::Waiting { .. }));
/// assert_eq!(last_error, Some(ErrorRecord { at: Nanos::ZERO, message: "connection refused".into() }));
///
/// clock.advance(Duration::from_secs(2)); // at most twice 800 ms
/// turn();
/// let InformerStatus { state, last_error, relists, .. } = numbers.status();
/// assert_eq!((state, last_error, relists), (InformerState::Watching, None, 0));
/// # Ok::<(), flyball_informer_cache::InformerBuildError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InformerStatus {
    /// What it is doing.
    pub state: InformerState,
    /// What went wrong with the source since it was last heard of; `None` as long as it answers. Of an informer that [failed](InformerState::Failed), the
    /// panic that ended it.
    pub last_error: Option<ErrorRecord>,
    /// How many events changed nothing, as they were older than what is known of their object, or repeated it.
    pub stale_events: u64,
    /// How many panics of the user's functions, while the informer applied an object or a list, were contained. The object is left out, or stays as it is
    /// stored; the list is asked for again.
    pub panics: u64,
    /// The last of them.
    pub last_panic: Option<ErrorRecord>,
    /// When the source was last heard of: a list, an open watch, or an event. On the informer's clock.
    pub last_success: Option<Nanos>,
    /// Lists published after the first one.
    pub relists: u64,
    /// Watches opened without a list before them.
    pub watch_restarts: u64,
    /// The version of the store.
    pub version: Version,
}

/// What an informer is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InformerState {
    /// The run future has not been polled yet.
    NotStarted,
    /// It lists.
    Listing,
    /// It watches, opens a watch, or is about to, since the last one ended early.
    Watching,
    /// It waits after a failure. The store stays as it is.
    Waiting {
        /// Until when, on the informer's clock.
        until: Nanos,
        /// After which failure.
        cause: BackoffCause,
    },
    /// It was shut down, or its run future was dropped. The store stays as it was published last.
    Stopped,
    /// The source or the timer panicked; [`InformerStatus::last_error`] has the message. The store stays as it was published last.
    Failed,
}

impl InformerState {
    /// Whether it will never do anything again.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Stopped | Self::Failed)
    }
}

impl From<ReflectorPhase> for InformerState {
    fn from(phase: ReflectorPhase) -> Self {
        match phase {
            ReflectorPhase::Listing => Self::Listing,
            ReflectorPhase::Watching => Self::Watching,
            ReflectorPhase::Waiting { until, cause } => Self::Waiting { until, cause },
        }
    }
}

/// What went wrong, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorRecord {
    /// When, on the informer's clock.
    pub at: Nanos,
    /// What, in the words of the source where it said something.
    pub message: Arc<str>,
}

/// The status of one informer, shared between its run future and its handles.
#[derive(Debug)]
pub(crate) struct StatusCell {
    status: Mutex<InformerStatus>,
}

impl StatusCell {
    pub(crate) fn new() -> Self {
        let status = InformerStatus {
            state: InformerState::NotStarted,
            last_error: None,
            stale_events: 0,
            panics: 0,
            last_panic: None,
            last_success: None,
            relists: 0,
            watch_restarts: 0,
            version: Version::ZERO,
        };
        Self { status: Mutex::new(status) }
    }

    /// The status, without the version, which the store knows.
    pub(crate) fn read(&self) -> InformerStatus {
        self.status.lock().clone()
    }

    /// The reflector moved on. A final state is never left.
    pub(crate) fn moved(&self, state: InformerState, relists: u64, watch_restarts: u64) {
        let mut status = self.status.lock();
        status.state = state;
        status.relists = relists;
        status.watch_restarts = watch_restarts;
    }

    /// The source was heard of, so what went wrong before is over.
    pub(crate) fn succeeded(&self, now: Nanos, stale: u64) {
        let mut status = self.status.lock();
        (status.last_success, status.stale_events) = (Some(now), stale);
        let over = status.last_error.take();
        drop(status);
        drop(over);
    }

    pub(crate) fn erred(&self, at: Nanos, message: &str) {
        let error = ErrorRecord { at, message: message.into() };
        let old = self.status.lock().last_error.replace(error);
        drop(old);
    }

    /// A function panicked on an object.
    pub(crate) fn panicked(&self, at: Nanos, message: &str) {
        let panic = ErrorRecord { at, message: message.into() };
        let mut status = self.status.lock();
        status.panics += 1;
        let old = status.last_panic.replace(panic);
        drop(status);
        drop(old);
    }

    /// Sets the final state, once.
    pub(crate) fn ended(&self, state: InformerState) {
        self.status.lock().state = state;
    }
}
