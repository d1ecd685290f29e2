//! The objects of every run: pods reduced to the fields that the indexes need, 104 bytes in Rust and in Go.
//!
//! 100 pods per node, 100 namespaces, two labels each (200 pods per `app`, ten `stage`s), a unique uid. Objects with equal field values share one
//! string per value, and a newer state shares the strings of the older one, as in Go.

use std::sync::Arc;

use peers_rust::draws::Draws;

use crate::keys::Key;

pub(crate) const NAMESPACES: usize = 100;
const PODS_A_NODE: usize = 100;

#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) key: Key,
    pub(crate) namespace: Arc<str>,
    pub(crate) node: Arc<str>,
    pub(crate) labels: [Arc<str>; 2],
    pub(crate) uid: Arc<str>,
    pub(crate) version: u64,
}

/// `count` pods at version 1, in the order of their numbers. The pods of a node are far apart.
pub(crate) fn fleet(count: usize, namespaces: usize) -> Vec<Pod> {
    let texts = |what: &str, count: usize| -> Vec<Arc<str>> {
        (0..count.max(1)).map(|number| format!("{what}-{number:04}").into()).collect()
    };
    let (names, nodes) = (texts("namespace", namespaces), nodes(count));
    let (apps, stages) = (texts("app=app", count / 200), texts("stage=stage", 10));
    let pod = |number: usize| Pod {
        key: format!("{}/name-{number:010}", names[number % namespaces]).into(),
        namespace: names[number % namespaces].clone(),
        // A permutation, because 61 803 is coprime to powers of ten.
        node: nodes[number * 61_803 % count / PODS_A_NODE % nodes.len()].clone(),
        labels: [apps[number / 7 % apps.len()].clone(), stages[number / 3 % stages.len()].clone()],
        uid: format!("94e13965-e585-4342-a59a-{number:012}").into(),
        version: 1,
    };
    (0..count).map(pod).collect()
}

pub(crate) fn nodes(count: usize) -> Vec<Arc<str>> {
    (0..(count / PODS_A_NODE).max(1)).map(|number| format!("node-{number:05}").into()).collect()
}

/// Newer states of pods drawn at random, each newer than all before it.
pub(crate) fn updates(pods: &[Pod], count: usize, seed: u64) -> Vec<Pod> {
    let drawn = Draws::choices(seed, count, pods.len());
    drawn.into_iter().zip(2..).map(|(index, version)| newer(&pods[index as usize], version)).collect()
}

pub(crate) fn newer(pod: &Pod, version: u64) -> Pod {
    Pod { version, ..pod.clone() }
}
