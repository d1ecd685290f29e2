//! Tests of this crate itself.

use std::time::Duration;

#[cfg(target_os = "linux")]
mod processes;
mod servers;

/// The time limit for operations that are short, on a machine that may be busy.
const LIMIT: Duration = Duration::from_secs(30);
