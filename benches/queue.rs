//! Compares the queue with a naive port of client-go's queue. Rows are named as in `RESULTS.md`; keys are `Arc<str>` of 30
//! bytes.
//!
//! `cargo bench -p benches --bench queue`

#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use benches::naive_port::NaivePort;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use flyball_workqueue::Queue;

type Key = Arc<str>;

/// Keys of thirty bytes.
fn keys(count: usize) -> Vec<Key> {
    (0..count).map(|index| format!("namespace-{:04}/name-{index:010}", index % 97).into()).collect()
}

/// Adds, gets and completes 1000 keys on one thread.
fn cycle(criterion: &mut Criterion) {
    let keys = keys(1_000);
    let mut group = criterion.benchmark_group("queue-cycle");
    group.throughput(Throughput::Elements(keys.len() as u64));
    let queue = Queue::new();
    group.bench_function("flyball", |bencher| {
        bencher.iter(|| {
            for key in &keys {
                let _ = queue.add(key.clone());
            }
            while let Ok(lease) = queue.try_get() {
                lease.done();
            }
        });
    });
    let queue = NaivePort::new();
    group.bench_function("naive-port", |bencher| {
        bencher.iter(|| {
            for key in &keys {
                queue.add(key.clone());
            }
            for _ in 0..keys.len() {
                let key = queue.get().expect("open");
                queue.done(&key);
            }
        });
    });
    group.finish();
}

/// Adds keys that are queued already.
fn add_duplicate(criterion: &mut Criterion) {
    let keys = keys(1_000);
    let mut group = criterion.benchmark_group("queue-add-duplicate");
    group.throughput(Throughput::Elements(keys.len() as u64));
    let queue = Queue::new();
    group.bench_function("flyball", |bencher| {
        bencher.iter(|| {
            for key in &keys {
                let _ = queue.add(key.clone());
            }
        });
    });
    let queue = NaivePort::new();
    group.bench_function("naive-port", |bencher| {
        bencher.iter(|| {
            for key in &keys {
                queue.add(key.clone());
            }
        });
    });
    group.finish();
}

/// Adds a million distinct keys to a new queue, then removes them.
fn fill_and_drain(criterion: &mut Criterion) {
    let keys = keys(1_000_000);
    for row in ["queue-fill-1m", "queue-drain-1m"] {
        let mut group = criterion.benchmark_group(row);
        group.throughput(Throughput::Elements(keys.len() as u64)).sample_size(10);
        let fill = row == "queue-fill-1m";
        let filled = || {
            let queue = Queue::new();
            keys.iter().for_each(|key| drop(queue.add(key.clone())));
            queue
        };
        let drained = |queue: Queue<Key>| {
            while let Ok(lease) = queue.try_get() {
                lease.done();
            }
            queue
        };
        group.bench_function("flyball", |bencher| {
            if fill {
                bencher.iter_with_large_drop(filled);
            } else {
                bencher.iter_batched(filled, drained, BatchSize::PerIteration);
            }
        });
        let filled = || {
            let queue = NaivePort::new();
            keys.iter().for_each(|key| queue.add(key.clone()));
            queue.shut_down();
            queue
        };
        let drained = |queue: NaivePort<Key>| {
            while let Some(key) = queue.get() {
                queue.done(&key);
            }
            queue
        };
        group.bench_function("naive-port", |bencher| {
            if fill {
                bencher.iter_with_large_drop(filled);
            } else {
                bencher.iter_batched(filled, drained, BatchSize::PerIteration);
            }
        });
        group.finish();
    }
}

/// Four producers and four workers process 100 000 keys. Measures the time until all keys are complete, divided by the number of adds.
fn contended(criterion: &mut Criterion) {
    const SIDES: usize = 4;
    let keys = keys(100_000);
    let mut group = criterion.benchmark_group("queue-contended-4x4");
    group.throughput(Throughput::Elements(keys.len() as u64)).sample_size(10);
    group.bench_function("flyball", |bencher| {
        bencher.iter_custom(|rounds| {
            rounds_of(rounds, || {
                let queue = Queue::new();
                contend(
                    &keys,
                    |key| drop(queue.add(key)),
                    || queue.blocking_get().map(|lease| lease.done()).is_some(),
                    || queue.shut_down(),
                );
            })
        });
    });
    group.bench_function("naive-port", |bencher| {
        bencher.iter_custom(|rounds| {
            rounds_of(rounds, || {
                let queue = NaivePort::new();
                contend(
                    &keys,
                    |key| queue.add(key),
                    || queue.get().map(|key| queue.done(&key)).is_some(),
                    || queue.shut_down(),
                );
            })
        });
    });
    group.finish();

    fn contend(keys: &[Key], add: impl Fn(Key) + Sync, work: impl Fn() -> bool + Sync, end: impl Fn()) {
        let done = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..SIDES {
                scope.spawn(|| {
                    while work() {
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let (chunk, add) = (keys.len() / SIDES, &add);
            let producers: Vec<_> = keys
                .chunks(chunk)
                .map(|keys| scope.spawn(move || keys.iter().for_each(|key| add(key.clone()))))
                .collect();
            producers.into_iter().for_each(|producer| producer.join().expect("a producer"));
            end();
        });
        assert_eq!(done.into_inner(), keys.len(), "not every key was handed out once");
    }
}

#[allow(clippy::disallowed_methods, reason = "a bench measures on the machine's clock")]
fn rounds_of(rounds: u64, round: impl Fn()) -> Duration {
    let start = Instant::now();
    (0..rounds).for_each(|_| round());
    start.elapsed()
}

criterion_group!(queue, cycle, add_duplicate, fill_and_drain, contended);
criterion_main!(queue);
