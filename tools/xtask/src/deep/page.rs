//! Writes `docs/evidence.md`, which lists the last run of each rung.

use super::record::{Record, State};
use super::rungs::Rung;

const HEAD: &str = "\
# Evidence

This page lists the last run of each rung of `cargo xtask deep`, which generates the page; do not edit it by hand. A rung without a row has not run
since the page was created. *Commit* is the last commit before the run that changed anything other than this page. *Scale* is a factor for the seconds
and the numbers of cases of a rung: 1 is the full run.

| rung | what it shows | result | figures | commit | date | seconds | scale | machine |
|---|---|---|---|---|---|---|---|---|
";

/// Renders the page. If a rung has no record, its row is copied from the old page `before`: an earlier run may have stored the record in a different
/// target directory.
pub(super) fn render(before: &str, state: &State, rungs: &[Rung]) -> String {
    let mut page = HEAD.to_owned();
    for rung in rungs {
        let start = format!("| `{}` |", rung.name);
        let recorded = state.records().iter().find(|record| record.rung == rung.name);
        let line = recorded.map(|record| row(rung, record));
        let line = line.or_else(|| before.lines().find(|line| line.starts_with(&start)).map(str::to_owned));
        if let Some(line) = line {
            page.push_str(&line);
            page.push('\n');
        }
    }
    page
}

fn row(rung: &Rung, record: &Record) -> String {
    let Record { commit, date, machine, scale, seconds, outcome, figures, .. } = record;
    let figures = figures.replace('|', "/").replace('\n', " ");
    let Rung { name, what, .. } = rung;
    format!(
        "| `{name}` | {what} | {outcome} | {figures} | `{commit}` | {date} | {seconds} | {scale} | {machine} |"
    )
}

#[cfg(test)]
mod tests {
    use super::super::record::{Outcome, sample};
    use super::super::rungs::RUNGS;
    use super::*;

    #[test]
    fn a_page_has_the_records_and_what_it_had_before() {
        let file = std::env::temp_dir().join(format!("flyball-xtask-{}-page.json", std::process::id()));
        let _ = std::fs::remove_file(&file);
        let mut state = State::open(file.clone()).unwrap();
        let [first, second, third, ..] = RUNGS else { panic!("too few rungs") };
        state.note(sample(second.name, "c2", Outcome::Passed)).unwrap();
        let before = format!(
            "| `{}` | old | passed | kept |\n| `{}` | old | failed | replaced |\n| `gone` | old |\n",
            first.name, second.name
        );
        let page = render(&before, &state, RUNGS);
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
        assert_eq!(rows[0], format!("| `{}` | old | passed | kept |", first.name));
        assert_eq!(
            rows[1],
            format!(
                "| `{}` | {} | passed | 7 tests | `c2` | 2026-01-31 | 61 | 1 | 2 × x |",
                second.name, second.what
            )
        );
        assert_eq!(rows.len(), 2, "{} has not run, and `gone` is not a rung", third.name);
        assert_eq!(render(&page, &state, RUNGS), page, "a second rendering differs");
        std::fs::remove_file(file).unwrap();
    }
}
