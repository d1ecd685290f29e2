//! One test for each known defect or feature request of other projects. The name of a test starts with the reference (`k`: kubernetes/kubernetes,
//! `cr`: controller-runtime, `d`: kube-runtime, by the number in `docs/comparison.md`; other projects by name). The comment of a test describes what
//! happened in the other project. The test shows that this queue does not have the defect, or that it has the requested feature or an alternative.
//!
//! Not covered here:
//! - Priorities, which a FIFO queue does not have: cr#3363, cr#3330, cr#3408, cr#3496, cr#2374, k#109348, k#109349, k#132327, k#68179,
//!   k#25563, miroir#122, kubevirt#14141, network-operator#285, and the two lanes of knative/pkg#1505, #1512, #3242, #3253, #3390 and
//!   cilium#48702.
//! - Fairness between groups, or limits of one group: cr#3261, k#25744, multi-tenancy#1134, flytestdlib#21, agents-at-scale-ark#2698,
//!   #3329, #3458, asynq#1090, graphile/worker#112, pg-boss#446, bullmq#1322.
//! - Metrics, see `metrics.rs`: cr#2238, cr#1969, cilium#39526, k#116616, k#141802, k#114242, cr#3477, k#126100, cr#2625, cr#3165, cr#3066,
//!   cr#3085, cr#3419, k#117157.
//! - The limiters themselves (`flyball-ratelimit`): spark-operator#2186, k#104655, k#138743, shipper#209, k#24052, traefik/mesh#130.
//! - One limiter shared by two queues (virtual-kubelet#953), which does not compile: a queue takes its policy by value.
//! - A payload in addition to the key (k#86381): the queue holds only keys, by design.
//! - Speed: k#127635, k#127944, k#90631, cr#3014, cr#3415, cr#3471, karmada#7072. Speed is measured, not tested.
//! - D2 to D8 and D13 to D16 are about watches, stores and controllers.

use flyball_sync::block_on_timeout;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use flyball_ratelimit::Exponential;
use flyball_sync::{Clock, ManualClock, ManualTimer, Nanos, Timer, block_on};
use flyball_workqueue::{
    AddErrorKind, AddOptions, Added, DelayMode, DrainOptions, KeyState, Lease, NotDetached, Queue,
    TryGetError,
};
use futures_util::FutureExt;
use testkit::panicking::{PanicSwitch, Point};

use crate::support::{TimedQueue, backoff, ns, timed, times};
use crate::task::{Task, deadline, keys, lists, serve, strict};

const HOUR: Duration = Duration::from_secs(3600);

/// A manual timer that counts its alarms. The count is shared, so that a test can see whether the timer was dropped.
struct Watched {
    timer: ManualTimer,
    alarms: Arc<AtomicUsize>,
}

impl Clock for Watched {
    fn now(&self) -> Nanos {
        self.timer.now()
    }
}

impl Timer for Watched {
    fn wake_at(&self, at: Nanos, waker: &Waker) {
        self.alarms.fetch_add(1, Ordering::SeqCst);
        self.timer.wake_at(at, waker);
    }
}

fn watched(clock: &ManualClock) -> (Watched, Arc<AtomicUsize>) {
    let alarms = Arc::new(AtomicUsize::new(0));
    (Watched { timer: clock.timer(), alarms: alarms.clone() }, alarms)
}

// ---- A: correctness, shutdown, leaks ---------------------------------------------------------------------------

/// A drain returned while keys were queued, and woke only one of several callers.
#[test]
fn k141079_a_drain_waits_for_the_queue_and_wakes_all_getters() {
    let queue = Queue::new();
    _ = queue.add_many(["foo", "bar"]);
    let foo = queue.try_get().unwrap();
    queue.add("foo").unwrap();
    let mut drains: Vec<_> = (0..3).map(|_| Task::waiting(queue.drain(DrainOptions::unlimited()))).collect();
    thread::scope(|scope| {
        let blocking = [
            scope.spawn(|| queue.blocking_drain(DrainOptions::unlimited())),
            scope.spawn(|| queue.blocking_drain(DrainOptions::within(HOUR))),
        ];
        foo.done();
        for _ in 0..2 {
            assert!(drains.iter_mut().all(|drain| drain.poll().is_pending()), "a key is queued");
            queue.try_get().unwrap().done();
        }
        for drain in blocking {
            assert_eq!(lists(drain.join().unwrap()), (vec![], vec![], vec![]));
        }
    });
    for drain in &mut drains {
        assert!(drain.was_woken());
        drain.finish();
    }
}

