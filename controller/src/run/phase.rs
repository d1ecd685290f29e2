//! SHELL. How far workers are to go, said once for all of them.
//!
//! | guarded by | |
//! |---|---|
//! | the pace | a `watch` channel: written by the run future alone, read by the workers |
//!
//! It only ever rises, but for a drain that one more watch ends.

use tokio::sync::watch;

/// How far workers are to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RunPhase {
    /// There are none yet.
    #[default]
    Starting,
    /// They take keys, and wait for them.
    Working,
    /// They take keys, but no batch waits for more of them.
    Draining,
    /// They take no key any more.
    Stopping,
}

#[derive(Debug, Default)]
pub(crate) struct PhaseSignal(watch::Sender<RunPhase>);

impl PhaseSignal {
    pub(crate) fn raise(&self, to: RunPhase) {
        self.0.send_if_modified(|pace| {
            let raised = *pace < to;
            *pace = to.max(*pace);
            raised
        });
    }

    /// There is more to come: a drain is over.
    pub(crate) fn resume(&self) {
        self.0.send_if_modified(|pace| {
            let drains = *pace == RunPhase::Draining;
            if drains {
                *pace = RunPhase::Working;
            }
            drains
        });
    }

    pub(crate) fn has(&self, reached: RunPhase) -> bool {
        *self.0.borrow() >= reached
    }

    /// Waits until it is at least this.
    pub(crate) async fn reached(&self, pace: RunPhase) {
        // It cannot fail: the sender is ours.
        let _ = self.0.subscribe().wait_for(|now| *now >= pace).await;
    }
}
