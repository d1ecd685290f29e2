//! Token buckets: read alone, by key, and waited for.

pub mod keyed;
pub mod quota;
pub mod token_bucket;
pub mod wait_queue;
