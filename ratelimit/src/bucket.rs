//! SHELL. Token buckets: the arithmetic is in `token_bucket.rs`; shared and keyed buckets are built on it. Each
//! file documents its locks.

mod acquire;
mod fixed_point;
mod keyed_rate_limiter;
mod keyed_shard;
mod packed;
pub(crate) mod quota;
mod rate_limiter;
pub(crate) mod reservation;
mod shared;
pub(crate) mod token_bucket;
mod unclaimed;
mod waiters;

pub use acquire::{Acquire, AcquireMany};
pub use keyed_rate_limiter::KeyedRateLimiter;
pub use quota::Quota;
pub use rate_limiter::RateLimiter;
pub use reservation::Reservation;
pub use token_bucket::TokenBucket;
