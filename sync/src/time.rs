//! EDGE. Points in time, clocks, and timers. Cancel safety: nothing here waits.

pub(crate) mod clock;
#[cfg(feature = "serde")]
pub mod duration_serde;
mod manual_clock;
pub(crate) mod nanos;
mod thread_timer;
pub(crate) mod timer;
#[cfg(feature = "tokio")]
mod tokio_timer;

pub use clock::{Clock, Monotonic};
pub use manual_clock::{ManualClock, ManualTimer};
pub use nanos::Nanos;
pub use thread_timer::ThreadTimer;
pub use timer::Timer;
#[cfg(feature = "tokio")]
pub use tokio_timer::TokioTimer;
