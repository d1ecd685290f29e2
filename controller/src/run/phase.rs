//! SHELL. The phase of a run, which is published to all workers at once.
//!
//! | guarded by | |
//! |---|---|
//! | the phase | a `watch` channel that only the run future writes, and the workers read |
//!
//! The phase only advances, with one exception: a new watch moves it from `Draining` back to `Working`.

use tokio::sync::watch;

/// The phase of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RunPhase {
    /// No workers have started.
    #[default]
    Starting,
    /// Workers take keys, and wait for a key if the queue has none.
    Working,
    /// Workers still take keys, but a batch no longer waits for more keys.
    Draining,
    /// Workers no longer take keys.
    Stopping,
}

#[derive(Debug, Default)]
pub(crate) struct PhaseSignal(watch::Sender<RunPhase>);

impl PhaseSignal {
    pub(crate) fn raise(&self, to: RunPhase) {
        self.0.send_if_modified(|phase| {
            let raised = *phase < to;
            *phase = to.max(*phase);
            raised
        });
    }

    /// Returns from `Draining` to `Working`, because a new watch may cause more changes.
    pub(crate) fn resume(&self) {
        self.0.send_if_modified(|phase| {
            let drains = *phase == RunPhase::Draining;
            if drains {
                *phase = RunPhase::Working;
            }
            drains
        });
    }

    pub(crate) fn has(&self, reached: RunPhase) -> bool {
        *self.0.borrow() >= reached
    }

    /// Waits until the phase is at least `phase`.
    pub(crate) async fn reached(&self, phase: RunPhase) {
        // The wait cannot fail, because `self` holds the sender.
        let _ = self.0.subscribe().wait_for(|now| *now >= phase).await;
    }
}
