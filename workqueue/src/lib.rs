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
pub use crate::futures::end_and_get::EndAndGet;
pub use crate::futures::get::Get;
pub use crate::futures::get_many::GetMany;
pub use crate::futures::next_overdue::NextOverdue;
#[cfg(feature = "stream")]
pub use crate::futures::stream::LeaseStream;
pub use crate::futures::wait_idle::WaitIdle;
pub use crate::key::Key;
pub use crate::lease::{Lease, LeaseOutcome};
pub use crate::limiter::{NoLimiter, QueueLimiter};
pub use crate::metrics::{QueueMetrics, StatsReader};
pub use crate::queue::consumer::Consumer;
pub use crate::queue::{AddOptions, AddedMany, DrainOptions, KeyInfo, Queue, QueueBuilder};
pub use crate::state::order::{Fair, Fifo, GroupStats, Order, Priority, PriorityStats, TopGroups};
pub use crate::state::wait::DelayMode;
pub use crate::state::{Added, KeyState, Leftovers, OverdueLease, QueueStats};

#[cfg(feature = "tokio")]
#[doc(no_inline)]
pub use flyball_sync::TokioTimer;
#[doc(no_inline)]
pub use flyball_sync::{Clock, ManualClock, ManualTimer, Monotonic, Nanos, ThreadTimer, Timer};
