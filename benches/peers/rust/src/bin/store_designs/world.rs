//! The data of every run, generated before any clock starts.

use std::sync::Arc;

use benches::designs::Pod;
use peers_rust::draws::Draws;

const NODES: usize = 1000;
const NAMESPACES: usize = 100;
/// The number of random objects a run visits before it starts again from the first.
const CHOICES: usize = 1 << 18;

pub(crate) struct World {
    /// Two versions of every object, with equal index values.
    pub(crate) pods: [Vec<Arc<Pod>>; 2],
    /// Every object once, in random order, as watches deliver them.
    pub(crate) shuffled: Vec<u32>,
    /// Every object once, sorted by key, as lists return them.
    pub(crate) sorted: Vec<u32>,
    /// Random objects.
    pub(crate) choices: Vec<u32>,
    pub(crate) nodes: Vec<Arc<str>>,
}

impl World {
    pub(crate) fn new(objects: usize) -> Self {
        let nodes: Vec<Arc<str>> = (0..NODES).map(|node| format!("node-{node:04}").into()).collect();
        let namespaces: Vec<Arc<str>> =
            (0..NAMESPACES).map(|namespace| format!("namespace-{namespace:04}").into()).collect();
        let pod = |number: usize, key: Arc<str>, version| {
            // Consecutive objects of a namespace are on different nodes.
            let values = [nodes[number * 7 % NODES].clone(), namespaces[number % NAMESPACES].clone()];
            Arc::new(Pod { key, version, values })
        };
        let key = |number| Arc::from(format!("namespace-{:04}/object-{number:08}", number % NAMESPACES));
        let first: Vec<_> = (0..objects).map(|number| pod(number, key(number), 1)).collect();
        let second = (0..objects).map(|number| pod(number, first[number].key.clone(), 2)).collect();
        let mut shuffled: Vec<u32> = (0..objects as u32).collect();
        let mut draws = Draws(1);
        for at in (1..objects).rev() {
            shuffled.swap(at, draws.next(at + 1));
        }
        let mut sorted: Vec<u32> = (0..objects as u32).collect();
        sorted.sort_by(|a, b| first[*a as usize].key.cmp(&first[*b as usize].key));
        let choices = Draws::choices(2, CHOICES, objects);
        Self { pods: [first, second], shuffled, sorted, choices, nodes }
    }

    /// An infinite sequence of random objects in the given version.
    pub(crate) fn random(&self, version: usize) -> impl Iterator<Item = &Arc<Pod>> {
        self.choices.iter().cycle().map(move |number| &self.pods[version][*number as usize])
    }
}
