//! Groups with a rate.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use flyball_ratelimit::Quota;
use flyball_sync::{Clock, ManualClock, ManualTimer, Nanos};
use flyball_workqueue::{
    DrainOptions, Fair, KeyState, Lease, LeaseOutcome, NoLimiter, Order, Queue, QueueMetrics, TryGetError,
};
use testkit::random::cases;

use crate::support::{ns, times};
use crate::task::{Task, keys, lists};

/// A key of a group.
type Key = (u32, u32);
type RatedQueue = Queue<Key, Fair<Key, u32>, NoLimiter, ManualTimer>;

fn fair() -> Fair<Key, u32> {
    Fair::by_group(|key: &Key| key.0)
}

/// A token per `period` nanoseconds.
fn every(period: u64, burst: u32) -> Quota {
    Quota::new(times(1), ns(period)).unwrap().allow_burst(times(burst))
}

fn timed<O: Order<Key>>(order: O) -> (Queue<Key, O, NoLimiter, ManualTimer>, ManualClock) {
    let clock = ManualClock::new();
    (Queue::builder().order(order).timer(clock.timer()).build(), clock)
}

/// Takes all keys that can be handed out now, and ends their leases.
fn served(queue: &RatedQueue) -> Vec<Key> {
    let lease = || queue.try_get().ok().map(|lease| (*lease, lease.done()).0);
    std::iter::from_fn(lease).collect()
}

/// The rate of every group, which a test can change, and the number of times that the queue has asked for it.
#[derive(Clone)]
struct Rate(Arc<Mutex<Option<Quota>>>, Arc<AtomicUsize>);

impl Rate {
    fn new(quota: Quota) -> Self {
        Self(Arc::new(Mutex::new(Some(quota))), Arc::default())
    }

    fn order(&self) -> Fair<Key, u32> {
        let own = self.clone();
        fair().rate(move |_| {
            own.1.fetch_add(1, Ordering::Relaxed);
            *own.0.lock().unwrap()
        })
    }

    fn set(&self, queue: &RatedQueue, quota: Option<Quota>) {
        *self.0.lock().unwrap() = quota;
        queue.refresh_groups();
    }

    /// The number of groups that the queue remembers.
    fn groups(&self, queue: &RatedQueue) -> usize {
        let before = self.1.load(Ordering::Relaxed);
        queue.refresh_groups();
        self.1.load(Ordering::Relaxed) - before
    }
}

// ---- burst and rate ---------------------------------------------------------------------------------------------

#[test]
fn a_burst_is_followed_by_the_rate() {
    let (queue, clock) = timed(fair().rate(|_| Some(every(10, 3))));
    _ = queue.add_many((0..8).map(|n| (0, n)));
    assert_eq!(served(&queue), [(0, 0), (0, 1), (0, 2)]);
    assert_eq!((queue.ready_len(), queue.has_ready()), (5, true));
    for n in 3..8 {
        clock.advance(ns(9));
        assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
        clock.advance(ns(1));
        assert_eq!(served(&queue), [(0, n)]);
        queue.check().unwrap();
    }
    // While the group is idle, its bucket fills up, but not above the burst.
    clock.advance(ns(1_000));
    _ = queue.add_many((0..8).map(|n| (0, n)));
    assert_eq!(served(&queue).len(), 3);
}

#[test]
fn a_group_without_a_token_is_passed_over() {
    let (queue, clock) = timed(fair().rate(|group| (*group == 0).then(|| every(10, 1))));
    _ = queue.add_many([(0, 1), (0, 2), (1, 1), (1, 2)]);
    assert_eq!(served(&queue), [(0, 1), (1, 1), (1, 2)]);
    clock.advance(ns(10));
    queue.add((1, 3)).unwrap();
    assert_eq!(served(&queue), [(0, 2), (1, 3)], "a group is placed by the time of its token");
}

#[test]
fn a_retry_and_a_requeue_take_a_token_too() {
    let (queue, clock) = timed(fair().rate(|_| Some(every(10, 3))));
    queue.add((0, 1)).unwrap();
    queue.try_get().unwrap().retry();
    queue.try_get().unwrap().end(LeaseOutcome::Requeued);
    drop(queue.try_get().unwrap());
    assert_eq!(queue.state(&(0, 1)), KeyState::Ready);
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty, "a token was given back");
    clock.advance(ns(10));
    queue.try_get().unwrap().requeue_after(ns(5));
    clock.advance(ns(5));
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
    clock.advance(ns(5));
    assert_eq!(served(&queue), [(0, 1)]);
}

