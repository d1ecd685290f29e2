//! Operations, slow obvious oracles, hostile types and seeds, shared by tests, fuzz targets, models and benches.
//!
//! Depends on no primitive, so that testing one crate's features never switches on another's.

pub mod answers;
pub mod cells;
pub mod deadline_op;
pub mod happened;
pub mod hostile;
pub mod naive_adaptive;
pub mod naive_backoff;
pub mod naive_feed;
pub mod naive_keyed;
pub mod naive_limiter;
pub mod naive_line;
pub mod naive_order;
pub mod naive_pace;
pub mod naive_queue;
pub mod naive_selector;
pub mod naive_store;
pub mod op;
pub mod queue_op;
pub mod random;
pub mod reference;
pub mod store_op;
pub mod together;
pub mod wakers;
