//! Concurrent point reads by several threads. The figure is the wall time divided by the number of reads.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use peers_rust::draws::Draws;

use crate::Figures;
use crate::clock::ns;
use crate::options::Options;
use crate::store::cache::{Reads, Writes, filled};
use crate::store::pods::{NAMESPACES, fleet};

pub(crate) fn get<C: Writes, R: Reads>(options: &Options, reader: impl Fn(&C) -> R) -> Figures {
    let pods = fleet(options.keys, NAMESPACES);
    let cache = filled(options.indexes, &pods);
    let reader = reader(&cache);
    let keys: Vec<_> = pods.iter().map(R::key).collect();
    let share = options.adds / options.sides;
    let drawn: Vec<Vec<u32>> =
        (0..options.sides).map(|side| Draws::choices(side as u64, share, keys.len())).collect();
    let begin = Barrier::new(options.sides);
    let (keys, begin) = (&keys, &begin);
    let times: Vec<_> = thread::scope(|scope| {
        let read = |drawn: &[u32], reader: R| {
            begin.wait();
            let start = Instant::now();
            let found = |index: &u32| reader.get(&keys[*index as usize]).expect("an object is missing");
            let sum: u64 = drawn.iter().map(found).sum();
            assert_eq!(sum, share as u64, "an object is not at version 1");
            (start, Instant::now())
        };
        let readers = drawn.iter().map(|drawn| {
            scope.spawn({
                let reader = reader.clone();
                move || read(drawn, reader)
            })
        });
        let readers: Vec<_> = readers.collect();
        readers.into_iter().map(|one| one.join().expect("a reader")).collect()
    });
    let first = times.iter().map(|(start, _)| *start).min().expect("a thread reads");
    let last = times.iter().map(|(_, end)| *end).max().expect("a thread reads");
    ns(last - first, share * options.sides)
}