#[test]
fn a_batch_ends_where_the_tokens_end() {
    let (queue, clock) = timed(fair().rate(|_| Some(every(10, 2))));
    _ = queue.add_many([(0, 1), (0, 2), (0, 3), (1, 1)]);
    let batch = queue.try_get_many(9).unwrap();
    assert_eq!(keys(&batch), [(0, 1), (1, 1), (0, 2)]);
    let mut waiting = Task::waiting(queue.get_many(9));
    clock.advance(ns(10));
    assert_eq!((waiting.wakes(), keys(&waiting.finish())), (1, vec![(0, 3)]));
}

#[test]
fn statistics_say_why_a_group_waits() {
    let order = fair().rate(|_| Some(every(10, 3))).max_leased(|group| 2 * (1 - group));
    let (queue, _clock) = timed(order);
    _ = queue.add_many((0..9).map(|n| (n / 6, n)));
    let why = || {
        let stats = queue.stats_by_group(9).groups;
        stats
            .iter()
            .map(|own| (own.ready, own.suspended, own.lease_limited, own.rate_limited))
            .collect::<Vec<_>>()
    };
    assert_eq!(why(), [(6, 0, 4, 0), (3, 3, 0, 0)]);
    let _first = queue.try_get().unwrap();
    assert_eq!(why(), [(5, 0, 4, 0), (3, 3, 0, 0)]);
    queue.try_get().unwrap().done();
    queue.try_get().unwrap().done();
    assert_eq!(why(), [(3, 0, 2, 1), (3, 3, 0, 0)]);
    let others = queue.stats_by_group(0).others;
    assert_eq!((others.lease_limited, others.rate_limited, others.suspended), (2, 1, 3));
}

/// A window of every tenant's hand-outs is counted, from each hand-out to each later one; and after each step, each tenant that has Ready keys and free
/// leases has used up one of its windows, so no key is late. A tenant is slow at times: it then keeps its leases, and later ends them all.
#[test]
fn no_window_has_more_hand_outs_than_its_limit_and_no_hand_out_is_late() {
    const RATES: [(u32, u64, u32); 3] = [(1, 7, 1), (2, 9, 3), (3, 1, 2)];
    const LEASES: u32 = 2;
    cases("no_window_has_more_hand_outs_than_its_limit_and_no_hand_out_is_late", 2_000, 300, |bytes| {
        let quota = |tenant: u32| {
            let (tokens, period, burst) = RATES[tenant as usize];
            Quota::new(times(tokens), ns(period)).unwrap().allow_burst(times(burst))
        };
        let (queue, clock) = timed(fair().max_leased(|_| LEASES).rate(move |tenant| Some(quota(*tenant))));
        let mut hand_outs: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        let mut leases: Vec<Lease<Key>> = Vec::new();
        // Whether `count` hand-outs in this time are more than burst + rate × time.
        let exceeds = |tenant: u32, count: usize, time: u64| {
            let (tokens, period, burst) = RATES[tenant as usize];
            count as u64 * period > u64::from(burst) * period + u64::from(tokens) * time
        };
        for ops in bytes.chunks_exact(2) {
            let key = (u32::from(ops[1] % 3), u32::from(ops[1] / 3 % 4));
            match ops[0] % 8 {
                0..=2 => _ = queue.add(key),
                3 => _ = queue.add_after(key, ns(u64::from(ops[1] % 5))),
                4 => clock.advance(ns(u64::from(ops[1] % 6))),
                5 => clock.advance(ns(u64::from(ops[1]))),
                _ if leases.is_empty() => {}
                6 => leases.drain(..).for_each(Lease::retry),
                _ => leases.remove(usize::from(ops[1]) % leases.len()).done(),
            }
            let now = clock.now().get();
            while let Ok(lease) = queue.try_get() {
                let own = hand_outs.entry(lease.0).or_default();
                own.push(now);
                for (before, from) in own.iter().enumerate() {
                    assert!(
                        !exceeds(lease.0, own.len() - before, now - from),
                        "{} at {now}: {own:?}",
                        lease.0
                    );
                }
                leases.push(lease);
            }
            queue.check().unwrap();
            for group in queue.stats_by_group(9).groups {
                assert_eq!(group.ready, group.lease_limited + group.rate_limited, "{group:?}");
                if group.rate_limited > 0 {
                    let own = &hand_outs[&group.group];
                    let used_up =
                        (0..own.len()).any(|i| exceeds(group.group, own.len() - i + 1, now - own[i]));
                    assert!(used_up, "late: {group:?} at {now}, {own:?}");
                }
            }
        }
    });
}

