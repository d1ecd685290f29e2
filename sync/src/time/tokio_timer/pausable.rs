//! EDGE. Detects whether this build of tokio can pause a clock, which needs tokio's feature `test-util`.
//!
//! A crate cannot see which features other crates enable. But the feature adds an inherent method, which takes precedence over the method of a trait
//! with the same name. So the return type of the call below shows whether it calls tokio's method or the method of the trait.
//!
//! Rejected: a feature of this crate, which a test would have to enable in addition. If a test enabled only tokio's feature, the timer would not
//! follow the paused clock, and nothing else would show the mistake.
//!
//! Cancel safety: nothing here waits.

use tokio::runtime::Builder;

/// The return type if tokio does not have the method.
struct Missing;

trait StartPaused {
    fn start_paused(&mut self, _: bool) -> Missing {
        Missing
    }
}

impl StartPaused for Builder {}

/// Prevents a dead-code warning if tokio's method takes precedence.
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
    /// The tests of this crate enable the feature.
    #[test]
    fn sees_the_feature_of_tokio() {
        assert!(super::clocks_can_be_paused());
    }
}
