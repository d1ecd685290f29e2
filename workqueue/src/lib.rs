#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod error;
mod lease;
mod limiter;
mod metrics;
mod queue;
mod state;

pub use crate::error::{AddError, AddErrorKind, GetTimeoutError, NotDetached, TryGetError};
pub use crate::lease::Lease;
pub use crate::lease::LeaseOutcome;
pub use crate::limiter::{NoLimiter, QueueLimiter};
pub use crate::metrics::QueueMetrics;
pub use crate::metrics::StatsReader;
pub use crate::queue::Key;
pub use crate::queue::Queue;
pub use crate::queue::add::AddWhenRoom;
pub use crate::queue::add::AddedMany;
pub use crate::queue::builder::QueueBuilder;
pub use crate::queue::delay::AddOptions;
pub use crate::queue::get_future::Get;
#[cfg(feature = "stream")]
pub use crate::queue::get_future::LeaseStream;
pub use crate::queue::inspect::KeyInfo;
pub use crate::queue::shutdown::DrainOptions;
pub use crate::state::inspect::KeyState;
pub use crate::state::order::Order;
pub use crate::state::order::fair::Fair;
pub use crate::state::order::fifo::Fifo;
pub use crate::state::order::priority::Priority;
pub use crate::state::stats::OverdueLease;
pub use crate::state::stats::QueueStats;
pub use crate::state::stats::{GroupStats, TopGroups};
pub use crate::state::types::{Added, Leftovers};
pub use crate::state::wait::DelayMode;

#[cfg(feature = "tokio")]
#[doc(no_inline)]
pub use flyball_sync::TokioTimer;
#[doc(no_inline)]
pub use flyball_sync::{
    Clock, ManualClock, ManualTimer, Monotonic, Nanos, ThreadTimer, Timer, block_on, block_on_timeout,
};
