#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod block;
mod builder;
mod core;
mod deadlines;
mod drain;
mod entry;
mod error;
mod get;
mod lease;
mod limiter;
mod order;
mod parked;
mod queue;
mod shared;
mod slab;
mod sleepers;
mod sync;
mod time;

use flyball_ratelimit::{Exponential, Monotonic};

pub use crate::builder::Builder;
pub use crate::core::{Added, Counts, KeyState, Leftovers};
pub use crate::drain::Drain;
pub use crate::error::{GetTimeoutError, Refused, TryGetError};
pub use crate::get::Get;
pub use crate::lease::Lease;
pub use crate::limiter::NoLimit;
pub use crate::order::{Fifo, Order};
pub use crate::queue::Queue;
pub use crate::shared::Key;
pub use crate::time::{AsyncGet, Blocking, Delays, NoDelay, Time, Timed};

/// A queue with delays.
pub type DelayingQueue<K, T = Blocking<Monotonic>> = Queue<K, Fifo, NoLimit, T>;

/// A queue with delays and a limiter of failures.
pub type RateLimitingQueue<K, L = Exponential<K>, T = Blocking<Monotonic>> = Queue<K, Fifo, L, T>;
