//! The queue from outside: every promise of its documentation, on virtual time.

#![allow(clippy::disallowed_types, reason = "a test's own locks are std's: no model runs here")]

mod backoff;
mod cancel;
mod corpus;
mod driver;
mod hostile;
mod oracle;
mod regressions;
mod shutdown;
mod support;
mod surface;
mod threads;
mod time;
mod upstream;
