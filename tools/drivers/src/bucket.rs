//! Drivers of token buckets: of a single bucket, of buckets by key, and of a bucket with a wait queue.

pub mod keyed;
pub mod quota;
pub mod token_bucket;
pub mod wait_queue;
