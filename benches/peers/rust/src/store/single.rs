//! Measures operations on one thread, one after the other, and the heap memory of a store.

use std::hint::black_box;
use std::time::{Duration, Instant};

use peers_rust::draws::Draws;
use peers_rust::heap::growth;

use crate::Figures;
use crate::clock::{measured, ns, per_op};
use crate::options::Options;
use crate::store::cache::{Lists, Writes, filled, read};
use crate::store::pods::{NAMESPACES, Pod, fleet, newer, nodes, updates};

/// Adds distinct objects to a new store, and repeats this with another new store until `adds` adds are made.
pub(crate) fn add<C: Writes>(options: &Options) -> Figures {
    let rounds = (options.adds / options.keys).max(1);
    let pods = fleet(options.keys, NAMESPACES);
    let mut time = Duration::ZERO;
    for _ in 0..rounds {
        let (mut cache, pods) = (C::new(options.indexes), pods.clone());
        let (cache, took) = measured(|| {
            pods.into_iter().for_each(|pod| cache.put(pod));
            cache
        });
        time += took;
        drop(cache);
    }
    ns(time, rounds * options.keys)
}

/// Writes newer states of objects drawn at random; no index value changes.
pub(crate) fn update<C: Writes>(options: &Options) -> Figures {
    let pods = fleet(options.keys, NAMESPACES);
    let mut cache: C = filled(options.indexes, &pods);
    let updates = updates(&pods, options.adds, 1);
    let ((), time) = measured(|| updates.into_iter().for_each(|pod| cache.put(pod)));
    ns(time, options.adds)
}

/// Looks up the hundred objects of a node and reads each. Stops after `adds` lookups or at the time limit.
pub(crate) fn by_index<C: Writes, R: Lists>(options: &Options, reader: impl Fn(&C) -> R) -> Figures {
    const MOST: Duration = Duration::from_secs(3);
    let cache = filled(options.indexes, &fleet(options.keys, NAMESPACES));
    let (reader, nodes) = (reader(&cache), nodes(options.keys));
    let drawn = Draws::choices(2, options.adds, nodes.len());
    let begin = Instant::now();
    let (mut hits, mut sum, mut lookups) = (0, 0, 0);
    for ten in drawn.chunks(10) {
        for &node in ten {
            reader.by_node(&nodes[node as usize], |pod| {
                hits += 1;
                sum += pod.version;
            });
        }
        lookups += ten.len();
        if begin.elapsed() > MOST {
            break;
        }
    }
    let time = begin.elapsed();
    assert_eq!((hits, sum), (100 * lookups, hits as u64), "a node does not have a hundred pods at version 1");
    ns(time, lookups)
}

/// Measures three operations: taking a view of all objects (`snapshot`, µs), taking a view and iterating over it
/// (`walk`, ns per object), and taking a view and reading each object (`read`, ns per object). Each operation follows
/// a write, so that no older view can be reused.
pub(crate) fn list<C: Writes<Reader: Lists>>(options: &Options) -> Figures {
    let pods = fleet(options.keys, NAMESPACES);
    let mut cache: C = filled(options.indexes, &pods);
    let reader = cache.reader();
    let mut version = 1;
    let mut times = |work: &dyn Fn(&C::Reader)| {
        let mut taken = Duration::ZERO;
        for _ in 0..options.adds {
            version += 1;
            cache.put(newer(&pods[version as usize % pods.len()], version));
            taken += measured(|| work(&reader)).1;
        }
        per_op(taken, options.adds)
    };
    let snapshot = times(&|reader| drop(black_box(reader.view())));
    let walk = times(&|reader| {
        <C::Reader as Lists>::walk(&reader.view(), |pod: &Pod| {
            black_box(pod);
        });
    });
    let read = times(&|reader| {
        black_box(read::<C::Reader>(&reader.view()));
    });
    let objects = pods.len() as f64;
    [("snapshot", snapshot / 1e3), ("walk", walk / objects), ("read", read / objects)].into()
}

/// Measures the live heap of a store, without the strings of the objects and without the size of one `Pod` per object.
pub(crate) fn bytes<C: Writes>(options: &Options) -> Figures {
    let mut pods = fleet(options.keys, NAMESPACES);
    // The first store is not counted, because it also allocates memory that the process needs only once.
    drop(filled::<C>(options.indexes, &pods[..1]));
    let (cache, bytes, allocations) = growth(|| {
        let mut cache = C::new(options.indexes);
        // `drain` keeps the memory of the vector: freeing it would be counted.
        pods.drain(..).for_each(|pod| cache.put(pod));
        cache
    });
    drop(cache);
    let objects = options.keys as f64;
    let beyond = bytes as f64 / objects - size_of::<Pod>() as f64;
    [("bytes", beyond), ("allocations", allocations as f64 / objects)].into()
}
