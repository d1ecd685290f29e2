//! Concurrent producers and consumers.
//!
//! N producers add keys that are drawn at random from a fixed set; each producer makes an equal share of the adds. N consumers get and complete the
//! keys. The clock runs from the first add of any producer until the last key is complete; the time is divided by the
//! number of adds, so it includes all work that an add causes. Adds of a queued key are deduplicated: if the consumers
//! are slow, fewer keys are handed out. The figures therefore include the number of keys handed out per add.
//!
//! Each producer and each consumer is a thread in Rust and a goroutine in Go, as in a real program. A goroutine that waits is parked in user space,
//! without the kernel.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use peers_rust::draws::Draws;

use crate::Figures;
use crate::clock::ns;
use crate::keys::keys;
use crate::options::Options;
use crate::peer::Peer;

pub(crate) fn contended<P: Peer>(options: &Options) -> Figures {
    let (queue, keys) = (P::new(), keys(options.keys));
    let share = options.adds / options.sides;
    let drawn: Vec<Vec<u32>> =
        (0..options.sides).map(|side| Draws::choices(side as u64, share, keys.len())).collect();
    let begin = Barrier::new(2 * options.sides + 1);
    let (queue, keys, begin) = (&queue, &keys, &begin);
    let (handed_out, time) = thread::scope(|scope| {
        let consumer = || {
            let mut count = 0_usize;
            begin.wait();
            while let Some(held) = queue.get() {
                queue.done(held);
                count += 1;
            }
            count
        };
        let producer = |drawn: &[u32]| {
            begin.wait();
            let start = Instant::now();
            for &index in drawn {
                queue.add(&keys[index as usize]);
            }
            start
        };
        let consumers: Vec<_> = (0..options.sides).map(|_| scope.spawn(consumer)).collect();
        let producers: Vec<_> = drawn.iter().map(|drawn| scope.spawn(move || producer(drawn))).collect();
        // The measured time starts with the earliest producer, not when this thread passes the barrier: with more threads than cores, that may be
        // long after the producers have started.
        begin.wait();
        let starts: Vec<_> = producers.into_iter().map(|one| one.join().expect("a producer")).collect();
        queue.shut_down();
        let handed_out: usize = consumers.into_iter().map(|one| one.join().expect("a consumer")).sum();
        let end = Instant::now();
        (handed_out, end - starts.into_iter().min().expect("a thread adds keys"))
    });
    let adds = share * options.sides;
    let mut figures = ns(time, adds);
    figures.insert("handed-out", handed_out as f64 / adds as f64);
    figures
}
