//! A table of figures by name, one column per implementation.

use std::collections::BTreeMap;

/// The figures of one run, in the order of the table.
pub(crate) type Figures = Vec<(&'static str, f64)>;

#[derive(Default)]
pub(crate) struct Report {
    parties: Vec<&'static str>,
    rows: Vec<&'static str>,
    samples: BTreeMap<(&'static str, &'static str), Vec<f64>>,
}

impl Report {
    pub(crate) fn add(&mut self, party: &'static str, figures: Figures) {
        if !self.parties.contains(&party) {
            self.parties.push(party);
        }
        for (row, figure) in figures {
            if !self.rows.contains(&row) {
                self.rows.push(row);
            }
            self.samples.entry((row, party)).or_default().push(figure);
        }
    }

    pub(crate) fn print(mut self) {
        if self.parties.is_empty() {
            return;
        }
        println!("| | {} |", self.parties.join(" | "));
        println!("|---|{}", "---|".repeat(self.parties.len()));
        for row in self.rows {
            let cells = self.parties.iter().map(|party| cell(self.samples.entry((row, party)).or_default()));
            println!("| {row} | {} |", cells.collect::<Vec<_>>().join(" | "));
        }
        println!();
    }
}

/// Formats the median, and the minimum and the maximum if there are several samples.
fn cell(samples: &mut [f64]) -> String {
    samples.sort_by(f64::total_cmp);
    match samples {
        [] => String::new(),
        [only] => short(*only),
        all => format!("{} ({}–{})", short(all[all.len() / 2]), short(all[0]), short(all[all.len() - 1])),
    }
}

/// Formats a figure with about three significant digits, because the measurement is no more accurate than that.
fn short(figure: f64) -> String {
    match figure {
        ..10.0 => format!("{figure:.2}"),
        10.0..100.0 => format!("{figure:.1}"),
        100.0..100_000.0 => format!("{figure:.0}"),
        _ => format!("{:.0}k", figure / 1e3),
    }
}
