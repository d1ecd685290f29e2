//! Tests of the harness itself.

use std::time::Duration;

#[cfg(target_os = "linux")]
mod processes;
mod servers;

/// The time limit of short operations on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);
