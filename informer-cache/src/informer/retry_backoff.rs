//! EDGE. Waits after failures by a backoff of the program's. It is called by the run future, under no lock.

use std::time::Duration;

use flyball_sync::Nanos;
use flyball_sync::panics::caught;

use crate::{Reflector, ReflectorPhase};

/// How long an informer waits after failures of its source, in place of [`ReflectorBackoff`](crate::ReflectorBackoff); see
/// [`PreparedInformer::with_backoff`](crate::PreparedInformer::with_backoff).
///
/// # Panics
/// A panic of it leaves the wait as the configuration of the reflector has it.
pub trait RetryBackoff: Send + Sync + 'static {
    /// A request failed: how long to wait before the next.
    fn failed(&mut self) -> Duration;

    /// A list is complete, a watch delivered an event, or it ended in order.
    fn succeeded(&mut self);
}

/// The backoff of an informer, if the program has chosen one.
#[derive(Default)]
pub(super) struct ChosenBackoff(pub(super) Option<Box<dyn RetryBackoff>>);

impl ChosenBackoff {
    /// Asks for the length of a wait that has begun.
    pub(super) fn failed(&mut self, reflector: &mut Reflector, now: Nanos) {
        if let (Some(backoff), ReflectorPhase::Waiting { .. }) = (&mut self.0, reflector.phase())
            && let Some(wait) = caught(|| backoff.failed())
        {
            reflector.wait_for(wait, now);
        }
    }

    pub(super) fn succeeded(&mut self) {
        if let Some(backoff) = &mut self.0 {
            caught(|| backoff.succeeded());
        }
    }
}
