//! Token buckets: read alone, and waited for.

pub mod quota;
pub mod token_bucket;
pub mod wait_queue;
