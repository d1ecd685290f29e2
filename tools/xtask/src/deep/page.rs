//! Renders `docs/evidence.md` from the ledger.

use anyhow::Result;

use super::ledger::{self, Slice};
use super::rungs::{Bar, Part, RUNGS, Rung};
use super::sources;
use super::standing::{self, Standing};
use crate::workspace::Workspace;

/// The path of the page, relative to the root of the workspace.
pub(crate) const PAGE: &str = "docs/evidence.md";

const HEAD: &str = "\
# Evidence

How often each check that takes hours has run, and on which sources. `cargo xtask deep --minutes N` runs the checks that are furthest behind their
bars, in slices of at most ten minutes. It adds a line for each slice to [the ledger](evidence/ledger.jsonl), and generates this page from it. Do not
edit the page by hand; `cargo xtask deep --minutes 0` only writes the page, after a change of the sources.

The *sources* of a row are the tokens, without comments, of the crate's `src` and of the crates of the family below it. If they change, the count
starts again at 0, and *before* shows the count of the sources that were tested last before the change. The bar holds for each item of a row: each
model, each fuzz target, or the crate. *Done* is the number of items that have reached the bar, and *least* is the count of the item that is furthest
behind. A row that falls short is marked with **behind**, and a row whose last slice failed with **FAILED**.
";

/// The number of digits of a hash that the page shows. With seven or more, a hash would look like a commit.
const SHOWN: usize = 6;

/// Renders the page.
pub(crate) fn render(workspace: &Workspace) -> Result<String> {
    let slices = ledger::read(&workspace.root)?;
    let mut page = HEAD.to_owned();
    for rung in RUNGS {
        let bar = match rung.bar {
            Bar::Explored => "every interleaving".to_owned(),
            Bar::Each(1) => "once".to_owned(),
            Bar::Each(bar) => number(bar),
        };
        page.push_str(&format!("\n## {}\n\n{}. Bar: {bar}; unit: {}.\n\n", rung.name, rung.what, rung.unit));
        page.push_str("| crate | sources | done | least | sum | | seconds | last | before |\n|---|---|---|---|---|---|---|---|---|\n");
        for part in (rung.parts)(workspace)? {
            let now = sources::hash(workspace, &part.package)?;
            page.push_str(&row(rung, &part, &now, &slices));
        }
    }
    Ok(page)
}

fn row(rung: &Rung, part: &Part, sources: &str, slices: &[Slice]) -> String {
    let Part { package, items } = part;
    let now = Standing::at(rung, part, sources, slices);
    let state = match now.reached(rung.bar) {
        _ if now.failed => "**FAILED**".to_owned(),
        reached if reached >= 1.0 => "reached".to_owned(),
        _ if now.seconds == 0 => "**behind**, not run".to_owned(),
        _ => "**behind**".to_owned(),
    };
    let earlier = standing::before(rung, part, sources, slices).map(|sources| {
        let before = Standing::at(rung, part, &sources, slices);
        let failed = if before.failed { ", failed" } else { "" };
        format!(
            "{} done, sum {} at `{}`{failed}",
            before.done(rung.bar),
            number(before.sum()),
            &sources[..SHOWN]
        )
    });
    let (least, sum) = (number(now.least()), number(now.sum()));
    let (done, all, seconds) = (now.done(rung.bar), items.len(), now.seconds);
    let last = match now.note.as_str() {
        "" => now.date.clone(),
        note => format!("{}: {}", now.date, note.replace('|', "/").replace('\n', " ")),
    };
    let (now, earlier) = (&sources[..SHOWN], earlier.unwrap_or_default());
    format!(
        "| {package} | `{now}` | {done} of {all} | {least} | {sum} | {state} | {seconds} | {last} | {earlier} |\n"
    )
}

/// Formats a number with a space between groups of three digits.
fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::ledger::sample;
    use super::super::rungs::sample as rung;
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        let numbers = [0, 999, 1000, 1_234_567].map(number);
        assert_eq!(numbers, ["0", "999", "1 000", "1 234 567"]);
    }

    #[test]
    fn a_row_shows_what_falls_short() {
        let rung = rung("r", Bar::Each(1000));
        let part = Part { package: "a".to_owned(), items: vec!["x".to_owned(), "y".to_owned()] };
        let (old, new) = ("00000000aaaaaaaa", "00000000bbbbbbbb");
        let new = new.replace("00000000", "11111111");
        let mut slices = vec![sample("r", "a", old, &[("x", 1000), ("y", 1000)])];
        assert_eq!(
            row(&rung, &part, &new, &slices),
            "| a | `111111` | 0 of 2 | 0 | 0 | **behind**, not run | 0 |  | 2 done, sum 2 000 at `000000` |\n"
        );
        slices.push(sample("r", "a", &new, &[("x", 1500), ("y", 10)]));
        let now = row(&rung, &part, &new, &slices);
        assert!(
            now.starts_with("| a | `111111` | 1 of 2 | 10 | 1 510 | **behind** | 60 | 2026-01-31 |"),
            "{now}"
        );
        slices.push(sample("r", "a", &new, &[("y", 990)]));
        assert!(row(&rung, &part, &new, &slices).contains("| 2 of 2 | 1 000 | 2 500 | reached | 120 |"));
        slices.push(sample("r", "a", &new, &[]));
        slices[3].passed = false;
        slices[3].note = "one | two\nthree".to_owned();
        let failed = row(&rung, &part, &new, &slices);
        assert!(failed.contains("| **FAILED** | 180 | 2026-01-31: one / two three |"), "{failed}");
    }
}
