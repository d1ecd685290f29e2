//! Tests of the queue's public interface, on virtual time except where a test needs real threads or the machine's clock.

#![allow(clippy::disallowed_types, reason = "a test's own locks are std's: no model runs here")]

mod ages;
mod allocations;
mod attempts;
mod backoff;
mod bounded;
mod bounded_work;
mod cancel;
mod consumer;
mod corpus;
mod defects;
mod delayed;
mod detached;
mod dropped;
mod empty;
mod failures_kept;
mod fair;
mod fair_limits;
mod fair_rate;
mod give_up;
mod idle;
mod limits;
mod many_keys;
mod metrics;
mod oracle;
mod panics_in_user_code;
mod priority;
mod properties;
mod rare_combinations;
mod regressions;
#[cfg(feature = "tokio")]
mod runtime;
mod shutdown;
mod simulation;
mod snapshot;
mod stale_clock;
mod starvation;
mod support;
mod surface;
mod swap;
mod task;
mod threads;
mod time;
mod upstream;
mod waits;
mod wakers_that_call_back;
mod yielding;