/// The program that exceeded its rate eightfold with a limiter beside the queue: a tenant does not finish its work for a while, then all of it at once.
#[test]
fn a_slow_tenant_that_recovers_keeps_its_rate() {
    let (queue, clock) = timed(fair().max_leased(|_| 4).rate(|_| Some(every(20, 100))));
    _ = queue.add_many((0..1_000).map(|n| (0, n)));
    let stuck: Vec<_> = std::iter::from_fn(|| queue.try_get().ok()).collect();
    assert_eq!(stuck.len(), 4);
    clock.advance(ns(1_000_000));
    stuck.into_iter().for_each(|lease| lease.retry());
    assert_eq!(served(&queue).len(), 100, "the burst");
    for _ in 0..50 {
        clock.advance(ns(20));
        assert_eq!(served(&queue).len(), 1);
    }
}

// ---- waiters ----------------------------------------------------------------------------------------------------

#[test]
fn a_waiting_getter_is_woken_at_the_token_and_not_before() {
    let (queue, clock) = timed(fair().rate(|_| Some(every(10, 1))));
    _ = queue.add_many([(0, 1), (0, 2), (1, 1)]);
    assert_eq!(served(&queue), [(0, 1), (1, 1)]);
    assert_eq!(clock.next_alarm(), None, "an alarm without a waiter");
    let mut getter = Task::waiting(queue.get());
    assert_eq!(clock.next_alarm(), Some(Nanos::new(10)));
    clock.advance(ns(9));
    assert_eq!(getter.wakes(), 0);
    clock.advance(ns(1));
    assert_eq!((getter.wakes(), getter.finish().map(|lease| *lease)), (1, Some((0, 2))));
    drop(getter);
    assert_eq!(clock.next_alarm(), None);
}

/// The first getter is woken for the first token, and never polled. The second getter is woken for the second token nevertheless.
#[test]
fn each_token_wakes_a_getter() {
    let (queue, clock) = timed(fair().rate(|_| Some(every(10, 2))));
    _ = queue.add_many((0..6).map(|n| (0, n)));
    let _leases = queue.try_get_many(2).unwrap();
    let getters = [(); 4].map(|()| Task::waiting(queue.get()));
    for (woken, step) in [(1, 10), (2, 10), (2, 1_000)] {
        clock.advance(ns(step));
        assert_eq!(getters.iter().map(Task::wakes).sum::<usize>(), woken);
    }
    let [first, ..] = getters;
    // It passes its wake-up on.
    drop(first);
    assert_eq!(queue.try_get_many(9).unwrap().len(), 2);
}

#[test]
fn a_blocked_thread_is_woken_at_the_token() {
    let (queue, clock) = timed(fair().rate(|_| Some(every(10, 1))));
    _ = queue.add_many([(0, 1), (0, 2)]);
    queue.try_get().unwrap().done();
    thread::scope(|scope| {
        let thread = scope.spawn(|| queue.blocking_get().map(|lease| *lease));
        while clock.next_alarm().is_none() {
            thread::yield_now();
        }
        clock.advance(ns(10));
        assert_eq!(thread.join().unwrap(), Some((0, 2)));
    });
}

/// On the machine's clock, a thread needs no timer.
#[test]
fn threads_keep_the_rate_of_the_machines_clock() {
    let period = Duration::from_millis(2);
    let queue =
        Queue::builder().order(fair().rate(move |_| Some(Quota::new(times(1), period).unwrap()))).build();
    let began = queue.now();
    _ = queue.add_many((0..6).map(|n| (0, n)));
    queue.shut_down();
    let last = thread::scope(|scope| {
        let work = || {
            let mut last = began;
            while let Some(lease) = queue.blocking_get() {
                last = queue.now();
                lease.done();
            }
            last
        };
        let workers = [(); 3].map(|()| scope.spawn(work));
        workers.map(|worker| worker.join().unwrap()).into_iter().max().unwrap()
    });
    assert!(last.since(began) >= 5 * period, "{last:?}");
}

