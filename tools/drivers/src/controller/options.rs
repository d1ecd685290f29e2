//! The options of a simulated controller. A run selects one value for each of them; the test of the simulation requires that every two values of
//! different options occur together.

use testkit::coverage::events::Happened;

/// Declares the options, each with its values, and the list of all values as `option: value`.
macro_rules! options {
    ($($name:ident = $position:literal: [$($value:literal),+];)+) => {
        /// The number of options.
        pub(crate) const COUNT: usize = [$(stringify!($name)),+].len();

        $(pub(crate) const $name: usize = $position;)+

        /// The values of each option; the position of an option in this table is its position in a [`Row`].
        const VALUES: [&[&str]; COUNT] = [$(&[$($value),+]),+];

        /// All values of all options.
        pub const NAMES: &[&str] = &[$($($value),+),+];
    };
}

options! {
    ORDER = 0: ["order: fifo", "order: fair with caps"];
    WORK = 1: ["work: single keys", "work: batches", "work: batches with a window"];
    OWNED = 2: ["owned: everything", "owned: a shard", "owned: during the term", "owned: a shard during the term"];
    CHANGES = 3: ["changes: all", "changes: filtered"];
    STANDBY = 4: ["standby: none", "standby: until the election"];
    CACHES = 5: ["caches: required", "caches: one awaited", "caches: not awaited"];
    CONDITION = 6: ["condition: none", "condition: a future"];
    SYNC_TIMEOUT = 7: ["sync timeout: none", "sync timeout: short"];
    WORKERS = 8: ["workers: one", "workers: three", "workers: scaling"];
    GRACE = 9: ["grace: none", "grace: short", "grace: long"];
    SHUTDOWN = 10: ["shutdown: stops", "shutdown: drains"];
    RETRIES = 11: ["retries: endless", "retries: limited"];
    CLASSES = 12: ["classes: none", "classes: all"];
    TIMEOUT = 13: ["timeout: none", "timeout: short"];
    FINALLY = 14: ["finally: none", "finally: a function"];
    MAPPERS = 15: ["mappers: sound", "mappers: panicking"];
    RESYNC = 16: ["resync: none", "resync: periodic"];
    IDLE = 17: ["when idle: runs on", "when idle: stops"];
    CLOCK = 18: ["clock: waits for tasks", "clock: busy"];
    FAILING = 19: ["failing keys: any number", "failing keys: one at once"];
}

/// A combination of options: for each option, the position of the chosen value in the option's list of values.
pub(crate) type Row = [usize; COUNT];

/// Selects a value for each option; one byte selects one value.
pub(crate) fn row(mut byte: impl FnMut() -> u8) -> Row {
    VALUES.map(|values| usize::from(byte()) % values.len())
}

/// Counts the chosen values as happened.
pub(crate) fn note(row: &Row, happened: &mut Happened) {
    for (values, value) in VALUES.iter().zip(row) {
        happened.hit(values[*value]);
    }
}
