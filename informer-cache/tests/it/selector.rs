//! Compares selectors with a reference implementation, on random texts and selectors, and on the corpus of the fuzz target.

use std::cell::Cell;

use drivers::cache::selector::{Seen, run};
use drivers::corpus::replay;
use flyball_informer_cache::{LabelIndex, Schema, Selector, Store, Version};
use testkit::random::{cases, cases_are_chosen};

#[test]
fn random_selectors_match_the_oracle() {
    let seen = Cell::new(Seen::default());
    cases("selector", CASES, 24, |bytes| {
        let mut now = seen.get();
        run(bytes, &mut now);
        seen.set(now);
    });
    if cases_are_chosen() {
        return; // the floors are for the usual number of cases
    }
    let Seen { read, refused, spelled, foreign, matched, missed } = seen.get();
    let rarest = [read, refused, spelled, foreign, matched, missed].into_iter().min();
    assert!(rarest >= Some(1_000), "{:?}", seen.get());
}

#[test]
fn the_corpus_matches_the_oracle_selector() {
    replay("selector", |bytes| run(bytes, &mut Seen::default()));
}

const CASES: u64 = if cfg!(debug_assertions) { 30_000 } else { 300_000 };

type Pod = (u32, u64, &'static str);

/// Panics on an object whose labels cannot be read.
static LABELS: LabelIndex<Pod> = LabelIndex::new("labels", |pod, each| {
    assert_ne!(pod.2, "unreadable", "a hostile label function panics");
    each("app", pod.2);
});

#[test]
fn object_whose_labels_cannot_be_read_matches_no_requirement() {
    let schema = Schema::new(|pod: &Pod| pod.0, |pod| Version::new(pod.1));
    let mut store = Store::builder(schema).index(&LABELS).build().unwrap();
    store.replace([(1, 1, "web"), (2, 1, "unreadable")], Version::new(1));
    for text in ["!tier", "app notin (db)", "app!=db", "app"] {
        let selector = text.parse().unwrap();
        let view = store.snapshot();
        assert!(view.lister().select(&LABELS, &selector).unwrap().iter().map(|pod| pod.0).eq([1]), "{text}");
        let mut changes = store.subscription().selector(&LABELS, selector).subscribe();
        let received: Vec<_> =
            std::iter::from_fn(|| changes.try_next()).map(|change| *change.key()).collect();
        assert_eq!(received, [1], "{text}");
    }
    // A selector without requirements accepts every object.
    let everything = Selector::everything();
    assert_eq!(store.snapshot().lister().select(&LABELS, &everything).unwrap().iter().count(), 2);
    let mut changes = store.subscription().selector(&LABELS, everything).subscribe();
    assert_eq!(std::iter::from_fn(|| changes.try_next()).count(), 2);
    let mut changes = store.subscription().selector(&LABELS, "!tier".parse().unwrap()).subscribe();
    while changes.try_next().is_some() {}
    store.upsert((2, 2, "db"));
    assert!(changes.try_next().is_some_and(|change| *change.key() == 2 && change.kind().is_addition()));
}
