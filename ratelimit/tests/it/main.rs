//! One binary for all integration tests of the crate.

mod adaptive;
mod adaptive_line;
mod adaptive_server;
mod bounded;
mod bucket;
mod corpus;
mod jitter;
mod keyed_buckets;
mod limiter;
mod max_elapsed;
mod memory;
mod once_per_wait;
mod oracle;
mod paced;
mod panics_in_user_code;
mod panics_in_user_code_bucket;
mod refusals;
mod shared_bucket;
mod simulation;
mod surface;
mod timeouts;
mod upstream;
mod upstream_issues;
mod yielding;
