#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod error;
mod futures;
mod getter;
mod lease;
mod limiter;
mod metrics;
mod queue;
mod state;
mod swap;
mod time;

use flyball_ratelimit::Exponential;

pub use crate::builder::Builder;
pub use crate::error::{GetTimeoutError, NotDetached, Reason, Refused, TryGetError};
pub use crate::futures::add_when_room::AddWhenRoom;
pub use crate::futures::drain::Drain;
pub use crate::futures::get::Get;
pub use crate::futures::get_many::GetMany;
pub use crate::futures::next_overdue::NextOverdue;
#[cfg(feature = "stream")]
pub use crate::futures::stream::Leases;
pub use crate::futures::wait_idle::WaitIdle;
pub use crate::getter::Getter;
pub use crate::lease::Lease;
pub use crate::limiter::NoLimit;
pub use crate::metrics::{Ended, Metrics, Reading, Watch};
pub use crate::queue::shared::Key;
pub use crate::queue::{AddedMany, At, KeyRecord, Queue, Snapshot};
pub use crate::state::order::{Fair, Fifo, GroupCounts, GroupDepths, LevelDepth, Order, Priority};
pub use crate::state::wait::DelayMode;
pub use crate::state::{Added, Ages, Counts, KeyState, Leftovers, Overdue};
pub use crate::swap::{AddKeys, BlockingTakeKeys, DelayKeys, EndKeys, TakeKeys};
pub use crate::time::{AsyncGet, Blocking, Delays, NoDelay, Time, Timed};

#[cfg(feature = "tokio")]
#[doc(no_inline)]
pub use flyball_sync::TokioTimer;
#[doc(no_inline)]
pub use flyball_sync::{Clock, ManualClock, Monotonic, Nanos, ThreadTimer, Timer};

/// A queue with delays.
pub type DelayingQueue<K, T = Blocking<Monotonic>> = Queue<K, Fifo, NoLimit, T>;

/// A queue with delays and a limiter of failures.
pub type RateLimitingQueue<K, L = Exponential<K>, T = Blocking<Monotonic>> = Queue<K, Fifo, L, T>;
