//! Tests of the reflector alone, with random inputs and the corpus of the fuzz target. Checks that the reflector follows its rules.

use std::cell::RefCell;

use drivers::cache::reflector::{Cells, SETTINGS, run};
use testkit::random;

/// The rows and columns of the state table in the docs of the reflector. `progress` is the arrival of a part of a page.
const STATES: [&str; 7] =
    ["Listing", "Opening", "Watching", "Pausing", "Waiting", "Opening (streaming list)", "Streaming"];
const INPUTS: [&str; 9] = [
    "page",
    "list failed",
    "watch opened",
    "watch failed",
    "event",
    "watch broke",
    "watch closed",
    "deadline",
    "progress",
];

/// Returns whether this cell of the table has an entry. If the cell is blank, the input does not change the state.
fn entry(state: &str, input: &str) -> bool {
    match input {
        "deadline" => true,
        "page" | "list failed" | "progress" => state == "Listing",
        "watch opened" | "watch failed" => state.starts_with("Opening"),
        _ => state == "Watching" || state == "Streaming",
    }
}

#[test]
fn any_inputs_follow_the_rules_and_hit_every_cell() {
    let cells = RefCell::new(Cells::new());
    random::cases("reflector inputs", 100_000, 400, |bytes| run(bytes, &mut cells.borrow_mut()));
    let cells = cells.into_inner();
    if random::cases_are_chosen() {
        return; // the floors are for the usual number of cases
    }
    for (state, input) in STATES.into_iter().flat_map(|state| INPUTS.map(|input| (state, input))) {
        let floor = match state {
            "Pausing" => 5,
            _ if entry(state, input) => 200,
            _ => 50,
        };
        for setting in SETTINGS.into_iter().flatten() {
            let hits = cells.get(&(setting, state, input)).copied().unwrap_or(0);
            let never = setting == "plain lists" && state.to_lowercase().contains("streaming");
            assert!(hits >= floor || never, "{input} in {state}, {setting}: only {hits} times");
        }
    }
}

#[test]
fn the_corpus_of_the_fuzz_target_follows_the_rules() {
    drivers::corpus::replay("reflector_inputs", |bytes| run(bytes, &mut Cells::new()));
}
