//! Runs the simulation of an informer with everything that reads it, on random operation sequences and on a corpus of them.

use std::cell::RefCell;

use drivers::cache::simulation;
use testkit::random::{cases, cases_are_chosen};

#[test]
fn every_part_of_the_cache_agrees_after_every_step() {
    let all = RefCell::new(simulation::tally());
    cases("cache simulation", 10_000, 400, |bytes| {
        let mut tally = simulation::tally();
        simulation::run(bytes, &mut tally);
        all.borrow_mut().add(&tally);
    });
    if cases_are_chosen() {
        return; // the floor is for the default number of cases
    }
    let rare = all.into_inner().below(20);
    assert!(rare.is_empty(), "rare: {rare:?}");
}

#[test]
fn the_corpus_agrees_after_every_step() {
    drivers::corpus::replay("cache_simulation", |bytes| simulation::run(bytes, &mut simulation::tally()));
}
