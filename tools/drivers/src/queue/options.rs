//! The table of all valid combinations of the options of a queue, with one row for each combination. The drivers build queues from its rows.
//!
//! Some defects occurred only with certain combinations of features, each of which was correct alone. Therefore the driver counts the rows that it
//! has run, and a test fails if two values of different options never occurred together.

/// The orders. Add new orders at the end, so that earlier rows keep their positions and the meaning of the corpora does not change.
const ORDERS: &[&str] = &[
    "Fifo",
    "Priority",
    "Priority, strict",
    "Fair",
    "Fair with caps",
    "Fair with room, suspended",
    "Fair with rates",
];

/// The options, each with its values. The position of an option in this table is its position in a [`Row`].
const OPTIONS: [(&str, &[&str]); 7] = [
    ("order", ORDERS),
    ("metrics", &["none", "a sink"]),
    ("delays", &["unused", "used"]),
    ("capacity", &["none", "small"]),
    ("limiter", &["none", "exponential", "controller default"]),
    ("dead letters", &["off", "on"]),
    ("strict backoff", &["off", "on"]),
];

pub(crate) const ORDER: usize = 0;
pub(crate) const METRICS: usize = 1;
pub(crate) const DELAYS: usize = 2;
pub(crate) const CAPACITY: usize = 3;
pub(crate) const LIMITER: usize = 4;
pub(crate) const DEAD_LETTERS: usize = 5;
pub(crate) const STRICT: usize = 6;

/// A combination of options: for each option, the position of the chosen value in the option's list of values.
pub type Row = [usize; OPTIONS.len()];

/// Pairs of values that exclude each other, each with the reason why such a queue cannot be built.
const NEVER: [([(usize, usize); 2], &str); 6] = [
    ([(DELAYS, 0), (METRICS, 1)], "metrics read the clock"),
    ([(DELAYS, 0), (LIMITER, 1)], "a backoff is a delay"),
    ([(DELAYS, 0), (LIMITER, 2)], "a backoff is a delay"),
    ([(DELAYS, 0), (DEAD_LETTERS, 1)], "only failures with a backoff are counted"),
    ([(DELAYS, 0), (STRICT, 1)], "strict backoff is a delay"),
    ([(LIMITER, 0), (DEAD_LETTERS, 1)], "nothing counts failures"),
];

/// All valid rows.
pub fn rows() -> Vec<Row> {
    let mut rows = vec![[0; OPTIONS.len()]];
    for (option, (_, values)) in OPTIONS.iter().enumerate() {
        let with = |row: Row, value| {
            let mut row = row;
            row[option] = value;
            row
        };
        rows =
            rows.into_iter().flat_map(|row| (0..values.len()).map(move |value| with(row, value))).collect();
    }
    rows.retain(|row| NEVER.iter().all(|(pair, _)| !has(row, pair)));
    rows
}

fn has(row: &Row, pair: &[(usize, usize); 2]) -> bool {
    pair.iter().all(|(option, value)| row[*option] == *value)
}

/// The rows that have run, and how often each has run.
#[derive(Debug, Default)]
pub struct Covered(Vec<(Row, u64)>);

impl Covered {
    /// Counts a queue that was built from this row and has run to its end.
    pub(crate) fn ran(&mut self, row: Row) {
        match self.0.iter_mut().find(|(own, _)| *own == row) {
            Some((_, count)) => *count += 1,
            None => self.0.push((row, 1)),
        }
    }

    fn count(&self, pair: &[(usize, usize); 2]) -> u64 {
        self.0.iter().filter(|(row, _)| has(row, pair)).map(|(_, count)| count).sum()
    }

    /// Describes all pairs of values of different options that occurred together less than `floor` times, and all excluded pairs that nevertheless
    /// occurred.
    pub fn amiss(&self, floor: u64) -> Vec<String> {
        let mut amiss = Vec::new();
        let value = |(option, value): (usize, usize)| {
            let (name, values) = OPTIONS[option];
            format!("{name}: {}", values[value])
        };
        for (one, (_, values)) in OPTIONS.iter().enumerate() {
            for (other, (_, others)) in OPTIONS.iter().enumerate().skip(one + 1) {
                for pair in
                    (0..values.len()).flat_map(|a| (0..others.len()).map(move |b| [(one, a), (other, b)]))
                {
                    let swapped = [pair[1], pair[0]];
                    let never = NEVER.iter().find(|(own, _)| *own == pair || *own == swapped);
                    let count = self.count(&pair);
                    let named = || format!("{} with {}", value(pair[0]), value(pair[1]));
                    match never {
                        Some((_, why)) if count > 0 => amiss.push(format!("{} ran, but {why}", named())),
                        None if count < floor => amiss.push(format!("{} ran {count} times", named())),
                        _ => {}
                    }
                }
            }
        }
        amiss
    }

    /// How many rows have run.
    pub fn rows(&self) -> usize {
        self.0.len()
    }
}

/// The first byte of an input selects one of 256 rows, and the third byte whether these are the first or the second 256.
#[test]
fn every_row_can_be_chosen() {
    assert!(rows().len() <= 512, "{} rows", rows().len());
}

#[test]
fn a_pair_that_never_ran_is_missed() {
    let mut covered = Covered::default();
    for row in rows().into_iter().filter(|row| (row[ORDER], row[METRICS]) != (2, 1)) {
        covered.ran(row);
    }
    assert_eq!(covered.amiss(1), ["order: Priority, strict with metrics: a sink ran 0 times"]);
    covered.ran([2, 1, 0, 0, 0, 0, 0]);
    assert_eq!(covered.amiss(1), ["metrics: a sink with delays: unused ran, but metrics read the clock"]);
}