#[test]
fn a_queue_with_metrics_reports_how_long_the_rate_held_a_key_back() {
    struct Longest(Arc<AtomicU32>);
    impl QueueMetrics for Longest {
        fn dequeued(&self, queued: Duration, _: bool) {
            self.0.fetch_max(queued.as_nanos() as u32, Ordering::Relaxed);
        }
    }
    let (clock, longest) = (ManualClock::new(), Arc::default());
    let order = fair().rate(|_| Some(every(10, 1)));
    let queue =
        Queue::builder().order(order).timer(clock.timer()).metrics(Longest(Arc::clone(&longest))).build();
    _ = queue.add_many([(0, 1), (0, 2)]);
    queue.try_get().unwrap().done();
    clock.advance(ns(10));
    queue.try_get().unwrap().done();
    assert_eq!(longest.load(Ordering::Relaxed), 10);
}

// ---- pause, drain, shutdown -------------------------------------------------------------------------------------

/// A key that its group's rate holds back is Ready, so these waits wait for it.
#[test]
fn waits_and_drains_wait_for_the_rate() {
    let (queue, clock) = timed(fair().rate(|_| Some(every(10, 1))));
    _ = queue.add_many([(0, 1), (0, 2)]);
    queue.try_get().unwrap().done();
    let mut idle = Task::waiting(queue.wait_idle());
    let mut drain = Task::waiting(queue.drain(DrainOptions::unlimited()));
    let mut getter = Task::waiting(queue.get());
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty, "closed before the last key");
    clock.advance(ns(10));
    let lease = getter.finish().unwrap();
    assert!(!idle.is_ready() && !drain.is_ready());
    lease.done();
    idle.finish();
    assert!(drain.finish().is_empty());
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Closed);
}

#[test]
fn a_drain_with_a_limit_returns_what_the_rate_held_back() {
    for options in [DrainOptions::within(ns(5)), DrainOptions::serve_waiting(ns(5))] {
        let (queue, clock) = timed(fair().rate(|_| Some(every(10, 1))));
        _ = queue.add_many([(0, 1), (0, 2)]);
        queue.try_get().unwrap().done();
        let mut drain = Task::waiting(queue.drain(options));
        clock.advance(ns(5));
        assert_eq!(lists(drain.finish()), (vec![(0, 2)], vec![], vec![]));
        // Only the wait has ended.
        let mut getter = Task::waiting(queue.get());
        clock.advance(ns(5));
        assert_eq!(getter.finish().map(|lease| *lease), Some((0, 2)));
        queue.check().unwrap();
    }
}

#[test]
fn a_stopped_queue_returns_what_the_rate_held_back_and_sets_no_alarm() {
    let (queue, clock) = timed(fair().rate(|_| Some(every(10, 1))));
    _ = queue.add_many([(0, 1), (0, 2), (0, 3), (1, 1)]);
    queue.try_get().unwrap().done();
    let mut getter = Task::waiting(async {
        while let Some(lease) = queue.get().await {
            lease.done();
        }
    });
    assert!(clock.next_alarm().is_some());
    assert_eq!(queue.stop_now().ready, [(0, 2), (0, 3)]);
    getter.finish();
    assert_eq!(clock.next_alarm(), None);
    queue.check().unwrap();
}

#[test]
fn tokens_arrive_in_a_paused_queue() {
    let (queue, clock) = timed(fair().rate(|_| Some(every(10, 2))));
    _ = queue.add_many((0..6).map(|n| (0, n)));
    assert_eq!(served(&queue).len(), 2);
    queue.pause();
    let getter = Task::waiting(queue.get());
    assert_eq!(clock.next_alarm(), None, "an alarm of a paused queue");
    clock.advance(ns(1_000));
    assert_eq!(getter.wakes(), 0);
    queue.resume();
    assert_eq!(getter.wakes(), 1);
    drop(getter);
    assert_eq!(served(&queue).len(), 2);
}

// ---- changes of the rate ----------------------------------------------------------------------------------------

#[test]
fn after_a_change_windows_count_from_the_change() {
    let rate = Rate::new(every(1_000, 4));
    let (queue, clock) = timed(rate.order());
    _ = queue.add_many((0..20).map(|n| (0, n)));
    let _leases = queue.try_get_many(3).unwrap();
    // The token that is left stays; at the new rate, the others arrive earlier.
    let mut getters = [(); 3].map(|()| Task::new(queue.get()));
    rate.set(&queue, Some(every(10, 2)));
    assert!(getters[0].is_ready());
    assert!(getters[1..].iter_mut().all(|getter| !getter.is_ready()));
    assert_eq!(clock.next_alarm(), Some(Nanos::new(10)));
    clock.advance(ns(10));
    assert!(getters[1].is_ready() && !getters[2].is_ready());
    // A slower rate: the token is later.
    rate.set(&queue, Some(every(50, 2)));
    clock.advance(ns(49));
    assert!(!getters[2].is_ready());
    clock.advance(ns(1));
    assert!(getters[2].is_ready());
    // Without a rate, all keys are handed out; with one again, the bucket is full.
    rate.set(&queue, None);
    assert_eq!(queue.try_get_many(5).unwrap().len(), 5);
    rate.set(&queue, Some(every(50, 2)));
    assert_eq!(queue.try_get_many(5).unwrap().len(), 2);
    queue.check().unwrap();
}

