//! A child process that is killed when this process ends, however it ends: a server, or a program under test.
//!
//! A short shell script, the *keeper*, starts the program, reads from a pipe, and kills the program when the pipe closes. Only this process has the
//! write end of the pipe. So the pipe closes when this process ends in any way: by `kill -9`, by a panic, or at the end of `main`, even if the program
//! is stored in a static. A call of [`Leash::kill`] closes the pipe, too. (The alternative, `PR_SET_PDEATHSIG`, needs Linux, `unsafe` code, and a
//! parent thread that never ends.)

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::patience::eventually;

/// The script of the keeper. It waits until the program ends, while a subshell reads the pipe: each line is the name of a signal for the program, and
/// the program is killed when the pipe closes. The pipe is file descriptor 3, because shells redirect the standard input of background processes. The
/// program has the standard error of the keeper; what the shell itself writes there, such as the name of a signal that ended the program, is discarded.
const KEEPER: &str = r#"
exec 3<&0 4>&2 2>/dev/null
"$@" </dev/null 2>&4 3<&- 4>&- &
program=$!
exec 4>&-
{ while read -r signal; do kill -s "$signal" "$program"; done; kill -KILL "$program"; } <&3 &
leash=$!
wait "$program"
status=$?
kill "$leash"
exit "$status"
"#;

/// A running program, which is killed on drop.
#[derive(Debug)]
pub(crate) struct Leash {
    keeper: Child,
    log: PathBuf,
}

impl Leash {
    /// Starts a server that appends its output to `log`.
    pub(crate) fn start(program: &Path, arguments: &[String], log: PathBuf) -> Result<Self> {
        let output = File::options().create(true).append(true).open(&log);
        let output = output.with_context(|| log.display().to_string())?;
        let mut command = Command::new(program);
        command.args(arguments);
        Self::spawn(&command, output.try_clone()?, output, log)
    }

    /// Starts a program with the arguments, the environment and the working directory of `command`, and with an empty standard input. `log` is the
    /// file that contains its output, or a part of it.
    pub(crate) fn spawn(
        command: &Command,
        stdout: impl Into<Stdio>,
        stderr: impl Into<Stdio>,
        log: PathBuf,
    ) -> Result<Self> {
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER, "keeper"]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => keeper.env(name, value),
                None => keeper.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            keeper.current_dir(folder);
        }
        keeper.stdin(Stdio::piped()).stdout(stdout).stderr(stderr);
        // Ctrl-C at a terminal is sent to the foreground process group. The keeper has a process group of its own, so it survives Ctrl-C and can kill
        // the program.
        keeper.process_group(0);
        let keeper = keeper.spawn().with_context(|| format!("sh, for {command:?}"))?;
        Ok(Self { keeper, log })
    }

    /// Waits until `well` returns true, for at most `limit`. The error contains the last lines of the server's output.
    pub(crate) fn ready(mut self, name: &str, limit: Duration, well: impl Fn() -> bool) -> Result<Self> {
        let end = eventually(limit, || match self.exit_status() {
            Ok(Some(status)) => Some(Err(status)),
            Ok(None) | Err(_) => well().then_some(Ok(())),
        });
        match end {
            Some(Ok(())) => Ok(self),
            Some(Err(status)) => bail!("{name} {}; {}", words(status), self.tail()),
            None => bail!("{name} is not ready after {limit:?}; {}", self.tail()),
        }
    }

    /// Returns the exit status of the program if it has ended. If a signal ended it, the exit code is 128 plus the number of the signal.
    pub(crate) fn exit_status(&mut self) -> io::Result<Option<ExitStatus>> {
        self.keeper.try_wait()
    }

    /// Makes the keeper send a signal to the program, by its name without `SIG`. Returns an error if the program has ended.
    pub(crate) fn signal(&mut self, name: &str) -> Result<()> {
        // Once the keeper has ended, no signal is sent, because the system may then use the process id for a different process.
        ensure!(self.exit_status()?.is_none(), "the process has ended");
        let pipe = self.keeper.stdin.as_mut().context("the process was killed")?;
        writeln!(pipe, "{name}").context("the process has ended")
    }

    /// Kills the program as `kill -9` does, and waits until it has ended.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.end()
    }

    /// Returns the last lines of the log.
    fn tail(&self) -> String {
        const LINES: usize = 30;
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
        format!("{}:\n{last}", self.log.display())
    }

    fn end(&mut self) -> Result<()> {
        drop(self.keeper.stdin.take());
        self.keeper.wait().context("the keeper of a program")?;
        Ok(())
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        // An error is ignored, because `drop` cannot report it. The pipe is closed even if there is an error.
        let _ = self.end();
    }
}

/// Describes an exit status. If a signal ended a process, a shell returns 128 plus the number of the signal as the exit status.
fn words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code @ 129..), _) => format!("ended by signal {}", code - 128),
        (Some(code), _) => format!("ended with {code}"),
        (None, signal) => format!("lost its keeper: signal {signal:?}"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const LIMIT: Duration = Duration::from_secs(30);

    fn log(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("flyball-leash-{}-{name}", std::process::id()))
    }

    /// Starts a "server" that prints its process id and then sleeps for longer than any test takes.
    fn sleeper(name: &str) -> (Leash, PathBuf) {
        let log = log(name);
        let arguments = ["-c".to_owned(), "echo pid=$$; exec sleep 3600".to_owned()];
        (Leash::start(Path::new("sh"), &arguments, log.clone()).unwrap(), log)
    }

    fn pid(log: &Path) -> String {
        let said = || {
            let text = fs::read_to_string(log).ok()?;
            text.lines().find_map(|line| line.strip_prefix("pid=").map(str::to_owned))
        };
        eventually(LIMIT, said).expect("no process id was printed")
    }

    /// Returns whether there is a process with this id.
    pub(crate) fn is_running(pid: &str) -> bool {
        let mut probe = Command::new("sh");
        probe.args(["-c", "kill -0 \"$1\" 2>/dev/null", "probe", pid]);
        probe.status().unwrap().success()
    }

    #[test]
    fn killed_is_gone_when_kill_returns() {
        let (server, log) = sleeper("killed");
        let pid = pid(&log);
        assert!(is_running(&pid));
        server.kill().unwrap();
        assert!(!is_running(&pid));
        fs::remove_file(log).unwrap();
    }

    #[test]
    fn dropped_is_gone() {
        let (server, log) = sleeper("dropped");
        let pid = pid(&log);
        drop(server);
        assert!(!is_running(&pid));
        fs::remove_file(log).unwrap();
    }

    #[test]
    fn a_server_that_ends_is_noticed_and_quoted() {
        let log = log("ends");
        let arguments = ["-c".to_owned(), "echo no port >&2; exit 7".to_owned()];
        let server = Leash::start(Path::new("sh"), &arguments, log.clone()).unwrap();
        let error = server.ready("it", LIMIT, || false).unwrap_err().to_string();
        assert!(error.starts_with("it ended with 7; "), "{error}");
        assert!(error.ends_with("\nno port"), "{error}");
        fs::remove_file(log).unwrap();
    }

    #[test]
    fn a_server_that_is_never_well_is_given_up_and_killed() {
        let (server, log) = sleeper("ill");
        let pid = pid(&log);
        let error = server.ready("it", Duration::ZERO, || false).unwrap_err().to_string();
        assert!(error.starts_with("it is not ready after 0ns; "), "{error}");
        assert!(!is_running(&pid));
        fs::remove_file(log).unwrap();
    }
}
