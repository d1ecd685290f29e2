#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod clock;
mod manual;
mod nanos;
mod policy;
mod sync;
mod timer;

pub use crate::clock::{Clock, ManualClock, Monotonic};
pub use crate::manual::ManualTimer;
pub use crate::nanos::Nanos;
pub use crate::policy::Policy;
pub use crate::timer::Timer;