/// `Done` without a `Get`, or a second `Done`, queued the key twice, and two workers ran it.
#[test]
fn k79934_k141079_done_out_of_turn_doubles_nothing() {
    let queue = Queue::new();
    queue.add("foo").unwrap();
    for _ in 0..5 {
        assert_eq!(queue.done(&"foo"), Err(NotDetached));
        assert_eq!(queue.add("foo").unwrap(), Added::Merged);
    }
    assert_eq!(queue.ready_len(), 1);
    let key = queue.try_get().unwrap().detach();
    queue.add(key).unwrap();
    queue.done(&key).unwrap();
    for _ in 0..5 {
        assert_eq!(queue.done(&key), Err(NotDetached));
    }
    let _lease = queue.try_get().unwrap();
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
}

/// A drain did not serve a key that had been added again during its lease.
#[test]
fn k101928_a_drain_serves_a_marked_key_and_can_be_limited() {
    let queue = Queue::new();
    queue.add("foo").unwrap();
    let lease = queue.try_get().unwrap();
    queue.add("foo").unwrap();
    assert_eq!(
        lists(queue.blocking_drain(DrainOptions::within(Duration::ZERO))),
        (vec![], vec![], vec!["foo"])
    );
    lease.done();
    let mut drain = Task::waiting(queue.drain(DrainOptions::unlimited()));
    queue.try_get().unwrap().done();
    assert!(drain.was_woken());
    drain.finish();
}

/// A shutdown during a drain deadlocked.
#[test]
fn k119554_a_shutdown_races_a_drain() {
    for _ in 0..100 {
        let queue = Queue::new();
        queue.add("foo").unwrap();
        let lease = queue.try_get().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| queue.blocking_drain(DrainOptions::unlimited()));
            scope.spawn(|| queue.shut_down());
            scope.spawn(|| drop(block_on(queue.drain(DrainOptions::unlimited()))));
            lease.done();
        });
        assert!(crate::support::holds_nothing(&queue.stats()));
    }
}

/// The second shutdown of a queue with delays panicked.
#[test]
fn k77170_cr450_every_end_twice() {
    let (queue, _clock) = timed();
    queue.add_after("late", ns(5)).unwrap();
    for _ in 0..2 {
        queue.shut_down();
        assert_eq!(lists(queue.drain(DrainOptions::unlimited()).now_or_never().unwrap()).1, ["late"]);
        assert_eq!(
            lists(queue.drain(DrainOptions::serve_waiting(ns(9))).now_or_never().unwrap()).1,
            ["late"]
        );
    }
    assert_eq!(lists(queue.stop_now()).1, ["late"]);
    assert_eq!(lists(queue.stop_now()), (vec![], vec![], vec![]));
}

/// A queue that was never shut down kept its thread or its timer for ever; a shutdown returned before the thread had ended.
#[test]
fn k110057_k133524_k135072_k134323_cr649_a_dropped_queue_leaves_nothing() {
    let clock = ManualClock::new();
    let (timer, alarms) = watched(&clock);
    let queue = Queue::builder().timer(timer).limiter(Exponential::new(ns(10)..=ns(100))).build();
    let key: Arc<str> = "foo".into();
    queue.add_after(key.clone(), HOUR).unwrap();
    let (counting, waker) = testkit::wakers::Counting::waker();
    let mut getter = Box::pin(queue.get());
    assert!(testkit::wakers::poll_with(getter.as_mut(), &waker).is_pending());
    assert!(clock.next_alarm().is_some());
    drop((getter, waker));
    drop(queue);
    assert_eq!(
        (Arc::strong_count(&alarms), Arc::strong_count(&key), Arc::strong_count(&counting)),
        (1, 1, 1)
    );
    assert_eq!(clock.next_alarm(), None, "the dropped queue left an alarm");
}

/// An idle queue woke up twice a second to check for changes.
#[test]
fn k94811_an_idle_queue_uses_no_task_and_no_alarm() {
    let clock = ManualClock::new();
    let (timer, alarms) = watched(&clock);
    let queue = Queue::builder().timer(timer).build();
    let mut getter = Task::waiting(queue.get());
    queue.add("foo").unwrap();
    getter.finish().unwrap().done();
    let getter = Task::waiting(queue.get());
    for _ in 0..1_000 {
        clock.advance(HOUR);
    }
    assert_eq!((alarms.load(Ordering::SeqCst), getter.wakes(), clock.next_alarm()), (0, 0, None));
}

