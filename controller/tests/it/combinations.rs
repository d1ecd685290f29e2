//! Runs controllers with any combination of their features in a simulation, which checks its rules after each operation.

use std::panic::{AssertUnwindSafe, catch_unwind};

use drivers::controller::options::NAMES;
use drivers::controller::simulation::{Broken, happened, run, run_broken};
use drivers::corpus::replay;
use parking_lot::Mutex;
use testkit::coverage::pairs::PairCounts;
use testkit::random::{Random, cases, cases_are_chosen};

#[test]
fn any_combination_of_features_keeps_the_rules() {
    let (all, pairs) = (Mutex::new(happened()), Mutex::new(PairCounts::new(NAMES)));
    cases("controller", 5_000, 200, |bytes| {
        let happened = run(bytes);
        all.lock().add(&happened);
        pairs.lock().count_sequence(&happened);
    });
    if cases_are_chosen() {
        return; // the floors are for the usual number of cases
    }
    let rare = all.into_inner().below(50);
    assert!(rare.is_empty(), "rare: {rare:?}");
    let rare = pairs.into_inner().below(200, |_, _| false);
    assert!(rare.is_empty(), "rare in one run: {rare:?}");
}

#[test]
fn the_corpus_keeps_the_rules() {
    replay("controller_ops", |bytes| _ = run(bytes));
}

/// Runs simulations with this fault until one reports this rule. If none does, returns all reports.
fn report(broken: Broken, rule: &str) -> Result<(), Vec<String>> {
    let (mut random, mut reports) = (Random::new(1), Vec::new());
    for _ in 0..300 {
        let bytes = random.bytes(150);
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| run_broken(&bytes, broken))) else { continue };
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = panic.downcast_ref::<String>().cloned().or(text).unwrap_or_default();
        if text.contains(rule) {
            return Ok(());
        }
        reports.push(text);
    }
    Err(reports)
}

#[test]
fn the_simulation_of_combinations_reports_each_broken_rule() {
    let faults = [
        (Broken::Owner, "2: "),
        (Broken::Mapper, "5: "),
        (Broken::Failures, "5: "),
        (Broken::Standby, "5: "),
        (Broken::Wakes, "did not stall"),
        (Broken::Signal, "4: "),
    ];
    for (broken, rule) in faults {
        assert_eq!(report(broken, rule), Ok(()), "{broken:?}");
    }
}
