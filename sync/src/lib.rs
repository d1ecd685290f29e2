#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
// The readme links to `TokioTimer`.
#![cfg_attr(not(feature = "tokio"), allow(rustdoc::broken_intra_doc_links))]

// The hidden modules are shared by the flyball crates. Other crates should not use them, because they change without notice.
#[doc(hidden)]
pub mod locks;
#[doc(hidden)]
pub mod panics;
#[doc(hidden)]
pub mod random;
#[doc(hidden)]
pub mod steps;
mod time;
#[doc(hidden)]
pub mod waiting;

#[cfg(feature = "tokio")]
pub use crate::time::TokioTimer;
#[cfg(feature = "serde")]
pub use crate::time::duration_serde;
pub use crate::time::{Clock, ManualClock, ManualTimer, Monotonic, Nanos, ThreadTimer, Timer};
pub use crate::waiting::{block_on, block_on_timeout};

/// Panics unless this build uses the locks and atomics of loom or shuttle.
///
/// A model that is built with ordinary locks explores only one interleaving, so it passes even if the code is wrong. So call this first in your own
/// models: it panics if the crates were built without `--cfg flyball_loom` or `--cfg flyball_shuttle`.
///
/// # Panics
/// Panics in a build without loom or shuttle.
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
