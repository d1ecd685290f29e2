#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod add_when_room;
mod block;
mod builder;
mod core;
mod dead;
mod deadlines;
mod drain;
mod entry;
mod error;
mod get;
mod get_many;
mod getter;
mod hash;
mod lease;
mod limiter;
mod list;
mod metrics;
mod next_overdue;
mod order;
mod parked;
mod queue;
mod shared;
mod siblings;
mod side;
mod slab;
mod sleepers;
#[cfg(feature = "stream")]
mod stream;
mod swap;
mod sync;
mod time;
mod wait;
mod wait_idle;

use flyball_ratelimit::{Exponential, Monotonic};

pub use crate::add_when_room::AddWhenRoom;
pub use crate::builder::Builder;
pub use crate::core::{Added, Ages, Counts, KeyState, Leftovers, Overdue};
pub use crate::drain::Drain;
pub use crate::error::{GetTimeoutError, NotDetached, Reason, Refused, TryGetError};
pub use crate::get::Get;
pub use crate::get_many::GetMany;
pub use crate::getter::Getter;
pub use crate::lease::Lease;
pub use crate::limiter::NoLimit;
#[cfg(any(feature = "metrics", feature = "prometheus-client"))]
pub use crate::metrics::InvalidLabel;
#[cfg(feature = "metrics")]
pub use crate::metrics::MetricsFacade;
#[cfg(feature = "tracing")]
pub use crate::metrics::Traced;
pub use crate::metrics::{Ended, Metrics, Reading, Watch};
#[cfg(feature = "prometheus-client")]
pub use crate::metrics::{InvalidBuckets, Prometheus, PrometheusQueue};
pub use crate::next_overdue::NextOverdue;
pub use crate::order::{Fair, Fifo, GroupCounts, GroupDepths, LevelDepth, Order, Priority};
pub use crate::queue::{AddedMany, At, KeyRecord, Queue, Snapshot};
pub use crate::shared::Key;
#[cfg(feature = "stream")]
pub use crate::stream::Leases;
pub use crate::swap::{AddKeys, BlockingTakeKeys, DelayKeys, EndKeys, TakeKeys};
pub use crate::time::{AsyncGet, Blocking, Delays, NoDelay, Time, Timed};
pub use crate::wait::DelayMode;
pub use crate::wait_idle::WaitIdle;

/// A queue with delays.
pub type DelayingQueue<K, T = Blocking<Monotonic>> = Queue<K, Fifo, NoLimit, T>;

/// A queue with delays and a limiter of failures.
pub type RateLimitingQueue<K, L = Exponential<K>, T = Blocking<Monotonic>> = Queue<K, Fifo, L, T>;
