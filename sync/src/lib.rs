#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// Hidden: what the crates of the family share, and no other crate should use, as it changes without notice.
#[doc(hidden)]
pub mod locks;
#[doc(hidden)]
pub mod panics;
#[doc(hidden)]
pub mod random;
mod time;
#[doc(hidden)]
pub mod waiting;

#[cfg(feature = "tokio")]
pub use crate::time::TokioTimer;
#[cfg(feature = "serde")]
pub use crate::time::duration_serde;
pub use crate::time::{Clock, ManualClock, ManualTimer, Monotonic, Nanos, ThreadTimer, Timer};
pub use crate::waiting::{block_on, block_on_timeout};

/// Fails unless the locks and atomics of this build are those of loom or shuttle.
///
/// A model over ordinary locks explores one interleaving and passes. Call this first in your own models: it fails when the crates were built
/// without `--cfg flyball_loom` or `--cfg flyball_shuttle`.
///
/// # Panics
/// In an ordinary build.
///
/// # Examples
/// ```no_run
/// // RUSTFLAGS="--cfg flyball_loom" cargo test --release
/// flyball_sync::assert_modelled();
/// // loom::model(|| { … });
/// ```
#[track_caller]
pub fn assert_modelled() {
    assert!(
        locks::are_modelled(),
        "not built for a model checker: set RUSTFLAGS=\"--cfg flyball_loom\" (or flyball_shuttle) and enable the feature of flyball-sync"
    );
}
