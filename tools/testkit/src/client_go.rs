//! A queue, its limiters and an indexed store that answer as client-go's do, plus one switch for each difference that we chose.
//!
//! With all [`Rules`] on they answer as flyball does, with none as client-go does, line by line. The first equality says
//! that there are no differences but the named ones, the second that the names are right about client-go.
//!
//! Written down in client-go's terms (queue, dirty, processing, a heap of waits; items, indexers, indices), which our code does
//! not use.

mod failures;
mod limiter;
mod queue;
mod rules;
mod script;
mod store;
mod waits;

pub use limiter::ReferenceLimiter;
pub use queue::ReferenceQueue;
pub use rules::{Rule, Rules};
pub use script::{Answer, LimiterConfig, LimiterLine, QueueLine, StoreLine, StoreObject};
pub use store::ReferenceStore;