#[test]
fn a_faster_rate_wakes_a_waiting_getter_earlier() {
    let rate = Rate::new(every(1_000, 1));
    let (queue, clock) = timed(rate.order());
    _ = queue.add_many([(0, 1), (0, 2), (0, 3)]);
    queue.try_get().unwrap().done();
    let mut getter = Task::waiting(queue.get());
    rate.set(&queue, Some(every(10, 1)));
    clock.advance(ns(10));
    assert_eq!(getter.wakes(), 1);
    getter.finish().unwrap().done();
    let mut getter = Task::waiting(queue.get());
    rate.set(&queue, None);
    assert_eq!(getter.wakes(), 1, "the change was not noted");
    assert!(getter.is_ready());
}

/// A full bucket stays full, whether the queue has already forgotten the group or not.
#[test]
fn a_larger_burst_is_available_at_once_to_a_group_that_was_idle() {
    for forgotten in [false, true] {
        let rate = Rate::new(every(10, 1));
        let (queue, clock) = timed(rate.order());
        queue.add((0, 1)).unwrap();
        assert_eq!(served(&queue).len(), 1);
        clock.advance(ns(10));
        if forgotten {
            queue.cancel(&(0, 1));
            assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
        }
        rate.set(&queue, Some(every(10, 3)));
        _ = queue.add_many((0..9).map(|n| (0, n)));
        assert_eq!(served(&queue).len(), 3, "forgotten: {forgotten}");
    }
}

// ---- memory -----------------------------------------------------------------------------------------------------

/// A group that leaves and returns gets no second burst. Its bucket is kept until it is full, and then dropped by a later operation.
#[test]
fn a_group_without_keys_keeps_its_bucket_until_it_is_full() {
    let rate = Rate::new(every(10, 3));
    let (queue, clock) = timed(rate.order());
    _ = queue.add_many([(0, 1), (0, 2)]);
    assert_eq!(served(&queue).len(), 2);
    assert_eq!(queue.stats_by_group(9).groups, [], "a group without keys");
    clock.advance(ns(19));
    assert_eq!(rate.groups(&queue), 1);
    _ = queue.add_many((0..9).map(|n| (0, n)));
    assert_eq!(served(&queue).len(), 2, "a token has arrived");
    clock.advance(ns(1));
    assert_eq!(served(&queue).len(), 1);
    while queue.ready_len() > 0 {
        clock.advance(ns(10));
        served(&queue);
    }
    clock.advance(ns(29));
    assert_eq!(served(&queue), []);
    assert_eq!(rate.groups(&queue), 1);
    clock.advance(ns(1));
    assert_eq!(served(&queue), []);
    assert_eq!(rate.groups(&queue), 0, "a full bucket is kept");
    queue.check().unwrap();
}

/// If a rate is shortened or removed, so is the time for which the buckets are kept.
#[test]
fn a_kept_bucket_follows_a_change_of_its_rate() {
    let rate = Rate::new(Quota::new(times(1), Duration::from_secs(1 << 30)).unwrap());
    let (queue, clock) = timed(rate.order());
    for change in [Some(every(10, 1)), None] {
        queue.add((0, 1)).unwrap();
        assert_eq!(served(&queue).len(), 1);
        clock.advance(ns(1_000));
        assert_eq!((served(&queue), rate.groups(&queue)), (vec![], 1));
        rate.set(&queue, change);
        clock.advance(ns(10));
        assert_eq!((served(&queue), rate.groups(&queue)), (vec![], 0), "{change:?}");
        rate.set(&queue, Some(Quota::new(times(1), Duration::from_secs(1 << 30)).unwrap()));
    }
}