/// Keys that had left the queue were kept alive by its backing array.
#[test]
fn k104991_k105031_keys_are_dropped_when_they_leave() {
    let queue = Queue::new();
    let keys: Vec<Arc<u32>> = (0..100).map(Arc::new).collect();
    _ = queue.add_many(keys.iter().cloned());
    queue.add(Arc::new(1_000)).unwrap();
    for key in &keys {
        queue.try_get().unwrap().done();
        assert_eq!(Arc::strong_count(key), 1);
    }
}

/// Each delay into the far future left a timer behind.
#[test]
fn k83895_one_alarm_for_all_delays() {
    let clock = ManualClock::new();
    let (timer, alarms) = watched(&clock);
    let queue = Queue::builder().timer(timer).build();
    let _getter = Task::waiting(queue.get());
    for key in 0..1_000_u64 {
        queue.add_after(key, HOUR + ns(key)).unwrap();
    }
    assert_eq!(alarms.load(Ordering::SeqCst), 1, "an alarm was set for a later deadline");
}

/// Keys that were pointers were compared by address.
#[test]
fn solo_kit353_keys_are_equal_by_value() {
    let queue: Queue<Arc<str>> = Queue::new();
    assert_eq!(queue.add("foo".into()).unwrap(), Added::New);
    assert_eq!(queue.add("foo".into()).unwrap(), Added::Merged);
    assert_eq!(queue.ready_len(), 1);
}

/// A worker that did not call `Done` kept its key for ever.
#[test]
fn kube_batch809_a_lease_that_is_dropped_ends() {
    let queue = Queue::new();
    queue.add("foo").unwrap();
    for _ in 0..3 {
        let _ = queue.try_get().unwrap();
    }
    let unwinds = catch_unwind(AssertUnwindSafe(|| {
        let _lease = queue.try_get().unwrap();
        panic!("the worker panics");
    }));
    assert!(unwinds.is_err());
    assert_eq!((queue.ready_len(), queue.stats().leased), (1, 0));
}

/// Get blocked for ever on a queue that was shut down.
#[test]
fn cr3239_get_after_shutdown_returns() {
    let queue: Queue<u32> = Queue::builder().capacity(1).build();
    queue.shut_down();
    for _ in 0..2 {
        assert!(queue.blocking_get().is_none() && block_on(queue.get()).is_none());
        assert!(block_on(queue.get_many(3)).is_empty() && block_on(queue.get_many(3)).is_empty());
        assert_eq!(block_on(queue.add_when_room(1)).unwrap_err().kind(), AddErrorKind::ShutDown);
    }
}

/// A hand-out that was concurrent with a shutdown deadlocked.
#[test]
fn cr3538_workers_that_add_beside_a_shutdown() {
    for round in 0..30 {
        let queue: Queue<u32> = Queue::builder().capacity(4).build();
        thread::scope(|scope| {
            for worker in 0..6 {
                let queue = &queue;
                scope.spawn(move || {
                    while block_on(queue.add_when_room(worker)).is_ok() {
                        block_on(queue.get_many(2)).into_iter().for_each(Lease::done);
                    }
                });
            }
            (0..round).for_each(|_| thread::yield_now());
            queue.shut_down();
        });
        assert_eq!(lists(queue.blocking_drain(DrainOptions::within(Duration::ZERO))).2, [0; 0]);
    }
}

/// When all waits ended at the same time, the tree of waiting keys was modified during an iteration over it.
#[test]
fn cr3060_everything_is_due_at_once() {
    let clock = ManualClock::new();
    let queue: TimedQueue<u64> = Queue::builder().timer(clock.timer()).build();
    for key in 0..1_000 {
        queue.add_after(key, ns(1 + key % 7)).unwrap();
    }
    assert_eq!(queue.ready_len(), 0, "a waiting key counts as Ready");
    clock.advance(ns(7));
    assert_eq!(queue.ready_len(), 1_000);
    queue.check().unwrap();
    let leases = queue.try_get_many(1_000).unwrap();
    assert_eq!(keys(&leases).into_iter().collect::<BTreeSet<_>>().len(), 1_000);
    queue.check().unwrap();
}

