//! SHELL. The status of an informer, for health checks and for diagnosis.
//!
//! | guarded by `status` | |
//! |---|---|
//! | the whole [`InformerStatus`], and the error that a success does not clear | written by the run future when its state changes, after each batch, and after each failure or panic; not for each event |
//!
//! Error messages are allocated before the lock is taken, and dropped after it is released.

use std::sync::Arc;

use flyball_sync::Nanos;
use flyball_sync::locks::Mutex;

use crate::{BackoffCause, ReflectorPhase, Version};

/// The status of an informer at the time of the call. It is a copy, which later changes do not update.
///
/// # Examples
/// Reads the status after one failure of the source, and again after the next success:
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
    /// What the informer currently does.
    pub state: InformerState,
    /// The last failure of the source, or `None` if the source has responded successfully since then. A timeout includes the error before it. If the last list could not delete all objects
    /// that it does not contain, it is `Some` until the next list; see [`withheld_deletions`](Self::withheld_deletions). If the informer has
    /// [failed](InformerState::Failed), this is the panic that ended it.
    pub last_error: Option<ErrorRecord>,
    /// The number of stored objects that the last list did not contain, and that it has not deleted, because they may be listed objects on which the
    /// key function panicked. With an [identity function](crate::Schema::with_identity), these are the objects that have the identity of such a
    /// listed object; without one, or if there are more than 16 such listed objects, all objects that the list did not contain.
    /// [`last_error`](Self::last_error) contains the message of the panic.
    pub withheld_deletions: u64,
    /// The number of stale events. A stale event changes nothing, because it is older than the known state of its object, or repeats that state.
    /// After an interrupted watch, the events of the newest version are usually delivered again.
    pub stale_events: u64,
    /// The number of panics of the user's functions that the informer caught while it applied an object or published a list. If a function panics on
    /// an object, the stored object stays unchanged; but a deletion is applied nevertheless, unless the key function panics. If a function panics
    /// while a complete list is compared with the store, the list is discarded, and the informer lists again.
    pub panics: u64,
    /// The last panic that is counted in `panics`.
    pub last_panic: Option<ErrorRecord>,
    /// The time of the source's last successful response (a list, an opened watch, or an event), on the informer's clock.
    pub last_success: Option<Nanos>,
    /// The number of lists published after the first one.
    pub relists: u64,
    /// The number of watches that were requested after an earlier watch, without a list in between.
    pub watch_restarts: u64,
    /// The version of the store.
    pub version: Version,
}

/// What an informer currently does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InformerState {
    /// The run future has not been polled yet.
    NotStarted,
    /// The informer requests a list.
    Listing,
    /// The informer watches, opens a watch, or pauses before the next watch because the last watch ended early.
    Watching,
    /// The informer waits after a failure. The store stays unchanged.
    Waiting {
        /// The time at which the wait ends, on the informer's clock.
        until: Nanos,
        /// The cause of the wait.
        cause: BackoffCause,
    },
    /// The informer was shut down, or its run future was dropped. The store keeps its last published state.
    Stopped,
    /// The source or the timer panicked; [`InformerStatus::last_error`] contains the panic message. The store keeps its last published state.
    Failed,
}

impl InformerState {
    /// Returns whether the informer has ended, that is, stopped or failed.
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

/// An error message and the time of the error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorRecord {
    /// The time of the error, on the informer's clock.
    pub at: Nanos,
    /// The error message. It includes the message of the source's own error, if there is one.
    pub message: Arc<str>,
}

/// The status of one informer, shared between its run future and its handles.
#[derive(Debug)]
pub(crate) struct StatusCell {
    status: Mutex<Recorded>,
}

#[derive(Debug)]
struct Recorded {
    status: InformerStatus,
    /// The error that a successful response does not clear: the last list has withheld deletions.
    lasting: Option<ErrorRecord>,
}

impl StatusCell {
    pub(crate) fn new() -> Self {
        let status = InformerStatus {
            state: InformerState::NotStarted,
            last_error: None,
            withheld_deletions: 0,
            stale_events: 0,
            panics: 0,
            last_panic: None,
            last_success: None,
            relists: 0,
            watch_restarts: 0,
            version: Version::ZERO,
        };
        Self { status: Mutex::new(Recorded { status, lasting: None }) }
    }

    /// Returns the status without the version; the caller reads the version from the store.
    pub(crate) fn read(&self) -> InformerStatus {
        self.status.lock().status.clone()
    }

    /// Records a new state of the informer. Never called after [`ended`](Self::ended), which sets a final state.
    pub(crate) fn moved(&self, state: InformerState, relists: u64, watch_restarts: u64) {
        let Recorded { status, .. } = &mut *self.status.lock();
        status.state = state;
        status.relists = relists;
        status.watch_restarts = watch_restarts;
    }

    /// Records a successful response of the source, which clears the last error, unless the last list has withheld deletions.
    pub(crate) fn succeeded(&self, now: Nanos, stale: u64) {
        let mut recorded = self.status.lock();
        let Recorded { status, lasting } = &mut *recorded;
        (status.last_success, status.stale_events) = (Some(now), stale);
        let over = std::mem::replace(&mut status.last_error, lasting.clone());
        drop(recorded);
        drop(over);
    }

    /// Records a published list: the number of deletions that it has withheld, and the reason. Without a reason, clears the reason of an earlier list.
    pub(crate) fn listed(&self, at: Nanos, withheld_deletions: u64, reason: Option<&str>) {
        let lasting = reason.map(|message| ErrorRecord { at, message: message.into() });
        let mut recorded = self.status.lock();
        recorded.status.withheld_deletions = withheld_deletions;
        let over = std::mem::replace(&mut recorded.lasting, lasting);
        drop(recorded);
        drop(over);
    }

    pub(crate) fn failed(&self, at: Nanos, message: &str) {
        let error = ErrorRecord { at, message: message.into() };
        let old = self.status.lock().status.last_error.replace(error);
        drop(old);
    }

    /// Records a panic of a user's function.
    pub(crate) fn panicked(&self, at: Nanos, message: &str) {
        let panic = ErrorRecord { at, message: message.into() };
        let mut recorded = self.status.lock();
        recorded.status.panics += 1;
        let old = recorded.status.last_panic.replace(panic);
        drop(recorded);
        drop(old);
    }

    /// Sets the final state. Called once, when the informer ends.
    pub(crate) fn ended(&self, state: InformerState) {
        self.status.lock().status.state = state;
    }
}
