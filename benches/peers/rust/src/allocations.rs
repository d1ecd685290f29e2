//! Measures the heap memory and the allocations of a queue.

use peers_rust::heap::growth;

use crate::Figures;
use crate::keys::{Key, keys};
use crate::options::Options;
use crate::peer::Peer;

/// Measures the live heap of a queue that stores the keys. Two things are not counted: the strings of the keys, which
/// are allocated before the measurement, and one `Key` (a pointer and a length) per key.
pub(crate) fn bytes<P: Peer>(options: &Options) -> Figures {
    let keys = keys(options.keys);
    let (queue, bytes, _) = growth(|| {
        let queue = P::new();
        keys.iter().for_each(|key| queue.add(key));
        queue
    });
    drop(queue);
    let beside = bytes as f64 / keys.len() as f64 - size_of::<Key>() as f64;
    [("bytes", beside)].into()
}

/// Counts the allocations per key when all keys are added, handed out and completed again and again.
pub(crate) fn allocations<P: Peer>(options: &Options) -> Figures {
    const ROUNDS: usize = 1000;
    let (queue, keys) = (P::new(), keys(options.keys));
    let rounds = || {
        for _ in 0..ROUNDS {
            keys.iter().for_each(|key| queue.add(key));
            for _ in 0..keys.len() {
                let held = queue.get().expect("open");
                queue.done(held);
            }
        }
    };
    rounds();
    let ((), _, allocations) = growth(rounds);
    [("allocations", allocations as f64 / (ROUNDS * keys.len()) as f64)].into()
}