/// If one call added several keys, the delay of one key was also applied to the next key.
#[test]
fn cr3103_failures_are_each_keys_own() {
    let (queue, clock) = backoff();
    for _ in 0..4 {
        queue.add_rate_limited("often").unwrap();
        clock.set(Nanos::new(deadline(&queue, "often")));
        queue.try_get().unwrap().done();
    }
    let now = clock.now().get();
    for key in ["once", "often", "once too"] {
        queue.add_rate_limited(key).unwrap();
    }
    assert_eq!(["once", "often", "once too"].map(|key| deadline(&queue, key) - now), [10, 160, 10]);
}

/// A shutdown dropped queued keys, and a drain did not wait.
#[test]
fn admiral1061_a_shutdown_hands_out_the_backlog_or_names_it() {
    for stop in [false, true] {
        let (queue, _clock) = timed();
        _ = queue.add_many(["foo", "bar"]);
        queue.add_after("late", ns(9)).unwrap();
        let left = if stop {
            queue.stop_now()
        } else {
            queue.shut_down();
            assert_eq!(serve(&queue), 2);
            queue.drain(DrainOptions::unlimited()).now_or_never().unwrap()
        };
        let (ready, waiting, _) = lists(left);
        assert_eq!((ready, waiting), (if stop { vec!["foo", "bar"] } else { vec![] }, vec!["late"]));
    }
}

// ---- B: delays -------------------------------------------------------------------------------------------------

/// A delay could be neither replaced nor cancelled, and an add did not cancel it.
#[test]
fn k133560_client_go131_add_after_can_be_replaced() {
    let (queue, clock) = timed();
    queue.add_after("foo", ns(10)).unwrap();
    queue
        .add_with("foo", AddOptions { delay: ns(30), mode: DelayMode::Replace, ..AddOptions::default() })
        .unwrap();
    clock.advance(ns(29));
    assert!(!queue.has_ready());
    clock.advance(ns(1));
    assert_eq!(serve(&queue), 1);
    queue.add_after("foo", ns(10)).unwrap();
    assert!(queue.cancel(&"foo"));
    queue.add_after("foo", ns(10)).unwrap();
    queue.add("foo").unwrap();
    assert_eq!(serve(&queue), 1);
    clock.advance(HOUR);
    assert_eq!(serve(&queue), 0);
}

/// A controller could not cancel a delayed add, so it ran although the run was no longer needed.
#[test]
fn k113607_k108266_a_delay_can_be_taken_back() {
    let (queue, clock) = timed();
    queue.add_after("foo", ns(10)).unwrap();
    assert!(queue.cancel(&"foo"));
    assert!(!queue.cancel(&"foo"));
    let mut getter = Task::waiting(queue.get());
    clock.advance(HOUR);
    assert!(getter.poll().is_pending());
}

/// If a waiting key was added without a delay, or with a delay of zero, it ran immediately, and once more at the end of the wait.
#[test]
fn k126027_an_add_is_the_run_of_the_wait() {
    for leased in [false, true] {
        for delayed in [false, true] {
            let (queue, clock) = timed();
            queue.add("foo").unwrap();
            let mut held = Some(queue.try_get().unwrap());
            if !leased {
                held.take().into_iter().for_each(Lease::done);
            }
            queue.add_after("foo", ns(10)).unwrap();
            if delayed { queue.add_after("foo", Duration::ZERO) } else { queue.add("foo") }.unwrap();
            held.into_iter().for_each(Lease::done);
            assert_eq!(serve(&queue), 1);
            clock.advance(HOUR);
            assert_eq!(serve(&queue), 0);
        }
    }
}

/// Three behaviours were requested: an add that ends the key's wait, an add that keeps the wait, and a backoff that no add shortens.
#[test]
fn k112325_three_ways_to_meet_a_wait() {
    let (queue, _clock) = backoff();
    queue.add_rate_limited("foo").unwrap();
    assert_eq!(queue.add("foo").unwrap(), Added::Promoted);
    queue.try_get().unwrap().retry();
    // A delayed add with a later deadline leaves the wait unchanged.
    assert!(matches!(queue.state(&"foo"), KeyState::Waiting(_)));
    assert_eq!(
        queue.add_with("foo", AddOptions { delay: HOUR, ..AddOptions::default() }).unwrap(),
        Added::Merged
    );
    assert_eq!(deadline(&queue, "foo"), 10);
    let (queue, _clock) = strict();
    queue.add_rate_limited("foo").unwrap();
    assert_eq!(queue.add("foo").unwrap(), Added::Merged);
    assert!(!queue.has_ready());
}

