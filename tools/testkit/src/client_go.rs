//! Reference implementations of client-go's queue, limiters and indexed store, with one switch for each intended difference.
//!
//! With all [`Rules`] on, the results equal flyball's; with all rules off, they equal client-go's. The first equality shows that flyball has no
//! differences except those with a rule. The second shows that these implementations reproduce client-go correctly.
//!
//! The code has the names and the structure of client-go's code, not of flyball's: for the queue the sets `dirty` and `processing` and a heap of
//! waits, and for the store items, indexers and indices.

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
