//! SHELL. Token buckets: the arithmetic is in `token_bucket.rs`; atomic, shared and keyed buckets are around it. Each file
//! says what it guards.

mod acquire;
mod atomic_bucket;
mod cell;
mod keyed_buckets;
mod keyed_shard;
mod line;
mod quota;
mod refunds;
mod reserved;
mod scale;
mod shared;
mod shared_bucket;
mod token_bucket;

pub use acquire::{Acquire, AcquireMany};
pub use atomic_bucket::AtomicBucket;
pub use keyed_buckets::KeyedBuckets;
pub use quota::Quota;
pub use reserved::Reserved;
pub use shared_bucket::Bucket;
pub use token_bucket::{Token, TokenBucket};