#[test]
fn the_tokens_of_100_000_groups_arrive() {
    const GROUPS: u32 = 100_000;
    let rate = Rate::new(every(1_000_000, 1));
    let (queue, clock) = timed(rate.order());
    _ = queue.add_many((0..GROUPS).flat_map(|group| [(group, 0), (group, 1)]));
    let mut first = 0;
    while let Ok(lease) = queue.try_get() {
        assert_eq!(*lease, (first, 0));
        first += 1;
        lease.done();
    }
    assert_eq!((first, queue.ready_len()), (GROUPS, GROUPS as usize));
    // The queue does not hold its lock until all tokens are noted, but hands out the first key at once.
    clock.advance(ns(1_000_000));
    let mut taken: Vec<_> = served(&queue).into_iter().map(|(group, _)| group).collect();
    taken.sort_unstable();
    assert!(taken.into_iter().eq(0..GROUPS), "a token was lost");
    assert_eq!(rate.groups(&queue), GROUPS as usize);
    // Each operation drops two of the groups whose buckets are full.
    clock.advance(ns(1_000_000));
    for operation in 0..GROUPS / 2 {
        assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty, "{operation}");
    }
    assert_eq!(rate.groups(&queue), 0);
}

/// An adder that waits for room in a group without keys, and the group's bucket is kept.
#[test]
fn an_adder_waits_for_room_in_a_kept_group() {
    let room = Arc::new(AtomicUsize::new(1));
    let own = room.clone();
    let order = fair().rate(|_| Some(every(10, 1))).capacity(move |_| own.load(Ordering::Relaxed));
    let (queue, clock) = timed(order);
    queue.add((0, 1)).unwrap();
    assert_eq!(served(&queue), [(0, 1)]);
    room.store(0, Ordering::Relaxed);
    let mut adder = Task::waiting(queue.add_when_room((0, 2)));
    clock.advance(ns(100));
    assert_eq!(served(&queue), []);
    queue.check().unwrap();
    room.store(1, Ordering::Relaxed);
    queue.refresh_groups();
    assert_eq!(adder.wakes(), 1);
    adder.finish().unwrap();
    assert_eq!(served(&queue), [(0, 2)]);
    queue.check().unwrap();
}

// ---- hostile ----------------------------------------------------------------------------------------------------

#[test]
fn a_panicking_rate_changes_nothing() {
    let panics = Arc::new(AtomicUsize::new(0));
    let own = panics.clone();
    let order = fair().rate(move |_| {
        assert!(own.load(Ordering::Relaxed) == 0, "a hostile rate");
        Some(every(10, 1))
    });
    let (queue, clock) = timed(order);
    _ = queue.add_many([(0, 1), (0, 2)]);
    queue.try_get().unwrap().done();
    panics.store(1, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| queue.add((0, 3)))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| queue.refresh_groups())).is_err());
    assert_eq!(queue.state(&(0, 3)), KeyState::Absent);
    queue.check().unwrap();
    panics.store(0, Ordering::Relaxed);
    assert_eq!(served(&queue), []);
    clock.advance(ns(10));
    assert_eq!(served(&queue), [(0, 2)]);
}

/// After a jump back, tokens are late by the jump, and tokens that have arrived stay.
#[test]
fn tokens_are_late_and_never_early_after_the_clock_has_jumped_back() {
    let (queue, clock) = timed(fair().rate(|_| Some(every(10, 2))));
    clock.set(Nanos::new(1_000));
    _ = queue.add_many((0..9).map(|n| (0, n)));
    assert_eq!(*queue.try_get().unwrap(), (0, 0));
    clock.set(Nanos::new(500));
    assert_eq!(*queue.try_get().unwrap(), (0, 1), "the second token of the burst had arrived");
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
    queue.check().unwrap();
    let mut getter = Task::waiting(queue.get());
    clock.set(Nanos::new(1_009));
    assert!(!getter.is_ready());
    clock.set(Nanos::new(1_010));
    assert!(getter.is_ready());
    queue.check().unwrap();
}

/// A rate whose next token is never due, and the longest period.
#[test]
fn a_token_in_584_years_is_never_early() {
    let (queue, clock) = timed(fair().rate(|_| Some(every(u64::MAX, 1))));
    clock.advance(ns(5));
    _ = queue.add_many([(0, 1), (0, 2)]);
    assert_eq!(served(&queue), [(0, 1)]);
    let _getter = Task::waiting(queue.get());
    assert_eq!(clock.next_alarm(), None, "an alarm that never fires");
    clock.set(Nanos::new(u64::MAX - 1));
    assert_eq!(served(&queue), []);
    queue.check().unwrap();
}
