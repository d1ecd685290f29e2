//! Drivers of token buckets: alone, by key, and with a wait queue.

pub mod keyed;
pub mod quota;
pub mod token_bucket;
pub mod wait_queue;