/// A requeue could not postpone a key, by design.
#[test]
fn cr_min_delay_a_key_can_be_put_off() {
    let (queue, clock) = timed();
    queue.add("foo").unwrap();
    assert!(queue.postpone(&"foo", ns(30)));
    queue.add_after("bar", ns(10)).unwrap();
    assert!(queue.postpone(&"bar", ns(30)));
    clock.advance(ns(29));
    assert!(!queue.has_ready());
    clock.advance(ns(1));
    assert_eq!(serve(&queue), 2);
}

/// Users built batch windows on delays: all events of a window cause one run at the end of the window, and no event waits longer.
#[test]
fn kueue2380_cosi407_a_batch_window() {
    let (queue, clock) = timed();
    for _ in 0..10 {
        queue.add_after("foo", ns(10)).unwrap();
        clock.advance(ns(1));
    }
    assert_eq!(serve(&queue), 1, "ten events, one run");
}

// ---- C: failures -----------------------------------------------------------------------------------------------

/// Eighteen failures within seconds, each caused by an event, made a key wait for a thousand seconds.
#[test]
fn k136853_events_do_not_raise_the_backoff() {
    for strict_backoff in [false, true] {
        let (queue, clock) = if strict_backoff { strict() } else { backoff() };
        queue.add("foo").unwrap();
        queue.try_get().unwrap().retry();
        let until = deadline(&queue, "foo");
        for _ in 0..18 {
            queue.add("foo").unwrap();
            if let Ok(lease) = queue.try_get() {
                assert!(!strict_backoff, "a key ran within a strict backoff");
                lease.retry();
            }
        }
        assert_eq!((deadline(&queue, "foo"), queue.num_requeues(&"foo")), (until, 1));
        clock.set(Nanos::new(until));
        assert_eq!(serve(&queue), 1);
    }
}

/// Each duplicate add took a token from the limiter, although only the earliest add led to a run.
#[test]
fn cr1594_flyte6025_baaah61_duplicates_take_nothing() {
    let (queue, clock) = backoff();
    for failures in 1..=5 {
        for _ in 0..100 {
            queue.add_rate_limited("foo").unwrap();
        }
        assert_eq!(queue.num_requeues(&"foo"), failures);
        clock.set(Nanos::new(deadline(&queue, "foo")));
        queue.try_get().unwrap().done();
    }
}

/// There was no minimum interval between the runs of a key.
#[test]
fn baaah56_a_least_interval_per_key() {
    let (queue, clock) = timed();
    let mut runs = Vec::new();
    for _ in 0..1_000 {
        queue.add_after("foo", ns(100)).unwrap();
        clock.advance(ns(7));
        if let Ok(lease) = queue.try_get() {
            runs.push(clock.now());
            lease.done();
        }
    }
    assert!(runs.len() > 60 && runs.windows(2).all(|pair| pair[1].since(pair[0]) >= ns(100)));
}

/// A controller did not call `Forget` after a success.
#[test]
fn k110696_a_success_forgets() {
    let (queue, clock) = backoff();
    for _ in 0..20 {
        queue.add("foo").unwrap();
        queue.try_get().unwrap().retry();
        assert_eq!(queue.num_requeues(&"foo"), 1);
        clock.advance(ns(10));
        queue.try_get().unwrap().succeed();
    }
}

/// Controllers had to count the attempts of a key themselves to limit them. This queue gives the key up at the limit, and calls a hook.
#[test]
fn volcano1031_linkerd12079_kubermatic1851_the_most_tries() {
    let dead = Arc::new(AtomicUsize::new(0));
    let count = dead.clone();
    let clock = ManualClock::new();
    let queue = Queue::builder()
        .timer(clock.timer())
        .limiter(Exponential::new(ns(10)..=ns(10)))
        .give_up_after(times(3), move |_, _| {
            count.fetch_add(1, Ordering::SeqCst);
        })
        .build();
    queue.add("foo").unwrap();
    let mut tries = 0;
    while let Ok(lease) = queue.try_get() {
        tries += 1;
        lease.retry();
        clock.advance(ns(10));
    }
    assert_eq!((tries, dead.load(Ordering::SeqCst), queue.num_requeues(&"foo")), (3, 1, 0));
}

