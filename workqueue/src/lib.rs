#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod error;
mod futures;
mod key;
mod lease;
mod limiter;
mod metrics;
mod queue;
mod state;

pub use crate::error::{AddError, AddErrorKind, GetTimeoutError, NotDetached, TryGetError};
pub use crate::futures::add_when_room::AddWhenRoom;
pub use crate::futures::get::Get;
pub use crate::futures::get_many::GetMany;
pub use crate::futures::next_overdue::NextOverdue;
#[cfg(feature = "stream")]
pub use crate::futures::stream::LeaseStream;
pub use crate::futures::wait_idle::WaitIdle;
pub use crate::key::Key;
pub use crate::lease::Lease;
pub use crate::lease::outcome::LeaseOutcome;
pub use crate::limiter::{NoLimiter, QueueLimiter};
pub use crate::metrics::QueueMetrics;
pub use crate::metrics::stats_reader::StatsReader;
pub use crate::queue::Queue;
pub use crate::queue::add::AddedMany;
pub use crate::queue::builder::QueueBuilder;
pub use crate::queue::delay::AddOptions;
pub use crate::queue::inspect::KeyInfo;
pub use crate::queue::shutdown::DrainOptions;
pub use crate::state::ages::OverdueLease;
pub use crate::state::inspect::KeyState;
pub use crate::state::order::Order;
pub use crate::state::order::fair::Fair;
pub use crate::state::order::fifo::Fifo;
pub use crate::state::order::priority::Priority;
pub use crate::state::order::stats::{GroupStats, PriorityStats, TopGroups};
pub use crate::state::stats::QueueStats;
pub use crate::state::types::{Added, Leftovers};
pub use crate::state::wait::DelayMode;

#[cfg(feature = "tokio")]
#[doc(no_inline)]
pub use flyball_sync::TokioTimer;
#[doc(no_inline)]
pub use flyball_sync::{
    Clock, ManualClock, ManualTimer, Monotonic, Nanos, ThreadTimer, Timer, block_on, block_on_timeout,
};
