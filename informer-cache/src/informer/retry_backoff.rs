//! EDGE. A user-defined backoff after failures. The run future calls the backoff's methods while it holds no lock.

use std::time::Duration;

use flyball_sync::Nanos;
use flyball_sync::panics::{DropContained, caught};

use crate::{Reflector, ReflectorPhase};

/// A user-defined backoff after failures of an informer's source. Pass it to
/// [`PreparedInformer::with_backoff`](crate::PreparedInformer::with_backoff), where it replaces the
/// [`ReflectorBackoff`](crate::ReflectorBackoff).
///
/// # Panics
/// A panic in one of these methods is caught. If [`failed`](Self::failed) panics, the informer waits for the time
/// that its [`ReflectorBackoff`](crate::ReflectorBackoff) specifies.
pub trait RetryBackoff: Send + Sync + 'static {
    /// Called after a failure, if the informer waits before its next request. Returns how long it waits.
    fn failed(&mut self) -> Duration;

    /// Called after a list was completed, after a watch delivered an event, and after a watch ended normally.
    fn succeeded(&mut self);
}

/// The user-defined backoff of an informer, if one is set.
#[derive(Default)]
pub(super) struct ChosenBackoff(pub(super) Option<DropContained<Box<dyn RetryBackoff>>>);

impl ChosenBackoff {
    /// If the reflector waits, and there is a user-defined backoff, sets the wait to the duration that the backoff returns.
    pub(super) fn failed(&mut self, reflector: &mut Reflector, now: Nanos) {
        let (Some(backoff), ReflectorPhase::Waiting { .. }) = (&mut self.0, reflector.phase()) else {
            return;
        };
        if let Some(wait) = caught(|| backoff.failed()) {
            reflector.wait_for(wait, now);
        }
    }

    pub(super) fn succeeded(&mut self) {
        if let Some(backoff) = &mut self.0 {
            caught(|| backoff.succeeded());
        }
    }
}
