//! SHELL. How many operations at once, learnt from how they end: the rule is in `limit.rs`, and `limiter.rs` guards what is
//! shared.

mod acquire_permit;
mod limit;
mod limiter;
mod permit;

pub use acquire_permit::AcquirePermit;
pub use limit::{AimdLimit, Outcome, Started};
pub use limiter::ConcurrencyLimiter;
pub use permit::Permit;
