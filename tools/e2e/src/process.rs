//! A program under test as a child process.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;

/// A running program. Its standard error is written to a file. The program is killed when this value is dropped.
#[derive(Debug)]
pub struct Process {
    child: Mutex<Child>,
    log: PathBuf,
}

impl Process {
    /// Starts `command`, and redirects its standard error to the file `log`. If the file exists, it is truncated.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be created or the program cannot be started.
    pub fn start(command: &mut Command, log: PathBuf) -> Result<Self> {
        let errors = File::create(&log).with_context(|| log.display().to_string())?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        let child = command.spawn().with_context(|| format!("{command:?}"))?;
        Ok(Self { child: Mutex::new(child), log })
    }

    /// Returns what the program has written to its standard error; an empty string if the file cannot be read.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Sends SIGKILL to the process, and waits until it has ended.
    pub fn kill(self) {}

    /// Sends SIGTERM.
    ///
    /// # Errors
    ///
    /// Returns an error if the process has already ended, or if the signal cannot be sent.
    pub fn terminate(&self) -> Result<()> {
        let mut child = self.child.lock();
        // No signal is sent after the exit status has been read, because the system may then use the process id for a different process.
        ensure!(child.try_wait()?.is_none(), "the process has ended");
        let pid = child.id().to_string();
        let sent = Command::new("sh").args(["-c", "kill -TERM \"$1\"", "sh", &pid]).status()?;
        ensure!(sent.success(), "SIGTERM to {pid}: {sent}");
        Ok(())
    }

    /// Returns the exit status; `None` if the process is still running.
    ///
    /// # Errors
    ///
    /// Returns an error if the system does not report the state of the process.
    pub fn exit_status(&self) -> Result<Option<ExitStatus>> {
        Ok(self.child.lock().try_wait()?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let child = self.child.get_mut();
        // An error is ignored, because the process may already have ended.
        let _ = child.kill();
        let _ = child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::patience::eventually;

    const LIMIT: Duration = Duration::from_secs(30);

    fn shell(script: &str, name: &str) -> Process {
        let log = std::env::temp_dir().join(format!("flyball-process-{}-{name}", std::process::id()));
        Process::start(Command::new("sh").args(["-c", script]), log).unwrap()
    }

    #[test]
    fn sigterm_reaches_the_program_and_its_exit_status_is_reported() {
        let process = shell(
            "trap 'echo caught >&2; exit 7' TERM; echo ready >&2; while :; do sleep 0.01; done",
            "term",
        );
        assert!(eventually(LIMIT, || process.output().contains("ready").then_some(())).is_some());
        assert!(process.exit_status().unwrap().is_none());
        process.terminate().unwrap();
        let status = eventually(LIMIT, || process.exit_status().unwrap()).expect("it ends");
        assert_eq!((status.code(), process.output().as_str()), (Some(7), "ready\ncaught\n"));
        assert!(process.terminate().is_err(), "a signal was sent to a process that has ended");
        fs::remove_file(&process.log).unwrap();
    }

    #[test]
    fn a_killed_program_is_gone_when_kill_returns() {
        let process = shell("exec sleep 3600", "kill");
        let (pid, log) = (process.child.lock().id(), process.log.clone());
        process.kill();
        let probe =
            Command::new("sh").args(["-c", "kill -0 \"$1\" 2>/dev/null", "sh", &pid.to_string()]).status();
        assert!(!probe.unwrap().success());
        fs::remove_file(log).unwrap();
    }
}
