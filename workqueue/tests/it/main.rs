//! The queue from outside: every promise of its documentation, on virtual time.

#![allow(clippy::disallowed_types, reason = "a test's own locks are std's: no model runs here")]

mod ages;
mod at;
mod attempts;
mod backoff;
mod bounded;
mod cancel;
mod corpus;
mod dead;
mod defects;
mod delayed;
mod detached;
mod driver;
mod dropped;
mod empty;
mod end_and_get;
mod fair;
mod getters;
mod hostile;
mod idle;
mod kept;
mod kind;
mod life;
mod limits;
mod metrics;
mod options;
mod oracle;
mod priority;
mod properties;
mod regressions;
#[cfg(feature = "tokio")]
mod runtime;
mod said;
mod shutdown;
mod snapshot;
mod stale_clock;
mod starvation;
mod support;
mod surface;
mod swap;
mod task;
mod threads;
mod time;
mod told;
mod upstream;
mod yielding;
