//! A lock for the processors of this machine: whatever measures or tests for a long time holds it, so that no two such runs disturb each other.
//!
//! `.ci/run` takes the same lock, with `flock`.

use std::fs::{File, OpenOptions, TryLockError};
use std::time::Duration;

use anyhow::{Context, Result};

/// The name of the lock file in the folder for temporary files.
const NAME: &str = "flyball.lock";

/// Waits for the lock. It is released when the returned file is dropped.
pub(crate) fn acquire(what: &str) -> Result<File> {
    let path = std::env::temp_dir().join(NAME);
    let shown = || path.display().to_string();
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path).with_context(shown)?;
    match file.try_lock() {
        Ok(()) => return Ok(file),
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => return Err(error).with_context(shown),
    }
    eprintln!("{what} waits: another run holds {}", path.display());
    file.lock().with_context(shown)?;
    Ok(file)
}

/// Waits a moment, so that a waiting run gets the lock before this run takes it again. Locks of files are not fair.
pub(crate) fn give_way() {
    #[expect(
        clippy::disallowed_methods,
        reason = "the kernel has no call that waits for the waiting processes"
    )]
    std::thread::sleep(Duration::from_secs(1));
}
