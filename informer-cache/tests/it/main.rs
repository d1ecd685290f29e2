//! The integration tests of the crate, in one binary with one module per subject.

mod bounded;
mod caught_up;
mod changes_as_text;
mod contained;
mod defects;
mod filter;
mod handler;
mod informer;
mod informer_set;
mod observer;
mod oracle;
mod panics_in_user_code;
mod panics_in_user_code_drops;
mod panics_in_user_code_store;
mod panics_in_user_code_ttl;
mod pending;
mod reader_slots;
mod reflector;
mod regressions;
mod reordered;
mod repeated_versions;
mod resync_every;
mod retry_backoff;
mod selections;
mod selector;
#[cfg(feature = "tokio")]
mod source_check;
mod staging;
mod subscription;
mod surface;
mod testing_server;
mod ttl;
mod upstream_informer;
mod upstream_shared;
mod upstream_store;
mod upstream_ttl;
