//! Checks the measured designs: applies random operations to each design and to a plain map, and compares the results,
//! including those of older snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Design, Entry, Pod, btree, hash, rows, shards, trie};

type Oracle = BTreeMap<Arc<str>, Arc<Pod>>;

fn same<D: Design>(design: &D, oracle: &Oracle) {
    let sorted = |mut pods: Vec<Arc<Pod>>| {
        pods.sort_by(|a, b| a.key.cmp(&b.key));
        pods.iter().map(|pod| (pod.key.clone(), pod.version)).collect::<Vec<_>>()
    };
    let all: Vec<_> = oracle.values().cloned().collect();
    assert_eq!(sorted(design.iter().cloned().collect()), sorted(all.clone()));
    for value in 0..40 {
        let value = format!("value-{value}");
        for index in 0..2 {
            let wanted = all.iter().filter(|pod| *pod.values[index] == *value).cloned().collect();
            assert_eq!(sorted(design.by_index(index, &value).cloned().collect()), sorted(wanted));
        }
    }
}

/// The number of keys rises and falls in waves, so that structures grow, split and become empty.
fn random<D: Design>() {
    let (mut design, mut oracle) = (D::default(), Oracle::new());
    let mut held: Vec<(D, Oracle)> = Vec::new();
    let mut state = 7_u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for step in 0..24_000 {
        let key: Arc<str> = format!("key-{}", draw(3_000)).into();
        let emptying = step / 6_000 % 2 == 1;
        if draw(10) < if emptying { 9 } else { 1 } {
            assert_eq!(design.remove(hash(&key), &key).is_some(), oracle.remove(&key).is_some());
        } else {
            // The second index has only three values, so each value has many objects.
            let values = [40, 3].map(|values| format!("value-{}", draw(values)).into());
            let pod = Arc::new(Pod { key: key.clone(), version: step, values });
            let replaced = design.upsert(Entry::new(pod.clone())).is_some();
            assert_eq!(replaced, oracle.insert(key.clone(), pod).is_some());
        }
        assert_eq!(
            design.get(hash(&key), &key).map(|pod| pod.version),
            oracle.get(&key).map(|pod| pod.version)
        );
        if step % 1_000 == 0 {
            held.push((design.clone(), oracle.clone()));
        }
    }
    held.push((design, oracle));
    for (design, oracle) in &held {
        same(design, oracle);
    }
}

#[test]
fn tries() {
    random::<trie::Design>();
}

#[test]
fn sharded() {
    random::<shards::Design>();
}

#[test]
fn b_trees() {
    random::<btree::Design>();
}

#[test]
fn rows_of_all_sizes() {
    random::<rows::Rows<8, 32>>();
    random::<rows::Rows<16, 64>>();
    random::<rows::Rows<64, 4>>();
}
