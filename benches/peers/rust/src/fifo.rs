//! Runs on one thread: adds, adds of duplicates, fill and drain.

use flyball_ops::PrometheusQueues;
use flyball_ratelimit::controller_default;
use flyball_sync::TokioTimer;
use flyball_workqueue::{AddOptions, Fifo, Priority, Queue, QueueLimiter, Timer};
use peers_rust::draws::Draws;

use crate::Figures;
use crate::clock::{measured, ns, per_op};
use crate::keys::{Key, keys};
use crate::options::Options;
use crate::peer::Peer;

/// Adds all keys. Like `drain`, this function is not inlined, so that callgrind can count it alone.
#[inline(never)]
fn add_all<P: Peer>(queue: &P, keys: &[Key]) {
    for key in keys {
        queue.add(key);
    }
}

/// Gets and completes `count` keys.
#[inline(never)]
fn drain<P: Peer>(queue: &P, count: usize) {
    for _ in 0..count {
        let held = queue.get().expect("open");
        queue.done(held);
    }
}

/// Runs `round`, which makes `adds` adds, until `options.adds` adds are made. A warm-up runs a tenth as many rounds before the measurement.
fn rounds(options: &Options, adds: usize, round: impl Fn()) -> Figures {
    let rounds = (options.adds / adds).max(1);
    (0..(rounds / 10).max(1)).for_each(|_| round());
    let ((), time) = measured(|| (0..rounds).for_each(|_| round()));
    ns(time, rounds * adds)
}

/// Adds all keys, then gets and completes all keys, repeatedly.
pub(crate) fn cycle<P: Peer>(options: &Options) -> Figures {
    let (queue, keys) = (P::new(), keys(options.keys));
    rounds(options, keys.len(), || {
        add_all(&queue, &keys);
        drain(&queue, keys.len());
    })
}

/// Adds all keys; a worker then completes each key with success, and gets the next one.
pub(crate) fn worker_cycle(options: &Options) -> Figures {
    let (queue, keys) = (Queue::new(), keys(options.keys));
    rounds(options, keys.len(), || {
        add_all(&queue, &keys);
        work_off(&queue, keys.len());
    })
}

/// Like `worker_cycle`, on a queue with the default limiter, tokio's timer, and metrics of `prometheus-client`.
pub(crate) fn worker_cycle_full(options: &Options) -> Figures {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _inside = runtime.enter();
    let queues = PrometheusQueues::new();
    let queue = Queue::builder()
        .limiter(controller_default())
        .timer(TokioTimer::current())
        .metrics(queues.queue("full"))
        .build();
    let keys = keys(options.keys);
    rounds(options, keys.len(), || {
        for key in &keys {
            queue.add_ref(key).expect("open");
        }
        work_off(&queue, keys.len());
    })
}

/// Gets and completes `count` keys.
#[inline(never)]
fn work_off<L: QueueLimiter<Key>, T: Timer>(queue: &Queue<Key, Fifo, L, T>, count: usize) {
    for _ in 0..count {
        queue.blocking_get().expect("open").succeed();
    }
}

/// Like `cycle`, with each key at one of three priorities.
pub(crate) fn cycle_priority(options: &Options) -> Figures {
    let (queue, keys) = (Queue::builder().order(Priority::new()).build(), keys(options.keys));
    let levels = Draws::choices(5, keys.len(), 3);
    let keys: Vec<_> =
        keys.into_iter().zip(levels.into_iter().map(|level| [-100, 0, 10][level as usize])).collect();
    rounds(options, keys.len(), || {
        for (key, priority) in &keys {
            queue
                .add_with(key.clone(), AddOptions { priority: *priority, ..AddOptions::default() })
                .expect("open");
        }
        for _ in 0..keys.len() {
            queue.blocking_get().expect("open").done();
        }
    })
}

/// Adds keys that are queued already.
pub(crate) fn add_duplicate<P: Peer>(options: &Options) -> Figures {
    let (queue, keys) = (P::new(), keys(options.keys));
    let figures = rounds(options, keys.len(), || add_all(&queue, &keys));
    // After this drain the queue is empty, unless it stored a duplicate.
    drain(&queue, keys.len());
    queue.shut_down();
    assert!(queue.get().is_none());
    figures
}

/// Adds distinct keys to a new queue, then removes them.
pub(crate) fn fill_drain<P: Peer>(options: &Options) -> Figures {
    let keys = keys(options.keys);
    let queue = P::new();
    let ((), fill) = measured(|| add_all(&queue, &keys));
    let ((), drained) = measured(|| drain(&queue, keys.len()));
    let ops = keys.len();
    [("fill", per_op(fill, ops)), ("drain", per_op(drained, ops)), ("ops", ops as f64)].into()
}

/// Adds keys, of which `percent` % are queued already, then removes all keys. The figure is the time of both, divided by the number of adds.
pub(crate) fn mixed<P: Peer>(options: &Options) -> Figures {
    let keys = keys(options.keys);
    let (mut draws, mut adds, mut fresh) = (Draws(1), Vec::new(), 0);
    while fresh < keys.len() {
        if fresh > 0 && draws.next(100) < options.percent {
            adds.push(keys[draws.next(fresh)].clone());
        } else {
            adds.push(keys[fresh].clone());
            fresh += 1;
        }
    }
    let queue = P::new();
    let rounds = (options.adds / adds.len()).max(1);
    let round = || {
        add_all(&queue, &adds);
        drain(&queue, keys.len());
    };
    let ((), time) = measured(|| (0..rounds).for_each(|_| round()));
    ns(time, rounds * adds.len())
}
