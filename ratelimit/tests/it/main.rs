//! One binary for all integration tests of the crate.

mod adaptive;
mod adaptive_driver;
mod adaptive_line;
mod adaptive_server;
mod bounded;
mod bucket;
mod bucket_driver;
mod corpus;
mod hostile;
mod hostile_bucket;
mod jitter;
mod keyed_buckets;
mod keyed_driver;
mod limiter_driver;
mod limiter_ops;
mod line_driver;
mod once_per_wait;
mod oracle;
mod paced;
mod real_quota;
mod server;
mod shared_bucket;
mod surface;
mod timeouts;
mod upstream;
mod yielding;
