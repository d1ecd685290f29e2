//! The harness itself.

use std::time::Duration;

#[cfg(target_os = "linux")]
mod processes;
mod servers;

/// For what is a matter of a moment, on a machine that has other things to do.
const LIMIT: Duration = Duration::from_secs(30);
