//! EDGE. Runs the Go program to get client-go's answers.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail, ensure};

use crate::committed;
use crate::kind::Kind;

/// The program that was built from the folder `client-go`.
#[derive(Debug)]
pub(crate) struct ClientGo {
    program: PathBuf,
}

impl ClientGo {
    pub(crate) fn new(program: &Path) -> Self {
        Self { program: program.to_owned() }
    }

    /// Returns client-go's answers to each of these scripts. The program is started once for all scripts, because its
    /// start takes more time than a script.
    pub(crate) fn answers(&self, kind: Kind, scripts: &[Vec<String>]) -> Result<Vec<Vec<String>>> {
        let shown = self.program.display();
        let mut child = Command::new(&self.program)
            .args(["-many", kind.name()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("{shown} does not start"))?;
        let (Some(mut stdin), Some(mut stdout), Some(mut stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            bail!("{shown} has no pipes");
        };
        let text = committed::join(scripts);
        // Writes the scripts and reads the answers concurrently; otherwise both processes could block on full pipes.
        let (written, message, read) = thread::scope(|scope| {
            let writing = scope.spawn(move || stdin.write_all(text.as_bytes()));
            let message = scope.spawn(move || {
                let mut message = String::new();
                stderr.read_to_string(&mut message).map(|_| message)
            });
            let mut answers = String::new();
            let read = stdout.read_to_string(&mut answers).map(|_| answers);
            (writing.join(), message.join(), read)
        });
        let status = child.wait()?;
        let (Ok(written), Ok(message)) = (written, message) else { bail!("a pipe to {shown} broke") };
        let message = message?;
        ensure!(status.success(), "{shown}: {status}\n{}", message.trim_end());
        written?;
        let answers = committed::split(&read?);
        ensure!(answers.len() == scripts.len(), "{} scripts, {} times answers", scripts.len(), answers.len());
        for (script, answers) in scripts.iter().zip(&answers) {
            ensure!(script.len() == answers.len(), "{} lines, {} answers", script.len(), answers.len());
        }
        Ok(answers)
    }
}
