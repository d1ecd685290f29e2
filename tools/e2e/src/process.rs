//! A program under test as a child process.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result};
use parking_lot::Mutex;

use crate::leash::Leash;

/// A running program. Its standard error is written to a file. The program is killed when this value is dropped, and when the process that started it
/// ends, however that process ends.
#[derive(Debug)]
pub struct Process {
    leash: Mutex<Leash>,
    log: PathBuf,
}

impl Process {
    /// Starts the program of `command`, with the arguments, the environment variables and the working directory that are set there, and redirects its
    /// standard error to the file `log`. If the file exists, it is truncated. The standard input is empty, and the standard output is discarded.
    ///
    /// If the program does not exist, its exit status is 127.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be created or no process can be started.
    pub fn start(command: &Command, log: PathBuf) -> Result<Self> {
        let errors = File::create(&log).with_context(|| log.display().to_string())?;
        let leash = Leash::spawn(command, Stdio::null(), errors, log.clone())?;
        Ok(Self { leash: Mutex::new(leash), log })
    }

    /// Returns what the program has written to its standard error; an empty string if the file cannot be read.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Sends SIGKILL to the process, and waits until it has ended.
    pub fn kill(self) {}

    /// Sends SIGTERM. The signal may arrive shortly after this call returns.
    ///
    /// # Errors
    ///
    /// Returns an error if the process has already ended, or if the signal cannot be sent.
    pub fn terminate(&self) -> Result<()> {
        self.leash.lock().signal("TERM")
    }

    /// Sends SIGSTOP: the process does not run until [`resume`](Self::resume), as if its machine were suspended. The signal may arrive shortly after
    /// this call returns.
    ///
    /// # Errors
    ///
    /// Returns an error if the process has already ended, or if the signal cannot be sent.
    pub fn suspend(&self) -> Result<()> {
        self.leash.lock().signal("STOP")
    }

    /// Sends SIGCONT: a suspended process continues.
    ///
    /// # Errors
    ///
    /// Returns an error if the process has already ended, or if the signal cannot be sent.
    pub fn resume(&self) -> Result<()> {
        self.leash.lock().signal("CONT")
    }

    /// Returns the exit status; `None` if the process is still running. If a signal ended the process, the exit code is 128 plus the number of the
    /// signal, as in a shell.
    ///
    /// # Errors
    ///
    /// Returns an error if the system does not report the state of the process.
    pub fn exit_status(&self) -> Result<Option<ExitStatus>> {
        Ok(self.leash.lock().exit_status()?)
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::io::{BufRead, BufReader, Read};

    use super::*;
    use crate::leash::tests::{LIMIT, is_running};
    use crate::patience::eventually;

    fn shell(script: &str, name: &str) -> Process {
        let log = env::temp_dir().join(format!("flyball-process-{}-{name}", std::process::id()));
        Process::start(Command::new("sh").args(["-c", script]), log).unwrap()
    }

    fn ended(process: &Process) -> ExitStatus {
        eventually(LIMIT, || process.exit_status().unwrap()).expect("it ends")
    }

    /// Starts a program that writes its process id to its standard error and then sleeps for longer than any test takes. Returns the process id, too.
    fn sleeper(name: &str) -> (Process, String) {
        let process = shell("echo pid=$$ >&2; exec sleep 3600", name);
        let pid = || Some(process.output().strip_prefix("pid=")?.strip_suffix('\n')?.to_owned());
        let pid = eventually(LIMIT, pid).expect("no process id was printed");
        (process, pid)
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
        assert_eq!((ended(&process).code(), process.output().as_str()), (Some(7), "ready\ncaught\n"));
        assert!(process.terminate().is_err(), "a signal was sent to a process that has ended");
        fs::remove_file(&process.log).unwrap();
    }

    #[test]
    fn the_exit_code_of_a_program_that_a_signal_ended_is_that_of_a_shell() {
        const SIGTERM: i32 = 15;
        let (process, pid) = sleeper("signal");
        process.terminate().unwrap();
        assert_eq!((ended(&process).code(), is_running(&pid)), (Some(128 + SIGTERM), false));
        fs::remove_file(&process.log).unwrap();
    }

    #[test]
    fn the_program_gets_the_arguments_environment_and_folder_of_the_command() {
        let log = env::temp_dir().join(format!("flyball-process-{}-command", std::process::id()));
        let mut command = Command::new("sh");
        command.args(["-c", "echo \"$1,$SET,${HOME-unset},$PWD\" >&2", "sh", "a b"]);
        command.env("SET", "c  d").env_remove("HOME").current_dir("/");
        let process = Process::start(&command, log).unwrap();
        assert_eq!((ended(&process).code(), process.output().as_str()), (Some(0), "a b,c  d,unset,/\n"));
        fs::remove_file(&process.log).unwrap();
    }

    #[test]
    fn a_killed_program_is_gone_when_kill_returns() {
        let (process, pid) = sleeper("kill");
        let log = process.log.clone();
        assert!(is_running(&pid));
        process.kill();
        assert!(!is_running(&pid));
        fs::remove_file(log).unwrap();
    }

    #[test]
    fn a_program_ends_when_its_parent_is_killed() {
        // This test runs in two processes: the parent starts the test again as a child, and kills the child.
        const HOLD: &str = "FLYBALL_PROCESS_HOLD";
        // The text that the child prints before the process id of its program and the path of the log.
        const HERE: &str = "the program is ";
        if env::var_os(HOLD).is_some() {
            let (process, pid) = sleeper("orphan");
            println!("{HERE}{pid} {}", process.log.display());
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            return;
        }
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "--nocapture", "process::tests::a_program_ends_when_its_parent_is_killed"]);
        command.env(HOLD, "1").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut parent = command.spawn().unwrap();
        let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines();
        let here = lines.find_map(|line| Some(line.unwrap().split_once(HERE)?.1.to_owned()));
        let here = here.expect("no program was started");
        let (pid, log) = here.split_once(' ').unwrap();
        assert!(is_running(pid));
        // SIGKILL: the parent cannot clean up.
        parent.kill().unwrap();
        parent.wait().unwrap();
        eventually(LIMIT, || (!is_running(pid)).then_some(())).expect("the program is still running");
        fs::remove_file(log).unwrap();
    }
}