// ---- E and F: inspection and control ----------------------------------------------------------------------------

/// Waiting keys could not be inspected.
#[test]
fn k135543_k125152_k119979_k49783_waiting_keys_are_observable() {
    let (queue, _clock) = timed();
    queue.add_after("foo", ns(10)).unwrap();
    queue.add("bar").unwrap();
    assert_eq!((queue.ready_len(), queue.stats().waiting), (1, 1));
    assert_eq!(queue.state(&"foo"), KeyState::Waiting(Nanos::new(10)));
    assert_eq!((queue.state(&"bar"), queue.state(&"baz")), (KeyState::Ready, KeyState::Absent));
    assert_eq!(queue.keys().len(), 2);
}

/// A getter could not be stopped without a shutdown of the queue, and the queue could not be paused.
#[test]
fn k91800_istio24427_a_getter_can_be_stopped() {
    let queue = Queue::<&str>::new();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    thread::scope(|scope| {
        let blocked = scope.spawn(|| {
            block_on(async {
                tokio::select! {
                    lease = queue.get() => lease,
                    _ = stopped => None,
                }
            })
            .is_none()
        });
        stop.send(()).unwrap();
        assert!(blocked.join().unwrap());
    });
    queue.pause();
    queue.add("foo").unwrap();
    assert!(queue.try_get().is_err());
    queue.resume();
    assert_eq!(serve(&queue), 1);
}

/// A caller could not wait until all work was done.
#[test]
fn client_go700_all_is_done() {
    let queue = Queue::new();
    queue.add("foo").unwrap();
    let mut done = Task::waiting(queue.wait_idle());
    queue.try_get().unwrap().done();
    assert!(done.was_woken() && done.is_ready());
    assert!(block_on_timeout(queue.wait_idle(), Duration::ZERO).is_some() && !queue.is_shutting_down());
}

/// Adding or taking many keys locked the queue once for each key.
#[test]
fn k99185_cr1744_port_k8s_exporter224_many_at_once() {
    let queue = Queue::new();
    assert_eq!(queue.add_many(0..10).new, 10);
    assert_eq!(queue.try_get_many(4).unwrap().len(), 4);
    assert_eq!(keys(&block_on(queue.get_many(3))), [4, 5, 6]);
    assert_eq!(keys(&block_on(queue.get_many(9))).len(), 9, "a key of a dropped lease is missing");
}

/// The number of keys was limited outside the queue. It exceeded the limit, because the check and the add were two separate steps.
#[test]
fn argocd_agent1078_a_bound_is_a_bound() {
    for _ in 0..20 {
        let queue: Queue<u32> = Queue::builder().capacity(5).build();
        let added = AtomicUsize::new(0);
        thread::scope(|scope| {
            for adder in 0..4 {
                let (queue, added) = (&queue, &added);
                scope.spawn(move || {
                    for key in 0..10 {
                        match queue.add(adder * 10 + key) {
                            Ok(_) => {
                                added.fetch_add(1, Ordering::SeqCst);
                            }
                            Err(refused) => assert_eq!(refused.kind(), AddErrorKind::Full),
                        }
                    }
                });
            }
        });
        assert_eq!((added.load(Ordering::SeqCst), queue.ready_len()), (5, 5));
    }
}

/// A drain had no time limit.
#[test]
fn grafana119322_kro616_a_drain_with_a_limit() {
    let (queue, clock) = timed();
    queue.add("foo").unwrap();
    let _stuck = queue.try_get().unwrap();
    let mut drain = Task::waiting(queue.drain(DrainOptions::serve_waiting(ns(50))));
    clock.advance(ns(50));
    assert!(drain.was_woken());
    assert_eq!(lists(drain.finish()), (vec![], vec![], vec!["foo"]));
    assert_eq!(lists(queue.blocking_drain(DrainOptions::within(Duration::ZERO))).2, ["foo"]);
}

// ---- the Rust peers --------------------------------------------------------------------------------------------

/// Under load some keys never ran. In this test, 2000 keys run equally often on 10 slots, although the slots can do only half of the work.
#[test]
fn d1_no_key_starves_under_load() {
    const KEYS: usize = 2_000;
    let clock = ManualClock::new();
    let queue: TimedQueue<usize> = Queue::builder().timer(clock.timer()).build();
    _ = queue.add_many(0..KEYS);
    let mut runs = vec![0; KEYS];
    let millis = Duration::from_millis;
    for _ in 0..1_200 {
        let leases = queue.try_get_many(10).unwrap();
        clock.advance(millis(49));
        for lease in leases {
            runs[*lease] += 1;
            lease.requeue_after(millis(5_000));
        }
    }
    let (least, most) = (runs.iter().min().unwrap(), runs.iter().max().unwrap());
    assert!(*least >= 5 && most - least <= 1, "{least} to {most} runs");
}

