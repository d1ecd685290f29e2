#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod adaptive;
mod backoff;
mod bucket;
mod coop;
mod error;
mod failure;
mod limiter;
mod policy;
mod shrink;

pub use crate::adaptive::{AcquirePermit, AimdLimit, ConcurrencyLimiter, Outcome, Permit, Started};
pub use crate::backoff::{
    Capped, Exponential, FastSlow, Jitter, MaxElapsed, MaxOf, OncePerBackoff, RetryBudget, controller_default,
};
pub use crate::bucket::{
    Acquire, AcquireMany, KeyedRateLimiter, Quota, RateLimiter, Reservation, TokenBucket,
};
pub use crate::error::{
    InsufficientCapacity, InvalidBackoff, InvalidConcurrencyLimits, InvalidQuota, NotYet, TryAcquireError,
};
pub use crate::failure::Failure;
pub use crate::limiter::Limiter;
pub use crate::policy::Policy;
#[cfg(feature = "tokio")]
#[doc(no_inline)]
pub use flyball_sync::TokioTimer;
#[doc(no_inline)]
pub use flyball_sync::{Clock, ManualClock, ManualTimer, Monotonic, Nanos, ThreadTimer, Timer};
