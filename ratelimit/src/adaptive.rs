//! SHELL. An adaptive concurrency limit: the rule is in `limit.rs`, and `limiter.rs` guards the shared state.

mod acquire_permit;
mod limit;
mod limiter;
mod permit;

pub use acquire_permit::AcquirePermit;
pub use limit::{AimdLimit, Outcome, Started};
pub use limiter::ConcurrencyLimiter;
pub use permit::Permit;
