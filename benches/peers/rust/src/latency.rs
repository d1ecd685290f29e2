//! The time from add to receipt, at a fixed rate of adds.
//!
//! The producer spins, because no sleep is as short as the time between two adds. If an add is late, its latency is
//! measured from the time at which it was due.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;

use crate::Figures;
use crate::clock::percentiles;
use crate::keys::{Key, keys};
use crate::options::Options;
use crate::peer::Peer;

pub(crate) fn latency<P: Peer>(options: &Options) -> Figures {
    let (queue, keys) = (P::new(), keys(options.keys));
    let index: HashMap<Key, u32, RandomState> = keys.iter().cloned().zip(0..).collect();
    let gap = Duration::from_secs(1) / options.rate as u32;
    let (queue, index) = (&queue, &index);
    let start = Instant::now() + Duration::from_millis(50);
    let taken = thread::scope(|scope| {
        let consumer = || {
            let mut taken = Vec::with_capacity(index.len());
            while let Some(held) = queue.get() {
                let due = start + gap * index[P::key(&held)];
                taken.push(Instant::now().saturating_duration_since(due));
                queue.done(held);
            }
            taken
        };
        let consumers: Vec<_> = (0..options.sides).map(|_| scope.spawn(consumer)).collect();
        for (key, at) in keys.iter().zip(0..) {
            let due = start + gap * at;
            while Instant::now() < due {
                thread::yield_now();
            }
            queue.add(key);
        }
        queue.shut_down();
        consumers.into_iter().flat_map(|one| one.join().expect("a consumer")).collect::<Vec<_>>()
    });
    assert_eq!(taken.len(), keys.len(), "not every key was received once");
    percentiles(taken)
}
