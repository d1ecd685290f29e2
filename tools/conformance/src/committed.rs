//! EDGE. Reads and writes the files that contain scripts, and client-go's answers to them. An empty line follows each script. The files are
//! compressed with zstd.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::kind::Kind;

/// Scripts of one kind, and client-go's answers to each.
#[derive(Debug)]
pub(crate) struct Committed {
    pub(crate) scripts: Vec<Vec<String>>,
    pub(crate) answers: Vec<Vec<String>>,
}

impl Committed {
    #[cfg(test)]
    pub(crate) fn read(folder: &Path, kind: Kind) -> Result<Self> {
        let [scripts, answers] = paths(folder, kind).map(|path| read(&path));
        Ok(Self { scripts: split(&scripts?), answers: split(&answers?) })
    }

    pub(crate) fn write(&self, folder: &Path, kind: Kind) -> Result<()> {
        let [scripts, answers] = paths(folder, kind);
        for (path, blocks) in [(scripts, &self.scripts), (answers, &self.answers)] {
            pack(&join(blocks), &path).with_context(|| format!("zstd -19 -o {}", path.display()))?;
        }
        Ok(())
    }
}

fn paths(folder: &Path, kind: Kind) -> [PathBuf; 2] {
    let kind = kind.name();
    [folder.join(format!("{kind}.jsonl.zst")), folder.join(format!("{kind}.client-go.jsonl.zst"))]
}

#[cfg(test)]
fn read(path: &Path) -> Result<String> {
    let read = || -> Result<String> {
        let file = std::fs::File::open(path)?;
        Ok(std::io::read_to_string(ruzstd::decoding::StreamingDecoder::new(file)?)?)
    };
    read().with_context(|| path.display().to_string())
}

/// Compresses with the program `zstd`, because the output of the crate ruzstd is four times as large. Only recording needs this program, and
/// recording is rare.
fn pack(text: &str, path: &Path) -> Result<()> {
    let mut child = Command::new("zstd").args(["-19", "-qfo"]).arg(path).stdin(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().context("no pipe")?;
    stdin.write_all(text.as_bytes())?;
    drop(stdin);
    let status = child.wait()?;
    ensure!(status.success(), "{status}");
    Ok(())
}

pub(crate) fn join(blocks: &[Vec<String>]) -> String {
    let mut text = String::new();
    for block in blocks {
        for line in block {
            text.push_str(line);
            text.push('\n');
        }
        text.push('\n');
    }
    text
}

pub(crate) fn split(text: &str) -> Vec<Vec<String>> {
    let mut blocks = Vec::new();
    let mut block = Vec::new();
    for line in text.lines() {
        if line.is_empty() {
            blocks.push(std::mem::take(&mut block));
        } else {
            block.push(line.to_owned());
        }
    }
    blocks
}
