#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
mod acquire_permit;
mod adaptive;
mod adaptive_limiter;
mod atomic_bucket;
mod bucket;
mod calendar;
mod cell;
mod combine;
mod controller_default;
mod coop;
mod denied;
mod error;
mod exponential;
mod fast_slow;
mod jitter;
mod keyed_buckets;
mod keyed_shard;
mod limiter;
mod line;
mod once_per_wait;
mod paced;
mod per_key;
mod permit;
mod policy;
mod quota;
mod refunds;
mod reservation;
mod reserved;
mod scale;
mod shared;
mod shared_bucket;
mod timed_out;

pub use crate::acquire::{Acquire, AcquireMany};
pub use crate::acquire_permit::AcquirePermit;
pub use crate::adaptive::{Adaptive, Outcome, Started};
pub use crate::adaptive_limiter::AdaptiveLimiter;
pub use crate::atomic_bucket::AtomicBucket;
pub use crate::bucket::{Token, TokenBucket};
pub use crate::calendar::Booking;
pub use crate::combine::{Capped, MaxOf};
pub use crate::controller_default::{ControllerDefault, controller_default, controller_default_capped};
pub use crate::denied::{Denied, TooMany};
pub use crate::error::{InvalidBackoff, InvalidLimits, InvalidPeriod, NotYet};
pub use crate::exponential::Exponential;
pub use crate::fast_slow::FastSlow;
pub use crate::jitter::Jitter;
pub use crate::keyed_buckets::KeyedBuckets;
pub use crate::limiter::Limiter;
pub use crate::once_per_wait::OncePerWait;
pub use crate::paced::Paced;
pub use crate::permit::Permit;
pub use crate::policy::Policy;
pub use crate::quota::Quota;
pub use crate::reservation::Reservation;
pub use crate::reserved::Reserved;
pub use crate::shared_bucket::Bucket;
pub use crate::timed_out::{AcquireTimeoutError, TimedOut};
#[cfg(feature = "tokio")]
#[doc(no_inline)]
pub use flyball_sync::TokioTimer;
#[doc(no_inline)]
pub use flyball_sync::{Clock, ManualClock, ManualTimer, Monotonic, Nanos, ThreadTimer, Timer};
