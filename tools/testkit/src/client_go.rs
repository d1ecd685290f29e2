//! Reference implementations of client-go's queue, limiters and indexed store, with one switch for each intended difference.
//!
//! With all [`Rules`] on, the results equal flyball's; with none, they equal client-go's. The first equality shows that there are no other differences,
//! the second that the rules describe client-go correctly.
//!
//! The code uses client-go's names and structure (the sets `dirty` and `processing`, a heap of waits; items, indexers, indices), not flyball's.

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
