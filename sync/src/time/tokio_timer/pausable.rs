//! EDGE. Whether this build of tokio can pause a clock: it can with its feature `test-util`.
//!
//! A crate does not see the features that others enable. But the feature brings a method, and a method of a type goes before one of
//! a trait: whether the call below compiles to tokio's own or to ours is seen by what it gives back.
//!
//! Rejected: a feature of ours, which a test would have to enable in addition, and whose lack nothing would show but a timer
//! that does not follow the paused clock.
//!
//! Cancel safety: nothing here waits.

use tokio::runtime::Builder;

/// What the call gives back where tokio does not have the method.
struct Missing;

trait StartPaused {
    fn start_paused(&mut self, _: bool) -> Missing {
        Missing
    }
}

impl StartPaused for Builder {}

/// Else it would be dead code where tokio's own goes before it.
const _: fn(&mut Builder, bool) -> Missing = <Builder as StartPaused>::start_paused;

trait CanPause {
    const CAN_PAUSE: bool;
}

impl CanPause for Missing {
    const CAN_PAUSE: bool = false;
}

impl CanPause for &mut Builder {
    const CAN_PAUSE: bool = true;
}

fn can_pause<T: CanPause>(_: T) -> bool {
    T::CAN_PAUSE
}

pub(super) fn clocks_can_be_paused() -> bool {
    can_pause(Builder::new_current_thread().start_paused(false))
}

#[cfg(test)]
mod tests {
    /// The tests of this crate have the feature.
    #[test]
    fn sees_the_feature_of_tokio() {
        assert!(super::clocks_can_be_paused());
    }
}
