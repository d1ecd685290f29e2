//! Reference implementations of client-go's queue, limiters and indexed store, with one switch for each intended difference.
//!
//! With all [`Rules`] on, the results equal flyball's; with all rules off, they equal client-go's. The comparison with flyball shows that flyball
//! differs from client-go only where there is a rule. The comparison with client-go shows that these implementations reproduce it correctly.
//!
//! The names and the structure of the code are those of client-go, not those of flyball: the queue has the sets `dirty` and `processing` and a heap
//! of waits, and the store has items, indexers and indices.

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
