//! EDGE. `conformance parity`: runs new scripts on flyball, client-go and the reference, and compares the answers.

use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Result, bail, ensure};
use flyball_sync::{Clock, Monotonic};
use testkit::client_go::Rules;

use crate::args::Parity;
use crate::client_go::ClientGo;
use crate::committed::Committed;
use crate::examples;
use crate::generate;
use crate::kind::{Kind, play};
use crate::shrink::shrink;
use crate::text::comparable;

/// The number of scripts per run of the Go program.
const BATCH: u64 = 2000;

pub(crate) fn run(options: &Parity) -> Result<()> {
    let client_go = ClientGo::new(&options.client_go);
    let mut differing = 0;
    let wanted = |kind: &Kind| options.kind.as_ref().is_none_or(|name| name == kind.name());
    ensure!(Kind::ALL.iter().any(wanted), "no scripts are of the kind {:?}", options.kind);
    for kind in Kind::ALL.into_iter().filter(wanted) {
        differing += compare(kind, options, &client_go)?;
    }
    match differing {
        0 => Ok(()),
        n => bail!("{n} scripts differ, with seed {}", options.seed),
    }
}

/// Makes both comparisons for the scripts of this kind. Returns the number of scripts whose answers differ, added up over both comparisons.
fn compare(kind: Kind, options: &Parity, client_go: &ClientGo) -> Result<usize> {
    let start = Monotonic.now();
    let sides = [Side::Flyball, Side::ClientGo(client_go)];
    let mut found = [const { Vec::new() }; 2];
    let (mut count, mut lines) = (0, 0);
    let mut recorded = Committed { scripts: Vec::new(), answers: Vec::new() };
    for scripts in batches(kind, options) {
        count += scripts.len();
        lines += scripts.iter().map(Vec::len).sum::<usize>();
        for (side, found) in sides.iter().zip(&mut found) {
            let answers = side.answers(kind, &scripts)?;
            let answered = scripts.iter().zip(&answers);
            let differing = answered.filter(|(script, answers)| side.differs(kind, script, answers));
            found.extend(differing.map(|(script, _)| script.clone()));
            if options.record.is_some() && matches!(side, Side::ClientGo(_)) {
                recorded.answers.extend(answers);
            }
        }
        if options.record.is_some() {
            recorded.scripts.extend(scripts);
        }
    }
    let seconds = Monotonic.now().since(start).as_secs_f64();
    println!("{}: {count} scripts, {lines} lines, {seconds:.1} s", kind.name());
    for (side, found) in sides.iter().zip(&found) {
        println!("  {}: {} differ", side.claim(), found.len());
        if let Some(script) = found.iter().min_by_key(|script| script.len()) {
            println!("{}", side.explain(kind, script.clone())?);
        }
    }
    let differing = found.iter().map(Vec::len).sum();
    if let (0, Some(folder)) = (differing, &options.record) {
        recorded.write(folder, kind)?;
    }
    Ok(differing)
}

/// Returns the scripts of `DIFFERENCES.md`, and then new scripts, in batches.
fn batches(kind: Kind, options: &Parity) -> impl Iterator<Item = Vec<Vec<String>>> {
    let Parity { scripts, seed, .. } = *options;
    let new = (0..scripts).step_by(BATCH as usize).map(move |from| {
        let numbers = from..scripts.min(from + BATCH);
        numbers.map(|number| generate::script(kind, seed, number)).collect()
    });
    std::iter::once(examples::scripts(kind)).chain(new)
}

/// An implementation that is compared with the reference.
enum Side<'a> {
    Flyball,
    ClientGo(&'a ClientGo),
}

impl Side<'_> {
    fn claim(&self) -> &'static str {
        match self {
            Self::Flyball => "flyball = the reference with all rules",
            Self::ClientGo(_) => "client-go = the reference with none",
        }
    }

    fn rules(&self) -> Rules {
        match self {
            Self::Flyball => Rules::ALL,
            Self::ClientGo(_) => Rules::NONE,
        }
    }

    fn answers(&self, kind: Kind, scripts: &[Vec<String>]) -> Result<Vec<Vec<String>>> {
        match self {
            Self::Flyball => Ok(scripts.iter().map(|script| flyball(kind, script)).collect()),
            Self::ClientGo(client_go) => client_go.answers(kind, scripts),
        }
    }

    fn differs(&self, kind: Kind, script: &[String], answers: &[String]) -> bool {
        differs(answers, &play(kind.reference(self.rules()), script))
    }

    /// Shrinks a script whose answers differ, and returns the text of the shrunk script, with both answers to each line.
    fn explain(&self, kind: Kind, script: Vec<String>) -> Result<String> {
        let script = shrink(script, |candidates| {
            let answers = self.answers(kind, candidates)?;
            Ok(candidates
                .iter()
                .zip(&answers)
                .position(|(script, answers)| self.differs(kind, script, answers)))
        })?;
        let answers = self.answers(kind, std::slice::from_ref(&script))?.concat();
        let reference = play(kind.reference(self.rules()), &script);
        let mut text = String::from("  the smallest script: line, answer, the reference's\n");
        for (at, line) in script.iter().enumerate() {
            let (answer, reference) = (answers.get(at).map_or("", String::as_str), &reference[at]);
            writeln!(text, "    {line}  {answer}  {reference}")?;
        }
        Ok(text)
    }
}

/// flyball's answers. If flyball panics, the script ends, and the last answer is a text that no implementation returns, so the panic counts as a
/// difference.
fn flyball(kind: Kind, script: &[String]) -> Vec<String> {
    let mut answers = Vec::new();
    let played = catch_unwind(AssertUnwindSafe(|| {
        let mut flyball = kind.flyball();
        answers.extend(script.iter().map(|line| flyball.answer(line)));
    }));
    if played.is_err() {
        answers.push("it panicked".to_owned());
    }
    answers
}

/// Returns true if two lists of answers differ.
pub(crate) fn differs(one: &[String], other: &[String]) -> bool {
    one.len() != other.len()
        || one.iter().zip(other).any(|(one, other)| one != other && comparable(one) != comparable(other))
}