/// Work without a delay waited for a timer with a resolution of milliseconds. This queue uses no timer for such work.
#[test]
fn d9_immediate_work_is_immediate() {
    let clock = ManualClock::new();
    let (timer, alarms) = watched(&clock);
    let queue = Queue::builder().timer(timer).build();
    for delay in [None, Some(Duration::ZERO)] {
        let mut getter = Task::waiting(queue.get());
        match delay {
            None => queue.add("foo"),
            Some(delay) => queue.add_after("foo", delay),
        }
        .unwrap();
        assert!(getter.was_woken());
        getter.finish().unwrap().done();
    }
    assert_eq!(alarms.load(Ordering::SeqCst), 0);
}

/// Keys with equal deadlines were handed out in LIFO order, and keys that waited for a free slot in the order of their hashes.
#[test]
fn d10_first_in_first_out() {
    let clock = ManualClock::new();
    let queue: TimedQueue<u64> = Queue::builder().timer(clock.timer()).build();
    for key in 0..100 {
        queue.add_after(key, ns(5)).unwrap();
    }
    clock.advance(ns(5));
    let leases = queue.try_get_many(100).unwrap();
    assert_eq!(keys(&leases), (0..100).collect::<Vec<_>>());
    _ = queue.add_many(0..100);
    leases.into_iter().rev().for_each(Lease::done);
    assert_eq!(
        keys(&queue.try_get_many(100).unwrap()),
        (0..100).rev().collect::<Vec<_>>(),
        "not in the order in which the leases ended"
    );
}

/// A debounce starved a key that was added again and again. It also delayed a requeue that the run itself had requested.
#[test]
fn d11_kube318_kube1247_kube1265_a_debounce_has_an_end() {
    let (queue, clock) = timed();
    let millis = Duration::from_millis;
    let debounce = DelayMode::Debounce { max_wait: millis(1_000) };
    let mut runs = Vec::new();
    for _ in 0..60 {
        queue
            .add_with("foo", AddOptions { delay: millis(100), mode: debounce, ..AddOptions::default() })
            .unwrap();
        clock.advance(millis(50));
        if let Ok(lease) = queue.try_get() {
            runs.push(clock.now().get() / 1_000_000);
            lease.done();
        }
    }
    assert_eq!(runs, [1_000, 2_000, 3_000]);
    queue.cancel(&"foo");
    queue.add("foo").unwrap();
    queue.try_get().unwrap().requeue_after(millis(20));
    queue
        .add_with("foo", AddOptions { delay: millis(100), mode: debounce, ..AddOptions::default() })
        .unwrap();
    clock.advance(millis(20));
    assert_eq!(serve(&queue), 1, "a requeue by the run was delayed");
}

/// Each wake-up iterated over all keys in flight, or over all waiting keys. In this queue, an operation on a key accesses only that key.
#[test]
fn d12_a_step_touches_one_key() {
    const MANY: u32 = 5_000;
    let switch = PanicSwitch::new();
    let queue = Queue::new();
    _ = queue.add_many((0..MANY).map(|id| switch.key(id)));
    let mut leases = queue.try_get_many(MANY as usize).unwrap();
    _ = queue.add_many((0..MANY).map(|id| switch.key(id)));
    let touched = || [Point::Hash, Point::Eq, Point::Clone].map(|point| switch.calls(point));
    let mut getters: Vec<_> = (0..100).map(|_| Task::waiting(queue.get())).collect();
    let before = touched();
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
    assert_eq!(touched(), before, "a `try_get` without a Ready key accessed a key");
    leases.pop().unwrap().done();
    assert_eq!(
        getters.iter().filter(|getter| getter.was_woken()).count(),
        1,
        "one key did not wake exactly one getter"
    );
    let lease = getters.iter_mut().find(|getter| getter.was_woken()).unwrap().finish().unwrap();
    assert_eq!(touched(), [before[0], before[1], before[2] + 1]);
    lease.done();
    queue.check().unwrap();
}
