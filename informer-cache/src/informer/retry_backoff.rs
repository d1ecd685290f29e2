//! EDGE. A user-defined backoff after failures. The run future calls it without holding a lock.

use std::time::Duration;

use flyball_sync::Nanos;
use flyball_sync::panics::caught;

use crate::{Reflector, ReflectorPhase};

/// A backoff after failures of an informer's source, in place of [`ReflectorBackoff`](crate::ReflectorBackoff); see
/// [`PreparedInformer::with_backoff`](crate::PreparedInformer::with_backoff).
///
/// # Panics
/// A panic in one of these methods is caught. If [`failed`](Self::failed) panics, the informer waits as long as its
/// [`ReflectorBackoff`](crate::ReflectorBackoff) specifies.
pub trait RetryBackoff: Send + Sync + 'static {
    /// Called after a request failed. Returns the wait before the next request.
    fn failed(&mut self) -> Duration;

    /// Called after a list is complete, a watch delivered an event, or a watch ended normally.
    fn succeeded(&mut self);
}

/// The user-defined backoff of an informer, if one is set.
#[derive(Default)]
pub(super) struct ChosenBackoff(pub(super) Option<Box<dyn RetryBackoff>>);

impl ChosenBackoff {
    /// If the reflector has begun a wait, sets the length of the wait to the value of the user-defined backoff.
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
