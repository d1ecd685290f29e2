//! PURE. Backoff policies, which decide how long a failed key waits: one policy per file, combinators, and the state
//! per key.

mod combine;
mod controller_default;
mod exponential;
mod fast_slow;
mod jitter;
mod max_elapsed;
mod once_per_backoff;
mod per_key;
mod retry_budget;
mod schedule;

pub use combine::{Capped, MaxOf};
pub use controller_default::controller_default;
pub use exponential::Exponential;
pub use fast_slow::FastSlow;
pub use jitter::Jitter;
pub use max_elapsed::MaxElapsed;
pub use once_per_backoff::OncePerBackoff;
pub use retry_budget::RetryBudget;
