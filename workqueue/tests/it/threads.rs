//! Tests with real threads, and with blocking and async getters. The tests neither sleep nor use time limits, so a test hangs after a lost wake-up.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use flyball_sync::block_on;
use flyball_workqueue::{AddError, DrainOptions, Queue};

const KEYS: usize = 64;

/// A key is leased to at most one worker at a time, and each key runs at least once after its last add.
#[test]
fn never_twice_at_once_and_never_lost() {
    let queue: Queue<usize> = Queue::new();
    let running: Vec<_> = (0..KEYS).map(|_| AtomicBool::new(false)).collect();
    let wanted: Vec<_> = (0..KEYS).map(|_| AtomicUsize::new(0)).collect();
    let seen: Vec<_> = (0..KEYS).map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|scope| {
        for worker in 0..6 {
            let (queue, running, wanted, seen) = (&queue, &running, &wanted, &seen);
            scope.spawn(move || {
                let mut runs = 0_usize;
                loop {
                    let lease = if worker % 2 == 0 { queue.blocking_get() } else { block_on(queue.get()) };
                    let Some(lease) = lease else { break };
                    runs += 1;
                    let key = *lease;
                    assert!(!running[key].swap(true, Ordering::SeqCst), "the key is leased twice");
                    seen[key].store(wanted[key].load(Ordering::SeqCst), Ordering::SeqCst);
                    assert!(running[key].swap(false, Ordering::SeqCst));
                    match (runs + worker) % 7 {
                        0 => lease.retry(),
                        1 => drop(lease),
                        2 => lease.succeed(),
                        _ => lease.done(),
                    }
                }
            });
        }
        let producers: Vec<_> = (0..3)
            .map(|producer| {
                let (queue, wanted) = (&queue, &wanted);
                scope.spawn(move || {
                    for round in 0..5_000 {
                        let key = (round * 7 + producer * 13) % KEYS;
                        wanted[key].fetch_add(1, Ordering::SeqCst);
                        queue.add(key).expect("open");
                    }
                })
            })
            .collect();
        for producer in producers {
            producer.join().unwrap();
        }
        let left = block_on(queue.drain(DrainOptions::unlimited()));
        assert!(left.ready.is_empty() && left.leased.is_empty());
        // A key whose run fails during the drain is not retried and is a leftover. This is enough for the check below, because that run has started
        // after the last add of the key.
        assert!(left.waiting.len() <= KEYS);
    });
    for key in 0..KEYS {
        assert_eq!(seen[key].load(Ordering::SeqCst), wanted[key].load(Ordering::SeqCst), "key {key}");
    }
    queue.check().unwrap();
}

/// Threads pass one key back and forth between two queues. All getters are idle, so every add must wake a getter.
#[test]
fn ping_pong() {
    let (ping, pong): (Queue<u32>, Queue<u32>) = (Queue::new(), Queue::new());
    thread::scope(|scope| {
        for player in 0..4 {
            let (ping, pong) = (&ping, &pong);
            scope.spawn(move || {
                loop {
                    let lease = if player % 2 == 0 { ping.blocking_get() } else { block_on(ping.get()) };
                    let Some(lease) = lease else { break };
                    let key = *lease;
                    lease.done();
                    pong.add(key).unwrap();
                }
            });
        }
        for round in 0..3_000 {
            ping.add(round).unwrap();
            let back = if round % 2 == 0 { pong.blocking_get() } else { block_on(pong.get()) };
            assert_eq!(
                back.map(|lease| {
                    let key = *lease;
                    lease.done();
                    key
                }),
                Some(round)
            );
        }
        ping.shut_down();
    });
}

/// Async getters are dropped again and again, as by timeouts, while other getters wait, some of them blocking: every key is still taken.
#[test]
fn getters_with_timeouts() {
    use std::future::Future;
    use std::task::{Context, Poll};

    let queue: Queue<u32> = Queue::new();
    let taken = AtomicUsize::new(0);
    const ADDS: u32 = 4_000;
    thread::scope(|scope| {
        for patience in 1..=3 {
            let (queue, taken) = (&queue, &taken);
            scope.spawn(move || {
                loop {
                    // Drops the future after at most `patience` polls, then starts again with a new future.
                    let mut get = Box::pin(queue.get());
                    let mut polls = 0;
                    let answer = block_on(std::future::poll_fn(|cx: &mut Context<'_>| {
                        polls += 1;
                        match get.as_mut().poll(cx) {
                            Poll::Ready(answer) => Poll::Ready(Some(answer)),
                            Poll::Pending if polls < patience => Poll::Pending,
                            Poll::Pending => Poll::Ready(None),
                        }
                    }));
                    match answer {
                        Some(Some(lease)) => {
                            taken.fetch_add(1, Ordering::SeqCst);
                            lease.done();
                        }
                        Some(None) => break,
                        None => thread::yield_now(),
                    }
                }
            });
        }
        for _ in 0..2 {
            let (queue, taken) = (&queue, &taken);
            scope.spawn(move || {
                while let Some(lease) = queue.blocking_get() {
                    taken.fetch_add(1, Ordering::SeqCst);
                    lease.done();
                }
            });
        }
        for key in 0..ADDS {
            queue.add(key).unwrap();
        }
        drop(block_on(queue.drain(DrainOptions::unlimited())));
    });
    assert_eq!(taken.load(Ordering::SeqCst), ADDS as usize);
}

/// The queue is shut down while producers add keys: each key is either taken by the worker or returned to its producer.
#[test]
fn shutdown_ends_waiting_producers() {
    for _ in 0..30 {
        let queue: Queue<u32> = Queue::new();
        let (accepted, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for producer in 0..3_u32 {
                let (queue, accepted) = (&queue, &accepted);
                scope.spawn(move || {
                    for number in 0.. {
                        let key = producer << 24 | number;
                        match queue.add(key) {
                            Ok(_) => accepted.fetch_add(1, Ordering::SeqCst),
                            Err(refused) => {
                                let refused: AddError<u32> = refused;
                                assert_eq!(refused.into_key(), key);
                                break;
                            }
                        };
                    }
                });
            }
            let (queue, taken) = (&queue, &taken);
            let worker = scope.spawn(move || {
                while let Some(lease) = queue.blocking_get() {
                    lease.done();
                    if taken.fetch_add(1, Ordering::SeqCst) == 300 {
                        queue.shut_down();
                    }
                }
            });
            worker.join().unwrap();
        });
        assert_eq!(taken.load(Ordering::SeqCst), accepted.load(Ordering::SeqCst));
    }
}
